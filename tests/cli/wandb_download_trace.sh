# wandb-download-trace against a fake W&B and its bucket.
KEY=0123456789abcdef0123456789abcdef01234567
W=$WORK/wandb
S=plugins/profile/2026_03_10_12_00_00

wandb_up() {
  mkdir -p "$W/runs" "$W/artifacts" "$W/files" && : >"$W/bucket" && : >"$W/requests"
  python3 -B "$REPO/tests/support/fake_wandb.py" "$W" "key=$KEY" >"$W/out" 2>&1 &
  wandb_pid=$!
  trap "kill $wandb_pid 2>/dev/null; cleanup" EXIT
  for _ in $(seq 600); do [ -s "$W/port" ] && break; sleep 0.05; done
  export WANDB_BASE_URL=http://127.0.0.1:$(cat "$W/port") WANDB_API_KEY=$KEY
  a_run r1
  artifact art1 jax_profile 0 '["v0"]' 2026-03-10T10:00:00Z
  artifact art2 jax_profile 1 '["latest"]' 2026-03-10T11:00:00Z
  artifact art3 model 0 '["latest"]' 2026-03-10T12:00:00Z
}
a_run() {  # ID [CONFIG]
  printf '{"entity": "e", "project": "p", "name": "%s", "state": "finished", "createdAt": "2026-03-10T09:00:00Z", "summary": {}, "history": [], "config": %s}' "$1" "${2:-{\}}" >"$W/runs/$1"
}
artifact() {  # ID TYPE VERSION ALIASES UPDATED [MORE]
  printf '{"id": "%s", "entity": "e", "project": "p", "run": "r1", "type": "%s", "collection": "run-r1-%s", "version": %s, "aliases": %s, "updated": "%s"%s}' \
    "$1" "$2" "$([ "$2" = jax_profile ] && echo profiler || echo "$2")" "$3" "$4" "$5" "${6:-}" >"$W/artifacts/$1"
  mkdir -p "$W/files/$1/$S"
  printf '{"traceEvents": [{"name": "%s"}]}' "$1" | gzip -n >"$W/files/$1/$S/host.trace.json.gz"
  printf '\x0a\x01%s' "$1" >"$W/files/$1/$S/host.xplane.pb"
}
fetch() { "$GDNCTL" wandb-download-trace e/p/r1 "$@"; }
from_art() { cmp -s "$W/files/$1/$S/host.trace.json.gz" ".profiles/wandb/r1/$S/host.trace.json.gz" || fail "not the trace of $1"; }
operations() { jq -rs '[.[].operation] | join(" ")' "$W/requests"; }
bucket() { jq -s "[.[] | select($1)] | length" "$W/bucket"; }
manifest() { jq -e "$1" .profiles/wandb/r1/.gdnctl-manifest.json >/dev/null || fail "the manifest lacks $1: $(cat .profiles/wandb/r1/.gdnctl-manifest.json)"; }

