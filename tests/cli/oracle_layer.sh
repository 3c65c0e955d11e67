# gdnctl oracle run gdn-layer and oracle compare gdn-layer.
run() { "$GDNCTL" oracle run gdn-layer "$@"; }
compare() { "$GDNCTL" oracle compare gdn-layer "$@"; }

test_what_a_layer_run_writes_is_judged_ok() {
    for contract in marin hf; do
        for dtype in f32 bf16; do
            expect 0 run --shape 2,2,4,70,16,8 --contract $contract --dtype $dtype --backward --parts --out x.safetensors
            out_has 'contract '$contract
            expect 0 compare --contract $contract --inputs x.safetensors --outputs x.safetensors
            out_has 'verdict: OK'
            out_lacks 'not compared'
            for name in conv_out g beta core_out out final_conv_state final_state d_qkvz d_ba d_conv_weight d_A_log \
                d_dt_bias d_norm_weight d_initial_conv_state d_initial_state; do
                grep -q "^$name " "$WORK/out" || fail "$name was not judged"
            done
        done
    done
}

test_streaming_writes_the_same_values_as_prefill() {
    expect 0 run --shape 1,2,4,19,8,8 --seed 7 --parts --out whole.safetensors
    for tokens in 1 3 19 40; do
        expect 0 run --inputs whole.safetensors --stream $tokens --parts --out pieces.safetensors
        cmp <(tail -c +2000 whole.safetensors) <(tail -c +2000 pieces.safetensors) || fail "--stream $tokens differs"
    done
}

test_a_layer_continues_from_its_own_states() {
    expect 0 run --shape 1,1,2,9,4,4 --out a.safetensors --json
    jq -e '.schema == "gdnctl.oracle-run/1" and .op == "gdn-layer"' "$WORK/out" >/dev/null || fail "no schema"
    jq -e '[.tensors[].name] | index("final_conv_state")' "$WORK/out" >/dev/null || fail "no final_conv_state"
    jq -e '.contract.fields.split.value == "grouped" and .contract.fields.key_heads.value == "1"' "$WORK/out" \
        >/dev/null || fail "the layer's contract fields are not reported"
    grep -aq '"key_heads":"1"' a.safetensors || fail "no key_heads in the metadata"
    # NumPy archives have no metadata: the states tell how many heads there are.
    expect 0 run --inputs a.safetensors --out a.npz
    expect 0 compare --inputs a.npz --outputs a.npz
}

test_a_wrong_layer_is_wrong_and_says_where() {
    expect 0 run --shape 1,2,4,40,8,8 --parts --out x.safetensors
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set gate=before-norm
    out_has 'stage: norm'
    out_has 'verdict: WRONG: out is'
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set split=flat --json
    jq -e '.verdict == "WRONG" and .stage == "conv" and (.tensors | length) == 7' "$WORK/out" >/dev/null ||
        fail "the JSON does not say where"
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set head_map=tiled
    out_has 'stage: core'
}

test_a_layer_dump_that_lacks_gradients_says_so() {
  "$GDNCTL" oracle run gdn-layer --shape 1,2,4,16,8,4 --backward --out l.safetensors >/dev/null
  "$GDNCTL" oracle run gdn-layer --inputs l.safetensors --out forward.safetensors >/dev/null
  expect 0 "$GDNCTL" oracle compare gdn-layer --inputs l.safetensors --outputs forward.safetensors
  out_has 'FORWARD ONLY: no gradient was compared'
  expect 0 "$GDNCTL" oracle compare gdn-layer --inputs l.safetensors --outputs forward.safetensors --json
  out_has '"forward_only":true'
  expect 0 "$GDNCTL" oracle compare gdn-layer --inputs l.safetensors --outputs l.safetensors
  out_lacks 'FORWARD ONLY'
  expect 2 "$GDNCTL" oracle compare gdn-layer --inputs l.safetensors --outputs l.safetensors --flashinfer .
}

test_a_layer_dump_without_values_is_no_data() {
    expect 0 run --shape 1,1,2,5,4,4 --out x.safetensors
    expect 0 "$GDNCTL" oracle run gdn --case t_hand --out op.safetensors
    expect 9 compare --inputs x.safetensors --outputs op.safetensors
    expect 9 compare --inputs op.safetensors --outputs x.safetensors
    err_has "is for op 'gdn', not gdn-layer"
    expect 9 "$GDNCTL" oracle run gdn --inputs x.safetensors --out y.safetensors
    err_has "is for op 'gdn-layer', not gdn"
}

test_a_layer_whose_tensors_cannot_be_used() {
    expect 0 run --shape 1,2,4,5,4,4 --out x.npz
    expect 0 run --inputs x.npz --out y.npz
    expect 9 run --inputs x.npz --set state_layout=B,H,V,K --set key_heads=5 --out y.npz
    python3 -m zipfile -e x.npz z || fail "cannot unpack x.npz"
    rm z/initial_state.npy
    expect 9 run --inputs z/qkvz.npy --inputs z/ba.npy --inputs z/A_log.npy --inputs z/dt_bias.npy \
        --inputs z/norm_weight.npy --out y.npz
    err_has "tensor 'conv_weight' is missing"
    expect 9 run $(printf -- '--inputs %s ' z/qkvz.npy z/ba.npy z/A_log.npy z/dt_bias.npy z/norm_weight.npy \
        z/conv_weight.npy) --out y.npz
    err_has 'the number of key heads is unknown'
    err_has '--set key_heads=N'
    expect 0 run $(printf -- '--inputs %s ' z/qkvz.npy z/ba.npy z/A_log.npy z/dt_bias.npy z/norm_weight.npy \
        z/conv_weight.npy) --set key_heads=2 --out y.npz
    [ ! -e missing ] && expect 2 run --inputs missing.npz --out y.npz
}

test_layer_usage_errors() {
    expect 2 run --case g1 --out x.safetensors
    expect 2 run --shape 1,2,4,5,4,4 --method chunk --out x.safetensors
    expect 2 run --shape 1,2,4,5,4,4 --chunk 8 --out x.safetensors
    expect 2 run --shape 1,2,4,5,4,4 --stream 0 --out x.safetensors
    expect 2 run --shape 1,2,3,5,4,4 --out x.safetensors
    expect 2 run --shape 1,2,4,5,4,4 --contract ggml --out x.safetensors
    err_has 'does not define a layer'
    expect 2 run --shape 1,2,4,5,4,4 --set gate=never --out x.safetensors
    expect 2 "$GDNCTL" oracle run gdn --case g1 --parts --out x.safetensors
    err_has 'gdn does not support --parts'
    expect 0 run --shape 1,2,4,5,4,4 --out x.safetensors
    expect 2 compare --inputs x.safetensors --outputs x.safetensors --heatmap
    expect 2 "$GDNCTL" oracle run gdn-layers --shape 1,2,4,5,4,4 --out x.safetensors
    expect 0 "$GDNCTL" oracle run --help
    out_has 'gdn-layer'
}

test_a_truth_file_as_outputs_is_said() {
    local note='note: --outputs is a truth file that `gdnctl oracle run` wrote, so no kernel is judged here'
    for name in x.safetensors x.npz; do
        expect 0 run --shape 1,2,4,16,8,8 --out $name
        expect 0 compare --inputs $name --outputs $name
        out_has "$note"
    done
    expect 0 compare --inputs x.safetensors --outputs x.safetensors --json
    jq -e '.outputs_are_truth' "$WORK/out" >/dev/null || fail 'not in the JSON'
}
