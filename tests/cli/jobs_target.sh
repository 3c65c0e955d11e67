# What a target says becomes a job of the local backend: its tests, its profile, its metric.

setup() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }

test_test_and_profile_of_this_repository() {
  cp "$REPO/gdnctl.toml" .
  mkdir -p examples tests/fixtures
  cp -r "$REPO/examples/cpu-gdn" examples/
  cp -r "$REPO/tests/fixtures/oracle" tests/fixtures/
  sed -i 's|"--json"\]|"--json", "--shape", "1,2,4,70,16,8", "--rounds", "2", "--runs", "1"]|' gdnctl.toml
  # All cases take minutes with sanitizers.
  sed -i 's|"tests/fixtures/oracle"\]|"tests/fixtures/oracle", "--case", "g1", "--case", "crossed_001", "--case", "gdn_gva"]|' gdnctl.toml
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  out_has '"schema":"gdnctl.ray-profile/1"'
  grep -q '"median_ms":' "$WORK/err" || fail "the log shows no figure"
  expect 0 "$GDNCTL" ray-test --cluster local --json
  out_has '"overall":"OK"'
}

test_the_default_target_has_a_kernel_in_any_folder() {
  kernel=$XDG_STATE_HOME/gdnctl/targets/cpu-gdn/kernel.c
  expect 0 "$GDNCTL" ray-test --cluster local --dry-run --json
  cmp "$kernel" "$REPO/examples/cpu-gdn/kernel.c" || fail "not the example"
  jq -e --arg words "oracle verify gdn --kernel src:$kernel" '.entrypoint | endswith($words)' "$WORK/out" >/dev/null || fail "not judged"
  expect 0 "$GDNCTL" oracle verify gdn --kernel "src:$kernel" --case t_hand --case gva_2
  # What the user made of it stays, and is what a job judges.
  echo 'int broken(' >"$kernel"
  expect 1 "$GDNCTL" ray-test --cluster local
  err_has "kernel: $kernel (edit it as you like)"
  out_has 'BUILD_FAILED'
  [ "$(cat "$kernel")" = 'int broken(' ] || fail "it was replaced"
  expect 1 "$GDNCTL" ray-profile --cluster local
  out_has 'BUILD_FAILED'
  CC=/nowhere/cc expect 0 "$GDNCTL" ray-test --cluster local --dry-run --json
  err_has 'no C compiler found'
  out_has 'oracle verify gdn --kernel builtin:chunk'
  rm -r "$XDG_STATE_HOME/gdnctl/targets" && : >"$XDG_STATE_HOME/gdnctl/targets"
  expect 8 "$GDNCTL" ray-test --cluster local --dry-run
}

test_profile_of_a_target_with_argv() {
  setup '"true"'
  printf '[targets.t.profile]\nargv = ["sh", "-c", "echo throughput/mfu: 12.5; echo $X"]\nenv = { X = "from-table" }\n' >>gdnctl.toml
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  out_has '"schema":"gdnctl.ray-profile/1"'
  out_has '"profile":{"mfu":12.5,"tokens_per_second":null'
  err_has from-table
}

test_gdnctl_as_first_word_is_this_binary() {
  printf 'target = "t"\n[targets.t]\ntest = ["gdnctl", "--version"]\n' >gdnctl.toml
  PATH=/usr/bin:/bin expect 0 "$GDNCTL" ray-test --cluster local
  out_has 'gdnctl '
}

profile_that_prints() { # SCRIPT METRIC-FROM
  printf 'target = "t"\n[targets.t]\ntest = ["true"]\nmetric = { name = "gdn/forward_ms", better = "lower", unit = "ms", from = %s }\n' "$2" >gdnctl.toml
  printf '[targets.t.profile]\nargv = ["sh", "-c", %s]\n' "$1" >>gdnctl.toml
}

