# gdnctl oracle ... linear-ce and ce-infer.
ce() { local verb=$1; shift; "$GDNCTL" oracle "$verb" linear-ce "$@"; }

test_cases_are_listed() {
    expect 0 ce cases
    for word in inputs edges golden upstream small_logits identity_136 golden_b; do out_has "$word"; done
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
    expect 0 ce cases --json
    jq -e '.schema == "gdnctl.oracle-cases/1" and .op == "linear-ce" and (.cases | length) > 30' "$WORK/out" >/dev/null || fail "cases"
}

test_what_is_written_is_judged_ok_at_every_level() {
    expect 0 ce run --batch 24 --hidden 20 --vocab 150 --soft-cap 1.5 --logsumexp-weight 0.2 --weights zero-every=5 --seed 3 --out a.safetensors
    expect 0 ce run --batch 24 --hidden 20 --vocab 150 --soft-cap 1.5 --logsumexp-weight 0.2 --weights zero-every=5 --seed 3 --threads 1 --out b.safetensors
    cmp a.safetensors b.safetensors || fail "same seed, other bytes"
    for level in exact sampled; do
        expect 0 ce compare --inputs a.safetensors --outputs a.safetensors --level $level --rows 7 --cols 9 --json
        jq -e '.verdict == "OK" and .level == "'$level'" and ([.tensors[].name] | index("gw")) != null' "$WORK/out" >/dev/null || fail "$level"
    done
    jq -e '(.sampled.rows | length) == 7 and (.sampled.columns | length) == 9 and (.not_compared | length) > 0' "$WORK/out" >/dev/null || fail "sample"
    cp "$WORK/out" first
    expect 0 ce compare --inputs a.safetensors --outputs a.safetensors --rows 7 --cols 9 --json --threads 1
    cmp first "$WORK/out" || fail "another report from the same seed"
    expect 0 ce compare --inputs a.safetensors --outputs a.safetensors --level invariants --json
    jq -e '.verdict == "INVARIANTS_HOLD" and .sampled == null and (.checks | map(.name)) == ["rows","columns","I1","I2"]' "$WORK/out" >/dev/null ||
        fail "invariants"
}

test_the_layout_must_be_known() {
    expect 9 ce compare --inputs "$FIXTURES/linear_ce/ce_tiny.inputs.npz" --outputs "$FIXTURES/linear_ce/ce_tiny.xla.outputs.npz"
    err_has 'layout'
    err_has 'hint:'
    expect 0 ce compare --inputs "$FIXTURES/linear_ce/ce_tiny.inputs.npz" --outputs "$FIXTURES/linear_ce/ce_tiny.xla.outputs.npz" --layout hv
    out_has 'verdict: OK'
}

test_another_cap_is_wrong_and_said_so() {
    expect 0 ce run --case soft_cap --out capped.safetensors
    expect 0 ce run --inputs capped.safetensors --soft-cap 1000000 --out plain.safetensors
    expect 1 ce compare --inputs capped.safetensors --outputs plain.safetensors --level exact --soft-cap 1.5 --json --html page.html
    jq -e '.verdict == "WRONG" and .stage == "cap"' "$WORK/out" >/dev/null || fail "stage"
    grep -q 'Linear cross-entropy' page.html || fail "no page"
    grep -q 'aria-label="error by tensor and row"' page.html || fail "no map of rows"
    grep -q '<title>tensor gw, column 0: ' page.html || fail "no map of columns"
}

test_labels_and_caps_that_cannot_be_used() {
    expect 0 ce run --batch 4 --hidden 4 --vocab 9 --out in.safetensors
    expect 9 ce compare --inputs in.safetensors --outputs in.safetensors --soft-cap 0
    err_has 'soft_cap'
    expect 2 ce compare --inputs in.safetensors --outputs in.safetensors --level most
    expect 2 ce run --batch 4 --out x.safetensors
    expect 2 ce run --case unit_norma --out x.safetensors
    err_has 'unit_normal'
    expect 9 ce run --batch 1000000 --hidden 100000 --vocab 2147483647 --out x.safetensors
    err_has 'memory'
}

test_the_selftest_passes() {
    expect 0 ce selftest --json
    jq -e '.passed and .honest_variants.false_alarms == 0' "$WORK/out" >/dev/null || fail "selftest"
}

