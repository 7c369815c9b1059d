# What this place is and who has it. Prints KEY=VALUE lines, changes nothing.
# $1 folder or nothing
set -f
folder=${1:-/var/tmp}
base=$folder/rtscope-fleet-$(id -u)
if ! [ -d "$folder" ]; then
    echo "there is no folder $folder here: make it, or name another \`folder\` for this place" >&2
    exit 3
fi
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
[ -r /proc/device-tree/model ] && echo "model=$(tr -d '\000' </proc/device-tree/model)"
read -r up _ </proc/uptime
boot=$(cat /proc/sys/kernel/random/boot_id)
# A shell may run a command that stands where it expects a number.
number() { case $1 in '' | *[!0-9]*) echo 0 ;; *) echo "$1" ;; esac; }
# What belongs to somebody else says nothing: `take` refuses such a place.
if [ -O "$base" ] && ! [ -L "$base" ] && held=$(readlink "$base/lease"); then
    set -- $held
    case $1 in *[!a-z0-9-]*) set -- none ;; esac
    if [ "$2" = "$boot" ]; then left=$(($(number "$3") - ${up%.*})); else left=$(($(number "$4") - ${up%.*})); fi
    if [ "$left" -gt -40 ]; then
        echo "held=$1"
        echo "left=$((left > 0 ? left : 1))"
    fi
fi
exit 0
