#!/usr/bin/env bash
# run.sh [--touched]: every tests/conformance/*.sh but this one, function by function, and every tests/conformance/*/run.py,
# against build/release/gdnctl. With --touched only the suites about whose rooms the last ten commits are: a line
# `# rooms: PATH...` in the suite says which, and none with a line `# slow`. Ends with the closing line of a test run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
binary=$PWD/build/release/gdnctl
tally=build/conformance/tally
mkdir -p build/conformance
: >"$tally"
changed=''
[ "${1:-}" != --touched ] || changed=$(git log -10 --no-merges --name-only --format= | sort -u)
# wanted SUITE: whether it is to run.
wanted() {
    [ -n "$changed" ] || return 0
    local path
    ! grep -qx '# slow' "$1" || { echo "[conformance] $1: only without --touched"; return 1; }
    for path in "$1" $(sed -n 's/^# rooms: *//p' "$1"); do
        ! grep -q "^$path" <<<"$changed" || return 0
    done
    echo "[conformance] $1: nothing of its rooms was changed"
    return 1
}
scripts() {
    for script in tests/conformance/*.sh; do
        case ${script##*/} in run.sh) continue ;; esac
        wanted "$script" || continue
        for function in $(sed -n 's/^\(test_[A-Za-z0-9_]*\)().*/\1/p' "$script"); do
            status=0
            out=$(bash tests/support/run_cli_test.sh "$script" "$function" "$binary" 2>&1) || status=$?
            case $status in
                0) verdict="1 0 0" word=ok ;;
                77) verdict="0 0 1" word="$out" ;;
                *) verdict="0 1 0" word=FAILED ;;
            esac
            echo "$verdict" >>"$tally.scripts"
            printf '[conformance] %s: %s: %s\n' "$(basename "$script" .sh)" "$function" "$word"
            [ "$word" != FAILED ] || printf '%s\n' "$out"
        done
    done
}
# Two suites at a time, and the scripts beside them: they mostly wait.
: >"$tally.scripts"
scripts >build/conformance/scripts.log 2>&1 &
beside=$!
suite() {  # PROGRAM: whole lines, because the suites print to one log
    local status=0
    env --default-signal=INT python3 -u "$1" "$binary" "$tally" 2>&1 | sed -u '' || status=$?
    # 1: failed cases, which it has counted itself.
    [ $status -le 1 ] || { echo "0 1 0" >>"$tally"; echo "[conformance] $1 ended with status $status"; }
}
for program in tests/conformance/*/run.py; do
    wanted "$program" || continue
    while [ "$(jobs -rp | grep -cvx $beside)" -ge 2 ]; do wait -n || true; done
    suite "$program" &
done
wait $beside || echo "0 1 0" >>"$tally.scripts"
wait
cat build/conformance/scripts.log
cat "$tally.scripts" >>"$tally"
[ -s "$tally" ] || echo "0 0 0" >>"$tally"  # nothing was touched
tests/support/tally.sh --sum "$tally"
