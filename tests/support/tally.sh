#!/usr/bin/env bash
# tally.sh CTEST_LOG: prints "PASSED FAILED SKIPPED" of one ctest run; a run without a summary counts as one failure.
# tally.sh --sum FILE: adds up such lines and prints "N passed, M failed[, K skipped]"; exits with 1 if any failed.
set -u
if [ "${1:-}" = --sum ]; then
    awk '{ p += $1; f += $2; s += $3 }
         END { if (NR == 0) f = 1
               printf "%d passed, %d failed%s\n", p, f, s ? ", " s " skipped" : ""
               exit f > 0 }' "$2"
    exit
fi
awk '/tests? passed, [0-9]+ tests? failed out of [0-9]+/ { failed = $4; total = $NF; seen = 1 }
     /^[ \t]+[0-9]+ - .* \(Skipped\)$/ { skipped++ }
     END { if (!seen || total == 0) print 0, 1, 0; else print total - failed - skipped, failed, skipped + 0 }' "$1"
