# gdnctl oracle compare --flashinfer: solutions on the workloads of a FlashInfer-Bench dataset, one trace line for each.
EXAMPLE=$REPO/examples/cpu-gdn/kernel.c
DECODE=gdn_decode_qk4_v8_d128_k_last
PREFILL=gdn_prefill_qk4_v8_d128_k_last
MTP=gdn_mtp_qk4_v8_d128_k_last

dataset() { cp -r "$FIXTURES/flashinfer" ds; }
evaluate() { "$GDNCTL" oracle compare gdn --flashinfer ds --warmup-runs 0 --iterations 2 --num-trials 1 "$@"; }
# A solution NAME of DEFINITION out of a C file.
solution() {
    mkdir -p ds/solutions/c
    jq -Rs --arg name "$1" --arg definition "$2" '{name: $name, definition: $definition, author: "me", description: "",
        spec: {language: "c", target_hardware: ["cpu"], entry_point: "kernel.c::gdn_kernel", dependencies: [],
               destination_passing_style: true}, sources: [{path: "kernel.c", content: .}]}' "$3" >"ds/solutions/c/$1.json"
}
# The example with a statement put before the end of forward().
spoiled() { sed "s|^    return GDN_OK;|    { $1 }\n    return GDN_OK;|; s|#include <math.h>|&\n#include <stdio.h>|" "$EXAMPLE" >kernel.c; }
edit() { jq -c "$2" "$1" >edited && mv edited "$1"; }
last_trace() { tail -1 "$1"; }

