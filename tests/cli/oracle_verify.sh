# gdnctl oracle verify.
V=$FIXTURES/oracle
verify() { "$GDNCTL" oracle verify gdn --kernel builtin:chunk "$@"; }

test_a_few_cases_and_vectors() {
    expect 0 verify --vectors "$V" --case g1 --case gdn_gva --case g1_no_l2norm
    out_has 'golden: 1 OK, 1 UNSTABLE_INPUT as expected'
    out_has 'golden backward: 1 OK'
    out_has 'vectors: 4 OK'
    out_lacks 'case   g1 '
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
    expect 0 verify -v $(cases '.set == "crossed"' 12)
    out_has 'case   crossed_001 '
    out_has 'backward crossed_013 '
    grep -q '^crossed: [0-9]* OK$' "$WORK/out" || fail 'no summary'
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
assert list(r) == ["schema", "op", "kernel", "dtype", "seed", "verdict", "forward_only", "cases", "backward", "decode", "vectors", "relations", "failed", "not_run", "skipped", "network_barrier", "environment", "groups", "items"], list(r)
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
    err_has 'name it lib:PATH, src:FILE.c, cmd:COMMAND, py:ADAPTER or builtin:NAME'
    expect 2 "$GDNCTL" oracle verify gdn
    expect 2 verify --case g11
    err_has 'did you mean'
    for kernel in fused recurrent32 recurrent64; do
        expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:$kernel --case odd_dims --case d128
        case $kernel in recurrent64) out_has 'verdict: OK (2 cases, 2 backward)' ;; *) out_has 'verdict: OK (2 cases)' ;; esac
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
    out_has 'verdict: OK (1 case, 1 backward, 2 decode)'
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

# The example kernel with a factor on its output.
scaled() {
    sed 's|^    return GDN_OK;|    { float *o = (float *)c->out.data; for (int64_t i = 0; i < c->batch * c->tokens * c->value_heads * c->value_dim; ++i) o[i] *= 1.02f; }\n&|' \
        "$REPO/examples/cpu-gdn/kernel.c" >kernel.c
}

test_failures_that_are_alike_are_shown_once() {
    scaled
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case gva_4 --case marin_57_C16 --case varlen
    [ "$(grep -c '^case ' "$WORK/out")" = 1 ] || fail "more than one case in full"
    grep -q '^edges: [0-9] WRONG$' "$WORK/out" || fail "no summary"
    out_has '       stage: scale'
    out_has '       hint: matches if out is 1.02 times the truth'
    grep -q '^       and 3 others: [a-zA-Z0-9_, ]*$' "$WORK/out" || fail "no other names"
    [ "$(cat "$WORK/out" | wc -l)" -lt 25 ] || fail "too long"
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case gva_4 -v
    [ "$(grep -c '^case   gva_4 ' "$WORK/out")" = 1 ] && [ "$(grep -c '^case   gva_2 ' "$WORK/out")" = 2 ] || fail "-v does not list the cases"
    # Two mistakes are two groups.
    sed -i 's|float \*o = (float|if (c->tokens == 45) return GDN_FAILED; &|' kernel.c
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case gva_4 --case varlen --case odd_dims
    [ "$(grep -c '^case ' "$WORK/out")" = 2 ] || fail "not two groups"
    out_has 'returned 4 (GDN_FAILED)'
}

test_gradients_follow_a_wrong_forward() {
    sed 's|    each_lane(c, forward_lane);|&\n    ((float *)c->out.data)[0] += 1;|' "$FIXTURES/kernels/full.c" >full.c
    cc -O2 -shared -fPIC -I "$REPO/include" '-DBACKWARD_FAULT=((float*)c->dv.data)[0]+=1;' -o kernel.so full.c -lm || fail "the test's kernel does not compile"
    expect 1 "$GDNCTL" oracle verify gdn --kernel lib:kernel.so --case gva_2 --case gva_4
    out_has 'follows: the forward of this case is wrong, too'
    [ "$(grep -n '^case ' "$WORK/out" | tail -n 1 | cut -d: -f1)" -lt "$(grep -n '^backward ' "$WORK/out" | cut -d: -f1)" ] || fail "not last"
    [ "$(grep -c '^backward ' "$WORK/out")" = 1 ] || fail "not one group"
}

test_fail_fast_stops_after_the_first_failure() {
    scaled
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case edges --fail-fast
    grep -Eq '^verdict: WRONG \([0-9]+ cases?; 1 failed, [0-9]+ not run\)$' "$WORK/out" || fail "went on"
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case edges --fail-fast --json
    jq -e '.failed == 1 and .not_run > 0 and (.items[-1].verdict == "WRONG")' "$WORK/out" >/dev/null || fail "the report"
    expect 0 verify --case g1 --case gva_2 --fail-fast
    out_lacks 'not run'
    edited bad 100 0.01
    cp bad/gdn_base.x.outputs.safetensors bad/gdn_base.y.outputs.safetensors
    expect 1 verify --vectors bad --case gdn_base --fail-fast
    out_has '(0 cases, 1 vector; 1 failed, 1 not run)'
}