test_our_own_kernel_and_a_program_are_verified() {
    expect 0 ce verify --kernel builtin:fused
    out_has 'verdict: OK'
    cat >copy.sh <<TEXT
"$GDNCTL" oracle run linear-ce --inputs "\$1" --out "\$2" >/dev/null
TEXT
    expect 0 ce verify --kernel "cmd:sh $PWD/copy.sh" --case golden_b --case small_logits --json
    jq -e '.verdict == "OK" and (.items | length) == 2' "$WORK/out" >/dev/null || fail "program"
}

test_recorded_outputs_are_judged() {
    expect 0 ce verify --kernel builtin:fused --vectors "$FIXTURES/linear_ce" --case golden_a --case ce_tail --case torch_bf16 --json
    jq -e '.cases == 1 and .vectors == 5 and ([.items[] | select(.kind == "vector") | .name] | index("torch_bf16.logits.outputs.safetensors")) != null' \
        "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
    mkdir wrong
    expect 0 ce run --batch 4 --hidden 4 --vocab 9 --seed 1 --out wrong/a.inputs.safetensors
    expect 0 ce run --batch 4 --hidden 4 --vocab 9 --seed 2 --out wrong/a.other.outputs.safetensors
    expect 1 ce verify --kernel builtin:fused --vectors wrong --case a
    out_has 'vector a.other.outputs.safetensors'
    expect 2 ce verify --kernel builtin:fused --vectors wrong --case b
}

test_a_source_is_compiled_and_judged() {
    cp "$REPO/examples/cpu-ce/kernel.c" kernel.c
    expect 0 ce verify --kernel src:kernel.c
    out_has 'verdict: OK'
    sed 's/v < vocab; ++v) sum/v < vocab - 1; ++v) sum/' kernel.c >wrong.c
    cmp -s kernel.c wrong.c && fail "nothing was spoilt"
    expect 1 ce verify --kernel src:wrong.c --case small_logits
    out_has 'WRONG'
    printf '#include <gdn/linear_ce_kernel.h>\nint nothing;\n' >none.c
    expect 9 ce verify --kernel src:none.c
    err_lacks 'internal'
}

test_bench_times_and_verifies() {
    expect 0 ce bench --batch 16 --hidden 32 --vocab 500 --rounds 2 --runs 2 --kernel builtin:fused --peer "src:$REPO/examples/cpu-ce/kernel.c" --json
    jq -e '.schema == "gdnctl.oracle-bench/1" and .forward.verified and .gradients.verified and .gradients.min_ms > 0 and
           .peers[0].gradients.verified and .input_bytes == 66176 and .gradient_bytes == 66048' "$WORK/out" >/dev/null || fail "bench"
}

test_bench_sees_results_that_a_kernel_kept() {
    sed -e 's/return run(c, 0)/return kept(c, 0)/; s/return run(c, 1)/return kept(c, 1)/' "$REPO/examples/cpu-ce/kernel.c" >kernel.c
    sed '/^static int forward/,$d' kernel.c >cheat.c
    cat >>cheat.c <<'C'
#include <string.h>
static int kept(const linear_ce_call* c, int gradients) {
    static float loss[16], lse[16], gx[512], gw[16000];
    static int64_t argmax[16];
    static int done[2];
    if (done[gradients]++ == 0) {
        const int status = run(c, gradients);
        memcpy(loss, c->loss.data, sizeof loss), memcpy(lse, c->lse.data, sizeof lse), memcpy(argmax, c->argmax, sizeof argmax);
        if (gradients) memcpy(gx, c->gx.data, sizeof gx), memcpy(gw, c->gw.data, sizeof gw);
        return status;
    }
    memcpy(c->loss.data, loss, sizeof loss), memcpy(c->lse.data, lse, sizeof lse), memcpy(c->argmax, argmax, sizeof argmax);
    if (gradients) memcpy(c->gx.data, gx, sizeof gx), memcpy(c->gw.data, gw, sizeof gw);
    return GDN_OK;
}
C
    sed -n '/^static int forward/,$p' kernel.c >>cheat.c
    expect 1 ce bench --batch 16 --hidden 32 --vocab 500 --rounds 2 --runs 2 --kernel src:cheat.c
    [ "$(grep -c 'does the kernel return cached results' "$WORK/out")" = 2 ] || fail "$(cat "$WORK/out")"
    printf '"%s" oracle run linear-ce --inputs "$1" --out "$2" >/dev/null\n' "$GDNCTL" >honest.sh
    expect 0 ce bench --batch 8 --hidden 8 --vocab 40 --rounds 1 --runs 2 --kernel "cmd:sh $PWD/honest.sh"
}

