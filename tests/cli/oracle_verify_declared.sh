# gdnctl oracle verify gdn: what a kernel is declared to compute, and what one failure says about others.
verify() { "$GDNCTL" oracle verify gdn --kernel builtin:chunk "$@"; }

EXAMPLE=$REPO/examples/cpu-gdn/kernel.c

test_a_declared_precision_applies_to_every_case() {
    expect 0 verify --set matmul=bf16 --case gva_2 --case d128 --case decode_t3 --json
    jq -e 'all(.items[]; .contract.fields.matmul.value == "bf16" and .contract.fields.matmul.origin == "--set")' "$WORK/out" >/dev/null || fail "not declared"
    jq -e '.skipped == {forward: 0, backward: 0, decode: 1}' "$WORK/out" >/dev/null || fail "something is skipped"
    expect 2 verify --set matmul=bf17
    expect 2 verify --set nonsense=1
    expect 2 verify --contract nonsense
}

test_cases_that_need_another_contract_are_skipped_and_counted() {
    expect 0 verify --set head_map=interleaved --case gva_2 --case gva_tiled --case varlen --json
    jq -e '.cases == 2 and .skipped.contract == [{name: "gva_tiled", reason: "needs head_map=tiled"}]' "$WORK/out" >/dev/null || fail "skipped"
    expect 0 verify --set head_map=interleaved --case gva_2 --case gva_tiled
    out_has 'skipped, not as declared: 1 case'
    out_has '1  needs head_map=tiled'
    expect 9 verify --set scale=2 --case scale_1
    out_has 'verdict: NO_DATA (0 cases)'
    # Where a case leaves a field open, its inputs are made for the declared value.
    expect 0 verify --contract flashinfer --case gva_2 --case gva_tiled --case gates_minus_30 --case raw_gates --json
    jq -e '.cases == 2 and [.skipped.contract[].reason] == ["needs g_kind=log", "needs head_map=tiled"]' "$WORK/out" >/dev/null || fail "skipped"
    jq -e '.items[0].contract.name == "flashinfer" and .items[0].contract.fields.g_kind.value == "raw"' "$WORK/out" >/dev/null || fail "the contract"
    for contract in hf hf-old fla ggml ik sglang maxtext; do
        expect 0 verify --contract $contract --case gva_2 --case marin_57_C16 --case odd_dims --case keys_cos91 --case crossed_003
        out_has 'verdict: OK ('
    done
}

test_files_may_have_heads_before_tokens() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel "src:$FIXTURES/kernels/full.c" --set layout=B,H,T,D --case gva_2 --case varlen --case decode_t3
    out_has 'verdict: OK (2 cases, 2 backward, 2 decode)'
}

test_a_kernel_without_l2norm_is_right_once_that_is_declared() {
    sed 's|^    if (c->q.dtype|    if (c->l2norm) return GDN_UNSUPPORTED;\n&|' "$EXAMPLE" >kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case decode_no_norm
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case marin_29_C1_no_l2norm --set l2norm=off
    out_has 'verdict: OK (2 cases)'
}

test_programs_get_canonical_values() {
    cat >run.sh <<'SH'
python3 - "$1" <<'PY'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
h = json.loads(b[8:8 + struct.unpack("<Q", b[:8])[0]])
m = h.pop("__metadata__")
print(sorted(h), m["g_kind"], m["beta_kind"], m["state_layout"], file=open("seen", "w"))
PY
"$GDNCTL" oracle run gdn --inputs "$1" --backward --out "$2" >/dev/null
SH
    export GDNCTL
    expect 0 "$GDNCTL" oracle verify gdn --kernel 'cmd:sh run.sh' --case raw_gates
    grep -q "'beta', .*'g', .*log prob B,H,K,V" seen || fail "not canonical: $(cat seen)"
    grep -q A_log seen && fail "raw gates: $(cat seen)"
    expect 0 "$GDNCTL" oracle verify gdn --kernel 'cmd:sh run.sh' --case state_value_key
    grep -q B,H,K,V seen || fail "the layout: $(cat seen)"
    expect 0 "$GDNCTL" oracle verify gdn --kernel 'cmd:sh run.sh' --case raw_gates --set g_kind=raw --set beta_kind=logit
    grep -q "'A_log'.*raw logit" seen || fail "not as declared: $(cat seen)"
}

test_a_program_that_dies_at_its_start_is_run_once() {
    cat >dies.py <<'PY'
open("runs", "a").write("x")
import no_such_module
PY
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:python3 dies.py' --case g1 --case gva_2 --case odd_dims
    out_has 'before it opened its inputs file'
    out_has 'verdict: CRASHED (1 case; 1 failed, 2 not run)'
    [ "$(cat runs)" = x ] || fail "run more than once"
    sed -i '1a import sys; open(sys.argv[1], "rb").read(1)' dies.py
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:python3 dies.py' --case g1 --case gva_2
    out_has 'verdict: CRASHED (2 cases; 2 failed)'
}

test_a_mistake_is_analysed_once() {
    sed 's|^    return GDN_OK;|    { float *o = (float *)c->out.data; for (int64_t i = 0; i < c->batch * c->tokens * c->value_heads * c->value_dim; ++i) o[i] *= 1.02f; }\n&|' "$EXAMPLE" >kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case gva_4 --case marin_57_C16 --case varlen
    [ "$(grep -c '^       stage: ' "$WORK/out")" = 1 ] || fail "analysed more than once"
    out_has '       and 3 others: '
    out_has '       stage: '
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case gva_4 --json
    jq -e '[.items[].same_fault_as] | map(select(. != null)) | length == 1' "$WORK/out" >/dev/null || fail "who shares it"
    jq -e 'all(.items[]; .stage != null)' "$WORK/out" >/dev/null || fail "no stage"
}

test_relations_have_the_tolerance_of_the_declared_precision() {
    expect 0 verify --metamorphic --set matmul=bf16 --case continuation --case packed
    expect 0 verify --metamorphic --set matmul=tf32 --case prefixes
    expect 2 verify --metamorphic --set scale=2 --case prefixes
    err_has '--metamorphic cannot be combined with scale=2'
    # Rounds what is written to bf16.
    sed 's|^    return GDN_OK;|    { unsigned *o = (unsigned *)c->final_state.data; for (int64_t i = 0; i < c->sequences * c->value_heads * c->key_dim * c->value_dim; ++i) o[i] = (o[i] + 0x8000u) \& 0xffff0000u; }\n&|' "$EXAMPLE" >kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --metamorphic --case continuation
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --metamorphic --case continuation --set matmul=bf16
}

test_a_kernel_may_state_its_chunk() {
    sed 's|\.dtypes = |.chunk = 32, &|' "$EXAMPLE" >kernel.c
    cmp -s kernel.c "$EXAMPLE" && fail "nothing was changed"
    chunk_is() { jq -e "all(.items[]; .contract.fields.chunk.value == \"$1\")" "$WORK/out" >/dev/null || fail "chunk"; }
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case marin_57_C16 --json
    chunk_is 32
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --set chunk=8 --json
    chunk_is 8
    sed 's|\.dtypes = |.chunk = 5000, &|' "$EXAMPLE" >kernel.c
    expect 9 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2
    out_has 'states chunks of 5000 tokens; expected 1 to 4096, or 0 for unknown'
    # Compiled before there was such a field.
    sed 's|sizeof(gdn_kernel_info)|offsetof(gdn_kernel_info, chunk)|; s|#include <math.h>|&\n#include <stddef.h>|' "$EXAMPLE" >kernel.c
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --json
    chunk_is 16
}
