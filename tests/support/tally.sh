#!/usr/bin/env bash
# tally.sh LOG: prints "PASSED FAILED SKIPPED" of one ctest run, from its LastTest.log: the cases that a program or script
# counted (doctest's summary; "N passed, M failed, K skipped"), or 1 for an entry that counted none. A run without an entry
# counts as one failure.
# tally.sh --sum FILE: adds up such lines and prints "N passed, M failed[, K skipped]"; exits with 1 if any failed.
set -u
if [ "${1:-}" = --sum ]; then
    awk '{ p += $1; f += $2; s += $3 }
         END { if (NR == 0) f = 1
               printf "%d passed, %d failed%s\n", p, f, s ? ", " s " skipped" : ""
               exit f > 0 }' "$2"
    exit
fi
awk '/^[0-9]+\/[0-9]+ Test: / { entries++; ep = ef = es = 0 }
     /^\[doctest\] test cases: / { split($0, part, "|"); ep += part[2]; ef += part[3] }
     /^[0-9]+ passed, [0-9]+ failed/ { ep += $1; ef += $3; es += $5 }
     /^Test (Passed|Failed)|^Test time = .* sec$/ { if (/^Test time/) next
        if (/Passed/ && ep + ef + es == 0) ep = 1
        if (/Failed/ && ef == 0) ef = 1
        p += ep; f += ef; s += es; closed++ }
     END { f += entries - closed; if (!entries) f = 1; print p + 0, f + 0, s + 0 }' "$1"
