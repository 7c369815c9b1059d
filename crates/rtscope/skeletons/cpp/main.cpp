// A periodic real-time application: edit work().
//
// A real-time thread sleeps, reads the clock, works and counts; an ordinary thread does what may take
// its time, here telling once a second how it goes. They share atomic numbers and no lock.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <time.h>

#include "latency.hpp"
#include "options.hpp"
#include "thread.hpp"

namespace {

constexpr int exit_usage = 64;
constexpr std::int64_t ns_per_s = 1'000'000'000;

// A lock-free atomic may be set by a signal handler.
std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int)
{
    stop = true;
}

std::int64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * ns_per_s + now.tv_nsec;
}

// Sleeps until an instant, not for a time: what a period takes too long is not added to the next.
void sleep_until(std::int64_t instant_ns)
{
    const timespec until{static_cast<time_t>(instant_ns / ns_per_s),
                         static_cast<long>(instant_ns % ns_per_s)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR && !stop) {
    }
}

class Periodic {
public:
    Periodic(std::int64_t period_ns, std::uint64_t cycles) : period_ns_(period_ns), cycles_(cycles) {}

    // The body of the real-time thread.
    void run()
    {
        std::int64_t next_ns = now_ns() + period_ns_;
        while (!stop && (cycles_ == 0 || latencies_.cycles() < cycles_)) {
            sleep_until(next_ns);
            if (stop)
                break;
            latencies_.note(now_ns() - next_ns);
            progress_ = latencies_.cycles();
            work();
            next_ns += period_ns_;
            next_ns += skip(now_ns() - next_ns);
        }
        stop = true;
    }

    const Latencies &latencies() const { return latencies_; } // after the thread has been joined
    std::uint64_t skipped() const { return skipped_; }
    std::uint64_t progress() const { return progress_; } // at any time

private:
    // The work of one period: no new, no std::cout, no std::mutex.
    void work() {}

    // Overrun: periods whose begin has passed are skipped and counted, so that the next one is
    // again on the grid and a backlog can't build up.
    std::int64_t skip(std::int64_t late_ns)
    {
        if (late_ns <= 0)
            return 0;
        const std::int64_t periods = late_ns / period_ns_ + 1;
        skipped_ += static_cast<std::uint64_t>(periods);
        return periods * period_ns_;
    }

    const std::int64_t period_ns_;
    const std::uint64_t cycles_;
    Latencies latencies_;
    std::atomic<std::uint64_t> progress_{0};
    std::atomic<std::uint64_t> skipped_{0};
};

// The body of the ordinary thread.
void tell(const Periodic &periodic)
{
    for (std::int64_t next_ns = now_ns(); !stop; next_ns += ns_per_s) {
        // In steps, so that the end of the program doesn't wait for a whole second.
        for (std::int64_t part = 1; part <= 10 && !stop; part++)
            sleep_until(next_ns + part * ns_per_s / 10);
        std::cerr << periodic.progress() << " cycles\n";
    }
}

// Ends the threads when the block is left, also by an exception.
struct StopAtEnd {
    ~StopAtEnd() { stop = true; }
};

void run(const Options &options)
{
    static Periodic periodic(options.period_us * 1000, options.cycles);
    lock_memory();
    RealTimeThread real_time([] { periodic.run(); }, options.policy, options.priority, options.cpu);
    const StopAtEnd stop_at_end;
    OrdinaryThread teller([] { tell(periodic); });
    real_time.join();
    teller.join();
    const Latencies &latencies = periodic.latencies();
    std::cout << latencies.cycles() << " cycles, " << periodic.skipped() << " skipped; latency min "
              << latencies.min_us() << " avg " << latencies.avg_us() << " max "
              << latencies.max_us() << " us\n";
    if (options.histogram)
        latencies.write(*options.histogram);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        const Options options(argc, argv);
        if (options.help) {
            std::cout << Options::help_text();
            return EXIT_SUCCESS;
        }
        // Without SA_RESTART a signal ends a sleep.
        struct sigaction action {};
        action.sa_handler = on_signal;
        sigaction(SIGINT, &action, nullptr);
        sigaction(SIGTERM, &action, nullptr);
        run(options);
        return EXIT_SUCCESS;
    } catch (const Usage &wrong) {
        std::cerr << "skeleton_name: " << wrong.what() << "; --help lists the options\n";
        return exit_usage;
    } catch (const Refused &refused) {
        std::cerr << "skeleton_name: " << refused.what() << '\n';
        if (refused.is_permission())
            std::cerr << "To get permission: run it as root; or\n"
                         "  sudo setcap cap_sys_nice,cap_ipc_lock+ep ./skeleton_name\n"
                         "or lines in /etc/security/limits.d for your user, and a new login:\n"
                         "  USER - rtprio 98\n"
                         "  USER - memlock unlimited\n"
                         "To try it without: --policy other.\n";
    } catch (const std::exception &error) {
        std::cerr << "skeleton_name: " << error.what() << '\n';
    }
    return EXIT_FAILURE;
}
