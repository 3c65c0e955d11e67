# The names of linear-ce, ce-infer and sweep that other programs rely on: options, JSON fields, keys, exit codes.
ce() { local verb=$1; shift; "$GDNCTL" oracle "$verb" linear-ce "$@"; }
holds() { jq -e "$1" "$WORK/out" >/dev/null || fail "not so: $1"; }
fields() { # FILTER KEY...: what the filter gives of the last output has these keys
  local filter=$1
  shift
  jq -e --argjson want "$(printf '%s\n' "$@" | jq -R . | jq -s .)" "$filter | ((keys) as \$got | \$want - \$got) == []" "$WORK/out" >/dev/null ||
    fail "$filter lacks one of: $*: $(jq -c "$filter | keys" "$WORK/out")"
}
options() { # COMMAND... -- OPTION...
  local words=() option
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  expect 0 "$GDNCTL" "${words[@]}" --help
  for option; do grep -qE -- "(^|[ ,])$option( |\$)" "$WORK/out" || fail "${words[*]} has no $option"; done
}

test_options() {
  options oracle run -- --batch --hidden --vocab --case --dtype --soft-cap --logsumexp-weight --weights --reduction --seed --out --layout
  options oracle compare -- --inputs --outputs --level --rows --cols --seed --matmul --layout --soft-cap --logsumexp-weight \
    --reduction --ignore-index --threads --json
  options oracle bench -- --batch --hidden --vocab --dtype --soft-cap --logsumexp-weight --kernel --peer --threads --rounds --runs --isa --seed
  options oracle verify -- --kernel --case --vectors --threads
  options ce-infer -- --device --batch --hidden --vocab --dtype --x-dtype --w-dtype --table --scoped-vmem-kib
  options sweep report -- --format --strict --shards --device-kind --dtype --comparisons --json
  options sweep run -- --journal --cluster --tpu-name --budget --prune-vmem --json
}

test_fields_of_compare() {
  expect 0 ce run --batch 9 --hidden 6 --vocab 20 --weights zero-every=3 --out in.safetensors --json
  [ "$(jq -c '[.tensors[].name] | sort' "$WORK/out")" = '["argmax","gw","gx","labels","loss","lse","reduced","w","weight","x"]' ] || fail "$(cat "$WORK/out")"
  expect 0 ce compare --inputs in.safetensors --outputs in.safetensors --rows 4 --cols 5 --json
  fields . schema verdict reason stage stages hint hints worst forward_only not_compared unknown_tensors tensors level matmul seed \
    classes sampled checks contract
  holds '.schema == "gdnctl.oracle-compare/1" and .level == "sampled" and .matmul == "exact" and .seed == 1 and .forward_only == false'
  holds '(.sampled.rows | length) == 4 and (.sampled.columns | length) == 5'
  holds '.checks | map(keys) | unique == [["limit","name","value","verdict"]]'
  holds '[.checks[] | [.name, .verdict]] == [["rows","OK"],["columns","OK"],["I1","OK"],["I2","OK"]]'
  holds '.classes.loss == "f32" and .classes.gw == "f32"'
  expect 0 ce compare --inputs in.safetensors --outputs in.safetensors --level exact --json
  holds '.level == "exact" and .sampled == null'
  expect 1 ce compare --inputs in.safetensors --outputs in.safetensors --soft-cap 0.5 --matmul bf16 --reduction sum --json
  fields .worst tensor axes index got want
  holds '.verdict == "WRONG" and .matmul == "bf16" and .classes.lse == "default TPU precision"'
  expect 0 ce run --batch 4 --hidden 6 --vocab 20 --dtype bf16 --out bf16.safetensors
  expect 0 ce compare --inputs bf16.safetensors --outputs bf16.safetensors --json
  holds '.classes.lse == "bf16 inputs"'
  expect 9 ce compare --inputs in.safetensors --outputs "$FIXTURES/linear_ce/ce_tiny.inputs.safetensors" --json
  holds '.verdict == "NO_DATA"'
}

test_set_changes_the_contract() {
  expect 0 ce run --case unit_normal --set matmul=tf32 --set layout=vh --out tf32.safetensors --json
  holds '.contract.fields.matmul == {"value":"tf32","origin":"--set"} and .contract.fields.layout.value == "vh"'
  expect 0 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --json
  holds '.matmul == "tf32" and .classes.gw == "tf32" and .declare == null'
  expect 1 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --set matmul=exact
  out_has 'stage: rounding'
  out_has 'hint: the operands of products are rounded to tf32 (declare it: --set matmul=tf32)'
  out_has 'declare: --set matmul=tf32'
  expect 1 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --matmul exact --set reduction=mean --json
  holds '.stage == "rounding" and .declare == ["--set","reduction=mean","--set","matmul=tf32"]'
  expect 0 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --matmul exact --set matmul=tf32
  for set in logits=f16 matmul=f32 cap=1 reduction; do
    expect 2 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --set $set
    err_has 'hint:'
  done
  expect 9 ce compare --inputs tf32.safetensors --outputs tf32.safetensors --set soft_cap=0
}

