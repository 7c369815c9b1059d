# Gives the place back without the keeper: for a job whose keeper never began, or can't be asked.
# $1 base, or nothing; $2 job; $3 folder or nothing
base=${1:-${3:-/var/tmp}/rtscope-fleet-$(id -u)} job=$2
case $job in *[!a-z0-9-]* | '') exit 1 ;; esac
case ${base##*/} in rtscope-fleet-*) ;; *) exit 1 ;; esac
rm -rf "${base:?}/$job" || exit 1
case $(readlink "$base/lease") in "$job "*) rm -f "$base/lease" ;; esac
rmdir "$base" 2>/dev/null
exit 0