test_profile_reads_the_targets_metric() {
  local objects
  objects='"echo; echo \"{\\\"forward\\\": {\\\"median_ms\\\": 9}}\"; echo \"{\"; echo \"  \\\"forward\\\": {\\\"median_ms\\\": 1.25}\"; echo \"}\"; echo done"'
  profile_that_prints "$objects" '"json:/forward/median_ms"'
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  out_has '"metric":{"name":"gdn/forward_ms","value":1.25,"unit":"ms","better":"lower","source":"log","trace":null}'
  expect 0 "$GDNCTL" ray-profile --cluster local
  err_has 'metric gdn/forward_ms: 1.25 ms'
  profile_that_prints '"echo t=3; echo t=2.5"' '"regex:t=(.*)"'
  expect 0 "$GDNCTL" ray-profile --cluster local
  err_has 'metric gdn/forward_ms: 2.5 ms'
  profile_that_prints '"echo nothing"' '"json:/forward/median_ms"'
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  out_has '"metric":{"name":"gdn/forward_ms","value":null'
  err_has 'metric gdn/forward_ms: the log contains no JSON object (json:/forward/median_ms)'
  # The last result counts, usable or not.
  profile_that_prints '"echo \"{\\\"a\\\": 5}\"; echo \"{\\\"a\\\": NaN}\""' '"json:/a"'
  expect 1 "$GDNCTL" ray-profile --cluster local --json
  out_has '"value":null'
  out_has '"failure_class":"user"'
  err_has 'is not valid JSON'
  profile_that_prints '"echo \"{\\\"a\\\": 5}\"; printf \"{\\\"a\\\": 12\""' '"json:/a"'
  expect 1 "$GDNCTL" ray-profile --cluster local
  err_has 'is cut off'
  err_has "the profile succeeded, but its result 'gdn/forward_ms' is not a usable number"
  err_has 'gdnctl ray-logs --cluster local '
  profile_that_prints '"echo t=3; echo t=inf"' '"regex:t=(.*)"'
  expect 1 "$GDNCTL" ray-profile --cluster local
  err_has "'inf' is not a number"
  profile_that_prints '"true"' '"regex:("'
  expect 2 "$GDNCTL" ray-profile --cluster local
  err_has "metric 'gdn/forward_ms'"
}

test_profile_without_a_tpu_here() {
  mkdir -p lib/levanter/src/levanter/layers && touch lib/levanter/src/levanter/layers/gated_deltanet.py
  expect 0 "$GDNCTL" ray-profile --cluster local --tpu auto --no-wait --json --submission-id p1
  out_has '"tpu":null'
  out_lacks GDN_PROFILE_TPU_VARIANT
  out_has '"resources":{}'
  expect 0 "$GDNCTL" ray-profile --cluster local --no-wait --json --submission-id p2
  out_has '"tpu":"v5p-8"'
  out_has GDN_PROFILE_TPU_VARIANT
}

test_a_target_of_ones_own_has_no_pytest_and_no_recipe() {
  printf 'target = "mine"\n[targets.mine]\ntest = ["sh", "-c", "echo 87 passed, 40 skipped in 1s"]\nprofile = ["true"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-test --cluster local --json
  out_has '"tests":null'
  err_lacks 'passed, 40 skipped, 0 failed'
  err_lacks 'torch'
  expect 2 "$GDNCTL" ray-test --cluster local --tests kernels --dry-run
  err_has 'has no suites to choose from'
  expect 2 "$GDNCTL" ray-profile --cluster local --size 1_2b --dry-run
  err_has 'does not accept options for the model'
  printf 'target = "mine"\n[targets.mine]\ntest = "echo hi"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-test --cluster local --dry-run
  err_has 'a list of words'
}

