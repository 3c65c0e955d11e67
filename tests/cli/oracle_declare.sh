# gdnctl oracle compare: what to declare about a dump that is right under another contract.
V=$FIXTURES/oracle/gpu
gpu() { "$GDNCTL" oracle compare gdn --inputs "$V/$1.inputs.safetensors" --outputs "$V/$1.$2.outputs.safetensors" "${@:3}"; }

test_what_makes_a_dump_ok_is_declared_in_one_line() {
    expect 9 gpu T65 fla_chunk --contract fla --set l2norm=off
    out_has 'hint: matches if q and k are normalised in the kernel: --set l2norm=rsqrt(sum+eps)'
    out_has "declare: --contract fla --set 'l2norm=rsqrt(sum+eps)'"
    expect 0 gpu T65 fla_chunk --contract fla --set 'l2norm=rsqrt(sum+eps)' --json
    [ "$(jq -c .declare "$WORK/out")" = null ] || fail "declares something of a dump that is OK"
    expect 9 gpu T65 fla_chunk --contract fla --set g_kind=alpha --json
    [ "$(jq -c .declare "$WORK/out")" = '["--contract","fla","--set","g_kind=log"]' ] || fail "$(jq -c .declare "$WORK/out")"
}

test_an_undeclared_precision_is_named() {
    expect 1 gpu strong hf_chunk_tf32 --contract hf --json
    [ "$(jq -r '.stage, .declare[-1]' "$WORK/out" | xargs)" = 'rounding matmul=tf32' ] || fail "$(jq -c '[.stage,.declare,.hint]' "$WORK/out")"
    expect 0 gpu strong hf_chunk_tf32 --contract hf --set matmul=tf32
}

test_a_declaration_does_not_hide_a_fault() {
    # Its forward pass is right, and part of the gradients is far off: a wider precision would not make it so.
    expect 1 gpu M fla_chunk --contract fla --json
    [ "$(jq -c '[.verdict, .declare]' "$WORK/out")" = '["WRONG",null]' ] || fail "$(jq -c '[.verdict,.declare]' "$WORK/out")"
}
