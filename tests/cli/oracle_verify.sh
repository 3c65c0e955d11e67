# gdnctl oracle verify.
V=$FIXTURES/oracle
verify() { "$GDNCTL" oracle verify gdn --kernel builtin:chunk "$@"; }

test_a_few_cases_and_vectors() {
    expect 0 verify --vectors "$V" --case g1 --case gdn_gva --case g1_no_l2norm
    out_has 'case   g1 '
    out_has 'as expected'
    out_has 'vector gdn_gva.hf_recurrent.outputs.safetensors'
    [ "$(tail -n 1 "$WORK/out")" = 'verdict: OK (2 cases, 1 backward, 4 vectors)' ] || fail "last line: $(tail -n 1 "$WORK/out")"
}

# --case NAME for what jq selects of the listed cases, and for every recorded vector. All crossed cases take minutes with
# sanitizers; tests/conformance/verify.sh runs them.
cases() { "$GDNCTL" oracle cases gdn --json | jq -r "[.cases[] | select($1)] | .[range(0; length; ${2-1})] | \"--case\", .name"; }
vectors() { for file in "$V"/*.inputs.safetensors; do echo --case; basename "$file" .inputs.safetensors; done; }

test_every_named_case_and_recorded_vector() {
    expect 0 verify --vectors "$V" $(cases '.set != "crossed" and .set != "slow" and .set != "decode"') $(vectors)
    [ "$(tail -n 1 "$WORK/out")" = 'verdict: OK (72 cases, 69 backward, 74 vectors)' ] || fail "last line: $(tail -n 1 "$WORK/out")"
}

test_some_crossed_cases() {
    expect 0 verify $(cases '.set == "crossed"' 12)
    out_has 'case   crossed_001 '
    out_has 'backward crossed_013 '
}

test_a_slow_case_is_judged_where_it_is_asked_for() {
    expect 0 "$GDNCTL" oracle verify gdn --help
    out_has '--slow'
    expect 2 verify --metamorphic --slow
    err_has '--metamorphic cannot be combined with --slow'
    cat >wrong.sh <<'SH'
exit 5
SH
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:sh wrong.sh' --case t_hand
    out_lacks long_65537
    [ "$("$GDNCTL" oracle cases gdn --json | jq -r '.cases[] | select(.set == "slow") | "\(.name) \(.shape.T)"')" = 'long_65537 65537' ] || fail "the slow case"
}

test_json() {
    expect 0 verify --case t_hand --json
    python3 - "$WORK/out" <<'PY' || fail "not the promised object"
import json, sys
r = json.load(open(sys.argv[1]))
assert list(r) == ["schema", "op", "kernel", "dtype", "seed", "verdict", "forward_only", "cases", "backward", "decode", "vectors", "relations", "failed", "not_run", "skipped", "network_barrier", "items"], list(r)
assert r["schema"] == "gdnctl.oracle-verify/1" and r["verdict"] == "OK" and r["cases"] == 1 and r["failed"] == 0
assert r["items"][0]["name"] == "t_hand"
PY
}

# A kernel that knows the answers to the listed inputs by heart, and nothing else.
test_answers_known_by_heart_do_not_survive_another_seed() {
    cat >by_heart.py <<'PY'
import json, os, struct, sys
b = open(sys.argv[2], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
begin, end = json.loads(b[8:8 + n])["q"]["data_offsets"]
size = sum(map(abs, struct.unpack(f"<{(end - begin) // 4}f", b[8 + n + begin:8 + n + end])))
known = abs(size - float(open("known").read() or 0)) < 1e-3 if os.path.exists("known") else bool(open("known", "w").write(str(size)))
wrong = [] if known else ["--set", "scale=2"]
os.execv(sys.argv[1], [sys.argv[1], "oracle", "run", "gdn", "--inputs", sys.argv[2], "--out", sys.argv[3], *wrong])
PY
    local kernel="cmd:python3 by_heart.py $GDNCTL"
    expect 0 "$GDNCTL" oracle verify gdn --kernel "$kernel" --case marin_47_state
    expect 0 "$GDNCTL" oracle verify gdn --kernel "$kernel" --case marin_47_state
    expect 1 "$GDNCTL" oracle verify gdn --kernel "$kernel" --case marin_47_state --seed 2
    expect 1 "$GDNCTL" oracle verify gdn --kernel "$kernel" --case marin_47_state --seed random --json
    local seed
    seed=$(jq .seed "$WORK/out")
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --case marin_47_state --seed "$seed"
    out_has "inputs: --seed $seed"
    expect 0 verify --metamorphic --case causality --seed random
    expect 0 verify --case t_hand --case g1 --case marin_47_state --seed 12345
    out_has 'inputs: --seed 12345'
    expect 0 verify --case t_hand --seed 12345 --json
    [ "$(jq .seed "$WORK/out")" = 12345 ] || fail 'not the seed'
    expect 0 verify --case t_hand --json
    [ "$(jq .seed "$WORK/out")" = null ] || fail 'a seed that nobody gave'
    for seed in -1 x '' 1.5 99999999999999999999; do
        expect 2 verify --case t_hand --seed "$seed"
        err_has 'expected a non-negative integer'
    done
}

# Copies one recorded pair and adds `delta` to float `index` of its out.
edited() {
    mkdir -p "$1"
    cp "$V/gdn_base.inputs.safetensors" "$1"
    python3 - "$V/gdn_base.levanter_chunk.outputs.safetensors" "$1/gdn_base.x.outputs.safetensors" "$2" "$3" <<'PY'
import json, struct, sys
source, target, index, delta = sys.argv[1:]
b = bytearray(open(source, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
at = 8 + n + json.loads(b[8:8 + n])["out"]["data_offsets"][0] + 4 * int(index)
struct.pack_into("<f", b, at, struct.unpack_from("<f", b, at)[0] + float(delta))
open(target, "wb").write(b)
PY
}

test_one_edited_element_is_wrong_and_found() {
    edited bad 100 0.01
    expect 1 verify --case gdn_base --vectors bad
    out_has '       contract '
    expect 1 verify --case gdn_base --vectors bad --json
    jq -e '.items[-1].contract.fields.head_map.value' "$WORK/out" >/dev/null || fail 'no contract'
    expect 1 verify --case gdn_base --vectors bad
    out_has 'WRONG'
    out_has 'worst: out[b=0,t=4,h=0,v=4]'
    out_has 'verdict: WRONG (0 cases, 1 vector; 1 failed)'
}

test_a_nan_from_the_device_is_wrong() {
    edited bad 7 nan
    expect 1 verify --case gdn_base --vectors bad
    out_has '1 values of out are not finite where the truth is'
}

test_suspect_can_be_allowed() {
    edited bad 100 1.5e-6
    expect 1 verify --case gdn_base --vectors bad
    out_has 'verdict: SUSPECT'
    expect 0 verify --case gdn_base --vectors bad --allow-suspect
    out_has 'verdict: SUSPECT'
}

test_unusable_vectors() {
    expect 2 verify --vectors missing
    mkdir none
    expect 9 verify --vectors none
    err_has 'has no NAME.inputs.safetensors'
    edited bad 0 0
    head -c 100 "$V/gdn_base.hf_chunk.outputs.safetensors" >bad/gdn_base.cut.outputs.safetensors
    expect 9 verify --case gdn_base --vectors bad
    err_has 'truncated'
}

test_kernels_and_cases_have_names() {
    expect 2 "$GDNCTL" oracle verify gdn --kernel builtin:chunck
    err_has "did you mean 'builtin:chunk'?"
    expect 2 "$GDNCTL" oracle verify gdn --kernel chunk
    err_has 'name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:NAME'
    expect 2 "$GDNCTL" oracle verify gdn
    expect 2 verify --case g11
    err_has 'did you mean'
    for kernel in fused recurrent32 recurrent64; do
        expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:$kernel --case odd_dims --case d128
        case $kernel in recurrent64) out_has 'verdict: OK (2 cases, 2 backward, 0 vectors)' ;; *) out_has 'verdict: OK (2 cases, 0 vectors)' ;; esac
    done
}

# What holds for the built-in kernels is in tests/binary/oracle.sh.
test_metamorphic() {
    # A kernel that starts every call from nothing.
    sed 's|c->initial_state.data)|0)|' "$REPO/examples/cpu-gdn/kernel.c" >kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --metamorphic --json
    jq -e '.verdict == "WRONG" and .relations == 14 and ([.items[] | select(.verdict == "WRONG") | .name] | contains(["continuation", "beta_zero"]))' \
        "$WORK/out" >/dev/null || fail "the report"
    jq -e '.items[] | select(.name == "continuation") | .reason | startswith("does not hold: two calls")' "$WORK/out" >/dev/null || fail "the reason"
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --metamorphic --case perfect_fit --case causality
    out_has 'verdict: OK (2 relations)'
    expect 2 "$GDNCTL" oracle verify gdn --kernel builtin:fused --metamorphic --case causalty
    err_has "did you mean 'causality'?"
    expect 2 "$GDNCTL" oracle verify gdn --kernel builtin:fused --metamorphic --vectors .
}

test_cases_stored_in_other_dtypes() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --dtype bf16 $(cases '.set != "crossed" and .set != "slow" and .set != "decode"') $(cases '.set == "crossed"' 20)
    out_has 'verdict: OK ('
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:fused --dtype f16 --case gva_2 --case values_1e18 --json
    jq -e '.dtype == "f16" and .cases == 1' "$WORK/out" >/dev/null || fail "the case that does not fit"
    err_has 'case values_1e18 does not fit into f16: skipped'
    cat >run.py <<'PY'
import json, struct, sys
source, target = sys.argv[1:]
b = open(source, "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
print(h["q"]["dtype"], h["k"]["dtype"], h["v"]["dtype"], h["__metadata__"]["out_dtype"])
sys.exit(5)
PY
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:python3 run.py' --dtype bf16 --case gva_2
    out_has '| BF16 BF16 BF16 query'
    expect 2 verify --dtype f8
    expect 2 verify --dtype bf16 --metamorphic
    err_has '--metamorphic cannot be combined with --dtype'
}

test_kernels_that_take_bf16_get_it_and_others_do_not() {
    cc -O2 -shared -fPIC -I "$REPO/include" -o full.so "$FIXTURES/kernels/full.c" -lm || fail "the test's kernel does not compile"
    expect 0 "$GDNCTL" oracle verify gdn --kernel lib:full.so --dtype bf16 --case gva_2 --case decode_t3
    out_has 'verdict: OK (1 case, 1 backward, 2 decode, 0 vectors)'
    # Says that it takes bf16, and reads fp32.
    sed 's/\.dtypes = 1u << GDN_F32/.dtypes = 1u << GDN_F32 | 1u << GDN_BF16/; s/c->q.dtype != GDN_F32/0/' "$REPO/examples/cpu-gdn/kernel.c" >kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --dtype bf16 --case gva_2
    expect 0 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --dtype f32 --case gva_2
}

test_decode_cases_are_listed_and_made() {
    expect 0 "$GDNCTL" oracle cases gdn
    out_has 'decode_packed'
    expect 0 "$GDNCTL" oracle cases gdn --json
    jq -e '[.cases[] | select(.set == "decode")] | length == 15 and any(.name == "decode_t8")' "$WORK/out" >/dev/null || fail "not listed"
    expect 0 "$GDNCTL" oracle run gdn --case decode_t8 --out x.safetensors
    expect 0 "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors
    expect 2 verify --case decode_t9
    err_has 'did you mean'
}

test_terminated_exits_143() {
  "$GDNCTL" oracle verify gdn --kernel builtin:chunk >out 2>err &
  pid=$!
  until grep -q judging err; do kill -0 $pid || fail "ended early"; sleep 0.02; done
  kill -TERM $pid
  wait $pid
  status=$?
  [ $status = 143 ] || fail "exit code $status: $(cat err)"
}
