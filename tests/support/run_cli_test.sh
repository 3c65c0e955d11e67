#!/usr/bin/env bash
# run_cli_test.sh SCRIPT FUNCTION GDNCTL: runs one black-box test in a fresh folder with a pinned environment.
# run_cli_test.sh SCRIPT all|quiet GDNCTL: runs those of the script, each with a limit of 300 s, that do not (quiet: do)
# end with _on_a_quiet_machine. Prints what was skipped and what failed, and ends with "N passed, M failed, K skipped".
# Inside a test: $GDNCTL is the binary, $WORK the folder (also the working directory), $FIXTURES the fixtures;
# expect CODE COMMAND... runs a command, checks its exit code and leaves $WORK/out and $WORK/err;
# launch COMMAND... starts one in the background as $pid, with SIGINT enabled as in a terminal, writing to the same files;
# powerless sets $as such that "${as[@]}" COMMAND is subject to permissions (root is not) and can read $WORK;
# out_has / err_has / out_lacks / err_lacks TEXT check them; fail TEXT ends the test; skip REASON skips it visibly.
set -u
exec </dev/null
script=$1 function=$2 GDNCTL=$3
here=$(cd "$(dirname "$0")" && pwd)
if [ "$function" = all ] || [ "$function" = quiet ]; then
  passed=0 failed=0 skipped=0
  for each in $(sed -n 's/^\(test_[A-Za-z0-9_]*\)().*/\1/p' "$script"); do
    case $each in *_on_a_quiet_machine) kind=quiet ;; *) kind=all ;; esac
    [ $kind = "$function" ] || continue
    out=$(timeout -k 10 300 bash "$0" "$script" "$each" "$GDNCTL" 2>&1)
    case $? in
      0) passed=$((passed + 1)) ;;
      77) skipped=$((skipped + 1)) && printf '%s: %s\n' "$each" "$out" ;;
      124) failed=$((failed + 1)) && printf '%s: took more than 300 s\n%s\n' "$each" "$out" ;;
      *) failed=$((failed + 1)) && printf '%s: FAILED\n%s\n' "$each" "$out" ;;
    esac
  done
  printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
  [ $failed = 0 ] || exit 1
  [ $passed -gt 0 ] || exit 77
  exit 0
fi
FIXTURES=$(cd "$here/../fixtures" && pwd)
REPO=$(cd "$here/../.." && pwd)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/gdnctl-cli.XXXXXX")
export GDNCTL FIXTURES WORK REPO
export GDNCTL_MACHINE_FILES=$WORK/machine  # independent of the machine's load during the tests
export HOME=$WORK/home XDG_STATE_HOME=$WORK/state XDG_CONFIG_HOME=$WORK/config TMPDIR=$WORK/tmp COLUMNS=100 LC_ALL=C.UTF-8 TZ=UTC
export GIT_CONFIG_GLOBAL=$WORK/gitconfig GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2026-03-10T12:00:00Z' GIT_COMMITTER_DATE='2026-03-10T12:00:00Z'
unset NO_COLOR GITHUB_ACTIONS GITHUB_STEP_SUMMARY RAY_ADDRESS RAY_API_SERVER_ADDRESS GDNCTL_STATE_DIR HF_TOKEN WANDB_API_KEY RAY_AUTH_TOKEN CODEX_THREAD_ID CLAUDECODE GDNCTL_LOOP_ID GDNCTL_AGENT 2>/dev/null
mkdir -p "$HOME" "$TMPDIR" "$WORK/cwd"
printf '[user]\n\tname = Test\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n' >"$GIT_CONFIG_GLOBAL"
cleanup() { chmod -R u+rwX "$WORK" 2>/dev/null; rm -rf "$WORK"; }
trap cleanup EXIT
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  for f in out err; do [ -s "$WORK/$f" ] && { printf -- '--- %s\n' "$f"; head -c 4000 "$WORK/$f"; } >&2; done
  exit 1
}
skip() { printf 'skipped: %s\n' "$*"; exit 77; }
expect() {
  local want=$1 got
  shift
  "$@" >"$WORK/out" 2>"$WORK/err"
  got=$?
  [ "$got" = "$want" ] || fail "exit code $got, expected $want, of: $*"
}
sanitized() { grep -qa __asan_init "$GDNCTL"; }  # whether the program has ASan
# Runs a command that must succeed within so much memory. The sanitizer's own memory would count, so only its end is seen there.
expect_within_kb() {
  local most=$1
  shift
  expect 0 python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[2:], check=True)
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))' "$WORK/kb" "$@"
  sanitized || [ "$(cat "$WORK/kb")" -le "$most" ] || fail "takes $(cat "$WORK/kb") kB: $*"
}
launch() {
  # Output of the last command must not be mistaken for this one's: a test would send its signal too early.
  : >"$WORK/out" >"$WORK/err"
  env --default-signal=INT "$@" >"$WORK/out" 2>"$WORK/err" &
  pid=$!
  # Until its exec, it is a copy of this shell, which on a signal would clean up $WORK.
  while [ "/proc/$pid/exe" -ef "/proc/$$/exe" ]; do :; done
}
powerless() {
  as=()
  [ "$(id -u)" = 0 ] || return 0
  command -v setpriv >/dev/null || skip 'runs as root without setpriv'
  as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  chmod -R a+rX "$WORK"
  "${as[@]}" test -x "$GDNCTL" && return 0
  cp "$GDNCTL" "$WORK/gdnctl" && GDNCTL=$WORK/gdnctl  # the tree is in a home directory that others cannot read
}
# The names of all commands, one a line. In the reference, a heading of one word may be that of a group.
command_names() {
  "$GDNCTL" __docs markdown | sed -n 's/^## gdnctl /name /p; s/^- \[gdnctl \([^] ]*\) .*/group \1/p' |
    awk '$1 == "group" { group[$2]; next } { sub(/^name /, ""); name[++n] = $0 }
      END { for (i = 1; i <= n; i++) if (!(name[i] in group)) print name[i]; exit n == 0 }'
}
out_has() { grep -qF -- "$1" "$WORK/out" || fail "stdout lacks: $1"; }
err_has() { grep -qF -- "$1" "$WORK/err" || fail "stderr lacks: $1"; }
out_lacks() { ! grep -qF -- "$1" "$WORK/out" || fail "stdout has: $1"; }
err_lacks() { ! grep -qF -- "$1" "$WORK/err" || fail "stderr has: $1"; }
out_empty() { [ ! -s "$WORK/out" ] || fail "stdout is not empty"; }
. "$script" || fail "cannot read $script"
cd "$WORK/cwd" || exit 1
"$function"
