/* A square wave as a course's real-time C program makes it: PROGRAM LINE FREQUENCY. LINE is memory:NAME.
 * SCHED_FIFO 49, locked memory, a touched stack, and between two edges a loop of so many turns. The loop doesn't look at
 * the clock: time that is taken from it makes the wave longer. There a person tried numbers of turns until the scope
 * showed the frequency; here the turns of the first milliseconds are counted. */
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

static void wait_turns(long turns)
{
    for (volatile long turn = 0; turn < turns; ++turn) {
    }
}

/* Of several tries the fastest: nothing took time from it. */
static double turns_per_ns(void)
{
    double best = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
        double start = now_ns();
        wait_turns(20000);
        double per_ns = 20000 / (now_ns() - start);
        if (per_ns > best)
            best = per_ns;
    }
    return best;
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
    long turns = half_ns * turns_per_ns();
    for (;;) {
        wait_turns(turns);
        line->level = !line->level;
        line->changes++;
    }
}
