// Threads with a place: policy, priority, CPU and stack are given before a thread starts, so that it
// never runs with others.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

// What the system refused, with its error number.
class Refused : public std::runtime_error {
public:
    Refused(const std::string &what, int error);
    bool is_permission() const;

private:
    int error_;
};

// Locks all memory that the process has and will have. Throws Refused.
void lock_memory();

// A thread. Its body is called once, in the thread. Destroying it waits for the body's end.
class Thread {
public:
    Thread(const Thread &) = delete;
    Thread &operator=(const Thread &) = delete;
    virtual ~Thread() { join(); }

    // Waits for the end of the body.
    void join();

protected:
    Thread() = default;
    // Starts the thread as a policy and a priority on a CPU (-1: any). Throws Refused.
    void start(std::function<void()> body, int policy, int priority, int cpu);

private:
    static void *run(void *thread);

    std::function<void()> body_;
    pthread_t handle_{};
    bool is_running_ = false;
};

// A thread of the fair class: for printing, files, networks, everything that may wait.
class OrdinaryThread : public Thread {
public:
    explicit OrdinaryThread(std::function<void()> body) { start(std::move(body), SCHED_OTHER, 0, -1); }
};

// A thread of a real-time policy, with its stack in memory before the body is called. What the body
// needs must have been made before; a mutex that it takes must have the protocol
// PTHREAD_PRIO_INHERIT (which std::mutex has not).
class RealTimeThread : public Thread {
public:
    RealTimeThread(std::function<void()> body, int policy, int priority, int cpu);
};
