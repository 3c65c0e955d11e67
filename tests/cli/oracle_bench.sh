# gdnctl oracle bench: what it says, never how fast anything is.
bench() { "$GDNCTL" oracle bench gdn --shape 1,2,4,70,16,8 --rounds 2 --runs 1 "$@"; }

test_every_kernel_is_timed_and_verified() {
    expect 0 bench --peer builtin:chunk
    out_has 'builtin:fused'
    out_has 'builtin:chunk takes'
    out_has 'x budget'
    out_has 'multiply-add peak:'
    grep -Eq '^sgemm: ([0-9.]+ GFLOP/s|not measured)' "$WORK/out" || fail "nothing about sgemm"
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_json_holds_what_was_measured_and_null_for_the_rest() {
    expect 0 bench --peer builtin:chunk --threads 1 --json
    out_has '"schema": "gdnctl.oracle-bench/1"'
    jq -e '.forward | .median_ms > 0 and .min_ms <= .median_ms and .gflops > 0 and .verified' "$WORK/out" >/dev/null ||
        fail "no forward figures"
    jq -e '.backward == null and .decode == null and (.not_measured.backward | length > 0)' "$WORK/out" >/dev/null ||
        fail "what is not measured must be null, with the reason"
    jq -e '.peers[0].name == "builtin:chunk" and .peers[0].forward.verified' "$WORK/out" >/dev/null || fail "no peer"
    jq -e '.machine.threads == 1 and .shape.dv == 8 and (.inputs_checksum | length) == 16' "$WORK/out" >/dev/null ||
        fail "no machine, shape or checksum"
    jq -e '(.sgemm == null) == (.forward.sgemm_fraction == null)' "$WORK/out" >/dev/null ||
        fail "a fraction of what was not measured"
}

test_backward_and_decode_are_timed_and_verified() {
    expect 0 bench --kernel builtin:backward --peer builtin:saving --json
    jq -e '.backward | .median_ms > 0 and .gflops > 0 and .verified and .error_over_budget < 4' "$WORK/out" >/dev/null ||
        fail "no backward figures"
    jq -e '.forward == null and .peers[0].forward.verified and .nominal_gflop.backward > 0' "$WORK/out" >/dev/null ||
        fail "the peer is a forward pass"
    expect 0 bench --kernel builtin:decode --peer builtin:decode-in-place --json
    jq -e '.decode | .median_step_us > 0 and .bandwidth_fraction > 0 and .steps == 70 and .verified' "$WORK/out" >/dev/null ||
        fail "no decode figures"
    expect 0 bench --kernel builtin:decode --peer builtin:decode-in-place
    out_has 'of reading and writing the states once'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_phases_name_what_bounds_each() {
    expect 0 bench --phases --peer builtin:chunk --peer builtin:backward --peer builtin:decode
    out_has 'memory, read and written:'
    out_has 'phases of builtin:fused'
    grep -Eq '^  trsm +[0-9.]+ +[0-9]+ % .*(arithmetic|memory|packing)$' "$WORK/out" || fail "no substitution"
    out_has 'phases of builtin:decode: not measured'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
    expect 0 bench --phases --kernel builtin:chunk --peer builtin:decode --json
    jq -e '[.forward.phases[].name] == ["packing", "gram", "decay", "trsm", "output", "state", "waiting"]' \
        "$WORK/out" >/dev/null || fail "not the phases of the chunked form"
    jq -e '.forward.phases | all(.ms >= 0 and .share >= 0) and ([.[].share] | add > 0.9 and add < 1.1)' \
        "$WORK/out" >/dev/null || fail "shares do not add up"
    jq -e '.forward.phases[1] | .gflops > 0 and .fma_peak_fraction > 0 and (.bound | length > 0)' "$WORK/out" >/dev/null ||
        fail "no figures of a phase"
    jq -e '.machine.memory_gigabytes_per_s > 0 and .peers[0].decode.phases == null' "$WORK/out" >/dev/null ||
        fail "no bandwidth"
    expect 0 bench --json
    jq -e '.forward.phases == null and .machine.memory_gigabytes_per_s == null' "$WORK/out" >/dev/null ||
        fail "phases that nobody asked for"
}

test_a_sweep_shows_every_kernel_on_one_thread_and_on_all() {
    expect 0 bench --sweep --threads 2 --peer builtin:backward
    [ "$(grep -c '^1,2,4,70,16,8 ' "$WORK/out")" = 2 ] || fail "not one line for each number of threads"
    grep -Eq '^[0-9] of 4 cells are more than 15 % below' "$WORK/out" || fail "no sum"
    expect 0 bench --sweep --threads 1 --kernel builtin:saving --json
    jq -e '.schema == "gdnctl.oracle-bench-sweep/1" and (.cells | length) == 1' "$WORK/out" >/dev/null || fail "no cells"
    jq -e '.cells[0] | .kernel == "builtin:saving" and .verified and .least_fraction == null and (.missed | not)' \
        "$WORK/out" >/dev/null || fail "something was promised of a kernel that nobody promised anything of"
    expect 2 bench --sweep --phases
    err_has '--sweep shows no phases'
}

test_bf16_is_timed_and_verified() {
    for kernel in fused chunk saving backward decode decode-in-place; do
        expect 0 bench --dtype bf16 --kernel builtin:$kernel --json
        jq -e '.dtype == "bf16" and ([.forward, .backward, .decode] | map(select(. != null))[0].verified)' \
            "$WORK/out" >/dev/null || fail "$kernel: not verified"
    done
    expect 0 bench --dtype bf16
    out_has ', bf16, nominal'
    expect 2 bench --dtype f16
}

test_the_same_seed_has_the_same_inputs() {
    expect 0 bench --json
    first=$(jq -r .inputs_checksum "$WORK/out")
    expect 0 bench --json --isa scalar
    [ "$(jq -r .inputs_checksum "$WORK/out")" = "$first" ] || fail "same seed, other inputs"
    [ "$(jq -r .machine.isa "$WORK/out")" = scalar ] || fail "not the instruction set that was asked for"
    expect 0 bench --json --seed 2
    [ "$(jq -r .inputs_checksum "$WORK/out")" != "$first" ] || fail "other seed, same inputs"
}

test_an_instruction_set_that_is_absent_is_not_measured() {
    grep -q avx512bw /proc/cpuinfo && skip "this processor has them all"
    expect 3 bench --isa avx512
    out_has 'not measured (this processor has no avx512)'
    expect 3 bench --isa avx512 --json
    jq -e '.forward == null and (.not_measured.forward | length > 0)' "$WORK/out" >/dev/null || fail "a figure"
}

test_a_kernel_of_someone_else() {
    kernel=$REPO/examples/cpu-gdn/kernel.c
    expect 0 bench --kernel "src:$kernel" --peer builtin:fused --json
    jq -e '.forward | .verified and .median_ms > 0 and .min_ms <= .median_ms' "$WORK/out" >/dev/null || fail "no time"
    jq -e '.kernel | startswith("src:")' "$WORK/out" >/dev/null || fail "no name"
    jq -e '.peers[0].forward.verified' "$WORK/out" >/dev/null || fail "no peer"
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR"
}

# The example with a statement before the end of forward().
spoiled() { sed "s|^    return GDN_OK;|    { $1 }\n    return GDN_OK;|" "$REPO/examples/cpu-gdn/kernel.c" >kernel.c; }

test_a_kernel_that_is_wrong_or_fails_has_no_time() {
    spoiled '((float *)c->out.data)[5] += 1;'
    expect 1 bench --kernel src:kernel.c --json
    jq -e '.forward | (.verified | not) and .median_ms == null and .fault == null' "$WORK/out" >/dev/null || fail "a time"
    spoiled 'abort();'
    expect 1 bench --kernel src:kernel.c --json
    jq -e '.forward.fault.kind == "CRASHED" and .forward.median_ms == null' "$WORK/out" >/dev/null || fail "no fault"
    expect 1 bench --kernel src:kernel.c
    out_has 'no time, because the result is wrong: CRASHED'
    spoiled 'for (volatile int x = 1; x;) {}'
    expect 124 bench --kernel src:kernel.c --time-limit 0.3
    out_has 'TIMED_OUT'
    echo 'int broken(' >kernel.c
    expect 9 bench --kernel src:kernel.c
    out_has 'BUILD_FAILED'
    out_has 'error:'
    expect 2 bench --kernel cmd:true
    err_has "kernel 'cmd:true' cannot be timed"
    expect 2 bench --kernel src:missing.c
}

test_results_of_earlier_runs_are_not_timed() {
    spoiled 'static float kept[1 << 16]; static int calls; size_t n = (size_t)(c->tokens * c->value_heads * c->value_dim); if (calls++ == 0) memcpy(kept, c->out.data, 4 * n); else memcpy(c->out.data, kept, 4 * n);'
    expect 1 bench --kernel src:kernel.c
    out_has 'UNSTEADY: another result in a later run'
}

test_usage_errors() {
    expect 2 bench --kernel builtin:fuesd
    err_has "did you mean 'builtin:fused'?"
    expect 2 bench --isa avx3
    expect 2 "$GDNCTL" oracle bench gdn --rounds 0
    err_has 'must be at least 1'
    expect 2 "$GDNCTL" oracle bench gdn --shape 1,2,3
    err_has 'expected B,Hk,Hv,T,dk,dv'
}