# A checkout of marin and a uv that writes down how it is called, and fails where $FAIL_AT is in its words. Its sync makes a
# Python that finds a TPU and else is $PYTHON_OF_JOB, or echo.
checkout_with_uv() {
  mkdir -p lib/levanter experiments "$HOME/bin" && touch lib/levanter/x experiments/x
  printf 'target = "marin"\n' >gdnctl.toml
  cat >"$HOME/bin/uv" <<'UV'
#!/bin/sh
echo "uv $* [env ${UV_PROJECT_ENVIRONMENT:-none}] [no sync ${UV_NO_SYNC:-0}]" | sed "s|$ROOT_OF_JOB|ROOT|g"
case " $* " in *" torch=="*) echo "torch from here:$(env | sed -n 's/^\(UV_[A-Z_]*\)=.*/ \1/p' | sort | tr -d '\n')" ;; esac
case " $* " in *"$FAIL_AT"*) exit 9 ;; esac
if [ "$1" = sync ]; then
  mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"
  printf '#!/bin/sh\ncase "$2" in *GDNCTL*) echo "GDNCTL_DEVICE {\\"backend\\":\\"tpu\\",\\"count\\":4}" ;; *) %s "$@" ;; esac\n' "${PYTHON_OF_JOB:-echo python}" >"$UV_PROJECT_ENVIRONMENT/bin/python"
  chmod +x "$UV_PROJECT_ENVIRONMENT/bin/python"
fi
exit 0
UV
  chmod +x "$HOME/bin/uv"
  echo "export PATH=$HOME/bin:/usr/bin:/bin ROOT_OF_JOB=\$PWD FAIL_AT=\${FAIL_AT:-no such words}" >"$HOME/.bash_profile"
}

test_marin_uses_one_environment_from_sync_to_pytest() {
  checkout_with_uv
  expect 0 env -u VIRTUAL_ENV -u UV_PROJECT_ENVIRONMENT "$GDNCTL" ray-test --cluster local --tests kernels
  grep -E '^(uv|python)' "$WORK/out" | diff - <(cat <<'TEXT'
uv sync --extra=tpu --group test [env ROOT/.venv] [no sync 0]
uv pip install --python ROOT/.venv/bin/python --force-reinstall --index-url https://download.pytorch.org/whl/cpu torch==2.9.0+cpu [env ROOT/.venv] [no sync 1]
uv pip install --python ROOT/.venv/bin/python transformers [env ROOT/.venv] [no sync 1]
uv run pytest tests/test_gdn_kernels.py -v [env ROOT/.venv] [no sync 1]
TEXT
) || fail "not these calls"
  # One that is asked for.
  expect 0 "$GDNCTL" ray-test --cluster local -e VIRTUAL_ENV=$WORK/asked
  out_has "uv sync --active --extra=tpu --group test [env $WORK/asked]"
  out_has "uv pip install --python $WORK/asked/bin/python --force"
  out_has "uv run pytest tests/test_gdn_kernels.py tests/test_gdn_layer.py -v [env $WORK/asked] [no sync 1]"
  expect 0 "$GDNCTL" ray-test --cluster local -e UV_PROJECT_ENVIRONMENT=.venv-ci
  out_has 'uv pip install --python ROOT/.venv-ci/bin/python --force'
  # The profile's environment is the job's own.
  expect 0 "$GDNCTL" ray-profile --cluster local -e VIRTUAL_ENV=$WORK/other
  out_has 'uv sync [env .venv] [no sync 0]'
  out_has 'uv pip install --python .venv/bin/python --force'
  out_has 'python -m experiments.speedrun.hackable_transformer_gdn.tiny_profile --force_run_failed true'
  [ ! -e "$WORK/other" ] || fail "the active environment was touched"
}

