#!/usr/bin/env bash
# run.sh: start-up and throughput of build/release/gdnctl. Every measurement is taken in turns with its floor (a program
# that does nothing, or cat of the same file); printed are minimum, median and the ratio of the medians.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
gdnctl=$PWD/build/release/gdnctl
work=$PWD/build/bench
mkdir -p "$work"
python3 tests/bench/make_log.py 5000 >"$work/small.md"
python3 tests/bench/make_log.py 700000 >"$work/700k.md"
python3 tests/bench/make_log.py 64000000 >"$work/64m.md"
cd "$work"

measure() {  # NAME RUNS FLOOR COMMAND
    local name=$1 runs=$2 floor=$3 command=$4 round
    rm -f round.*.json
    for round in 1 2 3; do
        hyperfine -N -w 3 -r "$runs" -i --export-json "round.$round.json" "$floor" "$command" >/dev/null 2>&1
    done
    python3 - "$name" round.*.json <<'PY'
import json, statistics, sys
floor, ours, codes = [], [], set()
for path in sys.argv[2:]:
    first, second = json.load(open(path))["results"]
    floor += first["times"]
    ours += second["times"]
    codes |= set(second.get("exit_codes", []))
ms = lambda seconds: f"{seconds * 1000:9.2f}"
median = statistics.median(ours)
print(f"{sys.argv[1]:<28} min {ms(min(ours))} ms  median {ms(median)} ms  floor {ms(statistics.median(floor))} ms"
      f"  x{median / statistics.median(floor):.1f}  exit {','.join(map(str, sorted(codes)))}")
PY
}
memory() {  # NAME COMMAND...: peak resident memory
    local name=$1
    shift
    python3 - "$name" "$@" <<'PY'
import resource, subprocess, sys
subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(f"{sys.argv[1]:<28} peak {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.1f} MB")
PY
}

measure "--help" 100 true "$gdnctl --help"
measure "--version" 100 true "$gdnctl --version"
measure "lint-log, 5 KB, no git" 100 true "$gdnctl lint-log --no-git --log-file small.md"
measure "lint-log, 5 KB" 100 true "$gdnctl lint-log --log-file small.md"
measure "ray-list" 50 true "$gdnctl ray-list --cluster local"
measure "doctor" 10 true "$gdnctl doctor"
measure "lint-log, 700 KB, no git" 20 "cat 700k.md" "$gdnctl lint-log --no-git --log-file 700k.md"
measure "lint-log, 700 KB" 20 "cat 700k.md" "$gdnctl lint-log --log-file 700k.md"
measure "lint-log, 64 MB" 3 "cat 64m.md" "$gdnctl lint-log --log-file 64m.md"
memory "lint-log, 700 KB" "$gdnctl" lint-log --log-file 700k.md
memory "lint-log, 64 MB" "$gdnctl" lint-log --log-file 64m.md
python3 ../../tests/bench/first_request.py "$gdnctl" 40
python3 ../../tests/bench/loop_iteration.py "$gdnctl"
python3 ../../tests/bench/evolve.py "$gdnctl"
python3 ../../tests/bench/downloads.py "$gdnctl"
python3 ../../tests/bench/devtpu.py "$gdnctl"
python3 ../../tests/bench/traces.py "$gdnctl"
python3 ../../tests/bench/iris.py "$gdnctl"
cd ../..  # a benchmark packs the tree itself
for program in build/release/bench_*; do
    [ ! -x "$program" ] || "$program" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
done
