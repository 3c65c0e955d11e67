# gdnctl sweep run and sweep report.
report() { "$GDNCTL" sweep report "$@"; }
seed=$FIXTURES/sweep/seed003
holds() { jq -e "$1" "$WORK/out" >/dev/null || fail "not so: $1"; }

# A kernel that takes v/1000 s, more or less; what it is to do at a v is in $WORK/does_V. Each run is a line of $WORK/ran.
plan() { # LINE...
  cat >"$WORK/bench.sh" <<'SH'
echo "$1 $2" >>"$WORK/ran"
case $(cat "$WORK/does_$3" 2>/dev/null) in
  oom) echo "failed JaxRuntimeError Used 20.19M of 16.00M"; exit 1 ;;
  crash) kill -SEGV $$ ;;
  hang) setsid "$WORK/slumber" 700 & "$WORK/slumber" 700 ;;
  lost) echo 'ActorDiedError: the node received SIGTERM'; exit 1 ;;
  busy) echo 'ABORTED: The TPU is already in use by process with pid 27.' >&2; exit 1 ;;
  full) echo 'OSError: [Errno 28] No space left on device' >&2; exit 1 ;;
  once) rm "$WORK/does_$3"; echo 'open(/dev/accel0): Device or resource busy' >&2; exit 1 ;;
  slow) touch "$WORK/slow.$$"; "$WORK/slumber" 700 ;;
esac
echo "config $1 BlockSizes(b_block_size=$2, h_block_size=512, v_block_size=$3)"
echo "loss 11.9"; echo "steady_time_s 0.$3"; echo "tokens_per_s 1"
SH
  { printf 'shapes = [{ batch = 1024, hidden = 512, vocab = 128256 }]\nv = [128, 256]\nrepeats = 2\ndevice_kind = "TPU v5"\n'
    printf 'x_dtype = "bf16"\nimplementation = "mine"\nsource_revision = "r1"\n'
    printf 'command = ["sh", "%s", "{label}", "{b}", "{v}"]\n' "$WORK/bench.sh"
    printf '%s\n' "$@"; } >plan.toml
  : >"$WORK/ran"
  ln -sf "$(command -v sleep)" "$WORK/slumber"  # what waits is this test's own
}
run() { "$GDNCTL" sweep run plan.toml --cluster local "$@"; }
ran() { [ "$(wc -l <"$WORK/ran")" = "$1" ] || fail "$(wc -l <"$WORK/ran") runs, not $1: $(cat "$WORK/ran")"; }
nobody() { for _ in $(seq 600); do pgrep -f "$1" >/dev/null || return 0; sleep 0.05; done; fail "still there: $1"; }

