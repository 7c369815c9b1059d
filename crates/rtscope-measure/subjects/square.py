"""A square wave with time.sleep: PROGRAM LINE FREQUENCY. LINE is memory:NAME."""

import mmap
import sys
import time


def main():
    if len(sys.argv) != 3 or not sys.argv[1].startswith("memory:") or float(sys.argv[2]) <= 0:
        sys.exit(f"usage: {sys.argv[0]} memory:NAME FREQUENCY")
    path = "/dev/shm/rtscope-line-" + sys.argv[1].removeprefix("memory:")
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 64)
    # Elements of 4 and 8 bytes, so that each change of the level is one store.
    level = memoryview(memory)[0:4].cast("I")
    changes = memoryview(memory)[8:16].cast("Q")
    half_s = 0.5 / float(sys.argv[2])
    while True:
        time.sleep(half_s)
        level[0] = 1 - level[0]
        changes[0] += 1


main()