test_marin_judges_its_kernel_after_the_sync_and_before_the_tests() {
  local python=
  for each in /usr/bin/python3 python3; do "$each" -c 'import numpy' 2>/dev/null && python=$each && break; done
  [ -n "$python" ] || skip 'no python3 with numpy'
  checkout_with_uv
  echo "export PYTHON_OF_JOB=$python" >>"$HOME/.bash_profile"
  { printf 'def supports(case):\n    return case["T"] <= 64 and case["dk"] == 64 and case["dv"] == 64 or "long"\n'; cat "$FIXTURES/python/my_gdn.py"; } >wrong.py
  tac wrong.py | awk '/S = S \* decay/ && !n++ {next} 1' | tac >right.py
  printf '[targets.marin.oracle]\nkernel = "py:right.py"\n' >>gdnctl.toml
  expect 0 "$GDNCTL" ray-test --cluster local --tests kernels --oracle
  grep -oE '^(uv [a-z]+|verdict: [A-Z]+)' "$WORK/out" | diff - <(printf '%s\n' 'uv sync' 'verdict: OK' 'uv pip' 'uv pip' 'uv run') || fail 'not in this order'
  out_has 'on: numpy '
  sed -i 's/right.py/wrong.py/' gdnctl.toml
  expect 1 "$GDNCTL" ray-test --cluster local --tests kernels --oracle --json
  jq -e '.oracle.verdict == "WRONG" and (.oracle.groups | length) > 0 and .driver_exit_code == 1' "$WORK/out" >/dev/null || fail 'not the verdict'
  err_has 'gdnctl: failed step: oracle (exit status 1)'
  err_lacks 'uv run pytest'
  printf 'target = "mine"\n[targets.mine]\ntest = ["true"]\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-test --cluster local --oracle
  err_has "target 'mine' has no oracle"
}

# All that an activated environment sets, and where uv would look for a project.
active=(VIRTUAL_ENV VIRTUAL_ENV_PROMPT UV_PROJECT_ENVIRONMENT UV_PROJECT UV_WORKING_DIR CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL)

test_the_environment_that_is_active_here_is_not_the_jobs() {
  local name set=()
  for name in "${active[@]}"; do set+=("$name=$WORK/mine"); done
  setup '"env"'
  expect 0 env "${set[@]}" "$GDNCTL" ray-test --cluster local
  out_lacks "$WORK/mine"
  expect 0 env "${set[@]}" "$GDNCTL" ray-test --cluster local -e VIRTUAL_ENV=/asked
  out_has VIRTUAL_ENV=/asked
  expect 0 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --detach
  expect 0 env "${set[@]}" "$GDNCTL" dev-tpu-test --cluster local --tpu-name a
  out_has GDNCTL_RUN=
  out_lacks "$WORK/mine"
  expect 0 env "${set[@]}" "$GDNCTL" dev-tpu-execute --cluster local --tpu-name a -- env
  out_lacks "$WORK/mine"
  expect 0 "$GDNCTL" dev-tpu-release --cluster local --tpu-name a
  checkout_with_uv
  # The profile of the login shell activates one too.
  for name in "${active[@]}"; do echo "export $name=$WORK/mine" >>"$HOME/.bash_profile"; done
  expect 0 env "${set[@]}" "$GDNCTL" ray-test --cluster local
  out_has 'uv sync --extra=tpu --group test [env ROOT/.venv]'
  out_lacks --active
  expect 0 env "${set[@]}" "$GDNCTL" ray-profile --cluster local
  [ ! -e "$WORK/mine" ] || fail "the active environment was touched"
}

test_torch_comes_from_the_targets_index_alone() {
  local name set=()
  checkout_with_uv
  for name in INDEX DEFAULT_INDEX INDEX_URL EXTRA_INDEX_URL FIND_LINKS NO_INDEX TORCH_BACKEND EXCLUDE_NEWER CONSTRAINT OVERRIDE CONFIG_FILE; do
    set+=("UV_$name=x")
  done
  for name in ray-test ray-profile; do
    expect 0 env UV_CACHE_DIR=/c "${set[@]}" "$GDNCTL" $name --cluster local
    grep -qxE 'torch from here: UV_CACHE_DIR UV_NO_CONFIG UV_NO_SYNC UV_PROJECT_ENVIRONMENT' "$WORK/out" || fail "$name: other settings"
  done
}

test_uv_is_found_where_its_installer_puts_it() {
  checkout_with_uv
  mkdir -p "$HOME/.local" && mv "$HOME/bin" "$HOME/.local/bin"
  expect 0 "$GDNCTL" ray-test --cluster local
  expect 0 "$GDNCTL" ray-profile --cluster local
  # One in the PATH comes first.
  mkdir "$HOME/bin" && printf '#!/bin/sh\necho the other uv\nexit 9\n' >"$HOME/bin/uv" && chmod +x "$HOME/bin/uv"
  expect 1 "$GDNCTL" ray-test --cluster local
  out_has 'the other uv'
}

