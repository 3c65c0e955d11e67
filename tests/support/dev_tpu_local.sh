# shellcheck shell=bash
# For tests of holds on this machine.

tree() {
  git init -q . && printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo tested; cat note"]\n' >gdnctl.toml
  echo first >note
  git add -A && git commit -qm tree
}
ready() { # waits until the allocation in the background is ready
  for _ in $(seq 400); do
    grep -qF 'TPU allocation is active. Press Ctrl-C to release...' "$WORK/err" && return
    kill -0 "$pid" 2>/dev/null || fail "the allocation has ended"
    sleep 0.05
  done
  fail "never ready"
}
held() { "$GDNCTL" dev-tpu-list --cluster local --json 2>/dev/null | python3 -c '
import json, sys
print(len(json.load(sys.stdin)["holds"]))'; }
free_within() { # SECONDS
  for _ in $(seq $(($1 * 10))); do
    [ "$(held)" = 0 ] && return
    sleep 0.1
  done
  fail "still held after $1 s: $("$GDNCTL" dev-tpu-list --cluster local 2>&1)"
}
detach() { expect 0 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name "$1" --detach "${@:2}"; }
hold_of() { python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["holds"][0][sys.argv[2]])' "$XDG_STATE_HOME/gdnctl/holds.json" "$1"; }
folder() { echo "$XDG_STATE_HOME/gdnctl/local/holds/$1"; }