test_real_dumps_of_rounded_logits() {
  local at=$FIXTURES/linear_ce/judged/ce_bf16_huge
  for kernel in liger lev_batched_xla; do
    expect 1 ce compare --inputs "$at.inputs.safetensors" --outputs "$at.$kernel.outputs.safetensors" --json
    holds '.stage == "rounding" and .declare == ["--set","logits=bf16"] and (.hint | contains("the logits are rounded to bf16"))'
    expect 0 ce compare --inputs "$at.inputs.safetensors" --outputs "$at.$kernel.outputs.safetensors" --set logits=bf16
  done
}

test_real_dumps_with_other_faults() {
  local at=$FIXTURES/linear_ce/judged
  expect 1 ce compare --inputs $at/ce_penalty_on_loss.inputs.safetensors --outputs $at/ce_penalty_on_loss.outputs.safetensors --json
  holds '.stage == "penalty" and (.hints | length) == 1'
}

test_fields_of_bench_and_defaults() {
  expect 0 ce bench --batch 4 --hidden 8 --vocab 40 --rounds 1 --runs 1 --json
  holds '.schema == "gdnctl.oracle-bench/1"'
  fields . forward gradients peak_rss_bytes input_bytes gradient_bytes
  fields .forward median_ms min_ms gflops verified
  fields .gradients median_ms min_ms gflops verified
  expect 0 "$GDNCTL" oracle bench --help
  out_has '(default: 512)'
  out_has '(default: 128256)'
}

test_fields_of_infer() {
  expect 0 "$GDNCTL" ce-infer --device 'TPU v4' --batch 12288 --hidden 4096 --vocab 128256 --dtype bfloat16 --json
  fields . schema device_kind device_key table dtype bucket remapped sizes tuned rejected runnable not_runnable_because pad_columns \
    cores estimated_vmem_bytes xla warnings
  fields .sizes b_block_size h_block_size v_block_size
  fields '.rejected[0]' key bucket sizes reason
  fields .estimated_vmem_bytes forward backward
  fields .xla b_block_size v_block_size reference_path
  holds '.table == "latest" and .remapped == false and .not_runnable_because == [] and .cores == 2'
  expect 1 "$GDNCTL" ce-infer --device other --batch 96 --hidden 64 --vocab 1 --dtype float16 --table 2026-02 --scoped-vmem-kib 50000 --json
  holds '.device_key == null and .table == "2026-02"'
}

test_fields_of_sweeps() {
  expect 0 "$GDNCTL" sweep report "$FIXTURES"/sweep/seed003/2026-02-18_bench_v5p_h4096.log --comparisons xla --format json
  fields . schema counts failures results best warnings comparisons
  fields .counts configs ok failed
  fields '.results[0]' source script label implementation status failure_class error vmem_used_bytes vmem_limit_bytes shape x_dtype \
    accum_dtype device_kind sizes bucket forward_s step_s forward_tok_s step_tok_s combined_tok_s forward_mfu step_mfu spread \
    corrections flags printed
  fields '.results[0].source' file line
  fields '.results[0].shape' batch hidden vocab
  fields '.best[0]' bucket device_kind shape implementation label sizes step_tok_s
  fields '.comparisons[0]' shape dtype base implementation forward_ratio step_ratio combined_ratio
  expect 0 "$GDNCTL" sweep report "$FIXTURES"/sweep/seed003/2026-02-17_tune_v5p.log --json
  fields '[.results[].corrections[]][0]' kind factor text
  fields '[.results[] | select(.sizes)][0].sizes' b_block_size h_block_size v_block_size
  expect 0 "$GDNCTL" sweep report "$FIXTURES"/sweep/seed003/2026-02-21_bench_v5p_f32_one_hot.log --json
  fields '.warnings[0]' source kind text
  expect 0 ce run --batch 2 --hidden 4 --vocab 8 --out "$PWD/in.safetensors"
  cat >plan.toml <<TOML
name = "all keys"
device_kind = "TPU v5"
shapes = [{ batch = 2, hidden = 4, vocab = 8 }]
x_dtype = "f32"
w_dtype = "f32"
accum_dtype = "f32"
soft_cap = 30.0
logsumexp_weight = 0.5
implementation = "mine"
b = [2]
h = [4]
v = [8]
source_revision = "r1"
command = ["sh", "-c", "cp {inputs} {outputs}; echo '{batch} {hidden} {vocab} {b} {h} {v} {label}' >>$WORK/ran; echo steady_time_s 0.5"]
infer_command = ["sh", "-c", "cp {inputs} {outputs}; echo '{label}' >>$WORK/ran; echo steady_time_s 0.25"]
repeats = 1
time_limit_s = 60
budget_s = 60
retries = 0
inputs = "in.safetensors"
check = "exact"
TOML
  expect 0 "$GDNCTL" sweep run plan.toml --cluster local --json
  fields . schema counts failures results best warnings journal ended
  fields '.results[0].spread' runs median_s mad_s
  [ "$(sort -u "$WORK/ran")" = $'2 4 8 2 4 8 b2_h4_v8\ninfer' ] || fail "$(cat "$WORK/ran")"
  cp plan.journal.jsonl "$WORK/out"
  [ "$(jq -r .event "$WORK/out" | sort | uniq -c | xargs)" = '4 end 1 plan 4 start' ] || fail "$(cat "$WORK/out")"
  jq -s 'map(select(.event == "end"))[0]' plan.journal.jsonl >"$WORK/out"
  fields . schema event key label shape run status failure_class steady_time_s wall_s at
  holds '.schema == "gdnctl.sweep-journal/1"'
}
