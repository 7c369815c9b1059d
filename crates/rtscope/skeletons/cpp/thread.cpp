#include "thread.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace {

constexpr std::size_t stack_bytes = 1024 * 1024;
// More than a real-time body and what it calls will ever use.
constexpr std::size_t touched_bytes = 256 * 1024;

void prefault_stack()
{
    volatile unsigned char bytes[touched_bytes];
    for (std::size_t i = 0; i < sizeof bytes; i += 1024)
        bytes[i] = 0;
}

// pthread functions return their error.
void check(int error, const std::string &what)
{
    if (error != 0)
        throw Refused(what, error);
}

class Attributes {
public:
    Attributes() { check(pthread_attr_init(&attributes_), "can't start a thread"); }
    ~Attributes() { pthread_attr_destroy(&attributes_); }
    Attributes(const Attributes &) = delete;
    Attributes &operator=(const Attributes &) = delete;
    pthread_attr_t *get() { return &attributes_; }

private:
    pthread_attr_t attributes_;
};

std::string name_of(int policy, int priority)
{
    if (policy == SCHED_OTHER)
        return "other";
    return (policy == SCHED_FIFO ? "fifo " : "rr ") + std::to_string(priority);
}

} // namespace

Refused::Refused(const std::string &what, int error)
    : std::runtime_error(what + ": " + std::strerror(error)), error_(error)
{
}

bool Refused::is_permission() const
{
    return error_ == EPERM || error_ == ENOMEM || error_ == EAGAIN;
}

void lock_memory()
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        throw Refused("can't lock memory", errno);
}

void Thread::start(std::function<void()> body, int policy, int priority, int cpu)
{
    body_ = std::move(body);
    Attributes attributes;
    const std::string what = "can't start a thread as " + name_of(policy, priority);
    check(pthread_attr_setstacksize(attributes.get(), stack_bytes), what);
    // Without this the policy of the creator is inherited and the next two are ignored.
    check(pthread_attr_setinheritsched(attributes.get(), PTHREAD_EXPLICIT_SCHED), what);
    check(pthread_attr_setschedpolicy(attributes.get(), policy), what);
    sched_param param{};
    param.sched_priority = priority;
    check(pthread_attr_setschedparam(attributes.get(), &param), what);
    if (cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(static_cast<std::size_t>(cpu), &cpus);
        check(pthread_attr_setaffinity_np(attributes.get(), sizeof cpus, &cpus), what);
    }
    const std::string where = cpu >= 0 ? " on CPU " + std::to_string(cpu) : "";
    check(pthread_create(&handle_, attributes.get(), &Thread::run, this), what + where);
    is_running_ = true;
}

void Thread::join()
{
    if (is_running_)
        pthread_join(handle_, nullptr);
    is_running_ = false;
}

void *Thread::run(void *thread)
{
    static_cast<Thread *>(thread)->body_();
    return nullptr;
}

RealTimeThread::RealTimeThread(std::function<void()> body, int policy, int priority, int cpu)
{
    start(
        [body = std::move(body)] {
            prefault_stack();
            body();
        },
        policy, priority, cpu);
}
