# What is missing, and the command that mends it.

only_path() { # PROGRAM...: a PATH with these programs alone
  mkdir -p "$WORK/bin"
  local p
  for p in "$@"; do ln -sf "$(command -v "$p")" "$WORK/bin/$p"; done
}

test_all_required_is_there() {
  expect 0 "$GDNCTL" doctor
  for name in 'state directory' configuration target 'cluster file' repository git cc ssh rsync gcloud codex uv 'Google login' libcurl libgit2 libcrypto isa-l \
    ca-certificates HF_TOKEN WANDB_API_KEY cpu; do
    grep -qE "^(ok|absent|missing) +$name" "$WORK/out" || fail "not listed: $name"
  done
}

test_json_has_schema_and_every_check() {
  expect 0 "$GDNCTL" doctor --json
  out_has '"schema":"gdnctl.doctor/1"'
  out_has '"ok":true'
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
  out_has '"ok":false'
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

test_keys_in_files_are_found() {
  mkdir -p "$HOME/.cache/huggingface" && echo hf_abcdefghijklmnopqrstuvwxyz0123456789 >"$HOME/.cache/huggingface/token"
  printf 'machine api.wandb.ai login user password 0123456789abcdef0123456789abcdef01234567\n' >"$HOME/.netrc"
  expect 0 "$GDNCTL" doctor
  grep -qE "^ok +HF_TOKEN +in $HOME/.cache/huggingface/token$" "$WORK/out" || fail 'the token file'
  grep -qE "^ok +WANDB_API_KEY +in $HOME/.netrc$" "$WORK/out" || fail 'the netrc file'
  out_lacks hf_abc
  out_lacks 0123456789abcdef
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
  PATH=$WORK/bin expect 1 "$GDNCTL" doctor
  grep -qE '^missing +git +.*--version ran longer than 5.0 s' "$WORK/out" || fail 'a git that hangs is ok'
  [ $SECONDS -lt 40 ] || fail "took $SECONDS s"
}

test_codex_and_uv_that_are_missing_are_named_with_what_installs_them() {
  only_path git
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^absent +codex' "$WORK/out" || fail "codex is not absent"
  grep -qE '^absent +uv' "$WORK/out" || fail "uv is not absent"
  out_has 'npm install -g @openai/codex'
  out_has 'https://astral.sh/uv/install.sh'
}

test_google_login_must_give_a_token() {
  only_path git
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^absent +Google login +not checked: gcloud is not installed' "$WORK/out" || fail "without gcloud: $(cat "$WORK/out")"
  gcloud() { printf '#!/bin/sh\n%s\n' "$1" >"$WORK/bin/gcloud" && chmod +x "$WORK/bin/gcloud"; }
  gcloud 'echo "ERROR: (gcloud.auth.print-access-token) You do not currently have an active account selected." >&2; exit 1'
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^ok +gcloud' "$WORK/out" || fail "the program is there"
  grep -qE '^absent +Google login +ERROR: .*active account' "$WORK/out" || fail "no login: $(cat "$WORK/out")"
  out_has 'to fix it: gcloud auth login'
  gcloud 'exit 0'
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^absent +Google login' "$WORK/out" || fail "an empty token is none"
  gcloud 'echo ya29.secret-of-somebody'
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor -v
  grep -qE '^ok +Google login' "$WORK/out" || fail "a login: $(cat "$WORK/out")"
  out_lacks secret-of-somebody
  err_lacks secret-of-somebody
}

test_a_program_that_does_not_run_is_not_ok() {
  only_path git
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/codex"
  chmod +x "$WORK/bin/codex"
  PATH=$WORK/bin expect 0 "$GDNCTL" doctor
  grep -qE '^absent +codex +.*--version exited with code 127' "$WORK/out" || fail 'a codex that cannot run is ok'
  out_has 'npm install -g @openai/codex'
}

test_cluster_file() {
  expect 0 "$GDNCTL" doctor
  grep -qE '^absent +cluster file +none; jobs run on this machine$' "$WORK/out" || fail 'none'
  out_has '--cluster-config FILE'
  git init -q . && mkdir infra
  printf 'cluster_name: marin-us-central1\navailable_node_types:\n  tpu_worker: {node_config: {acceleratorType: v5p-8}}\n' \
    >infra/marin-us-central1.yaml
  expect 0 "$GDNCTL" doctor
  grep -qE '^ok +cluster file +.*/infra/marin-us-central1.yaml \(us-central1, v5p-8\)$' "$WORK/out" || fail 'the default cluster'
  RAY_ADDRESS=http://127.0.0.1:1 expect 0 "$GDNCTL" doctor
  grep -qE '^ok +cluster file +not needed: http://127.0.0.1:1 \(environment RAY_ADDRESS\)$' "$WORK/out" || fail 'an address'
  printf 'a: [' >infra/marin-us-central1.yaml
  expect 0 "$GDNCTL" doctor
  grep -qE '^absent +cluster file +.*marin-us-central1.yaml' "$WORK/out" || fail 'a broken file'
  printf 'cluster = "mars"\n' >gdnctl.toml
  expect 0 "$GDNCTL" doctor
  grep -qE '^absent +cluster file +No cluster config found for region mars' "$WORK/out" || fail 'an unknown cluster'
}

test_uv_is_looked_for_where_a_job_looks() {
  uv() { mkdir -p "$1" && printf '#!/bin/sh\necho uv 0.9 from %s\n' "$1" >"$1/uv" && chmod +x "$1/uv"; }
  uv "$WORK/here" && echo 'PATH=/usr/bin:/bin; echo welcome' >"$HOME/.bash_profile"
  if [ ! -e /usr/bin/uv ] && [ ! -e /bin/uv ]; then
    PATH=$WORK/here:$PATH expect 0 "$GDNCTL" doctor
    grep -qE '^absent +uv +not in the PATH of a login shell \(bash -l\), nor in ~/.local/bin' "$WORK/out" || fail 'found where no job looks'
    uv "$HOME/.local/bin"
    expect 0 "$GDNCTL" doctor
    grep -qE "^ok +uv +uv 0.9 from $HOME/.local/bin" "$WORK/out" || fail 'not found in ~/.local/bin'
  fi
  uv "$WORK/there" && echo "PATH=$WORK/there:/usr/bin:/bin; echo welcome" >"$HOME/.bash_profile"
  PATH=$WORK/here:$PATH expect 0 "$GDNCTL" doctor
  grep -qE "^ok +uv +uv 0.9 from $WORK/there" "$WORK/out" || fail 'not the one of the login shell'
}

test_a_repository_without_a_target() {
  expect 0 "$GDNCTL" doctor
  grep -qE '^ok +target +cpu-gdn$' "$WORK/out" || fail 'outside any repository'
  git init -q .
  expect 0 "$GDNCTL" doctor
  grep -qE "^absent +target +no target is named for $PWD" "$WORK/out" || fail 'in one'
  out_has '`gdnctl config init`'
}