test_a_workload_of_each_definition() {
    dataset
    expect 0 evaluate --json --kernel builtin:fused
    jq -e '.schema == "gdnctl.oracle-flashinfer/1" and .workloads == 9 and .passed == 9 and .verdict == "OK"' "$WORK/out" \
        >/dev/null || fail "the report"
    jq -e '.score > 0 and (.trace_files | length) == 9 and all(.items[]; .status == "PASSED" and .latency_ms > 0)' \
        "$WORK/out" >/dev/null || fail "the items"
    jq -e 'all(.items[]; .error_over_budget < 4 and .max_absolute_error != null and .fault == null)' "$WORK/out" >/dev/null ||
        fail "the figures"
    [ "$(cat ds/traces/gdnctl/gdn/*.jsonl | wc -l)" = 9 ] || fail "not one line for each workload"
    cat ds/traces/gdnctl/gdn/*.jsonl | jq -e -s 'all(.[]; .solution == "builtin:fused" and .evaluation.status == "PASSED"
        and (.evaluation.environment.hardware | length) > 0 and (.evaluation.timestamp | length) > 0
        and .evaluation.performance.speedup_factor > 0 and .evaluation.correctness.extra.gdnctl.verdict == "OK"
        and (.workload.uuid | length) > 0)' >/dev/null || fail "the traces"
    jq -e 'all(.items[]; .contract.fields.state_layout.value == "B,H,V,K" and .network_barrier == null)' "$WORK/out" \
        >/dev/null || fail "the contracts"
    err_lacks 'no solution'
}

test_a_solution_in_c() {
    dataset
    solution mine "$DECODE" "$EXAMPLE"
    expect 0 evaluate --definition "$DECODE"
    out_has "$DECODE, mine"
    out_has 'PASSED'
    out_has 'passed: 1 of 1'
    out_has 'verdict: OK'
    trace=ds/traces/me/gdn/$DECODE.jsonl
    [ "$(wc -l <"$trace")" = 1 ] || fail "not one trace"
    jq -e '.solution == "mine" and .definition == "'$DECODE'"' "$trace" >/dev/null || fail "the trace"
    jq -e '.evaluation.correctness.extra.gdnctl | .contract.name == "flashinfer" and (.contract.fields | length) == 16
        and (.network_barrier | length) > 0' "$trace" >/dev/null || fail "contract and barrier of the trace"
    grep -Eq '^network blocked by: (namespace|seccomp|none)$' "$WORK/out" || fail 'nothing about the network'
    [ "$(grep -c '^contract flashinfer: head_map=' "$WORK/out")" = 1 ] || fail 'not the contract, once'
    jq -S .workload "$trace" >of_trace
    jq -S .workload "ds/workloads/gdn/$DECODE.jsonl" | cmp - of_trace || fail "the trace's workload is another"
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR: $(ls "$TMPDIR")"
    expect 0 evaluate --definition "$DECODE" --resume
    out_has 'skipped, already recorded: 1'
    [ "$(wc -l <"$trace")" = 1 ] || fail "a recorded workload was evaluated again"
    expect 0 evaluate --definition "$DECODE" --solution mine --traces other/t.jsonl
    [ "$(wc -l <other/t.jsonl)" = 1 ] && [ "$(wc -l <"$trace")" = 1 ] || fail "--traces"
}

# A solution by FlashInfer-Bench's own convention, NAME of DEFINITION out of a C file.
own_convention() {
    solution "$@"
    edit "ds/solutions/c/$1.json" '.spec.entry_point = "kernel.c::run" | .spec.language = "cpp" | .spec.binding = "tvm-ffi"'
}

test_solutions_by_the_convention_of_flashinfer_bench() {
    dataset
    source=ds/solution/recurrence.c
    own_convention decode "$DECODE" $source
    own_convention mtp "$MTP" $source
    for name in decode mtp; do
        expect 0 evaluate --solution $name --json
        jq -e '.items[0] | .status == "PASSED" and .verdict == "OK" and .latency_ms > 0' "$WORK/out" >/dev/null ||
            fail "$name"
    done
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR: $(ls "$TMPDIR")"
    wrong() { sed "s|^    free(S);|    $1\n&|" $source >kernel.c; own_convention decode "$DECODE" kernel.c; }
    wrong 'out[5] = 0x4000;'
    expect 1 evaluate --solution decode
    out_has 'INCORRECT_NUMERICAL WRONG'
    wrong 'out[B * T * Hv * D + 64] = 1;'
    expect 1 evaluate --solution decode
    out_has 'RUNTIME_ERROR       OUT_OF_BOUNDS'
    out_has 'past the end of out'
    wrong '*(float *)in(args, 3) = 1;'
    expect 1 evaluate --solution decode
    out_has 'wrote to its input initial_state, at byte 0'
    wrong 'memset(out, 0xd1, 2); ((char *)out)[1] = 0x7f;'
    expect 1 evaluate --solution decode
    out_has 'INCORRECT_NUMERICAL INCOMPLETE'
    wrong 'static int n; if (++n > 1) out[5] = 0x4000;'
    expect 1 evaluate --solution decode
    out_has 'INCORRECT_NUMERICAL UNSTEADY'
    wrong 'return 7;'
    expect 1 evaluate --solution decode
    out_has 'the solution returned 7'
    sed 's/__tvm_ffi_run/run/' $source >kernel.c
    own_convention decode "$DECODE" kernel.c
    expect 9 evaluate --solution decode
    out_has 'COMPILE_ERROR'
    out_has '__tvm_ffi_run'
}

test_a_prefill_by_that_convention() {
    dataset
    { echo '#define __tvm_ffi_run computed'; cat ds/solution/recurrence.c ds/solution/prefill.c; } >kernel.c
    own_convention prefill "$PREFILL" kernel.c
    expect 0 evaluate --solution prefill
    out_has 'PASSED              OK'
    sed -i 's/if (cu\[n + 1\] == cu\[n\]) memset/if (0) memset/' kernel.c
    own_convention prefill "$PREFILL" kernel.c
    expect 1 evaluate --solution prefill
    out_has 'INCORRECT_NUMERICAL WRONG'
    sed -i 's/if (count != 12) return -1;/((int64_t *)((DLTensor *)args[8].v_ptr)->data)[1] = 3;/' kernel.c
    own_convention prefill "$PREFILL" kernel.c
    expect 1 evaluate --solution prefill
    out_has 'wrote to its input cu_seqlens, at byte 8'
}

test_prefill_with_an_empty_sequence_and_mtp_from_a_pool() {
    dataset
    for definition in "$PREFILL" "$MTP"; do
        expect 0 evaluate --definition "$definition" --kernel "src:$EXAMPLE"
        out_has 'verdict: OK'
    done
}

test_a_wrong_solution() {
    dataset
    spoiled '((float *)c->out.data)[3] += 1;'
    solution wrong "$DECODE" kernel.c
    expect 1 evaluate --definition "$DECODE"
    out_has 'INCORRECT_NUMERICAL'
    out_has 'verdict: WRONG'
    last_trace ds/traces/me/gdn/$DECODE.jsonl | jq -e '.evaluation | .status == "INCORRECT_NUMERICAL" and .performance == null
        and .correctness.max_absolute_error > 0.9' >/dev/null || fail "the trace"
    spoiled '((float *)c->out.data)[3] = NAN;'
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl
    last_trace t.jsonl | jq -e '.evaluation | .status == "INCORRECT_NUMERICAL" and .correctness.max_absolute_error == "NaN"' \
        >/dev/null || fail "NaN"
}

test_faults() {
    dataset
    spoiled 'fprintf(stderr, "assertion 7"); *(volatile int *)8 = 1;'
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl
    out_has 'RUNTIME_ERROR       CRASHED'
    last_trace t.jsonl | jq -e '.evaluation | .status == "RUNTIME_ERROR" and .correctness == null and .performance == null
        and (.log | contains("assertion 7"))' >/dev/null || fail "a crash"
    spoiled 'for (volatile int x = 1; x;) {}'
    expect 124 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl --time-limit 0.4
    last_trace t.jsonl | jq -e '.evaluation.status == "TIMEOUT"' >/dev/null || fail "a hang"
    echo 'int x = ;' >kernel.c
    solution broken "$DECODE" kernel.c
    expect 9 evaluate --definition "$DECODE" --traces t.jsonl
    last_trace t.jsonl | jq -e '.solution == "broken" and (.evaluation | .status == "COMPILE_ERROR" and (.log | contains("error")))' \
        >/dev/null || fail "a compiler's refusal"
    echo 'int gdn_kernels;' >kernel.c
    expect 9 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl
    last_trace t.jsonl | jq -e '.evaluation.status == "COMPILE_ERROR"' >/dev/null || fail "no entry point"
    [ "$(wc -l <t.jsonl)" = 4 ] || fail "not one trace for each"
}

test_results_that_depend_on_the_call() {
    dataset
    spoiled 'static int n; if (++n > 3) ((float *)c->out.data)[3] += 1;'
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl
    out_has 'UNSTEADY'
    last_trace t.jsonl | jq -e '.evaluation | .status == "INCORRECT_NUMERICAL" and .correctness.max_absolute_error == "NaN"' \
        >/dev/null || fail "the trace"
    # Right as long as it is judged, wrong once it is timed.
    spoiled 'static int n; if (++n > 4) ((float *)c->out.data)[3] += 1;'
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl --iterations 8
    out_has 'INCORRECT_NUMERICAL UNSTEADY'
}

# The fixture that keeps results; SEEN says when it takes inputs for ones that it has had.
kept() { cc -O2 -shared -fPIC -w -I "$REPO/include" -I "$FIXTURES/kernels" "-DSEEN(a,b,n)=$1" -o kept.so "$FIXTURES/kernels/kept.c" -lm || fail "the test's kernel does not compile"; }

test_results_of_earlier_runs_are_not_timed_on_a_quiet_machine() {
    dataset
    # By the size of values, whatever their signs.
    kept 'same_sizes(a,b,n)'
    expect 1 evaluate --definition "$PREFILL" --kernel lib:kept.so --traces t.jsonl
    out_has 'RUNTIME_ERROR       CACHED'
    out_has 'inputs that it has seen before (except for signs) take'
    last_trace t.jsonl | jq -e '.evaluation | .status == "RUNTIME_ERROR" and .performance == null' >/dev/null || fail "the trace"
    kept 1
    for definition in "$DECODE" "$MTP"; do
        expect 1 evaluate --definition "$definition" --kernel lib:kept.so
        out_has 'INCORRECT_NUMERICAL UNSTEADY'
        out_has 'different result in a later run: final_state is'
    done
    kept 0
    expect 0 evaluate --definition "$MTP" --kernel lib:kept.so
}

test_a_solution_that_keeps_its_results_is_refused() {
    dataset
    keeping() {
        { printf '#define __tvm_ffi_run computed\n#define SEEN(a, b, n) %s\n' "$1"; cat ds/solution/recurrence.c ds/solution/kept.c; } >kernel.c
        own_convention kept "$DECODE" kernel.c
    }
    keeping 1
    expect 1 evaluate --solution kept
    out_has 'INCORRECT_NUMERICAL UNSTEADY'
    out_has 'different result in a later run: final_state is'
    keeping 'same_sizes(a, b, n)'
    expect 1 evaluate --solution kept
    out_has 'RUNTIME_ERROR       CACHED'
    keeping 0
    expect 0 evaluate --solution kept
}

test_later_runs_that_pass_by_the_rule_alone_are_checked() {
    dataset
    almost='float *s = c->final_state.data; for (int i = 0; i < 524288; ++i) s[i] *= 1.001F;'
    spoiled "$almost"
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c
    out_has 'PASSED              WRONG'
    out_has 'contract flashinfer: head_map='
    spoiled "$almost static int n; if (++n > 4) s[0] = s[1] = 4000;"
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --iterations 8
    out_has 'PASSED              WRONG'
    spoiled "$almost static int n; for (int i = 0; n > 4 \&\& i < 65536; ++i) s[i] = 4000; ++n;"
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --iterations 8
    out_has 'INCORRECT_NUMERICAL UNSTEADY'
    out_has 'of 528384 values beyond both tolerances'
}

test_what_the_rule_lets_pass_is_named() {
    dataset
    edit "ds/workloads/gdn/$DECODE.jsonl" '.workload.inputs.scale.value = 1e-5'
    spoiled 'memset(c->out.data, 0, sizeof(float) * (size_t)(c->batch * c->tokens * c->value_heads * c->value_dim));'
    expect 1 evaluate --definition "$DECODE" --kernel src:kernel.c --traces t.jsonl --json
    jq -e '.items[0] | .status == "PASSED" and .verdict == "WRONG" and (.holes | length) == 2' "$WORK/out" >/dev/null ||
        fail "the report"
    jq -e '.items[0].holes[0] == "no value of out is beyond 0.01: a result of zeros would pass"' "$WORK/out" >/dev/null ||
        fail "the hole"
    last_trace t.jsonl | jq -e '.evaluation | .status == "PASSED" and .correctness.extra.gdnctl.verdict == "WRONG"
        and (.correctness.extra.gdnctl.holes | length) == 2' >/dev/null || fail "the trace"
}

test_a_workload_that_diverges_is_not_the_solutions_fault() {
    dataset
    edit "ds/workloads/gdn/$PREFILL.jsonl" '.workload.inputs.k = {type: "random"}'
    expect 9 evaluate --definition "$PREFILL" --kernel builtin:fused --traces t.jsonl
    out_has 'UNSTABLE_INPUT'
}

test_a_solution_that_is_not_c() {
    dataset
    solution mine "$DECODE" "$EXAMPLE"
    jq '.name = "other" | .spec.language = "triton"' ds/solutions/c/mine.json >ds/solutions/other.json
    expect 9 evaluate --definition "$DECODE" --solution other
    err_has "solution 'other' cannot be run here: it is written in triton"
    expect 0 evaluate --definition "$DECODE"
    err_has "it is written in triton: skipped"
    out_has 'passed: 1 of 1'
    rm ds/solutions/c/mine.json
    expect 0 evaluate --definition "$DECODE"
    err_has "no solution of $DECODE can run here: evaluating builtin:fused"
    expect 2 evaluate --definition "$DECODE" --solution othre
    err_has "did you mean 'other'?"
    echo '[]' >ds/solutions/nothing.json
    expect 0 evaluate --definition "$DECODE"
    err_has 'solutions/nothing.json is not a solution: skipped'
    err_lacks 'other.json is no solution'
    echo '{"name": "bad", "definition": "'$DECODE'"}' >ds/solutions/bad.json
    expect 9 evaluate --definition "$DECODE"
    err_has "solutions/bad.json: has no 'author'"
}

test_definitions() {
    dataset
    expect 2 evaluate --definition gdn_decode_qk4_v8_d128_klast
    err_has "unknown definition 'gdn_decode_qk4_v8_d128_klast'"
    err_has "did you mean '$DECODE'?"
    file=ds/definitions/gdn/$DECODE.json
    edit "$file" '.axes.num_v_heads.value = 16'
    expect 9 evaluate --definition "$DECODE"
    err_has "definitions/gdn/$DECODE.json: axis 'num_v_heads' is 16, expected 8"
    echo '{' >"$file"
    expect 9 evaluate --definition "$DECODE"
    err_has "definitions/gdn/$DECODE.json: not valid JSON at byte"
    rm -r ds/definitions
    expect 0 evaluate --definition "$DECODE" --kernel builtin:chunk
    [ ! -e t.jsonl ] || fail "traces somewhere else"
}

test_workloads_that_do_not_fit() {
    dataset
    file=ds/workloads/gdn/$PREFILL.jsonl
    cp "$file" good
    refuse() {
        jq -c "$1" good >"$file"
        expect 9 evaluate --definition "$PREFILL" --kernel builtin:fused
        err_has "$2"
        [ ! -e ds/traces ] || fail "a trace of a workload that was refused"
    }
    refuse '.workload.axes.len_cu_seqlens = 5' 'workload prefill-4-24: len_cu_seqlens is 5, but num_seqs + 1 is 4'
    refuse 'del(.workload.axes.num_seqs)' "workload prefill-4-24: axis 'num_seqs' has no value"
    refuse '.workload.axes.total_seq_len = 25' "workload prefill-4-24: tensor 'k': expected [25,4,128] bfloat16, got [24,4,128]"
    refuse '.workload.inputs.k.path = "blob/none.safetensors"' "workload prefill-4-24: input 'k': blob/none.safetensors does not exist below"
    refuse '.workload.inputs.k.path = "../../secret"' "workload prefill-4-24: input 'k': "
    refuse '.workload.inputs.k.tensor_key = "kk"' "contains no tensor 'kk'"
    refuse 'del(.workload.inputs.cu_seqlens)' 'workload prefill-4-24: cu_seqlens must come from a file'
    refuse 'del(.workload.uuid)' "workloads/gdn/$PREFILL.jsonl:1: workload: has no 'uuid'"
    refuse '.solution = "x"' "workloads/gdn/$PREFILL.jsonl:1: is a trace, not a workload"
    { cat good; echo '{"definition": "'; } >"$file"
    expect 9 evaluate --definition "$PREFILL"
    err_has "workloads/gdn/$PREFILL.jsonl:2: not valid JSON at byte"
    cp good "$file"
    blob=$(jq -r .workload.inputs.k.path good)
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' >"ds/$blob"
    expect 9 evaluate --definition "$PREFILL" --kernel builtin:fused
    err_has "$blob: Git LFS pointer, not data"
    rm "$file"
    expect 3 evaluate --definition "$PREFILL"
    err_has "has no workload of $PREFILL"
}

test_usage() {
    expect 2 "$GDNCTL" oracle compare gdn --flashinfer none
    err_has 'is not a folder'
    expect 2 "$GDNCTL" oracle compare gdn --flashinfer . --inputs a --outputs b
    err_has '--flashinfer and --definition cannot be combined with --inputs and --outputs'
    expect 2 "$GDNCTL" oracle compare gdn --definition $DECODE --inputs a --outputs b
    err_has '--flashinfer and --definition cannot be combined with --inputs and --outputs'
    expect 2 "$GDNCTL" oracle compare gdn --solution s --inputs a --outputs b
    err_has 'need --flashinfer or --definition'
    expect 2 "$GDNCTL" oracle compare gdn --outputs b
    err_has '--inputs is required'
    dataset
    expect 2 evaluate --kernel builtin:recurrent64
    err_has 'cannot be timed'
    expect 2 evaluate --kernel builtin:fused --solution x
    err_has '--solution and --kernel cannot be combined'
    expect 2 evaluate --iterations 0
}

test_two_writers_at_once() {
    dataset
    for n in 1 2 3; do evaluate --definition "$DECODE" --kernel builtin:fused --traces t.jsonl >/dev/null 2>&1 & done
    wait
    [ "$(jq -c .solution t.jsonl | wc -l)" = 3 ] && [ "$(wc -l <t.jsonl)" = 3 ] || fail "lines: $(wc -l <t.jsonl)"
}

test_traces_that_cannot_be_written() {
    dataset
    mkdir t.jsonl
    expect 8 evaluate --definition "$DECODE" --kernel builtin:fused --traces t.jsonl
    err_has 't.jsonl'
}

test_the_usual_dataset_is_looked_through_for_a_definition() {
    dataset
    quick=(--warmup-runs 0 --iterations 1 --num-trials 1 --kernel builtin:fused --definition $DECODE)
    FIB_DATASET_PATH=$PWD/ds expect 0 "$GDNCTL" oracle compare gdn "${quick[@]}"
    [ -s ds/traces/gdnctl/gdn/$DECODE.jsonl ] || fail 'not the dataset of FIB_DATASET_PATH'
    mkdir -p "$HOME/.cache/flashinfer_bench" && mv ds "$HOME/.cache/flashinfer_bench/dataset"
    expect 0 "$GDNCTL" oracle compare gdn "${quick[@]}"
    FIB_DATASET_PATH=/nowhere expect 2 "$GDNCTL" oracle compare gdn "${quick[@]}"
    err_has /nowhere
    # One that compares dumps is not led astray by the variable.
    FIB_DATASET_PATH=/nowhere expect 2 "$GDNCTL" oracle compare gdn
    err_has '--inputs is required'
}