test_the_newest_profile_of_a_run() {
  wandb_up
  expect 0 fetch
  out_has "[gdnctl] $S/host.trace.json.gz -> .profiles/wandb/r1/$S/host.trace.json.gz"
  from_art art2
  [ "$(operations)" = 'RunOutputArtifacts FetchArtifactManifest GetArtifactMembershipFileUrls' ] || fail "asked: $(operations)"
  [ "$(bucket true)" = 2 ] && [ "$(bucket .auth)" = 0 ] || fail 'the bucket'
  manifest '.source == "wandb" and .entity == "e" and .project == "p" and .run_id == "r1" and .artifact == "run-r1-profiler" and .version == "v1"'
  manifest '.files[0].md5 | test("^[A-Za-z0-9+/]{22}==$")'
  [ ! -s "$W/complaints" ] || fail "$(cat "$W/complaints")"
  expect 0 fetch
  manifest '.files[0].status == "up-to-date"'
}
test_other_ways_to_name_it() {
  wandb_up
  expect 0 fetch --alias v0
  from_art art1
  expect 0 "$GDNCTL" wandb-download-trace r1 --entity e --project p --force
  from_art art2
  expect 0 "$GDNCTL" wandb-download-trace 'https://wandb.ai/e/p/runs/r1?nw=x`.' --artifact run-r1-profiler:v0 --force
  err_has "asking $WANDB_BASE_URL (WANDB_BASE_URL)"
  from_art art1
  expect 0 "$GDNCTL" hf-download-trace --source wandb e/p/r1 --include-xplane --output-dir out
  [ -s "out/$S/host.xplane.pb" ] || fail 'no xplane'
  expect 6 fetch --alias nope && err_has 'v0'
  expect 6 fetch --artifact nope:v3
  for bad in '' :v1 run-r1-profiler: a/b:v1; do expect 2 fetch --artifact "$bad"; done
  expect 2 fetch --artifact run-r1-profiler:v0 --alias v1
  err_has 'already names an alias'
  for bad in r1 e/p e/p/ a/b/c/d https://wandb.ai/e/p '' e/p/..; do expect 2 "$GDNCTL" wandb-download-trace "$bad"; done
}
test_pages() {
  wandb_up
  for i in $(seq 7); do printf '{"traceEvents": []}' >"$W/files/art2/$i.trace.json"; done
  printf '{"page_size": 2}' >"$W/setup.json"
  expect 0 fetch --pattern 'trace'
  [ "$(wc -l <"$WORK/out")" = 8 ] || fail 'not all'
  from_art art2
  printf '{"page_size": 2, "loop": 1}' >"$W/setup.json"
  expect 4 fetch
  err_has 'repeats itself'
}
test_an_expired_address_and_what_is_gone() {
  wandb_up
  printf '{"expired": ["%s/host.trace.json.gz"]}' "$S" >"$W/setup.json"
  expect 0 fetch
  from_art art2
  [ "$(bucket '.where == "fallback" and .auth')" = 1 ] || fail 'the fallback'
  printf '{"no_urls": 1}' >"$W/setup.json" && expect 0 fetch --force
  printf '{"no_urls": 1, "gone": ["%s/host.trace.json.gz"]}' "$S" >"$W/setup.json" && expect 6 fetch --force
}
test_answers_that_make_no_sense() {
  wandb_up
  printf '{"errors": "project not loaded"}' >"$W/setup.json" && expect 4 fetch && err_has 'project not loaded'
  printf '{"errors": "permission denied"}' >"$W/setup.json" && expect 5 fetch
  for url in file:///etc/passwd ftp://127.0.0.1/x '' 'http://a b/'; do
    printf '{"manifest_url": "%s"}' "$url" >"$W/setup.json"
    expect $([ -n "$url" ] && echo 4 || echo 6) fetch
    [ ! -e .profiles ] || fail 'something was written'
  done
  printf '{}' >"$W/setup.json"
  for run in '' .. a/b 'a\b' $'a\tb' $'a\nb'; do expect 2 "$GDNCTL" wandb-download-trace "$run" --entity e --project p; done
  expect 2 "$GDNCTL" wandb-download-trace r1 --entity '' --project p
}
test_a_wrong_md5() {
  wandb_up
  printf '{"wrong_md5": ["%s/host.trace.json.gz"]}' "$S" >"$W/setup.json"
  expect 7 fetch
  err_has 'md5 is'
  [ ! -e ".profiles/wandb/r1/$S/host.trace.json.gz" ] || fail 'it is there'
}
test_references_are_not_fetched() {
  wandb_up
  artifact art2 jax_profile 1 '["latest"]' 2026-03-10T11:00:00Z ', "refs": {"far.trace.json.gz": "gs://bucket/far"}'
  expect 5 fetch
  err_has 'gs://bucket/far'
  from_art art2
  expect 0 fetch --exclude 'far*'
}
test_a_run_without_a_profile() {
  wandb_up
  rm "$W"/artifacts/art[12]
  a_run r1 '{"trainer": {"value": {"log_dir": "gs://marin-us/ttl=30d/xprof/r1"}}, "x": {"value": 1}}'
  expect 3 fetch
  err_has 'it has: model'
  err_has 'trainer.log_dir: gs://marin-us/ttl=30d/xprof/r1'
  expect 3 fetch --json
  jq -e '.error.message | contains("trainer.log_dir: gs://marin-us/ttl=30d/xprof/r1")' "$WORK/out" >/dev/null || fail 'the place is not in the JSON'
  a_run r2 && expect 3 "$GDNCTL" wandb-download-trace e/p/r2 && err_has 'no artifacts'
  artifact art1 jax_profile 0 '["v0"]' 2026-03-10T10:00:00Z ', "state": "PENDING"' && expect 3 fetch
}
test_who_may_and_what_fails() {
  wandb_up
  expect 6 "$GDNCTL" wandb-download-trace e/p/none
  expect 6 "$GDNCTL" wandb-download-trace e/none/r1
  WANDB_API_KEY=wrongwrongwrongwrongwrongwrongwrongwrong expect 5 fetch
  err_has 'W&B rejects the key of WANDB_API_KEY'
  unset WANDB_API_KEY
  expect 5 fetch
  printf 'machine 127.0.0.1 login user password %s\n' $KEY >"$HOME/.netrc" && expect 0 fetch
  mkdir -p "$HOME/.config/wandb" && printf '[default]\napi_key = %s\n' wrongwrongwrongwrong >"$HOME/.config/wandb/settings" && expect 5 fetch
  err_has 'settings'
  printf '[default]\napi_key = %s\n' $KEY >"$HOME/.config/wandb/settings" && expect 0 fetch
  printf '503\n429\n0\n' >"$W/faults" && expect 0 fetch
  printf '500\n500\n500' >"$W/faults" && expect 4 fetch --retries 1
  ! grep -rqF $KEY .profiles "$WORK/out" "$WORK/err" || fail 'the key got out'
  ! grep -rq X-Amz-Signature .profiles "$WORK/out" "$WORK/err" || fail 'a signature got out'
}
test_nothing_matches_and_unsafe_names() {
  wandb_up
  expect 3 fetch --pattern nope
  err_has 'host.xplane.pb'
  artifact art2 jax_profile 1 '["latest"]' 2026-03-10T11:00:00Z ', "refs": {"../x.trace.json.gz": "gs://b/x"}'
  expect 8 fetch
}
# What would go to https://api.wandb.ai ends at a proxy that is not there: 4.
elsewhere() { export URL=$WANDB_BASE_URL HTTPS_PROXY=http://127.0.0.1:1; unset WANDB_BASE_URL WANDB_API_KEY; mkdir -p "$HOME/.config/wandb"; }
settings() { printf '[default]\n%s\n' "$@" >"$HOME/.config/wandb/settings"; }
unasked() { [ ! -s "$W/requests" ] || fail "the server was asked: $(cat "$W/requests")"; }
test_the_server_of_the_settings_file() {
  wandb_up && elsewhere
  settings "base_url = $URL/"
  WANDB_API_KEY=$KEY expect 0 fetch
  from_art art2
  manifest ".endpoint == \"$URL\""
  printf '[default]\nBASE_URL: %s\napi_key: %s\n[other]\nbase_url = http://127.0.0.1:1\n' "$URL" $KEY >"$HOME/.config/wandb/settings" && expect 0 fetch
  settings "base_url = $URL" && printf 'machine %s\n  login user\n  password %s\n' "${URL#http://}" $KEY >"$HOME/.netrc" && expect 0 fetch
  printf 'machine 127.0.0.1:1 login user password %s\n' $KEY >"$HOME/.netrc" && expect 5 fetch
  printf 'machine 127.0.0.1 login user password %s\n' $KEY >"$HOME/.netrc" && expect 0 fetch
  mv "$HOME/.config/wandb" "$HOME/other" && WANDB_CONFIG_DIR='~/other' expect 0 fetch
  mv "$HOME/.netrc" "$HOME/keys" && NETRC='~/keys' WANDB_CONFIG_DIR='~/other' expect 0 fetch
}
test_a_key_goes_to_its_own_server_only() {
  wandb_up && elsewhere
  local private=local-$KEY
  # A private server's key and no server: not sent to wandb.ai.
  WANDB_API_KEY=$private expect 2 fetch
  err_has 'base_url'
  WANDB_API_KEY=$private WANDB_BASE_URL=https://api.wandb.ai expect 2 fetch
  # The key of the settings file is for the server of the settings file.
  settings 'base_url = https://wandb.corp.example' "api_key = $KEY"
  WANDB_BASE_URL=$URL expect 5 fetch
  err_has 'no key for W&B at 127.0.0.1'
  # A server that cannot be read from its file is not guessed.
  rm "$HOME/.config/wandb/settings" && mkdir "$HOME/.config/wandb/settings"
  WANDB_API_KEY=$KEY expect 5 fetch
  err_has settings
  rmdir "$HOME/.config/wandb/settings"
  settings 'base_url = http://wandb.corp.example' && WANDB_API_KEY=$KEY expect 2 fetch
  err_has 'uses plain HTTP'
  unasked
}
test_the_host_in_an_address_says_where_the_key_goes() {
  wandb_up && elsewhere
  address() { "$GDNCTL" wandb-download-trace "$URL/e/p/runs/r1" --output-dir out "$@"; }
  # The key of the environment is for wandb.ai or for the configured server.
  WANDB_API_KEY=$KEY expect 5 address
  err_has "WANDB_API_KEY is for https://api.wandb.ai"
  err_has base_url
  unasked
  WANDB_API_KEY=$KEY WANDB_BASE_URL=https://wandb.corp.example expect 5 address
  unasked
  # Nor does an address say which server has issued a private server's key.
  WANDB_API_KEY=local-$KEY expect 5 address
  err_has "WANDB_API_KEY is a private server's key, and nothing says which server's"
  err_has "WANDB_BASE_URL=$URL"
  unasked
  printf 'machine %s login user password %s\n' "${URL#http://}" $KEY >"$HOME/.netrc"
  WANDB_API_KEY=wrongwrongwrongwrongwrongwrongwrongwrong expect 0 address
  rm "$HOME/.netrc" && settings "base_url = $URL" && WANDB_API_KEY=$KEY expect 0 address --force
  expect 2 "$GDNCTL" wandb-download-trace http://wandb.corp.example/e/p/runs/r1
  err_has 'uses plain HTTP'
}
test_offline_uses_the_manifest() {
  wandb_up
  expect 4 fetch --offline
  err_has 'run the same command once online'
  expect 0 fetch --include-xplane
  : >"$W/requests" && : >"$W/bucket"
  unset WANDB_API_KEY
  expect 0 fetch --include-xplane --offline
  out_has "$S/host.xplane.pb"
  err_has 'hashes are right'
  manifest '.version == "v1" and .artifact == "run-r1-profiler" and ([.files[].status] | all(. == "up-to-date"))'
  expect 4 fetch --offline
  expect 4 fetch --include-xplane --alias v0 --offline
  WANDB_BASE_URL=http://127.0.0.1:1 expect 4 fetch --include-xplane --offline
  printf x >>".profiles/wandb/r1/$S/host.xplane.pb"
  expect 4 fetch --include-xplane --offline
  expect 7 fetch --include-xplane --offline --verify
  unasked
}
