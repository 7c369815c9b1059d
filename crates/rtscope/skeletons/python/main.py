#!/usr/bin/env python3
"""A periodic real-time application: edit work().

Before the loop everything that may take its time is done: options are read, memory is locked, the
garbage collector is off, the thread is placed. The loop itself only sleeps, reads the clock, works
and counts. Python is not made for short periods: take it for some milliseconds and more.
"""

import argparse
import ctypes
import errno
import gc
import os
import signal
import sys
import time

PROGRAM = "skeleton_name"
NS_PER_S = 1_000_000_000
BUCKETS = 10_000  # of 1 us; what is later is counted as an overflow
EXIT_USAGE = 64
POLICIES = {"fifo": os.SCHED_FIFO, "rr": os.SCHED_RR, "other": os.SCHED_OTHER}

# Numbers of the kernel's interface.
MCL_CURRENT, MCL_FUTURE = 1, 2
CLOCK_MONOTONIC, TIMER_ABSTIME = 1, 1

PERMISSION = """To get permission: run it as root; or lines in /etc/security/limits.d for your user, and a new login:
  USER - rtprio 98
  USER - memlock unlimited
To try it without: --policy other."""

libc = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    """The C library's struct timespec."""

    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def work():
    """The work of one period: no print, no lock, no large objects."""


class Latencies:
    """From the programmed instant to the first clock reading after it."""

    def __init__(self):
        self.count = [0] * BUCKETS
        self.overflow = 0
        self.cycles = 0
        self.min_ns = None
        self.max_ns = 0
        self.sum_ns = 0

    def note(self, latency_ns):
        us = latency_ns // 1000
        if 0 <= us < BUCKETS:
            self.count[us] += 1
        else:
            self.overflow += 1
        if self.min_ns is None or latency_ns < self.min_ns:
            self.min_ns = latency_ns
        if latency_ns > self.max_ns:
            self.max_ns = latency_ns
        self.sum_ns += latency_ns
        self.cycles += 1

    def figures_us(self):
        """Minimum, mean, maximum."""
        mean_ns = self.sum_ns // max(self.cycles, 1)
        return (self.min_ns or 0) // 1000, mean_ns // 1000, self.max_ns // 1000

    def write(self, path):
        """Writes a histogram as cyclictest does: rtscope import reads it."""
        low, mean, high = self.figures_us()
        with open(path, "w", encoding="ascii") as file:
            file.write("# Histogram\n")
            for us, count in enumerate(self.count):
                file.write(f"{us:06} {count:06}\n")
            file.write(f"# Total: {self.cycles - self.overflow:09}\n")
            file.write(f"# Min Latencies: {low:05}\n")
            file.write(f"# Avg Latencies: {mean:05}\n")
            file.write(f"# Max Latencies: {high:05}\n")
            file.write(f"# Histogram Overflows: {self.overflow:05}\n")


class Loop:
    """The periodic loop, with what it needs made beforehand."""

    def __init__(self, period_ns, cycles):
        self.period_ns = period_ns
        self.cycles = cycles
        self.is_stopped = False
        self.latencies = Latencies()
        self.skipped = 0
        self.until = Timespec()

    def stop(self, _number, _frame):
        """A signal's handler."""
        self.is_stopped = True

    def sleep_until(self, instant_ns):
        """Sleeps until an instant, not for a time: what a period takes too long is not added to the
        next. (time.sleep() sleeps for a time.)"""
        self.until.tv_sec, self.until.tv_nsec = divmod(instant_ns, NS_PER_S)
        at = ctypes.byref(self.until)
        while libc.clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, None) == errno.EINTR:
            if self.is_stopped:
                return

    def run(self):
        latencies = self.latencies
        next_ns = time.monotonic_ns() + self.period_ns
        while not self.is_stopped and (self.cycles == 0 or latencies.cycles < self.cycles):
            self.sleep_until(next_ns)
            if self.is_stopped:
                break
            latencies.note(time.monotonic_ns() - next_ns)
            work()
            next_ns += self.period_ns
            # Overrun: periods whose begin has passed are skipped and counted, so that the next one
            # is again on the grid and a backlog can't build up.
            late_ns = time.monotonic_ns() - next_ns
            if late_ns > 0:
                periods = late_ns // self.period_ns + 1
                self.skipped += periods
                next_ns += periods * self.period_ns


def touch_stack(depth):
    """Locked memory still is faulted in at its first use."""
    if depth > 0:
        touch_stack(depth - 1)


def become_real_time(options):
    """Locks memory, places the thread. Raises OSError."""
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "can't lock memory")
    touch_stack(500)
    # Everything that is there stays: the collector would look through it again and again.
    gc.collect()
    gc.freeze()
    gc.disable()
    what = f"can't run on CPU {options.cpu}"
    try:
        if options.cpu is not None:
            os.sched_setaffinity(0, {options.cpu})
        what = f"can't run as {options.policy} {options.priority}"
        os.sched_setscheduler(0, POLICIES[options.policy], os.sched_param(options.priority))
    except OSError as error:
        raise OSError(error.errno, error.strerror, what) from error


def between(low, high):
    """A number in a range, for argparse."""

    def number(text):
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"a number from {low} to {high}")
        return value

    return number


class Parser(argparse.ArgumentParser):
    """With the exit code of the other languages."""

    def error(self, message):
        self.exit(EXIT_USAGE, f"{PROGRAM}: {message}; --help lists the options\n")


def read_options():
    parser = Parser(prog=PROGRAM, description="A periodic real-time application.")
    add = parser.add_argument
    add("--period-us", type=between(50, 10_000_000), default=1000, metavar="N", help="period, 50 to 10000000 us [1000]")
    add("--policy", choices=POLICIES, default="fifo", help="[fifo]")
    add("--priority", type=between(1, 99), default=80, metavar="N", help="1 to 99 for fifo and rr [80]")
    add("--cpu", type=between(0, 1023), metavar="N", help="the only CPU to run on [any]")
    add("--cycles", type=between(0, 2**63 - 1), default=0, metavar="N", help="end after so many; 0 runs until SIGINT or SIGTERM [0]")
    add("--histogram", metavar="FILE", help="write the latencies there, as cyclictest does")
    options = parser.parse_args()
    if options.policy == "other":
        options.priority = 0
    return options


def main():
    options = read_options()
    loop = Loop(options.period_us * 1000, options.cycles)
    signal.signal(signal.SIGINT, loop.stop)
    signal.signal(signal.SIGTERM, loop.stop)
    try:
        become_real_time(options)
    except OSError as error:
        print(f"{PROGRAM}: {error.filename}: {error.strerror}", file=sys.stderr)
        if error.errno in (errno.EPERM, errno.ENOMEM, errno.EAGAIN):
            print(PERMISSION, file=sys.stderr)
        return 1
    loop.run()
    low, mean, high = loop.latencies.figures_us()
    print(f"{loop.latencies.cycles} cycles, {loop.skipped} skipped; latency min {low} avg {mean} max {high} us")
    if options.histogram:
        try:
            loop.latencies.write(options.histogram)
        except OSError as error:
            print(f"{PROGRAM}: can't write {options.histogram}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
