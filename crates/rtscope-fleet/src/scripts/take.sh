# Takes the lease on this place for a job and makes the job's folder. Prints KEY=VALUE lines.
# $1 folder or nothing, $2 job, $3 seconds of the lease, $4 node of Slurm or nothing. Exit code 3: nothing was made.
set -f
umask 077
folder=${1:-/var/tmp}
base=$folder/rtscope-fleet-$(id -u)${4:+-$4} job=$2 seconds=$3 node=$4
if ! [ -d "$folder" ]; then
    echo "there is no folder $folder here: make it, or name another \`folder\` for this place" >&2
    exit 3
fi
if ! [ -d "$base" ]; then
    mkdir "$base" || exit 3
fi
if [ -L "$base" ] || ! [ -O "$base" ]; then
    echo "$base belongs to another user: name another \`folder\` for this place" >&2
    exit 3
fi
boot=$(cat /proc/sys/kernel/random/boot_id) || exit 1
read -r up _ </proc/uptime || exit 1
up=${up%.*}
lease=$base/lease
# A keeper may need so long to end its run when its lease has ended.
grace=40
# A shell may run a command that stands where it expects a number.
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
held_by() {
    echo "held=$1"
    echo "left=$(($2 > 0 ? $2 : 1))"
    exit 0
}
# The lease is a symbolic link, for one is made by one of two that try, never by both: job, boot, end, seconds.
if held=$(readlink "$lease"); then
    set -- $held
    case $1 in *[!a-z0-9-]* | '') set -- none ;; esac
    # After a reboot the lease counts from the boot.
    if [ "$2" = "$boot" ]; then left=$(($(number "$3") - up)); else left=$(($(number "$4") - up)); fi
    # Slurm says whose the node is: an older lease is that of an allocation that was lost.
    [ "$1" != "$job" ] && [ -z "$node" ] && [ "$left" -gt "-$grace" ] && held_by "$1" "$left"
    # Another one may have taken the place since: then that lease goes back to its place.
    mv "$lease" "$lease.$job" 2>/dev/null
    moved=$(readlink "$lease.$job")
    if [ "$moved" != "$held" ]; then
        [ -z "$moved" ] || mv "$lease.$job" "$lease"
        held_by "${moved%% *}" 1
    fi
    rm -f "$lease.$job"
    if [ "$1" != "$job" ]; then
        # Its keeper is gone, and may have left settings changed.
        [ -x "$base/$1/rtscope" ] && "$base/$1/rtscope" restore </dev/null >/dev/null 2>&1
        rm -rf "${base:?}/$1"
    fi
fi
dir=$base/$job
mkdir -p "$dir" || exit 1
# Until the keeper has begun, this removes all when the lease ends. It begins first: nothing may stay taken without it.
# At a node of Slurm it would end with this script; there, the script of the allocation does the same.
[ -z "$node" ] && (
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
[ -z "$node" ] || : >"$dir/held"
if ! ln -s "$job $boot $((up + seconds)) $seconds" "$lease" 2>/dev/null; then
    rm -rf "$dir"
    held=$(readlink "$lease") && held_by "${held%% *}" "$seconds"
    echo "can't write in $base" >&2
    exit 3
fi
echo "base=$base"
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
echo "boot=$boot"
echo "free_kib=$(df -Pk "$base" | tail -n 1 | { read -r _ _ _ free _ && echo "$free"; })"
[ -r /proc/device-tree/model ] && echo "model=$(tr -d '\000' </proc/device-tree/model)"
exit 0
