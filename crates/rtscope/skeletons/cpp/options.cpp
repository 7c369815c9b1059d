#include "options.hpp"

#include <sched.h>

#include <charconv>
#include <cstring>
#include <limits>

namespace {

template <typename Number>
Number number(const std::string &option, const std::string &text, Number min, Number max)
{
    Number value{};
    const char *end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || read != end || value < min || value > max)
        throw Usage(option + ": a number from " + std::to_string(min) + " to " + std::to_string(max));
    return value;
}

int policy_of(const std::string &text)
{
    if (text == "fifo")
        return SCHED_FIFO;
    if (text == "rr")
        return SCHED_RR;
    if (text == "other")
        return SCHED_OTHER;
    throw Usage("--policy: fifo, rr or other");
}

} // namespace

Options::Options(int argc, char **argv) : policy(SCHED_FIFO)
{
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
        help = true;
        return;
    }
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (i + 1 == argc)
            throw Usage(option + ": an option with a value is expected");
        const std::string value = argv[i + 1];
        if (option == "--period-us")
            period_us = number<std::int64_t>(option, value, 50, 10000000);
        else if (option == "--policy")
            policy = policy_of(value);
        else if (option == "--priority")
            priority = number(option, value, 1, 99);
        else if (option == "--cpu")
            cpu = number(option, value, 0, CPU_SETSIZE - 1);
        else if (option == "--cycles")
            cycles = number<std::uint64_t>(option, value, 0, std::numeric_limits<std::int64_t>::max());
        else if (option == "--histogram")
            histogram = value;
        else
            throw Usage(option + ": there is no such option");
    }
    if (policy == SCHED_OTHER)
        priority = 0;
}

const char *Options::help_text()
{
    return "usage: skeleton_name [OPTION VALUE]...\n\n"
           "  --period-us N      period, 50 to 10000000 us [1000]\n"
           "  --policy NAME      fifo, rr or other [fifo]\n"
           "  --priority N       1 to 99 for fifo and rr [80]\n"
           "  --cpu N            the only CPU to run on [any]\n"
           "  --cycles N         end after so many; 0 runs until SIGINT or SIGTERM [0]\n"
           "  --histogram FILE   write the latencies there, as cyclictest does\n";
}
