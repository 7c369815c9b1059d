# Appends standard input to a file whose length is known; prints how long the file is then.
# $1 file, $2 its length so far, or -1 to ask for it
umask 077
[ -e "$1" ] || : >"$1" || exit 1
have=$(wc -c <"$1") || exit 1
if [ "$((have))" -eq "$2" ]; then
    cat >>"$1" || exit 1
    have=$(wc -c <"$1")
fi
echo "have=$((have))"
