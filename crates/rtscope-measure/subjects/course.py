"""A square wave as a course's Python program makes it: PROGRAM LINE FREQUENCY. LINE is memory:NAME.

The PWM of its GPIO library is a thread that sets the pin, sleeps, clears it and sleeps, each time from now on: a period
is as much too long as two sleeps end too late.
"""

import mmap
import sys
import threading
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

    def pwm():
        while True:
            for high in (1, 0):
                level[0] = high
                changes[0] += 1
                time.sleep(half_s)

    thread = threading.Thread(target=pwm)
    thread.start()
    thread.join()


main()
