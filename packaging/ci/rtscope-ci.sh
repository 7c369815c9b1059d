#!/bin/sh
# Tests a kernel with rtscope in an emulator, in virtual time: a requirement, an exit code, and a page to keep.
#
#   sh rtscope-ci.sh --kernel path=arch/x86/boot/bzImage --require 'max < 200us' --require 'missed = 0'
#
# The arguments are those of `rtscope lab run`, but for --out. RTSCOPE names the program, and RTSCOPE_OUT the folder of
# the results:
#
#   index.html                  the page
#   NAME/                       the record of each guest, with its own page
#   exports/NAME/junit.xml      its requirements for the CI server
#   exports/NAME/markdown.md    its verdict for a summary
#
# The exit code is that of rtscope: 0 pass, 2 fail, 3 inconclusive, 64 if it refused to begin, 1 for whatever else went
# wrong. It refuses a folder that has the results of another kernel: remove it before each build.

rtscope=${RTSCOPE:-rtscope}
out=${RTSCOPE_OUT:-rtscope-results}

"$rtscope" lab run "$@" --out "$out"
code=$?

for plan in "$out"/*/plan.toml; do
    # What is there after a refusal is from another run.
    [ -f "$plan" ] && [ "$code" -ne 64 ] || continue
    record=${plan%/plan.toml}
    # Without the exports the server would show nothing: then a pass is none.
    "$rtscope" export "$record" --format junit,markdown --out "$out/exports/${record##*/}" ||
        [ "$code" -ne 0 ] || code=1
done

case $code in
0) echo "rtscope: every requirement is met" ;;
2) echo "rtscope: a requirement is not met" ;;
3) echo "rtscope: inconclusive: the page says why" ;;
*) echo "rtscope: the test could not be made (exit code $code)" ;;
esac
exit "$code"