test_cases_are_chosen_by_patterns_and_sets() {
    expect 0 verify --case 'gva_[24]' --case 'odd_dim?' --json
    jq -e '[.items[] | select(.kind == "case") | .name] | sort == ["gva_2", "gva_4", "odd_dims"]' "$WORK/out" >/dev/null || fail "patterns"
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:fused --case golden --json
    [ "$(jq .cases "$WORK/out")" = "$("$GDNCTL" oracle cases gdn --json | jq '[.cases[] | select(.set == "golden")] | length')" ] || fail "a set"
    expect 0 verify --vectors "$V" --case 'gdn_gv*' --json
    jq -e '.cases == 0 and .vectors == 4' "$WORK/out" >/dev/null || fail "vectors"
    expect 0 verify --metamorphic --case 'perfect*'
    out_has 'verdict: OK (1 relation)'
    expect 0 "$GDNCTL" oracle verify linear-ce --kernel builtin:fused --case 'layout_*' --json
    jq -e '.cases >= 1 and all(.items[].name; startswith("layout_"))' "$WORK/out" >/dev/null || fail "linear-ce"
    # A pattern selects no slow case.
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:fused --case '[gl]*_[26]*' --json
    jq -e 'any(.items[]; .name == "long_65537") | not' "$WORK/out" >/dev/null || fail "a slow case"
    expect 2 verify --case 'gvb_*'
    err_has "no case matches 'gvb_*'"
    err_has '`gdnctl oracle cases gdn` lists them'
    expect 2 verify --case crossd
    err_has "did you mean 'crossed'?"
}

test_failures_are_saved_and_compared() {
    scaled
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --case varlen --save-failures new/failures
    out_has 'saved 2 of 2 failures to new/failures'
    [ "$(ls new/failures | wc -l)" = 6 ] || fail "not three files each: $(ls new/failures)"
    expect 1 "$GDNCTL" oracle compare gdn --inputs new/failures/gva_2.inputs.safetensors --outputs new/failures/gva_2.outputs.safetensors
    out_has 'stage: scale'
    jq -e '.schema == "gdnctl.oracle-failure/1" and .op == "gdn" and .kernel == "src:kernel.c" and .name == "gva_2" and .stage == "scale"' \
        new/failures/gva_2.json >/dev/null || fail "the verdict"
    # A contract that was declared is in the file.
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case gva_2 --set matmul=bf16 --save-failures new/failures
    expect 1 "$GDNCTL" oracle compare gdn --inputs new/failures/gva_2.inputs.safetensors --outputs new/failures/gva_2.outputs.safetensors --json
    jq -e '.contract.fields.matmul.value == "bf16"' "$WORK/out" >/dev/null || fail "the contract"
    # A kernel that gives nothing has no outputs.
    printf 'exit 5\n' >dies.sh
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:sh dies.sh' --case gva_2 --save-failures new/failures
    [ -f new/failures/gva_2.inputs.safetensors ] && [ ! -e new/failures/gva_2.outputs.safetensors ] || fail "outputs of another run"
    jq -e '.verdict != "WRONG" and .fault != null' new/failures/gva_2.json >/dev/null || fail "the fault"
    expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case crossed --save-failures many
    [ "$(ls many/*.json | wc -l)" = 20 ] || fail "not 20"
    expect 0 verify --case g1 --save-failures none
    out_lacks 'saved'
}

test_gradients_and_linear_ce_are_saved_too() {
    cc -O2 -shared -fPIC -I "$REPO/include" -DDG_FACTOR=1.02 -o kernel.so "$FIXTURES/kernels/full.c" -lm || fail "the test's kernel does not compile"
    expect 1 "$GDNCTL" oracle verify gdn --kernel lib:kernel.so --case gva_2 --save-failures f
    expect 1 "$GDNCTL" oracle compare gdn --inputs f/gva_2-backward.inputs.safetensors --outputs f/gva_2-backward.outputs.safetensors
    out_has 'stage: dg'
    sed 's/c->labels\[i\]/(c->labels[i] ? c->labels[i] - 1 : 0)/g' "$REPO/examples/cpu-ce/kernel.c" >ce.c
    expect 1 "$GDNCTL" oracle verify linear-ce --kernel src:ce.c --case unit_normal --save-failures f
    expect 1 "$GDNCTL" oracle compare linear-ce --inputs f/unit_normal.inputs.safetensors --outputs f/unit_normal.outputs.safetensors
    edited bad 100 0.01
    expect 1 verify --vectors bad --case gdn_base --save-failures f
    expect 1 "$GDNCTL" oracle compare gdn --inputs f/gdn_base.x.inputs.safetensors --outputs f/gdn_base.x.outputs.safetensors
}

test_failures_that_cannot_be_saved() {
    : >file
    expect 8 verify --case g1 --save-failures file
    err_has '--save-failures'
    expect 8 verify --case g1 --save-failures file/below
    mkdir locked && chmod 500 locked
    powerless
    expect 8 "${as[@]}" "$GDNCTL" oracle verify gdn --kernel builtin:chunk --case g1 --save-failures locked
    err_has 'cannot write to locked'
    expect 8 verify --case g1 --save-failures /dev/full/x
    GDNCTL_EVAL_SEED=7 expect 2 verify --case g1 --save-failures f
    err_has '--save-failures cannot be combined with GDNCTL_EVAL_SEED'
}

test_a_full_disk_ends_the_command() {
    unshare -m true 2>/dev/null || skip 'no disk can be mounted here'
    scaled
    mkdir small
    expect 8 unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs small && exec "$0" oracle verify gdn --kernel src:kernel.c --case crossed --save-failures small' "$GDNCTL"
    err_has 'No space left'
    err_has 'small/'
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
