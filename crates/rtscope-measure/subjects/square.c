/* A square wave with nanosleep: PROGRAM LINE FREQUENCY. LINE is memory:NAME. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct line {
    volatile uint32_t level;
    uint32_t unused;
    volatile uint64_t changes;
};

int main(int argc, char **argv)
{
    if (argc != 3 || strncmp(argv[1], "memory:", 7) != 0 || atof(argv[2]) <= 0) {
        fprintf(stderr, "usage: %s memory:NAME FREQUENCY\n", argv[0]);
        return 64;
    }
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/rtscope-line-%s", argv[1] + 7);
    int file = open(path, O_RDWR);
    if (file < 0) {
        perror(path);
        return 1;
    }
    struct line *line = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (line == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    long long half_ns = (long long)(0.5e9 / atof(argv[2]));
    struct timespec half = { half_ns / 1000000000, half_ns % 1000000000 };
    for (;;) {
        nanosleep(&half, NULL);
        line->level = !line->level;
        line->changes++;
    }
}
