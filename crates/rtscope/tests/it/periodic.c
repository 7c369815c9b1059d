/* A periodic program that does it right, and each mistake by a macro of its own. 20 ms a period. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PERIOD_NS 20000000LL
#define NS_PER_S 1000000000LL

#ifdef WALL_CLOCK
#define CLOCK CLOCK_REALTIME
#else
#define CLOCK CLOCK_MONOTONIC
#endif

static pthread_mutex_t mutex;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void compute(int64_t ns)
{
    int64_t until_ns = now_ns() + ns;
    while (now_ns() < until_ns) {
    }
}

static void sleep_until(int64_t instant_ns)
{
#ifdef RELATIVE_SLEEP
    struct timespec time = { .tv_nsec = PERIOD_NS };
    (void)instant_ns;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
#else
    struct timespec until = { instant_ns / NS_PER_S, instant_ns % NS_PER_S };
    clock_nanosleep(CLOCK, TIMER_ABSTIME, &until, NULL);
#endif
}

#ifdef LOCK
/* Holds the mutex most of the time, as no program should. */
static void *holder(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        struct timespec time = { .tv_nsec = 12000000 };
        nanosleep(&time, NULL);
        pthread_mutex_unlock(&mutex);
        struct timespec pause = { .tv_nsec = 1000000 };
        nanosleep(&pause, NULL);
    }
    return unused;
}
#endif

static void work(int n)
{
    compute((n % 7) * 100000);
#ifdef LOCK
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
#endif
#ifdef PAGE_FAULTS
    char *fresh = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(fresh, 1, 65536);
    munmap(fresh, 65536);
#endif
#ifdef OVERRUN
    if (n % 10 == 9)
        compute(PERIOD_NS * 3 / 2);
#endif
}

int main(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
#ifdef INHERIT
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
#endif
    pthread_mutex_init(&mutex, &attributes);
#ifdef PAGE_FAULTS
    mlockall(MCL_CURRENT);
#elif !defined(UNLOCKED)
    mlockall(MCL_CURRENT | MCL_FUTURE);
#endif
#ifdef LOCK
    pthread_t thread;
    pthread_create(&thread, NULL, holder, NULL);
#endif
#ifdef ORDINARY
    struct sched_param param = { .sched_priority = 0 };
    sched_setscheduler(0, SCHED_OTHER, &param);
#else
    struct sched_param param = { .sched_priority = 70 };
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0)
        return 1;
#endif
    int64_t next_ns = now_ns();
    for (int n = 0;; n++) {
        next_ns += PERIOD_NS;
        while (next_ns < now_ns())
            next_ns += PERIOD_NS;
        sleep_until(next_ns);
        work(n);
    }
}
