# gdnctl oracle run and oracle cases.
run() { "$GDNCTL" oracle run gdn "$@"; }

test_cases_lists_every_set() {
    expect 0 "$GDNCTL" oracle cases gdn
    for word in golden marin-tests numerics edges crossed slow t_hand g1_no_l2norm keys_identical_beta2 varlen; do out_has "$word"; done
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
    expect 0 "$GDNCTL" oracle cases gdn --json
    out_has '"schema":"gdnctl.oracle-cases/1"'
    jq -e '[.cases[] | select(.values | length != 25)] == []' "$WORK/out" >/dev/null || fail "a case lacks values"
    jq -e '.cases[] | select(.name == "d128").values | .head_size == "128" and .remainder == "2" and .full_chunks == "2+" and
           .packed == "no" and .head_map == "interleaved" and .l2norm == "rsqrt(sum+eps)"' "$WORK/out" >/dev/null || fail "the values of d128"
    jq -e '[.cases[] | select(.set == "crossed" and .values.head_size == "128" and .values.gates == "strong")] | length > 3' \
        "$WORK/out" >/dev/null || fail "no strong gates at 128"
}

test_the_same_seed_gives_the_same_bytes() {
    expect 0 run --shape 1,2,4,33,16,8 --set head_map=interleaved --seed 5 --out a.safetensors
    expect 0 run --shape 1,2,4,33,16,8 --set head_map=interleaved --seed 5 --threads 1 --out b.safetensors
    expect 0 run --shape 1,2,4,33,16,8 --set head_map=interleaved --seed 6 --out c.safetensors
    cmp a.safetensors b.safetensors || fail "same seed, other bytes"
    cmp -s a.safetensors c.safetensors && fail "other seed, same bytes"
    return 0
}

test_what_is_written_is_judged_ok() {
    for method in recurrent64 chunk fused recurrent32; do
        for file in x.safetensors x.npz; do
            expect 0 run --shape 2,2,4,70,16,8 --contract hf --dtype bf16 --method $method --out $file
            expect 0 "$GDNCTL" oracle compare gdn --contract hf --inputs $file --outputs $file
            out_has 'verdict: OK'
        done
    done
}

test_metadata_holds_the_resolved_contract() {
    expect 0 run --case g1 --method chunk --chunk 16 --out g1.safetensors
    out_has 'method: chunk'
    out_has 'chunk=16 (--chunk)'
    grep -aq '"chunk":"16"' g1.safetensors || fail "no chunk in the metadata"
    grep -aq '"g_kind":"raw"' g1.safetensors || fail "no g_kind in the metadata"
    grep -aq '"case":"g1"' g1.safetensors || fail "no case in the metadata"
    expect 0 "$GDNCTL" oracle compare gdn --inputs g1.safetensors --outputs g1.safetensors
    expect 0 run --inputs g1.safetensors --out again.safetensors --json
    out_has '"schema":"gdnctl.oracle-run/1"'
}

test_gradients_and_their_cotangents_are_written() {
    expect 0 run --case g1 --backward --out g1.safetensors --json
    for name in d_out d_final_state dq dk dv dg dbeta d_initial_state d_a d_b d_A_log d_dt_bias; do
        jq -e --arg n $name '[.tensors[].name] | index($n)' "$WORK/out" >/dev/null || fail "no $name"
    done
    jq -e '.tensors[] | select(.name == "dq") | .dtype == "float64" and .shape == [1,70,2,16]' "$WORK/out" >/dev/null ||
        fail "dq is not float64 of q's shape"
    # The golden has its own cotangents, and its gradients are known: tests/unit/oracle/gradient_test.cpp.
    expect 0 "$GDNCTL" oracle compare gdn --inputs g1.safetensors --outputs g1.safetensors
    out_has 'verdict: OK'
    out_has 'd_A_log '
    # Given cotangents are kept, gradients of an earlier run are not.
    expect 0 run --inputs g1.safetensors --backward --method chunk --threads 1 --out a.safetensors --json
    [ "$(jq '[.tensors[] | select(.name == "dq")] | length' "$WORK/out")" = 1 ] || fail "two dq"
    expect 0 run --inputs g1.safetensors --backward --method chunk --threads 3 --out b.safetensors
    cmp a.safetensors b.safetensors || fail "gradients depend on the number of threads"
    expect 0 run --case t_hand --backward --out hand.safetensors
    expect 0 run --shape 1,1,1,9,3,7 --out other.safetensors
}

test_gradients_of_bf16_inputs_are_bf16_and_judged_ok() {
    expect 0 run --shape 1,2,4,70,16,8 --contract hf --dtype bf16 --backward --method chunk --out x.safetensors --json
    jq -e '[.tensors[] | select(.name | IN("dq", "dk", "dv", "out")) | .dtype] == ["bfloat16", "bfloat16", "bfloat16", "bfloat16"]' \
        "$WORK/out" >/dev/null || fail "dtypes of out, dq, dk, dv"
    jq -e '[.tensors[] | select(.name | IN("dg", "dbeta", "d_initial_state", "final_state")) | .dtype] | unique == ["float32"]' \
        "$WORK/out" >/dev/null || fail "dtypes of dg, dbeta and the states"
    expect 0 "$GDNCTL" oracle compare gdn --contract hf --inputs x.safetensors --outputs x.safetensors
    out_has 'verdict: OK'
    # Normalised in the kernel, with fp32 out.
    expect 0 run --shape 1,2,4,70,16,8 --set head_map=interleaved --dtype bf16 --backward --method chunk --out y.safetensors
    expect 0 "$GDNCTL" oracle compare gdn --inputs y.safetensors --outputs y.safetensors
    out_has 'verdict: OK'
}

