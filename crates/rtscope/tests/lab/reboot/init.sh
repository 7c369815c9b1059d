#!/bin/busybox sh
# The initial RAM disk of the guest: modules in the order of their numbers, then the root file system, as the kernel's command
# line asks for it.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in /modules/*; do insmod "$module"; done
tries=0
until root=$(findfs "$(sed 's/.*root=\(UUID=[^ ]*\).*/\1/' /proc/cmdline)") || [ $tries = 50 ]; do
    sleep 0.2
    tries=$((tries + 1))
done
mkdir -p /new
mount -t ext4 -o ro "$root" /new || poweroff -f
umount /proc /sys
mount --move /dev /new/dev
exec switch_root /new /sbin/init
