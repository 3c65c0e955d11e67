# gdnctl oracle compare: what to declare about a dump that is right under another contract.
V=$FIXTURES/oracle/gpu
gpu() { "$GDNCTL" oracle compare gdn --inputs "$V/$1.inputs.safetensors" --outputs "$V/$1.$2.outputs.safetensors" "${@:3}"; }

test_what_makes_a_dump_ok_is_declared_in_one_line() {
    expect 9 gpu T65 fla_chunk --contract fla --set l2norm=off
    out_has 'hint: matches if q and k are normalised in the kernel: --set l2norm=rsqrt(sum+eps)'
    out_has 'l2norm=rsqrt(sum+eps)'
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

test_a_declared_precision_says_what_it_widens() {
    expect 1 gpu strong hf_chunk_tf32 --contract hf
    tr -s '\n ' ' ' <"$WORK/out" >"$WORK/line"
    grep -Eq 'declare: --contract hf --set matmul=tf32 \(widens the budget of final_state [0-9]+ times\)' "$WORK/line" || fail "$(grep -A1 declare "$WORK/out")"
}

test_a_longer_chunk_is_found_unless_one_is_declared() {
    # From a chunked fp32 kernel in C, with chunks of 128.
    local dump=$FIXTURES/oracle/judged/d128.chunk128.outputs.safetensors
    expect 0 "$GDNCTL" oracle run gdn --case d128 --out "$WORK/in.safetensors"
    expect 0 "$GDNCTL" oracle compare gdn --inputs "$WORK/in.safetensors" --outputs "$dump"
    out_has 'verdict: OK: judged with the error budget of chunks of 128 tokens; with chunks of 64 it would be SUSPECT'
    out_has 'declare: --contract marin --set chunk=128 (widens the budget of'
    expect 0 "$GDNCTL" oracle compare gdn --inputs "$WORK/in.safetensors" --outputs "$dump" --json
    [ "$(jq -c .declare "$WORK/out")" = '["--contract","marin","--set","chunk=128"]' ] || fail "$(jq -c .declare "$WORK/out")"
    expect 0 "$GDNCTL" oracle compare gdn --inputs "$WORK/in.safetensors" --outputs "$dump" --set chunk=128 --json
    [ "$(jq -c '[.reason, .declare]' "$WORK/out")" = '["",null]' ] || fail "$(jq -c '[.reason, .declare]' "$WORK/out")"
    expect 1 "$GDNCTL" oracle compare gdn --inputs "$WORK/in.safetensors" --outputs "$dump" --set chunk=64
    out_has 'verdict: SUSPECT'
}

test_heads_before_tokens() {
    local run="$WORK/run.safetensors"
    expect 0 "$GDNCTL" oracle run gdn --shape 1,2,4,20,16,8 --set head_map=interleaved --set layout=B,H,T,D --backward --out "$run"
    expect 0 "$GDNCTL" oracle compare gdn --inputs "$run" --outputs "$run"
    out_has '[1,4,20,8]'
    out_has 'layout=B,H,T,D (inputs metadata)'
    expect 9 "$GDNCTL" oracle compare gdn --inputs "$run" --outputs "$run" --set layout=B,T,H,D
    err_has 'hint: the shapes fit [B,H,T,D], heads before tokens: --set layout=B,H,T,D'
    # As many tokens as heads: every shape fits either way.
    expect 0 "$GDNCTL" oracle run gdn --shape 2,8,8,8,16,16 --set layout=B,H,T,D --backward --out "$run"
    expect 1 "$GDNCTL" oracle compare gdn --inputs "$run" --outputs "$run" --set layout=B,T,H,D --json
    [ "$(jq -c '[.stage, .declare]' "$WORK/out")" = '["layout",["--contract","marin","--set","layout=B,H,T,D"]]' ] || fail "$(jq -c '[.stage, .declare]' "$WORK/out")"
    expect 2 "$GDNCTL" oracle run gdn-layer --shape 1,2,4,20,16,8 --set layout=B,H,T,D --out "$run"
}

test_a_rounding_that_is_known_exactly_is_not_declared_as_another() {
    expect 0 "$GDNCTL" oracle run gdn --shape 1,2,4,150,32,16 --set head_map=interleaved --seed 5 --out in.safetensors
    python3 - <<'END'
import json, struct
data = bytearray(open("in.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
entry = json.loads(data[8:8 + size])["g"]
assert entry["dtype"] == "F32"
for at in range(*(8 + size + x for x in entry["data_offsets"]), 4):
    bits, = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at, (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000)
open("rounded.safetensors", "wb").write(data)
END
    expect 0 "$GDNCTL" oracle run gdn --inputs rounded.safetensors --out dump.safetensors
    expect 1 "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs dump.safetensors --json
    [ "$(jq -c '[.verdict, .stage, .declare]' "$WORK/out")" = '["WRONG","rounding",null]' ] || fail "$(jq -c '[.verdict,.stage,.declare,.hint]' "$WORK/out")"
    jq -r .hint "$WORK/out" | grep -q 'matches if g is rounded to bf16' || fail "$(jq .hint "$WORK/out")"
}
