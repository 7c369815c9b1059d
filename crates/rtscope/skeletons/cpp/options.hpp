// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

// A command line that makes no sense: what() says why.
class Usage : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct Options {
    std::int64_t period_us = 1000;
    int policy;
    int priority = 80;
    int cpu = -1; // any
    std::uint64_t cycles = 0; // until a signal
    std::optional<std::string> histogram;
    bool help = false;

    // Throws Usage.
    Options(int argc, char **argv);

    static const char *help_text();
};
