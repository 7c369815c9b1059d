# What this place is and who has it. Prints KEY=VALUE lines, changes nothing.
# $1 folder or nothing
set -f
base=${1:-/var/tmp}/rtscope-fleet-$(id -u)
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
[ -r /proc/device-tree/model ] && echo "model=$(tr -d '\000' </proc/device-tree/model)"
read -r up _ </proc/uptime
boot=$(cat /proc/sys/kernel/random/boot_id)
if held=$(readlink "$base/lease"); then
    set -- $held
    if [ "$2" = "$boot" ]; then left=$(($3 - ${up%.*})); else left=$((${4:-0} - ${up%.*})); fi
    if [ "$left" -gt -40 ]; then
        echo "held=$1"
        echo "left=$((left > 0 ? left : 1))"
    fi
fi
exit 0
