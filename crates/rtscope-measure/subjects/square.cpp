// A square wave with std::this_thread::sleep_until: PROGRAM LINE FREQUENCY. LINE is memory:NAME.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>

struct Line {
    volatile std::uint32_t level;
    std::uint32_t unused;
    volatile std::uint64_t changes;
};

int main(int argc, char **argv)
{
    const std::string address = argc == 3 ? argv[1] : "";
    if (address.rfind("memory:", 0) != 0 || std::atof(argv[2]) <= 0) {
        std::fprintf(stderr, "usage: %s memory:NAME FREQUENCY\n", argv[0]);
        return 64;
    }
    const std::string path = "/dev/shm/rtscope-line-" + address.substr(7);
    const int file = open(path.c_str(), O_RDWR);
    if (file < 0) {
        std::perror(path.c_str());
        return 1;
    }
    void *memory = mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        return 1;
    }
    auto *line = static_cast<Line *>(memory);
    using Clock = std::chrono::steady_clock;
    const std::chrono::duration<double> half(0.5 / std::atof(argv[2]));
    const auto start = Clock::now();
    for (std::uint64_t edge = 1;; edge++) {
        std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(half * edge));
        line->level = !line->level;
        line->changes = line->changes + 1;
    }
}