test_every_method_has_gradients() {
    for method in recurrent64 chunk fused recurrent32; do
        expect 0 run --shape 1,2,4,70,16,8 --set head_map=interleaved --backward --method $method --out x.safetensors --json
        by=chunk
        [ $method != recurrent64 ] || by=recurrent64
        jq -e ".method == \"$method\" and .backward_method == \"$by\"" "$WORK/out" >/dev/null || fail "$method: what the gradients are by"
        grep -aq "\"backward_method\":\"$by\"" x.safetensors || fail "$method: the metadata"
        expect 0 "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors
        out_has 'verdict: OK'
        out_lacks 'FORWARD ONLY'
    done
    expect 0 run --shape 1,2,4,70,16,8 --set head_map=interleaved --backward --method fused --out x.safetensors
    out_has 'method: fused, gradients by chunk'
    expect 0 run --inputs x.safetensors --out y.safetensors --json
    jq -e '.backward_method == null' "$WORK/out" >/dev/null || fail "gradients that nobody asked for"
    grep -aq backward_method y.safetensors && fail "metadata of gradients that are not there"
    :
}

test_usage_errors_come_before_any_file() {
    expect 2 run --out x.safetensors
    err_has 'pass one of --shape, --case and --inputs'
    expect 2 run --case g1 --shape 1,1,1,1,1,1 --out x.safetensors
    expect 2 run --case g2 --out x.safetensors
    err_has 'case'
    expect 2 run --shape 1,2,3 --out x.safetensors
    err_has 'expected B,Hk,Hv,T,dk,dv'
    expect 2 run --case g1 --out x.txt
    err_has 'the extension must be .safetensors or .npz'
    expect 2 run --case g1 --method chunky --out x.safetensors
    expect 2 run --inputs x.safetensors --seed 3 --out y.safetensors
    [ ! -e x.safetensors ] || fail "a file was written"
}

test_a_shape_that_cannot_fit_is_refused_with_an_estimate() {
    expect 9 run --shape 64,64,64,1000000,128,128 --out x.safetensors
    err_has 'GiB of memory'
    forward=$(sed -n 's/.*needs about \([0-9]*\)\..*/\1/p' "$WORK/err")
    expect 9 run --shape 64,64,64,1000000,128,128 --backward --out x.safetensors
    both=$(sed -n 's/.*needs about \([0-9]*\)\..*/\1/p' "$WORK/err")
    [ "$both" -gt "$((forward * 3 / 2))" ] || fail "gradients need no memory: $forward GiB without, $both GiB with them"
    expect 9 run --shape 1000000000,1000000000,1000000000,1000000000,1000000000,1000000000 --out x.safetensors
}

test_a_folder_that_cannot_be_written() {
    expect 8 run --case t_hand --out missing/x.safetensors
    err_has missing
}

test_a_full_disk_leaves_the_old_file() {
    expect 0 run --case t_hand --out x.safetensors
    cp x.safetensors before.safetensors
    (ulimit -f 1; trap '' XFSZ; "$GDNCTL" oracle run gdn --case g1 --out x.safetensors >"$WORK/out" 2>"$WORK/err"; echo $? >code)
    [ "$(cat code)" = 8 ] || fail "exit code $(cat code), expected 8"
    cmp x.safetensors before.safetensors || fail "the old file is gone"
}


test_a_16_bit_output_has_a_rounded_cotangent() {
    for contract in hf hf-old fla flashinfer; do
        for method in recurrent64 chunk; do
            expect 0 run --shape 1,2,2,50,16,8 --contract $contract --dtype bf16 --method $method --backward --out x.safetensors
            expect 0 "$GDNCTL" oracle compare gdn --contract $contract --inputs x.safetensors --outputs x.safetensors
            out_has 'verdict: OK'
        done
    done
    expect 0 run --inputs x.safetensors --contract flashinfer --backward --out y.safetensors
    expect 0 "$GDNCTL" oracle compare gdn --contract flashinfer --inputs y.safetensors --outputs x.safetensors
}

test_metadata_says_what_was_written() {
    expect 0 run --case random_bf16 --backward --out x.safetensors
    grep -aq '"dtype":"bf16"' x.safetensors || fail "q is bf16, the metadata says otherwise"
    grep -aq '"backward":"true"' x.safetensors || fail "no backward in the metadata"
    expect 0 run --case g1 --out x.safetensors
    grep -aq '"dtype":"f64"' x.safetensors || fail "q is float64, the metadata says otherwise"
    expect 0 run --inputs x.safetensors --out y.safetensors
    grep -aq '"dtype":"f64"' y.safetensors || fail "no dtype of given inputs"
    expect 2 run --case g1 --dtype bf16 --out x.safetensors
    err_has '--seed and --dtype cannot be combined with the golden case g1'
    expect 2 run --case g1 --seed 3 --out x.safetensors
}

test_inputs_are_generated_for_every_kind_of_gate_and_beta() {
    for g in log alpha raw; do
        for beta in prob logit '2*logit'; do
            expect 0 run --shape 1,2,2,40,16,8 --set g_kind=$g --set "beta_kind=$beta" --backward --method chunk --out x.safetensors
            expect 0 "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors
            out_has "g_kind=$g"
        done
    done
    expect 0 run --shape 1,2,4,40,16,8 --contract ik --out x.safetensors --json
    jq -e '[.tensors[].name] | index("b") and (index("beta") | not)' "$WORK/out" >/dev/null || fail "ik takes logits"
    expect 0 "$GDNCTL" oracle compare gdn --contract ik --inputs x.safetensors --outputs x.safetensors
}
