#!/bin/sh
# What the guest does in each of its three boots. It judges nothing: it prints facts on the second serial line, each after a
# line `== NAME`, and the test outside asserts on them.
export PATH=/bin:/sbin:/usr/bin
# /run goes with each boot: the number of this one must not, and is no part of what is compared.
stage=$(cat /stage)
# Open to the end: each first open and last close of a serial port asks for its interrupt and frees it, and an emulated one
# can get lost meanwhile. What was written then waits for 30 seconds and is thrown away.
exec 3>/dev/ttyS1

# Runs a command, and prints what it prints and its exit code.
fact() {
    name=$1
    shift
    echo "== $name"
    "$@"
    echo "exit $?"
} >&3 2>&1

# Every file of the root file system with its checksum, and every name with its kind, rights, owner and target. Hashing
# large files is slow in an emulator: from 1 MiB on, size and time of modification stand in.
files() {
    find / -xdev -type f -size -2048 ! -path /stage -exec md5sum {} + | sort
    find / -xdev -type f -size +2047 -exec stat -c '%s %Y  %n' {} + | sort
    find / -xdev ! -path /stage -exec stat -c '%n %F %a %u %N' {} + | sort
}

# All that the settings below touch.
state() {
    for file in /proc/sys/vm/stat_interval /proc/sys/vm/swappiness /sys/kernel/mm/transparent_hugepage/enabled \
        /proc/irq/default_smp_affinity /proc/irq/*/smp_affinity_list /sys/devices/virtual/workqueue/cpumask \
        /sys/devices/virtual/workqueue/*/cpumask /sys/fs/cgroup/cgroup.subtree_control \
        /sys/fs/cgroup/mine/cgroup.procs; do
        echo "$file: $(cat "$file")"
    done
    find /sys/fs/cgroup -type d | sort
    # Priority, nice value, real-time priority and policy of each thread that was there at the start.
    for pid in $(cat /run/pids); do
        echo "$pid $(cut -d' ' -f2,18,19,40,41 "/proc/$pid/stat") $(grep Cpus_allowed: "/proc/$pid/status")"
    done
}

# The kernel ends a cpuset partition in the background, and may then change masks that are right already.
settle() {
    sleep 3
}

# Those that live on. A rescuer of a workqueue (a kernel thread with nice -20) changes its CPUs with the workers
# that it rescues, and kworkers come and go.
pids() {
    for pid in $(ls /proc | grep -x '[0-9]*' | sort -n); do
        # Its fields: name, parent and nice value are the 2nd, the 4th and the 19th.
        set -- $(cat "/proc/$pid/stat" 2>/dev/null)
        [ $# -gt 19 ] || continue
        case $2 in
        "(kworker"* | "(stage"* | "(ls)" | "(grep)" | "(sort)") continue ;;
        # The one ends while the setting thp is `never`, the other a few seconds after a mount.
        "(khugepaged)" | "(ext4lazyinit)") continue ;;
        esac
        [ "$4" = 2 ] && [ "${19}" = -20 ] || echo "$pid"
    done
}

# A system that somebody has set up already: hardly a setting is as the kernel starts with it.
dirty() {
    echo 7 >/proc/sys/vm/stat_interval
    echo 23 >/proc/sys/vm/swappiness
    echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
    echo 4 >/proc/irq/default_smp_affinity
    echo 2 >/proc/irq/4/smp_affinity_list
    echo 4 >/sys/devices/virtual/workqueue/cpumask
    mkdir /sys/fs/cgroup/mine
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    # Pinned beside the shield to come, into it, and to both.
    for mask in 1 4 5; do taskset "$mask" sleep 10000 3>&- & done
    sleep 10000 3>&- &
    echo $! >/sys/fs/cgroup/mine/cgroup.procs
    renice -n -3 -p "$(grep -lx ksoftirqd/0 /proc/[0-9]*/comm | cut -d/ -f3)"
} >/dev/null

first() {
    # The image was made by whoever runs the test.
    chown -R 0:0 /bin /boot /etc /root /sbin /usr /var
    fact files-before files
    dirty
    pids >/run/pids
    fact settings-before state
    set -- shield=2 stat-interval=33 swappiness=9 thp=never 'thread-priority=fifo:5@ksoftirqd/*' \
        thread-affinity=1@kcompactd0
    fact a-command rtscope tune apply "$@" -- sh -c 'echo "shield: $(cat /sys/fs/cgroup/rtscope-shield/cpuset.cpus)"
        echo "own: $(grep Cpus_allowed_list /proc/self/status)"; echo "init: $(grep Cpus_allowed_list /proc/1/status)"
        cat /proc/sys/vm/stat_interval /proc/sys/vm/swappiness; exit 5'
    settle
    fact settings-after-a-command state

    rtscope tune apply "$@" -- sh -c 'echo $$ >/run/command; exec sleep 20000' 3>&- &
    killed=$!
    tries=0
    until [ -s /run/command ] || [ $tries = 300 ]; do
        sleep 0.2
        tries=$((tries + 1))
    done
    fact settings-held state
    kill -9 $killed
    wait $killed
    fact status-killed rtscope tune status
    fact settings-killed state
    fact restore-killed rtscope tune restore
    settle
    fact settings-after-a-kill state
    kill "$(cat /run/command)"

    fact persist rtscope tune apply --persist stat-interval=55
    fact boot rtscope tune apply --boot isolcpus=2
    # A second call adds to the first.
    fact boot-more rtscope tune apply --boot skew_tick=1
    fact status-permanent rtscope tune status
    fact files-between files
}

second() {
    fact restore-permanent rtscope tune restore --persist --boot
    fact status-restored rtscope tune status
    fact restore-kept rtscope tune restore
    fact stat-interval-restored cat /proc/sys/vm/stat_interval
}

echo "stage $stage"
fact "boot-$stage" cat /proc/cmdline
fact "isolated-$stage" cat /sys/devices/system/cpu/isolated
fact "stat-interval-$stage" cat /proc/sys/vm/stat_interval
fact "status-$stage" rtscope tune status
case $stage in
1) first ;;
2) second ;;
*) fact files-after files ;;
esac
echo $((stage + 1)) >/stage
sync
# The last close waits until everything is sent, for 30 seconds at most: whether this came says whether all did.
fact "end-$stage" true
exec 3>&-
[ "$stage" -lt 3 ] && reboot -f
poweroff -f