test_report_of_the_seed() {
  expect 0 report "$seed/2026-02-17_tune_v5p.log" --device-kind 'TPU v5' --strict
  out_has '25 configurations: 9 ok, 16 vmem_oom'
  out_has 'best of large-batch-small-h on TPU v5: pallas_tpu b1024_h512_v1024, 607,500 tok/s a step'
  out_has 'counts the tokens of all 4 shards'
  expect 0 report "$seed"/2026-02-18_bench_v5p_h4096.log --comparisons xla --json
  holds '.schema == "gdnctl.sweep-report/1" and .counts == {configs: 5, ok: 4, failed: 1} and .failures == {infra: 1}'
  holds '[.comparisons[] | select(.shape.hidden == 4096)][0].combined_ratio | . > 1.1432 and . < 1.1434'
  holds '.results[0] | .script == "bench" and .x_dtype == "bfloat16" and .device_kind == "tpu v5" and .label == "infer" and .sizes == null'
  expect 1 report "$seed"/2026-02-21_bench_v5p_f32_one_hot.log --strict
  out_has 'combined_tokens_per_s 228,614 is not 1/(1/forward + 1/backward) = 227,853'
  expect 0 report "$seed"/2026-02-17_tune_v5p.log --format patch --device-kind 'TPU v5'
  out_has '"TPU v5p": {("bfloat16", "large-batch-small-h"): BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=1024)},'
  out_has '"TPU v5": {('
  expect 0 report "$seed"/*.log --format html --comparisons xla
  out_has '<svg'
  out_lacks '<script'
  # Each bar is in the row of its configuration, the fastest first, and the log tells rows of one name apart.
  out_has '<th>step tok/s of one chip'
  grep -A3 '^<tr><td>xla infer<td><div class=wide><svg .*aria-label="49,999 tok/s"' "$WORK/out" | grep -q 'class=kept' || fail 'no bar'
  out_has '<td class=soft>2026-02-17_tune_v5p.log:'
  expect 0 report "$seed"/*.log --format markdown
  out_has '| configuration | forward tok/s |'
}

test_report_from_a_pipe_and_of_nothing() {
  expect 0 sh -c '"$0" sweep report - --format json <"$1"' "$GDNCTL" "$seed/2026-02-20_bench_v4.log"
  holds '(.results | length) == 5 and .results[0].source == {file: "-", line: 9}'
  echo hello >no.log
  expect 9 report no.log
  err_has 'hint:'
  expect 2 report gone.log
  expect 2 report
  expect 2 report "$seed/2026-02-20_bench_v4.log" --comparisons cuda
  err_has 'pallas_tpu, xla, reference'
  expect 2 report "$seed/2026-02-20_bench_v4.log" --shards 0
}

test_report_fits_the_terminal() {
  expect 0 report "$seed"/*_bench_*.log "$seed"/*_tune_*.log --comparisons xla --device-kind 'TPU v5'
  awk '!/warning:/ && length > 100' "$WORK/out" | grep . && fail 'a line passes 100 columns'
  true
}

test_run_to_the_end_and_again() {
  plan
  expect 0 run --json
  holds '.schema == "gdnctl.sweep-run/1" and .ended == "complete" and .counts == {configs: 2, ok: 2, failed: 0}'
  holds '.best[0].label == "b1024_h512_v128" and .best[0].step_tok_s == 8000 and .best[0].implementation == "mine"'
  holds '.results[0].spread == {runs: 2, median_s: 0.128, mad_s: 0} and .results[0].script == "sweep"'
  [ "$(cut -d' ' -f1 "$WORK/ran" | tr '\n' ' ')" = 'b1024_h512_v128 b1024_h512_v256 b1024_h512_v128 b1024_h512_v256 b1024_h512_v128 b1024_h512_v256 ' ] ||
    fail "another order: $(cat "$WORK/ran")"
  expect 0 run
  ran 6
  out_has 'best at'
  expect 0 report plan.journal.jsonl --json
  holds '.counts.ok == 2'
  jq -es 'all(.schema == "gdnctl.sweep-journal/1")' plan.journal.jsonl >/dev/null || fail 'journal'
}

test_one_bad_configuration_costs_no_other() {
  plan 'time_limit_s = 6'
  sed -i 's/^v = .*/v = [128, 130, 131, 132]/' plan.toml
  echo oom >"$WORK/does_130"; echo crash >"$WORK/does_131"; echo hang >"$WORK/does_132"
  expect 0 run --json
  holds '.failures == {vmem_oom: 1, crashed: 1, timed_out: 1} and .counts == {configs: 4, ok: 1, failed: 3}'
  holds '[.results[] | select(.failure_class == "vmem_oom")][0].vmem_limit_bytes == 16777216'
  ran 6
  nobody "$WORK/slumber"
  expect 0 run
  ran 6
  rm "$WORK"/does_*; sed -i 's/"r1"/"r2"/' plan.toml
  expect 0 run --json
  holds '.counts == {configs: 4, ok: 4, failed: 0}'
}

test_what_the_machines_lose_is_tried_again() {
  plan 'retries = 1'
  echo lost >"$WORK/does_256"
  expect 4 run --json
  holds '.failures == {infra: 1} and .counts.ok == 1'
  ran 5
  rm "$WORK/does_256"
  expect 0 run
  ran 8
}

# A kernel in a repository, read by the command that the plan names, and by nothing else.
kernel_in_git() { # TIME
  mkdir -p tree && cd tree || return 1
  [ -d .git ] || git init -q .
  plan; sed -i -e '/source_revision/d' -e 's/repeats = 2/repeats = 1/' -e 's/^v = .*/v = [128]/' plan.toml
  printf 'command = ["sh", "./bench.sh", "{label}"]\n' | cat <(grep -v ^command plan.toml) - >p2.toml && mv p2.toml plan.toml
  printf '. ./kernel.sh; echo "$1 x" >>"%s/ran"; echo "batch 1024"; echo "steady_time_s $s"\n' "$WORK" >bench.sh
  echo "s=$1" >kernel.sh
}

