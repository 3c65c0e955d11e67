# Downloads and what must stay between gdnctl and the service: in no command line while they run, in nothing that they print or write.
. "$REPO/tests/support/hub.sh"
. "$REPO/tests/cli/wandb_download_trace.sh"
unset -f $(compgen -A function | grep '^test_')
# Tests that run at the same time have the usual ones in command lines of their own.
TOKEN=hf_$(printf 'Secret%028d' $$)
KEY=$(printf 'abcdef%034d' $$)

showing() { grep -laFf "$WORK/secret" /proc/[0-9]*/cmdline 2>/dev/null; }
# watched SECRET COMMAND...: runs it to its end, and looks at every command line of the machine meanwhile.
watched() {
  local looks=0 before
  printf '%s\n' "$1" >"$WORK/secret"  # a pattern among our own words would be found
  shift
  before=$(showing)  # the fake service, which is told what to expect
  launch "$@"
  while kill -0 $pid 2>/dev/null; do
    ! showing | grep -qvxF "$before" || fail 'the secret is in a command line'
    looks=$((looks + 1))
  done
  wait $pid || fail "exit code $?"
  [ $looks -ge 5 ] || fail "only $looks looks"
}
test_a_token_of_the_hub() {
  hub_up && traces && random_file big.trace.json.gz 1000000
  setup "{\"token\": \"$TOKEN\", \"rules\": [{\"on\": \"cdn\", \"path\": \"big\", \"do\": {\"slow\": 0.05}}]}"
  HF_TOKEN=$TOKEN watched "$TOKEN" "$GDNCTL" hf-download-trace --repo-id o/r --include '*'
  no_secret
  printf '%s\n' "$TOKEN" >"$WORK/token"
  watched "$TOKEN" "$GDNCTL" -vv hf-download-trace --repo-id o/r --include '*' --force --token-file "$WORK/token"
  no_secret
  HF_DEBUG=1 HF_TOKEN=$TOKEN watched "$TOKEN" "$GDNCTL" -vv hf-download-trace --repo-id o/r --include '*' --force --jobs 1
  no_secret
  asked '.server == "cdn" and .auth' 0
}
# The scan must be able to find something.
test_the_scan_finds_a_secret_that_is_there() {
  (watched "$TOKEN" python3 -c 'import time; time.sleep(1)' "$TOKEN") 2>"$WORK/scan" && fail 'not found'
  grep -q 'in a command line' "$WORK/scan" || fail "$(cat "$WORK/scan")"
}
test_a_key_of_wandb() {
  wandb_up
  for i in $(seq 60); do printf '{"traceEvents": []}' >"$W/files/art2/$i.trace.json"; done
  watched "$KEY" "$GDNCTL" wandb-download-trace e/p/r1 --pattern trace --jobs 1
  watched "$KEY" "$GDNCTL" -vv wandb-download-trace e/p/r1 --pattern trace --jobs 1 --force
  ! grep -rqF -e "$KEY" -e "$(printf 'api:%s' "$KEY" | base64 -w 0)" -e X-Amz-Signature= "$WORK/cwd" "$WORK/out" "$WORK/err" || fail 'a secret got out'
}
