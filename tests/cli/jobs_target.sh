# What a target says becomes a job of the local backend: its tests, its profile, its metric.

setup() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }

test_test_and_profile_of_this_repository() {
  cp "$REPO/gdnctl.toml" .
  mkdir -p examples tests/fixtures
  cp -r "$REPO/examples/cpu-gdn" examples/
  cp -r "$REPO/tests/fixtures/oracle" tests/fixtures/
  sed -i 's|"--json"\]|"--json", "--shape", "1,2,4,70,16,8", "--rounds", "2", "--runs", "1"]|' gdnctl.toml
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
  err_has "kernel: $kernel (change it as you like)"
  out_has 'BUILD_FAILED'
  [ "$(cat "$kernel")" = 'int broken(' ] || fail "it was replaced"
  expect 1 "$GDNCTL" ray-profile --cluster local
  out_has 'BUILD_FAILED'
  CC=/nowhere/cc expect 0 "$GDNCTL" ray-test --cluster local --dry-run --json
  err_has 'no C compiler here'
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
  out_has '"metric":{"name":"gdn/forward_ms","value":1.25,"unit":"ms","better":"lower"}'
  expect 0 "$GDNCTL" ray-profile --cluster local
  err_has 'metric gdn/forward_ms: 1.25 ms'
  profile_that_prints '"echo t=3; echo t=2.5"' '"regex:t=(.*)"'
  expect 0 "$GDNCTL" ray-profile --cluster local
  err_has 'metric gdn/forward_ms: 2.5 ms'
  profile_that_prints '"echo nothing"' '"json:/forward/median_ms"'
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  out_has '"metric":{"name":"gdn/forward_ms","value":null'
  err_has 'metric gdn/forward_ms: the log holds no JSON object (json:/forward/median_ms)'
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
  err_has 'takes none of the options'
  printf 'target = "mine"\n[targets.mine]\ntest = "echo hi"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-test --cluster local --dry-run
  err_has 'a list of words'
}
