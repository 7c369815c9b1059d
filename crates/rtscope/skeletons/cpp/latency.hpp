// Latencies, counted in memory that is there from the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

// From the programmed instant to the first clock reading after it.
class Latencies {
public:
    void note(std::int64_t latency_ns);

    std::uint64_t cycles() const { return cycles_; }
    std::int64_t min_us() const { return min_ns_ / 1000; }
    std::int64_t avg_us() const;
    std::int64_t max_us() const { return max_ns_ / 1000; }

    // Writes a histogram as cyclictest does: rtscope import reads it. Throws std::runtime_error.
    void write(const std::string &path) const;

private:
    static constexpr std::size_t buckets = 10000; // of 1 us; what is later is an overflow

    std::array<std::uint64_t, buckets> count_{};
    std::uint64_t overflow_ = 0;
    std::uint64_t cycles_ = 0;
    std::int64_t min_ns_ = 0;
    std::int64_t max_ns_ = 0;
    std::int64_t sum_ns_ = 0;
};
