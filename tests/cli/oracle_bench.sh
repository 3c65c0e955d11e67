# gdnctl oracle bench: what it says, never how fast anything is.
all_passes() { "$GDNCTL" oracle bench gdn --shape 1,2,4,70,16,8 --rounds 2 --runs 1 "$@"; }
# The forward alone, unless another kernel is named.
bench() {
    case " $* " in *' --kernel '*) ;; *) set -- --kernel builtin:fused "$@" ;; esac
    all_passes "$@"
}

test_forward_backward_and_decode_are_measured_in_one_run() {
    expect 0 all_passes --json
    jq -e '.kernel == null and .not_measured.forward == null and .peers == []' "$WORK/out" >/dev/null || fail "the head"
    jq -e '[.forward, .backward, .decode] | all(.verified and .median_ms >= .min_ms and .min_ms > 0 and .gflops > 0)' \
        "$WORK/out" >/dev/null || fail "a pass has no figures"
    jq -e '[.forward, .backward, .decode] | map(.kernel) == ["builtin:fused", "builtin:backward", "builtin:decode"]' \
        "$WORK/out" >/dev/null || fail "not the kernels that were promised"
    jq -e '(.sgemm == null) as $none | [.forward, .backward, .decode] | all((.sgemm_fraction == null) == $none)' \
        "$WORK/out" >/dev/null || fail "a fraction of what was not measured"
    jq -e '.nominal_gflop.decode == 7 * 16 * 8 * 70 * 4 * 1e-9' "$WORK/out" >/dev/null || fail "the work of decoding"
    expect 0 all_passes --peer builtin:chunk --peer builtin:decode-in-place
    out_has 'builtin:chunk is'
    out_has 'builtin:decode-in-place is'
    grep -qE 'x (slower|faster) than builtin:decode' "$WORK/out" || fail 'no comparison'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_five_keys_are_always_there() {
    five='["median_ms", "min_ms", "gflops", "sgemm_fraction", "verified"] - keys == []'
    for kernel in builtin:fused builtin:backward builtin:decode; do
        expect 0 bench --kernel $kernel --peer builtin:saving --json
        jq -e "[.forward, .backward, .decode, .peers[0].forward] | all($five)" "$WORK/out" >/dev/null || fail "$kernel: a key"
        jq -e '[.forward, .backward, .decode] | map(select(.verified == null) | .median_ms) == [null, null]' \
            "$WORK/out" >/dev/null || fail "$kernel: a figure of what was not measured"
    done
    spoiled '((float *)c->out.data)[5] += 1;'
    expect 1 bench --kernel src:kernel.c --json
    jq -e "[.forward, .backward, .decode] | all($five)" "$WORK/out" >/dev/null || fail "a key of what is wrong"
}

test_the_environment_does_not_choose_the_yardstick() {
    OPENBLAS_CORETYPE=Nehalem expect 0 bench --isa avx2
    grep -q '^sgemm: not measured' "$WORK/out" && skip 'no libopenblas'
    err_has 'ignoring OPENBLAS_CORETYPE=Nehalem'
    grep -Eq '^sgemm: .* Haswell$' "$WORK/out" || fail 'sgemm ran with other kernels than those of the instruction set'
}

test_every_kernel_is_timed_and_verified() {
    expect 0 bench --peer builtin:chunk
    out_has 'builtin:fused'
    out_has 'builtin:chunk is'
    out_has 'x budget'
    out_has 'multiply-add peak:'
    grep -Eq '^sgemm: ([0-9.]+ GFLOP/s|not measured)' "$WORK/out" || fail "nothing about sgemm"
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_json_holds_what_was_measured_and_null_for_the_rest() {
    expect 0 bench --peer builtin:chunk --threads 1 --json
    out_has '"schema":"gdnctl.oracle-bench/1"'
    jq -e '.forward | .median_ms > 0 and .min_ms <= .median_ms and .gflops > 0 and .verified' "$WORK/out" >/dev/null ||
        fail "no forward figures"
    jq -e '.backward.median_ms == null and .decode.verified == null and (.not_measured.backward | length > 0)' "$WORK/out" >/dev/null ||
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
    jq -e '.forward.verified == null and .peers[0].forward.verified and .nominal_gflop.backward > 0' "$WORK/out" >/dev/null ||
        fail "the peer is a forward pass"
    expect 0 bench --kernel builtin:decode --peer builtin:decode-in-place --json
    jq -e '.decode | .median_step_us > 0 and .gflops > 0 and .bandwidth_fraction > 0 and .arithmetic_fraction > 0 and .bandwidth_threads == 1 and .steps == 70 and .verified' "$WORK/out" >/dev/null ||
        fail "no decode figures"
    expect 0 bench --kernel builtin:decode --peer builtin:decode-in-place
    out_has 'reading and writing the states once takes'
    out_has 'three multiply-adds an element at their peak'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_bf16_is_timed_and_verified() {
    for kernel in fused chunk saving backward decode decode-in-place; do
        expect 0 bench --dtype bf16 --kernel builtin:$kernel --json
        jq -e '.dtype == "bf16" and ([.forward, .backward, .decode] | any(.verified))' \
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
    jq -e '.forward.median_ms == null and (.not_measured.forward | length > 0)' "$WORK/out" >/dev/null || fail "a figure"
}

test_a_kernel_of_someone_else() {
    kernel=$REPO/examples/cpu-gdn/kernel.c
    expect 0 bench --kernel "src:$kernel"
    grep -Eq "^network blocked for src:$kernel by: (namespace|seccomp|none)\$" "$WORK/out" || fail 'nothing about the network'
    expect 0 bench --kernel "src:$kernel" --peer builtin:fused --json
    jq -e '(.forward.network_barrier | length > 0) and .peers[0].forward.network_barrier == null' "$WORK/out" >/dev/null ||
        fail 'the barrier'
    jq -e '.forward.floor_ms > 0 and .forward.floor_ms < .forward.min_ms and .peers[0].forward.floor_ms == null' "$WORK/out" \
        >/dev/null || fail 'the floor'
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
    out_has 'not timed, because the kernel died: CRASHED'
    spoiled 'for (volatile int x = 1; x;) {}'
    expect 124 bench --kernel src:kernel.c --time-limit 0.3
    out_has 'TIMED_OUT'
    echo 'int broken(' >kernel.c
    expect 9 bench --kernel src:kernel.c
    out_has 'BUILD_FAILED'
    out_has 'error:'
    expect 2 bench --kernel kernel.c
    err_has 'did you mean `src:kernel.c`?'
    expect 2 bench --kernel src:missing.c
}

# The fixture with all entry points, with statements at the end of one.
full() { cc -O2 -shared -fPIC -I "$REPO/include" "$@" -o full.so "$FIXTURES/kernels/full.c" -lm || fail "the test's kernel does not compile"; }

test_all_passes_of_a_loaded_kernel_are_timed() {
    full
    expect 0 bench --kernel lib:full.so --peer builtin:backward --json
    jq -e '[.forward, .backward, .decode] | all(.verified and .median_ms > 0 and .timed == "call" and .kernel == "lib:full.so")' \
        "$WORK/out" >/dev/null || fail "a pass has no figures"
    jq -e '.not_measured.backward == null and .decode.steps == 70 and .decode.bandwidth_fraction > 0' "$WORK/out" >/dev/null ||
        fail "decode"
    # Several rows of a batch: a step takes a token of each.
    expect 0 all_passes --shape 3,2,4,5,16,8 --peer lib:full.so --json
    jq -e '.peers | length == 1 and (.[0] | .name == "lib:full.so" and .forward.verified and .backward.verified and .decode.verified)' \
        "$WORK/out" >/dev/null || fail "the peer"
    expect 0 bench --dtype bf16 --kernel lib:full.so --json
    jq -e '[.forward, .backward, .decode] | all(.verified)' "$WORK/out" >/dev/null || fail "bf16"
    expect 0 bench --kernel lib:full.so --peer builtin:backward
    out_has 'lib:full.so, backward'
    out_has 'builtin:backward is'
    grep -qE 'x (slower|faster) than lib:full.so, backward' "$WORK/out" || fail 'no comparison'
    out_has 'backward of a loaded kernel: includes recomputing the forward'
    out_has 'decode of a loaded kernel: one token per call, in place'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
}

test_one_wrong_pass_has_no_time_and_the_others_have() {
    full -DDG_FACTOR=1.02
    expect 1 bench --kernel lib:full.so --json
    jq -e '.backward | .verified == false and .median_ms == null and .fault == null and .error_over_budget > 4' "$WORK/out" >/dev/null ||
        fail "wrong gradients"
    jq -e '[.forward, .decode] | all(.verified)' "$WORK/out" >/dev/null || fail "the others"
    full '-DDECODE_FAULT=static int calls;if(++calls>90)((float*)c->out.data)[0]+=1;'
    expect 1 bench --kernel lib:full.so
    out_has 'not timed, because the result is wrong: UNSTEADY: different result in a later run'
    full '-DBACKWARD_FAULT=abort();'
    expect 1 bench --kernel lib:full.so --json
    jq -e '.backward.fault.kind == "CRASHED" and .forward.verified and .decode.verified' "$WORK/out" >/dev/null ||
        fail "a crash takes the others along"
    full '-DDECODE_FAULT=c->out.data ? memset(c->initial_state.data,0,4) : 0;'
    expect 1 bench --kernel lib:full.so --json
    jq -e '.decode.verified == false and .forward.verified' "$WORK/out" >/dev/null || fail "a state that is lost on the way"
}

test_programs_are_timed_from_start_to_end() {
    cat >run.sh <<'SH'
backward=
grep -aq d_out "$1" && backward=--backward
"$GDNCTL" oracle run gdn --inputs "$1" $backward --out "$2" >/dev/null
SH
    expect 0 bench --kernel 'cmd:sh run.sh' --rounds 1 --json
    jq -e '[.forward, .backward] | all(.verified and .timed == "program" and .median_ms > 0)' "$WORK/out" >/dev/null || fail "no figures"
    jq -e '.decode.verified == null and (.not_measured.decode | length > 0)' "$WORK/out" >/dev/null || fail "decode"
    expect 0 all_passes --peer 'cmd:sh run.sh' --rounds 1
    out_has 'cmd: a whole run of the program, from start to exit'
    out_has 'backward of a program: forward and backward in one run'
    sed 's/^backward=$/exec 2>\&1/; s/^grep.*//' run.sh >forward.sh
    expect 0 bench --kernel 'cmd:sh forward.sh' --rounds 1 --json
    jq -e '.forward.verified and .backward.verified == null' "$WORK/out" >/dev/null || fail "gradients of a program without"
    expect 1 bench --kernel cmd:true --json
    jq -e '.forward.fault.kind == "INCOMPLETE" and .forward.median_ms == null' "$WORK/out" >/dev/null || fail "no outputs"
    expect 1 bench --kernel 'cmd:echo no; exit 3;'
    out_has 'CRASHED'
    sed '2s/.*/grep -aq d_out "$1" \&\& { echo no memory; exit 1; }/' run.sh >dies.sh
    expect 1 bench --kernel 'cmd:sh dies.sh' --rounds 1
    out_has 'backward' && out_has 'not timed, because the kernel died: CRASHED' && out_has '| no memory'
    expect 1 bench --kernel 'cmd:sh dies.sh' --rounds 1 --json
    jq -e '.forward.verified and .backward.fault.kind == "CRASHED" and .backward.median_ms == null' "$WORK/out" >/dev/null ||
        fail "a program that dies in its backward pass"
    expect 124 bench --kernel 'cmd:sleep 30;' --time-limit 0.3
    expect 2 bench --kernel cmd:
    err_has 'cmd: no command given'
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR"
}

test_results_of_earlier_runs_are_not_timed() {
    spoiled 'static float kept[1 << 16]; static int calls; size_t n = (size_t)(c->tokens * c->value_heads * c->value_dim); if (calls++ == 0) memcpy(kept, c->out.data, 4 * n); else memcpy(c->out.data, kept, 4 * n);'
    expect 1 bench --kernel src:kernel.c
    out_has 'UNSTEADY: different result in a later run'
}

# The fixture that keeps results; SEEN says when it takes inputs for ones that it has had.
kept() { cc -O2 -shared -fPIC -w -I "$REPO/include" -I "$FIXTURES/kernels" "$@" -o kept.so "$FIXTURES/kernels/kept.c" -lm || fail "the test's kernel does not compile"; }
long() { "$GDNCTL" oracle bench gdn --shape 1,2,4,512,32,32 --rounds 2 --runs 2 --kernel lib:kept.so "$@"; }

test_a_kernel_that_knows_inputs_again_is_refused() {
    kept '-DSEEN(a,b,n)=same_sizes(a,b,n)'
    expect 1 long
    out_has 'not timed, because the result is wrong: CACHED: inputs that it has seen before (except for signs) take'
    expect 1 long --json
    jq -e '.forward.fault.kind == "CACHED" and .forward.median_ms == null' "$WORK/out" >/dev/null || fail "the fault"
    kept '-DSEEN(a,b,n)=(memcmp(a,b,4*n)==0)'
    expect 1 long
    out_has 'CACHED'
    # One that computes everything is not.
    kept '-DSEEN(a,b,n)=0'
    expect 0 long
}

test_results_of_other_inputs_are_wrong_whatever_their_signs() {
    kept '-DSEEN(a,b,n)=1'
    expect 1 long
    out_has 'UNSTEADY: different result in a later run'
    # Wrong in one value, late, by a little of what the values are; that value alone may be near 0.
    full '-DBACKWARD_FAULT=static int calls;if(++calls==4){float*x=c->dq.data;double s=0;for(int i=0;i<70*2*16;++i)s+=x[i]*x[i];x[7]+=1e-4*sqrt(s/(70*2*16));}'
    expect 1 bench --kernel lib:full.so --rounds 3
    out_has 'not timed, because the result is wrong: UNSTEADY: different result in a later run: dq is'
}

test_the_workspace_query_sees_no_data() {
    sed 's|^static size_t workspace(const gdn_call \*c, uint32_t entry)$|&;static size_t asked(const gdn_call *c, uint32_t e) { if (c->q.data \|\| c->v.data \|\| c->out.data \|\| c->final_state.data) abort(); return workspace(c, e); }\n&|; s|.workspace = workspace|.workspace = asked|' \
        "$REPO/examples/cpu-gdn/kernel.c" >kernel.c
    grep -q asked kernel.c || fail "the example has another workspace query"
    expect 0 bench --kernel src:kernel.c
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
