#!/usr/bin/env bash
# run.sh SECONDS: every fuzzer of build/dev for that long, as many at once as there are processors. Starts from
# tests/fuzz/corpus/NAME; what it discovers goes to build/fuzz/corpus/NAME, what it finds to build/fuzz/findings/NAME.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=$1
case $seconds in '' | *[!0-9]*) echo "[fuzz] SECONDS must be a number, not '$seconds'" >&2; exit 2 ;; esac

one() {
    local name=$1 status=0
    local found=build/fuzz/findings/$name grown=build/fuzz/corpus/$name log=build/fuzz/$name.log dirs
    mkdir -p "$found" "$grown"
    dirs=("$grown")
    [ ! -d "tests/fuzz/corpus/$name" ] || dirs+=("tests/fuzz/corpus/$name")
    FUZZ=$name build/dev/fuzzers -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$found/" "${dirs[@]}" >"$log" 2>&1 </dev/null || status=$?
    local runs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ $status = 0 ]; then
        echo "[fuzz] $name: ${runs:-?} inputs in $seconds s, no finding"
    else
        echo "[fuzz] $name: FINDING (exit $status), input in $found, log in $log"
        tail -40 "$log"
        return 1
    fi
}
export -f one
export seconds
names=$(build/dev/fuzzers --names)
xargs -P "$(nproc)" -I{} bash -c 'one {}' <<<"$names"