test_the_step_that_fails_is_in_the_message() {
  checkout_with_uv
  local words step
  while IFS='|' read -r words step; do
    FAIL_AT=$words expect 1 env -u VIRTUAL_ENV "$GDNCTL" ray-test --cluster local --json
    jq -e --arg step "gdnctl: failed step: $step (exit status 9)" '.driver_exit_code == 9 and (.message | contains($step))' "$WORK/out" >/dev/null ||
      fail "no word of $step"
  done <<'CASES'
 sync |uv sync
torch==|install torch
transformers|install transformers
 run pytest|pytest
CASES
  FAIL_AT='torch==' expect 1 "$GDNCTL" ray-profile --cluster local --json
  jq -e '.message | contains("gdnctl: failed step: install torch (exit status 9)")' "$WORK/out" >/dev/null || fail "no word of the step"
  mv lib/levanter lib/elsewhere
  expect 2 env -u VIRTUAL_ENV "$GDNCTL" ray-test --cluster local --json
  err_has "its test runs in lib/levanter, which is not a folder"
  mv lib/elsewhere lib/levanter
  rm "$HOME/bin/uv"
  expect 1 "$GDNCTL" ray-test --cluster local --json
  jq -e '.driver_exit_code == 127 and (.message | contains("gdnctl: uv is not in the PATH of a login shell") and contains("hint: install it there"))' \
    "$WORK/out" >/dev/null || fail "no hint"
}

# unnamed COMMAND...: exits with 2 and says how to name a target.
unnamed() {
  expect 2 "$GDNCTL" "$@"
  err_has "gdnctl's example kernel would be judged, not yours"
  err_has '`gdnctl config init`'
  err_has '`--target cpu-gdn`'
}

test_the_example_kernel_is_not_judged_in_place_of_yours() {
  local at command
  expect 0 "$GDNCTL" ray-test --cluster local --dry-run  # no repository
  expect 0 "$GDNCTL" ray-test --dry-run
  mkdir -p repo/sub && git init -q repo
  for at in repo repo/sub; do
    for command in 'ray-test --dry-run' 'ray-profile --dry-run' 'ray-test --cluster local' 'dev-tpu-test --cluster local --tpu-name a' \
      'dev-tpu-profile --cluster local --tpu-name a' 'codex-loop --iterations 1 --validation-mode required' \
      'codex-loop --iterations 1 --validation-mode profile-only --dry-run' 'codex-loop --mode evolve --max-attempts 1'; do
      unnamed -C $at $command
      err_has "no target is named for $PWD/repo"
    done
  done
  for command in 'ray-test --dry-run' 'ray-profile --dry-run'; do
    expect 0 "$GDNCTL" -C repo $command --target cpu-gdn
    GDNCTL_TARGET=cpu-gdn expect 0 "$GDNCTL" -C repo $command
  done
  : >repo/gdnctl.toml
  unnamed -C repo/sub ray-test --dry-run
  err_has "$PWD/repo/gdnctl.toml does not name a target"
  echo 'target = "cpu-gdn"' >repo/gdnctl.toml
  expect 0 "$GDNCTL" -C repo ray-test --dry-run
  [ ! -e "$XDG_STATE_HOME/gdnctl/local/jobs" ] || fail 'a job was submitted'
}

test_the_example_kernel_stays_on_this_machine() {
  printf 'cluster_name: c\navailable_node_types: {w: {resources: {CPU: 1}}}\n' >c.yaml
  unnamed ray-test --cluster-config c.yaml --ray-address http://127.0.0.1:9
  err_has 'no target is named for a job on a cluster'
  unnamed ray-profile --ray-address http://127.0.0.1:9
  RAY_ADDRESS=http://127.0.0.1:9 unnamed ray-test
  unnamed dev-tpu-test --ray-address http://127.0.0.1:9 --tpu-name a
  unnamed dev-tpu-profile --ray-address http://127.0.0.1:9 --tpu-name a
  expect 4 "$GDNCTL" ray-test --target cpu-gdn --ray-address http://127.0.0.1:9 --working-dir none
}

