# Holds a node of Slurm for a job: the script of its allocation, which ends when this does.
# $1 folder or nothing, $2 node, $3 job, $4 seconds of the lease
set -f
umask 077
cd / || exit 1
base=${1:-/var/tmp}/rtscope-fleet-$(id -u)-$2 job=$3 seconds=$4
dir=$base/$job
case $job in *[!a-z0-9-]* | '') exit 1 ;; esac
# Slurm's process of this step. Without it nobody ends what runs here.
step=$PPID
# Slurm ends a job with this signal, and gives it some seconds.
ended=
trap 'ended=1' TERM
goes_on() { [ -z "$ended" ] && [ -d "/proc/$step" ]; }
pause() {
    sleep "$1" &
    wait "$!"
}
# The folder is made by the first script that comes. An rtscope that was killed before that sends none.
n=0
while goes_on && [ ! -d "$dir" ] && [ "$n" -lt 300 ]; do
    pause 1
    n=$((n + 1))
done
n=0
while goes_on && [ -d "$dir" ] && [ ! -e "$dir/begin" ] && [ "$n" -lt "$seconds" ]; do
    pause 1
    n=$((n + 1))
done
if goes_on && [ -e "$dir/begin" ]; then
    "$dir/rtscope" fleet-agent keep --base "$base" --job "$job" --while-pid "$step" </dev/null >/dev/null 2>&1 &
    keeper=$!
    # A signal ends `wait`, and the keeper has got it too.
    while kill -0 "$keeper" 2>/dev/null; do wait "$keeper"; done
    # The keeper was killed: what it recorded can be collected until the allocation ends.
    while goes_on && [ -d "$dir" ]; do pause 2; done
    if [ -d "$dir" ] && [ ! -e "$dir/ended.json" ]; then
        "$dir/rtscope" restore </dev/null >/dev/null 2>&1
    fi
fi
rm -rf "${base:?}/$job"
case $(readlink "$base/lease") in "$job "*) rm -f "$base/lease" ;; esac
rmdir "$base" 2>/dev/null
exit 0
