#!/bin/sh
# What BusyBox's init starts first, as on a small board: file systems, then the start scripts in the order of their names.
export PATH=/bin:/sbin:/usr/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mount -o remount,rw /
mount -t cgroup2 none /sys/fs/cgroup
for script in /etc/init.d/S??*; do [ -x "$script" ] && "$script" start; done