test_code_that_was_edited_is_measured_again() {
  kernel_in_git 0.25; git add .; git commit -qm x
  expect 0 run; ran 2; out_has 'b1024_h512_v128'
  expect 0 run; ran 2
  echo s=0.05 >kernel.sh
  expect 0 run --json; ran 4; holds '.results[0].spread.median_s == 0.05'
  err_has 'have results of other code'
  expect 0 run; ran 4
  git update-index --assume-unchanged kernel.sh; echo s=0.06 >kernel.sh
  expect 0 run --json; ran 6; holds '.results[0].spread.median_s == 0.06'
  git update-index --no-assume-unchanged kernel.sh
  git commit -qam y
  expect 0 run --json; ran 8; holds '.results[0].spread.median_s == 0.06'
  touch kernel.sh; echo log >>untracked.log; sed -i 's/repeats = 1/repeats = 2/' plan.toml
  expect 0 run; ran 9
}

test_files_that_the_command_names_are_part_of_the_code() {
  kernel_in_git 0.25; git commit -qm x --allow-empty  # nothing is tracked
  expect 0 run; ran 2
  echo '# another comment' >>bench.sh
  expect 0 run; ran 4
  sed -i 's|"sh", "./bench.sh"|"sh", "-c", "sh ./bench.sh \\"$0\\""|' plan.toml
  expect 0 run; ran 6
  expect 0 run; ran 6
  echo '# a third one' >>bench.sh
  expect 0 run; ran 8
}

test_a_busy_device_and_a_full_disk_are_no_property() {
  plan 'retries = 1'
  echo busy >"$WORK/does_128"; echo full >"$WORK/does_256"
  expect 4 run --json
  holds '.failures == {infra: 2}'
  ran 4
  rm "$WORK"/does_*
  expect 0 run --json
  holds '.counts == {configs: 2, ok: 2, failed: 0}'
  echo once >"$WORK/does_128"; sed -i 's/"r1"/"r2"/' plan.toml
  expect 0 run --json
  holds '.counts == {configs: 2, ok: 2, failed: 0}'
}

test_killed_and_resumed() {
  plan
  echo slow >"$WORK/does_256"
  launch "$GDNCTL" sweep run plan.toml --cluster local
  for _ in $(seq 600); do ls "$WORK"/slow.* >/dev/null 2>&1 && break; sleep 0.05; done
  expect 7 run
  kill -9 $pid; wait $pid 2>/dev/null
  rm "$WORK/does_256"
  pgrep -f "$WORK/slumber" >/dev/null || fail 'the run should outlive the sweep'
  printf '{"schema":"gdnctl.sweep-jour' >>plan.journal.jsonl
  expect 0 run --json
  err_has 'was still running'
  nobody "$WORK/slumber"
  holds '.counts.ok == 2'
  ran 7
  [ "$(grep -c v128 "$WORK/ran")" = 3 ] || fail "a finished run was repeated: $(cat "$WORK/ran")"
}

test_interrupted_ends_its_run() {
  plan
  echo slow >"$WORK/does_128"
  launch "$GDNCTL" sweep run plan.toml --cluster local
  for _ in $(seq 600); do ls "$WORK"/slow.* >/dev/null 2>&1 && break; sleep 0.05; done
  kill -INT $pid; wait $pid
  [ $? = 130 ] || fail 'exit code'
  nobody "$WORK/slumber"
}

test_the_budget() {
  plan
  expect 124 run --budget 0 --json
  holds '.ended == "budget" and .counts.configs == 0'
  ran 0
  expect 0 run
}

test_plans_that_make_no_sense() {
  plan 'repeat = 3'
  expect 2 run
  err_has 'plan.toml:9: unknown key repeat'
  err_has 'did you mean `repeats`?'
  plan 'check = "sampled"'
  expect 2 run
  plan
  echo 'v = [' >>plan.toml
  expect 2 run
  expect 2 "$GDNCTL" sweep run gone.toml
  plan
  echo 'my notes' >notes
  expect 2 run --journal notes
  grep -q 'my notes' notes || fail 'the notes are gone'
  ran 0
}

test_outputs_are_judged_before_their_time_counts() {
  plan 'check = "exact"' 'inputs = "in.safetensors"'
  expect 0 "$GDNCTL" oracle run linear-ce --batch 8 --hidden 8 --vocab 40 --out "$PWD/in.safetensors"
  expect 0 "$GDNCTL" oracle run linear-ce --batch 8 --hidden 8 --vocab 40 --seed 9 --out "$PWD/other.safetensors"
  sed -i "s#^command.*#command = [\"sh\", \"-c\", \"if [ {v} = 128 ]; then cp $PWD/in.safetensors {outputs}; else cp $PWD/other.safetensors {outputs}; fi; sh $WORK/bench.sh {label} {b} {v}\"]#" plan.toml
  expect 0 run --json
  holds '[.results[].status] == ["ok", "wrong"] or [.results[].status] == ["wrong", "ok"]'
  ran 4
}

