/* A square wave as a course's C program makes it: PROGRAM LINE FREQUENCY. LINE is memory:NAME.
 * An ordinary thread waits, toggles, and waits again, each time from now on: what is late stays late. Its course
 * report writes of nanosleep, but at 50 kHz a pulse may be 1 us late, and the kernel alone adds 50 us of timer slack to
 * an ordinary thread's nanosleep. So it waits as its GPIO library does: busily, in whole microseconds. */
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

static uint32_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

static void delay(uint32_t us)
{
    uint32_t start = now_us();
    while (now_us() - start <= us) {
    }
}

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
    uint32_t half_us = 0.5e6 / atof(argv[2]);
    for (;;) {
        delay(half_us);
        line->level = !line->level;
        line->changes++;
    }
}
