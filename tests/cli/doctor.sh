# What is missing, and the command that mends it.

only_path() { # PROGRAM...: a PATH with these programs alone
  mkdir -p "$WORK/bin"
  local p
  for p in "$@"; do ln -sf "$(command -v "$p")" "$WORK/bin/$p"; done
}

test_all_required_is_there() {
  expect 0 "$GDNCTL" doctor
  for name in 'state directory' configuration target repository git cc ssh rsync gcloud libcurl libgit2 libcrypto isa-l \
    ca-certificates HF_TOKEN WANDB_API_KEY cpu; do
    grep -qE "^(ok|absent|missing) +$name" "$WORK/out" || fail "not listed: $name"
  done
}

test_json_has_schema_and_every_check() {
  expect 0 "$GDNCTL" doctor --json
  out_has '"schema": "gdnctl.doctor/1"'
  out_has '"ok": true'
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
  command -v python3 >/dev/null || skip 'python3 is not installed'
  python3 - "$WORK/out" <<'PY' || fail "not the documented shape"
import json, sys
report = json.load(open(sys.argv[1]))
assert list(report)[0] == "schema"
for check in report["checks"]:
    assert check["status"] in ("ok", "missing", "absent"), check
    assert check["need"] in ("required", "optional", "information"), check
    assert ("fix" in check) == (check["status"] != "ok"), check
PY
}

test_missing_git_is_named_with_the_command_that_installs_it() {
  only_path cc
  PATH=$WORK/bin expect 1 "$GDNCTL" doctor
  grep -qE '^missing +git' "$WORK/out" || fail "git is not missing"
  out_has 'apt-get install -y git'
  PATH=$WORK/bin expect 1 "$GDNCTL" doctor --json
  out_has '"ok": false'
}

test_missing_optional_program_does_not_fail() {
  only_path git
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^absent +rsync' "$WORK/out" || fail "rsync is not absent"
  out_has 'optional, for: dev TPUs'
}

test_keys_are_never_shown() {
  HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789 WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 \
    expect 0 "$GDNCTL" doctor -v
  grep -qE '^ok +HF_TOKEN +set$' "$WORK/out" || fail "HF_TOKEN is not set"
  out_lacks hf_abc
  out_lacks 0123456789abcdef
  err_lacks hf_abc
}

test_broken_configuration_is_found_and_the_rest_still_looked_at() {
  printf 'target = [' >gdnctl.toml
  expect 1 "$GDNCTL" doctor
  grep -qE '^missing +configuration +gdnctl.toml:1' "$WORK/out" || fail "not found"
  grep -qE '^ok +cpu' "$WORK/out" || fail "stopped there"
}

test_broken_target_that_is_not_selected_is_found() {
  printf '[targets.other]\nlgo = "x"\n' >gdnctl.toml
  expect 1 "$GDNCTL" doctor
  out_has 'unknown key targets.other.lgo'
}

test_unknown_target_is_found() {
  expect 1 "$GDNCTL" --target nothing doctor
  grep -qE '^missing +target' "$WORK/out" || fail "not found"
}

test_state_directory_that_cannot_be_written() {
  : >"$WORK/file"
  GDNCTL_STATE_DIR=$WORK/file/state expect 1 "$GDNCTL" doctor
  grep -qE '^missing +state directory' "$WORK/out" || fail "not found"
  out_has 'export GDNCTL_STATE_DIR='
}

test_looking_creates_nothing() {
  expect 0 "$GDNCTL" doctor
  [ ! -e "$XDG_STATE_HOME/gdnctl" ] || fail "the state directory was made"
}

test_program_that_hangs_does_not_hang_us() {
  only_path cc
  printf '#!/bin/sh\nexec /bin/sleep 60\n' >"$WORK/bin/git"
  chmod +x "$WORK/bin/git"
  SECONDS=0
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  [ $SECONDS -lt 40 ] || fail "took $SECONDS s"
}
