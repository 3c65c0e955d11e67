# The command lines of the original's recipe and README for dev TPUs, word for word, on a made-up cluster: `uv run python
# scripts/gdn/gdnctl.py` is this gdnctl, and the host's uv makes a Python that says what Marin's tests and profile would.
. "$REPO/tests/support/dev_tpu_host.sh"

checkout() {
  host
  metadata good /instance/network-interfaces/0/access-configs/0/external-ip=127.0.0.1
  export FAKE_SSH_DIR=$WORK FAKE_SSH_TO=$PORT USER=alice
  printf '#!/bin/sh\ncase "$*" in *list*) printf "10.128.0.5\\t203.0.113.7\\n" ;; esac\n' >"$WORK/bin/gcloud"
  printf '#!/bin/sh\nshift 3\nexec "$GDNCTL" "$@"\n' >"$WORK/bin/uv"
  cat >"$WORK/bin/codex" <<S
#!/bin/sh
case "\$*" in *__gdnctl_invalid* | *--help*) exit 1 ;; esac
cat >>"$WORK/prompt"
echo faster >>lib/levanter/src/levanter/layers/gated_deltanet.py && git commit -qam faster
S
  there python <<'S'
case "$*" in
  *tiny_profile*) env | grep ^GDN_PROFILE_ >"$WORK/profile.env"; echo 'throughput/mfu: 6.05' ;;
  *) echo 'GDNCTL_DEVICE {"backend":"tpu","count":4}' ;;
esac
S
  there uv <<'S'
echo "$*" >>"$WORK/uv.calls"
case "$*" in
  sync*) mkdir -p "$HOME/marin/.venv/bin" && cp "$WORK/there/python" "$HOME/marin/.venv/bin/python" ;;
  *pytest*) echo '=== 87 passed, 2 skipped in 12.30s ===' ;;
esac
S
  chmod +x "$WORK"/bin/*
  printf 'export PATH=%s:$PATH\n' "$WORK/there" >"$REMOTE/.profile"
  printf 'export PATH=%s:$PATH\n' "$WORK/bin" >"$HOME/.profile"
  mkdir -p "$HOME/.codex" && echo '{}' >"$HOME/.codex/auth.json"
  mkdir -p infra lib/levanter/src/levanter/layers lib/levanter/tests lib/levanter/.agents/projects scripts/gdn/session_directives
  for cluster in us-central1 us-east5-a; do
    printf 'cluster_name: marin-%s\nprovider: {availability_zone: us-central1-a}\navailable_node_types:\n  tpu_worker: {resources: {TPU: 4}, node_config: {acceleratorType: v5p-8}}\n' \
      $cluster >infra/marin-$cluster.yaml
  done
  touch lib/levanter/src/levanter/layers/gated_deltanet.py lib/levanter/tests/test_gdn_kernels.py
  echo '# Log' >lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md
  echo 'Iteration {{ITERATION}}' >scripts/gdn/codex_iteration_prompt.md
  echo 'No inversion.' >scripts/gdn/session_directives/triangular-inversion.md
  git rm -q --cached gdnctl.toml && rm gdnctl.toml && git add -A && git commit -qm marin
}

test_by_hand() {
  checkout
  launch uv run python scripts/gdn/gdnctl.py dev-tpu-allocate \
    --cluster us-central1 \
    --tpu-name "$USER-gdn"
  until_said '[gdnctl] TPU allocation is active. Press Ctrl-C to release...'
  cp "$WORK/err" "$WORK/held"
  expect 0 uv run python scripts/gdn/gdnctl.py dev-tpu-test \
    --cluster us-central1 \
    --tpu-name "$USER-gdn" \
    --tests both
  out_has '87 passed, 2 skipped'
  grep -q 'pytest tests/test_gdn_kernels.py tests/test_gdn_layer.py -v' "$WORK/uv.calls" || fail "the tests: $(cat "$WORK/uv.calls")"
  expect 0 uv run python scripts/gdn/gdnctl.py dev-tpu-profile \
    --cluster us-central1 \
    --tpu-name "$USER-gdn" \
    --tpu v5p-8 \
    --size 130m \
    --num-steps 20 \
    --profile-start-step 2 \
    --profile-num-steps 6 \
    --batch-size 8 \
    --no-sync
  out_has 'throughput/mfu: 6.05'
  [ "$(sort "$WORK/profile.env")" = "$(printf 'GDN_PROFILE_%s\n' BATCH_SIZE=8 NUM_STEPS=20 PROFILE_NUM_STEPS=6 PROFILE_START_STEP=2 \
    RUN_NAME_PREFIX=gdn_tinyprof SIZE=130m TPU_VARIANT=v5p-8)" ] || fail "the profile: $(cat "$WORK/profile.env")"
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code of the allocation'
}

test_in_a_loop() {
  checkout
  expect 0 uv run python scripts/gdn/gdnctl.py codex-loop \
    --iterations 1 \
    --model gpt-5.3-codex \
    --reasoning-effort xhigh \
    --directive-preset triangular-inversion \
    --dirty-policy stash \
    --no-commit-policy count-failure \
    --hold-dev-tpu \
    --dev-tpu-cluster us-central1 \
    --dev-tpu-fallback-cluster us-east5-a \
    --dev-tpu-name "$USER-gdn" \
    --dev-tpu-type v5p-8 \
    --dev-tpu-allocate-attempts 2 \
    --dev-tpu-allocate-retry-sleep 20 \
    --prompt-file scripts/gdn/codex_iteration_prompt.md \
    --post-check "uv run python scripts/gdn/gdnctl.py dev-tpu-test --cluster us-central1 --tpu-name $USER-gdn --tests both" \
    --post-check "uv run python scripts/gdn/gdnctl.py lint-log"
  err_lacks WARNING
  err_has 'TPU allocation released.'
  grep -q 'Managed dev TPU mode is active for this run.' "$WORK/prompt" && grep -q 'No inversion.' "$WORK/prompt" || fail 'directives'
  expect 0 uv run python scripts/gdn/gdnctl.py codex-loop \
    --iterations 1 \
    --model gpt-5.3-codex \
    --reasoning-effort xhigh \
    --resilient \
    --hold-dev-tpu \
    --dev-tpu-cluster us-central1 \
    --dev-tpu-fallback-cluster us-east5-a \
    --dev-tpu-name "$USER-gdn" \
    --dev-tpu-type v5p-8 \
    --dev-tpu-allocate-attempts 2 \
    --dev-tpu-allocate-retry-sleep 20 \
    --post-check "uv run python scripts/gdn/gdnctl.py dev-tpu-test --cluster us-central1 --tpu-name $USER-gdn --tests both"
  err_has 'TPU allocation released.'
  [ "$(git rev-list --count HEAD)" = 4 ] || fail "commits: $(git log --oneline)"
}
