/*
 * A periodic real-time application: edit work().
 *
 * Before the loop everything that may take its time is done: options are read, memory is locked and
 * touched, the thread is placed. The loop itself only sleeps, reads the clock, works and counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PROGRAM "skeleton_name"
#define NS_PER_S 1000000000LL
#define STACK_BYTES (256 * 1024) /* more than work() and what it calls will ever use */
#define BUCKETS 10000            /* of 1 us; what is later is counted as an overflow */

enum { EXIT_USAGE = 64 };

struct options {
    long period_us;
    long priority;
    int policy;
    const char *policy_name;
    long cpu; /* -1: any */
    long cycles; /* 0: until a signal */
    const char *histogram;
};

/* What was measured. Latency: from the programmed instant to the first clock reading after it. */
struct measured {
    uint64_t count[BUCKETS];
    uint64_t overflow;
    uint64_t cycles;
    uint64_t skipped; /* periods that began while the one before was still at work */
    int64_t min_ns;
    int64_t max_ns;
    int64_t sum_ns;
};

static volatile sig_atomic_t stop;
static struct measured measured;

/* The work of one period. No malloc, no printf, no lock that a thread of lower priority may hold,
 * unless the lock has the protocol PTHREAD_PRIO_INHERIT. */
static void work(void)
{
}

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Sleeps until an instant, not for a time: what a period takes too long is not added to the next. */
static void sleep_until(int64_t instant_ns)
{
    struct timespec until = { .tv_sec = (time_t)(instant_ns / NS_PER_S),
                              .tv_nsec = (long)(instant_ns % NS_PER_S) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR && !stop) {
    }
}

static void note(int64_t latency_ns)
{
    int64_t us = latency_ns / 1000;
    if (us >= 0 && us < BUCKETS)
        measured.count[us]++;
    else
        measured.overflow++;
    if (measured.cycles == 0 || latency_ns < measured.min_ns)
        measured.min_ns = latency_ns;
    if (latency_ns > measured.max_ns)
        measured.max_ns = latency_ns;
    measured.sum_ns += latency_ns;
    measured.cycles++;
}

static void loop(int64_t period_ns, uint64_t cycles)
{
    int64_t next_ns = now_ns() + period_ns;
    while (!stop && (cycles == 0 || measured.cycles < cycles)) {
        sleep_until(next_ns);
        if (stop)
            break;
        note(now_ns() - next_ns);
        work();
        next_ns += period_ns;
        /* Overrun: periods whose begin has passed are skipped and counted, so that the next
         * one is again on the grid and a backlog can't build up. */
        int64_t late_ns = now_ns() - next_ns;
        if (late_ns > 0) {
            int64_t periods = late_ns / period_ns + 1;
            measured.skipped += (uint64_t)periods;
            next_ns += periods * period_ns;
        }
    }
}

/* Touches the stack that the loop will use: locked memory still is faulted in at its first use. */
static void prefault_stack(void)
{
    volatile unsigned char bytes[STACK_BYTES];
    for (size_t i = 0; i < sizeof bytes; i += 1024)
        bytes[i] = 0;
}

static int refused(const char *what, int error)
{
    fprintf(stderr, PROGRAM ": %s: %s\n", what, strerror(error));
    if (error == EPERM || error == ENOMEM || error == EAGAIN)
        fprintf(stderr,
                "To get permission: run it as root; or\n"
                "  sudo setcap cap_sys_nice,cap_ipc_lock+ep ./" PROGRAM "\n"
                "or lines in /etc/security/limits.d for your user, and a new login:\n"
                "  USER - rtprio 98\n"
                "  USER - memlock unlimited\n"
                "To try it without: --policy other.\n");
    return EXIT_FAILURE;
}

/* Locks memory, places the thread. 0, or the exit code. */
static int become_real_time(const struct options *options)
{
    char what[64];
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return refused("can't lock memory", errno);
    prefault_stack();
    memset(&measured, 0, sizeof measured);
    if (options->cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)options->cpu, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
            snprintf(what, sizeof what, "can't run on CPU %ld", options->cpu);
            return refused(what, errno);
        }
    }
    struct sched_param param = { .sched_priority = (int)options->priority };
    if (sched_setscheduler(0, options->policy, &param) != 0) {
        snprintf(what, sizeof what, "can't run as %s %ld", options->policy_name,
                 options->priority);
        return refused(what, errno);
    }
    return EXIT_SUCCESS;
}