# Sums that neither another order of rows nor other signs change, of each call's x, w and labels.
test_bench_draws_new_inputs_for_every_run() {
    sed '/^static int forward/,$d' "$REPO/examples/cpu-ce/kernel.c" >seen.c
    cat >>seen.c <<C
#include <stdio.h>
static int seen(const linear_ce_call* c, int gradients) {
    FILE* file = fopen("$WORK/seen", "a");
    double x = 0, w = 0, labels = 0;
    for (int64_t i = 0; i < c->batch * c->hidden; ++i) x += fabs(((const float*)c->x.data)[i]);
    for (int64_t i = 0; i < c->vocab * c->hidden; ++i) w += fabs(((const float*)c->w.data)[i]);
    for (int64_t i = 0; i < c->batch; ++i) labels += (double)c->labels[i];
    fprintf(file, "%.0f\n%.0f\n%.0f\n", 1e6 * x, 1e6 * w, 1e9 + labels);
    fclose(file);
    return run(c, gradients);
}
static int forward(const linear_ce_call* c) { return seen(c, 0); }
static int gradients(const linear_ce_call* c) { return seen(c, 1); }
C
    sed -n '/^static int gradients/,$p' "$REPO/examples/cpu-ce/kernel.c" | tail -n +2 >>seen.c
    expect 0 ce bench --batch 16 --hidden 32 --vocab 5000 --rounds 3 --runs 2 --kernel src:seen.c
    [ "$(wc -l <"$WORK/seen")" = 42 ] || fail "not three sums for each of 14 calls"
    [ "$(sort -u "$WORK/seen" | wc -l)" = 42 ] || fail "some run had inputs of another: $(sort "$WORK/seen" | uniq -d)"
    # A program, by the digits of its inputs file without signs, in any order.
    cat >seen.sh <<C
od -An -v -tf4 "\$1" | tr -s ' -' '\n' | sort | cksum >>"$WORK/files"
"$GDNCTL" oracle run linear-ce --inputs "\$1" --out "\$2" >/dev/null
C
    expect 0 ce bench --batch 8 --hidden 8 --vocab 40 --rounds 2 --runs 2 --kernel "cmd:sh $PWD/seen.sh"
    [ "$(sort -u "$WORK/files" | wc -l)" = "$(wc -l <"$WORK/files")" ] || fail "a program got the same inputs twice"
}

test_work_done_before_the_call_is_impossible_on_a_quiet_machine() {
    { sed '/^static int forward/,$d' "$REPO/examples/cpu-ce/kernel.c" && cat "$FIXTURES/kernels/early.c"; } >early.c
    expect 1 ce bench --batch 64 --hidden 512 --vocab 20000 --rounds 2 --runs 2 --kernel src:early.c --json
    jq -e '.forward | .fault.kind == "IMPOSSIBLE" and .median_ms == null and .floor_ms > 0' "$WORK/out" >/dev/null || fail "it has a time"
}

test_block_sizes_are_inferred_and_explained() {
    expect 0 "$GDNCTL" ce-infer --device 'TPU v5 lite' --batch 65536 --hidden 512 --vocab 128256 --dtype bf16 --json
    jq -e '.schema == "gdnctl.ce-infer/1" and .device_key == "TPU v5e" and .bucket == "large-batch-small-h" and .tuned and .runnable and
           .sizes == {"b_block_size":4096,"h_block_size":512,"v_block_size":2048}' "$WORK/out" >/dev/null || fail "v5e"
    expect 1 "$GDNCTL" ce-infer --device 'TPU v5e' --batch 96 --hidden 64 --vocab 4096 --dtype f32
    out_has 'runnable no'
    out_has '1024/512/1024'
    expect 2 "$GDNCTL" ce-infer --device 'TPU v5e' --batch 96 --hidden 64 --vocab 4096 --dtype f8
}