test_a_target_of_yours_is_not_passed_over() {
  printf '[targets.mine]\ntest = ["false"]\n' >gdnctl.toml
  unnamed ray-test --cluster local
  err_has 'defines the target mine, but no target is named'
  expect 1 "$GDNCTL" ray-test --cluster local --target mine
}

test_the_verdict_names_the_kernel() {
  git init -q .
  cp "$REPO/examples/cpu-gdn/kernel.c" mine.c
  printf 'target = "mine"\n[targets.mine]\ntest = ["gdnctl", "oracle", "verify", "gdn", "--kernel", "src:mine.c", "--case", "t_hand"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-test --cluster local
  grep -q '^\[gdnctl\] verdict: OK .* for src:mine.c$' "$WORK/err" || fail "no kernel in the verdict line"
}

test_secrets_in_a_command_are_masked() {
  local id=masked token=hf_abcdefghijklmnopqrstuvwx f
  printf 'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", "test $# = 2 && test $1 = hf_abcd$AND && test $2 = pass1234word", "sh", "%s", "pass1234word"]\nenv = { AND = "efghijklmnopqrstuvwx" }\n' $token >gdnctl.toml
  for form in '' --json; do
    expect 0 "$GDNCTL" ray-test --cluster local --dry-run -e WORD=pass1234word $form
    out_has 'hf_a***'
    out_lacks $token
    out_lacks pass1234word
  done
  expect 0 "$GDNCTL" ray-test --cluster local --submission-id $id -e WORD=pass1234word --json
  out_has 'hf_a***'
  cat "$WORK/err" >>"$WORK/out"
  out_lacks $token
  ! grep -rlE --exclude-dir={work,.old-work} "$token|pass1234word" "$XDG_STATE_HOME" || fail 'a secret was stored'
  expect 0 "$GDNCTL" ray-wait --cluster local $id --json
  out_has 'hf_a***'
  # Secrets of the environment are known too.
  sed -i "s/$token/letmein9/" gdnctl.toml
  HF_TOKEN=letmein9 expect 0 "$GDNCTL" ray-test --cluster local --dry-run
  out_lacks letmein9
}

test_output_that_cannot_be_written_leaves_the_job() {
  [ -w /dev/full ] || skip 'no /dev/full'
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo one; while [ ! -e %s/go ]; do sleep 0.05; done"]\n' "$WORK" >gdnctl.toml
  "$GDNCTL" ray-test --cluster local --submission-id j >/dev/full 2>"$WORK/err"
  [ $? = 8 ] || fail 'exit code'
  err_has 'cannot write to standard output: No space left on device'
  err_has 'hint: the job keeps running: `gdnctl ray-logs --follow --cluster local j` shows it'
  touch "$WORK/go"
  expect 0 "$GDNCTL" ray-logs --follow --cluster local j
  out_has one
}

test_timeout_with_auto_stop_is_told_in_order() {
  printf 'target = "t"\n[targets.t]\ntest = ["sleep", "300"]\n' >gdnctl.toml
  expect 124 "$GDNCTL" ray-test --cluster local --submission-id j --timeout 0.3 --auto-stop
  grep -oE 'did not end within|stop requested|status=STOPPED' "$WORK/err" | tr '\n' ' ' >said
  [ "$(cat said)" = 'did not end within stop requested status=STOPPED ' ] || fail "said: $(cat said)"
}

test_a_negative_resource_of_this_machine() {
  GDNCTL_LOCAL_RESOURCES='{"CPU":2,"TPU":-1}' expect 2 "$GDNCTL" ray-test --cluster local
  err_has 'GDNCTL_LOCAL_RESOURCES: TPU must be 0 or more, not -1'
}