test_estimates_skip_where_asked() {
  plan
  sed -i 's/^v = .*/v = [128, 16384]/' plan.toml
  expect 0 run --prune-vmem --json
  holds '.counts.configs == 1'
  ran 3
  grep -q '"status":"skipped_estimate"' plan.journal.jsonl || fail 'not in the journal'
}

test_a_target_reads_its_metric_from_a_sweep() {
  plan
  cat >gdnctl.toml <<TOML
target = "t"
[targets.t]
test = ["true"]
metric = { name = "ce/tok_s", better = "higher", unit = "tok/s", from = "json:/best/0/step_tok_s" }
[targets.t.profile]
argv = ["gdnctl", "sweep", "run", "$PWD/plan.toml", "--cluster", "local", "--json"]
TOML
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  jq -e '.metric.value == 8000' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
}

test_the_second_embedded_target() {
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  expect 0 "$GDNCTL" --target cpu-ce ray-test --cluster local --json
  jq -e '.verdict.overall == "OK" and .target == "cpu-ce"' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
  kernel=$XDG_STATE_HOME/gdnctl/targets/cpu-ce/kernel.c
  cmp "$kernel" "$REPO/examples/cpu-ce/kernel.c" || fail 'not the example'
  expect 0 "$GDNCTL" --target cpu-ce ray-profile --cluster local --json
  jq -e '.metric.name == "linear-ce/gradients_ms" and .metric.value > 0' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
  sed -i 's/- hot) \*/- 0.5f * hot) */' "$kernel"
  expect 1 "$GDNCTL" --target cpu-ce ray-test --cluster local
}

test_the_loop_climbs_on_a_loss_kernel() {
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  git init -q . && mkdir -p examples prompts && cp -r "$REPO/examples/cpu-ce" examples/ && cp "$REPO/gdnctl.toml" .
  cp "$REPO/prompts/cpu-ce.md" prompts/
  git add -A && git commit -qm base
  printf '#!/bin/sh\ncat >"%s"\nsed -i "s/(1 - t \\* t)/(1 - t * t + 0 * t)/" examples/cpu-ce/kernel.c\ngit commit -qam "Add nothing to the derivative"\n' \
    "$WORK/prompt" >"$WORK/agent" && chmod +x "$WORK/agent"
  expect 0 "$GDNCTL" --target cpu-ce codex-loop --iterations 1 --agent command --agent-command "$WORK/agent" --sleep-seconds 0 \
    --post-check "'$GDNCTL' oracle verify linear-ce --kernel src:examples/cpu-ce/kernel.c --case golden_a --case soft_cap"
  [ "$(git log -1 --format=%s -- examples/cpu-ce/kernel.c)" = 'Add nothing to the derivative' ] || fail "$(git log --oneline)"
  grep -q 'linear cross-entropy hill climb' "$WORK/prompt" || fail 'another prompt'
}

test_on_a_cluster() {
  . "$REPO/tests/support/ray_server.sh"
  serve
  plan
  # shellcheck disable=SC2086
  LEVANTER_CE_XLA_FAST_BWD=1 expect 0 "$GDNCTL" sweep run plan.toml $RAY --json
  holds '.counts == {configs: 2, ok: 2, failed: 0} and .best[0].step_tok_s == 8000'
  ran 6
  plan 'check = "sampled"' 'inputs = "in.safetensors"'
  sed -i 's/"{v}"\]/"{v}", "{outputs}"]/' plan.toml
  # shellcheck disable=SC2086
  expect 2 "$GDNCTL" sweep run plan.toml $RAY
}

test_on_a_held_tpu() {
  git init -q . && git commit -q --allow-empty -m base
  expect 0 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --detach --no-setup
  plan
  expect 0 "$GDNCTL" sweep run plan.toml --cluster local --tpu-name a --json
  holds '.counts.ok == 2'
  grep -q '"tpu_name":"a"' plan.journal.jsonl || fail 'not on the hold'
  ran 6
  expect 0 "$GDNCTL" dev-tpu-release --cluster local --tpu-name a
  sed -i 's/"r1"/"r2"/' plan.toml
  expect 4 "$GDNCTL" sweep run plan.toml --cluster local --tpu-name a
}