/* The histogram as cyclictest writes it: rtscope import reads it. */
static int write_histogram(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, PROGRAM ": can't write %s: %s\n", path, strerror(errno));
        return EXIT_FAILURE;
    }
    int64_t cycles = measured.cycles > 0 ? (int64_t)measured.cycles : 1;
    fprintf(file, "# Histogram\n");
    for (int us = 0; us < BUCKETS; us++)
        fprintf(file, "%06d %06" PRIu64 "\n", us, measured.count[us]);
    fprintf(file, "# Total: %09" PRIu64 "\n", measured.cycles - measured.overflow);
    fprintf(file, "# Min Latencies: %05" PRId64 "\n", measured.min_ns / 1000);
    fprintf(file, "# Avg Latencies: %05" PRId64 "\n", measured.sum_ns / cycles / 1000);
    fprintf(file, "# Max Latencies: %05" PRId64 "\n", measured.max_ns / 1000);
    fprintf(file, "# Histogram Overflows: %05" PRIu64 "\n", measured.overflow);
    if (fclose(file) != 0) {
        fprintf(stderr, PROGRAM ": can't write %s: %s\n", path, strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static void help(void)
{
    printf("usage: " PROGRAM " [OPTION VALUE]...\n\n"
           "  --period-us N      period, 50 to 10000000 us [1000]\n"
           "  --policy NAME      fifo, rr or other [fifo]\n"
           "  --priority N       1 to 99 for fifo and rr [80]\n"
           "  --cpu N            the only CPU to run on [any]\n"
           "  --cycles N         end after so many; 0 runs until SIGINT or SIGTERM [0]\n"
           "  --histogram FILE   write the latencies there, as cyclictest does\n");
}

static int wrong(const char *option, const char *why)
{
    fprintf(stderr, PROGRAM ": %s: %s; --help lists the options\n", option, why);
    return EXIT_USAGE;
}

static int number(const char *option, const char *text, long min, long max, long *value)
{
    char *end;
    char why[64];
    errno = 0;
    *value = strtol(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *value >= min && *value <= max)
        return EXIT_SUCCESS;
    snprintf(why, sizeof why, "a number from %ld to %ld", min, max);
    return wrong(option, why);
}

static int policy(const char *text, struct options *options)
{
    if (strcmp(text, "fifo") == 0)
        options->policy = SCHED_FIFO;
    else if (strcmp(text, "rr") == 0)
        options->policy = SCHED_RR;
    else if (strcmp(text, "other") == 0)
        options->policy = SCHED_OTHER;
    else
        return wrong("--policy", "fifo, rr or other");
    options->policy_name = text;
    return EXIT_SUCCESS;
}

/* Reads the options. 0, or the exit code. */
static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i];
        int answer = EXIT_SUCCESS;
        if (i + 1 == argc)
            return wrong(option, "an option with a value is expected");
        const char *value = argv[i + 1];
        if (strcmp(option, "--period-us") == 0)
            answer = number(option, value, 50, 10000000, &options->period_us);
        else if (strcmp(option, "--priority") == 0)
            answer = number(option, value, 1, 99, &options->priority);
        else if (strcmp(option, "--cpu") == 0)
            answer = number(option, value, 0, CPU_SETSIZE - 1, &options->cpu);
        else if (strcmp(option, "--cycles") == 0)
            answer = number(option, value, 0, LONG_MAX, &options->cycles);
        else if (strcmp(option, "--policy") == 0)
            answer = policy(value, options);
        else if (strcmp(option, "--histogram") == 0)
            options->histogram = value;
        else
            answer = wrong(option, "there is no such option");
        if (answer != EXIT_SUCCESS)
            return answer;
    }
    if (options->policy == SCHED_OTHER)
        options->priority = 0;
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct options options = { .period_us = 1000, .priority = 80, .policy = SCHED_FIFO,
                               .policy_name = "fifo", .cpu = -1 };
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        help();
        return EXIT_SUCCESS;
    }
    int answer = read_options(argc, argv, &options);
    if (answer != EXIT_SUCCESS)
        return answer;
    /* Without SA_RESTART a signal ends the sleep. */
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    answer = become_real_time(&options);
    if (answer != EXIT_SUCCESS)
        return answer;

    loop(options.period_us * 1000, (uint64_t)options.cycles);

    int64_t cycles = measured.cycles > 0 ? (int64_t)measured.cycles : 1;
    printf("%" PRIu64 " cycles, %" PRIu64 " skipped; latency min %" PRId64 " avg %" PRId64
           " max %" PRId64 " us\n",
           measured.cycles, measured.skipped, measured.min_ns / 1000,
           measured.sum_ns / cycles / 1000, measured.max_ns / 1000);
    return options.histogram != NULL ? write_histogram(options.histogram) : EXIT_SUCCESS;
}
