# Takes the lease on this place for a job and makes the job's folder. Prints KEY=VALUE lines.
# $1 folder or nothing, $2 job, $3 seconds of the lease
set -f
umask 077
base=${1:-/var/tmp}/rtscope-fleet-$(id -u) job=$2 seconds=$3
if ! [ -d "$base" ]; then
    mkdir "$base" || exit 1
fi
if [ -L "$base" ] || ! [ -O "$base" ]; then
    echo "$base belongs to somebody else: name another folder for this place" >&2
    exit 1
fi
boot=$(cat /proc/sys/kernel/random/boot_id) || exit 1
read -r up _ </proc/uptime || exit 1
up=${up%.*}
lease=$base/lease
# The lease is a symbolic link, for one is made by one of two that try, never by both: job, boot, end, seconds.
if held=$(readlink "$lease"); then
    set -- $held
    case $1 in *[!a-z0-9-]* | '') set -- none ;; esac
    # After a reboot the lease counts from the boot.
    if [ "$2" = "$boot" ]; then left=$(($3 - up)); else left=$((${4:-0} - up)); fi
    if [ "$1" != "$job" ] && [ "$left" -gt 0 ]; then
        echo "held=$1"
        echo "left=$left"
        exit 0
    fi
    mv "$lease" "$lease.$job" 2>/dev/null && rm -f "$lease.$job"
    [ "$1" = "$job" ] || rm -rf "${base:?}/$1"
fi
dir=$base/$job
mkdir -p "$dir" || exit 1
# Until the keeper has begun, this removes all when the lease ends. It begins first: nothing may stay taken without it.
(
    trap '' HUP
    cd /
    n=0
    while [ -d "$dir" ] && [ ! -e "$dir/keeper" ]; do
        if [ "$n" -ge "$seconds" ]; then
            rm -rf "$dir"
            case $(readlink "$lease") in "$job "*) rm -f "$lease" ;; esac
            rmdir "$base"
        fi
        sleep 2
        n=$((n + 2))
    done
) </dev/null >/dev/null 2>&1 &
if ! ln -s "$job $boot $((up + seconds)) $seconds" "$lease"; then
    rm -rf "$dir"
    exit 1
fi
echo "base=$base"
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
echo "free_kib=$(df -Pk "$base" | tail -n 1 | { read -r _ _ _ free _ && echo "$free"; })"
[ -r /proc/device-tree/model ] && echo "model=$(tr -d '\000' </proc/device-tree/model)"
exit 0
