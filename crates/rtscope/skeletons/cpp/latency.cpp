#include "latency.hpp"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <stdexcept>

void Latencies::note(std::int64_t latency_ns)
{
    const std::int64_t us = latency_ns / 1000;
    if (us >= 0 && us < static_cast<std::int64_t>(buckets))
        count_[static_cast<std::size_t>(us)]++;
    else
        overflow_++;
    min_ns_ = cycles_ == 0 ? latency_ns : std::min(min_ns_, latency_ns);
    max_ns_ = std::max(max_ns_, latency_ns);
    sum_ns_ += latency_ns;
    cycles_++;
}

std::int64_t Latencies::avg_us() const
{
    return cycles_ > 0 ? sum_ns_ / static_cast<std::int64_t>(cycles_) / 1000 : 0;
}

void Latencies::write(const std::string &path) const
{
    std::ofstream file(path);
    file << "# Histogram\n" << std::setfill('0');
    for (std::size_t us = 0; us < buckets; us++)
        file << std::setw(6) << us << ' ' << std::setw(6) << count_[us] << '\n';
    file << "# Total: " << std::setw(9) << cycles_ - overflow_ << '\n'
         << "# Min Latencies: " << std::setw(5) << min_us() << '\n'
         << "# Avg Latencies: " << std::setw(5) << avg_us() << '\n'
         << "# Max Latencies: " << std::setw(5) << max_us() << '\n'
         << "# Histogram Overflows: " << std::setw(5) << overflow_ << '\n';
    file.close();
    if (!file)
        throw std::runtime_error("can't write " + path);
}
