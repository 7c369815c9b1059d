/* A square wave of a real-time thread that never sleeps: PROGRAM LINE FREQUENCY. LINE is memory:NAME.
 * SCHED_FIFO 49 is below the kernel's interrupt threads (50). The memory is locked and the stack touched. */
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PRIORITY 49
#define STACK (8 * 1024)

struct line {
    volatile uint32_t level;
    uint32_t unused;
    volatile uint64_t changes;
};

static void touch_stack(void)
{
    volatile unsigned char bytes[STACK];
    for (size_t i = 0; i < sizeof bytes; i += 64)
        bytes[i] = 0;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
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
    struct sched_param param = { .sched_priority = PRIORITY };
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0) {
        perror("SCHED_FIFO 49");
        return 1;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        perror("mlockall");
        return 1;
    }
    touch_stack();
    double half_ns = 0.5e9 / atof(argv[2]);
    double due_ns = now_ns();
    for (;;) {
        double now = now_ns();
        /* Late by a whole pulse: go on from now. Making up for lost edges would be a burst. */
        due_ns = now > due_ns + half_ns ? now + half_ns : due_ns + half_ns;
        while (now_ns() < due_ns) {
        }
        line->level = !line->level;
        line->changes++;
    }
}
