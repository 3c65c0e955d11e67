# gdnctl oracle verify linear-ce: mistakes that show only where conditions meet, and what a kernel is declared to compute.
verify() { "$GDNCTL" oracle verify linear-ce "$@"; }
crossed() { "$GDNCTL" oracle cases linear-ce --json | jq -r '[.cases[] | select(.set == "crossed")][] | "--case", .name'; }
# --case NAME for the first two crossed cases that jq selects.
some() { "$GDNCTL" oracle cases linear-ce --json | jq -r "[.cases[] | select(.set == \"crossed\") | select($1)][:2][] | \"--case\", .name"; }
built() { cc -O2 -shared -fPIC -I "$REPO/include" "$@" -o kernel.so "$FIXTURES/kernels/ce_faults.c" -lm || fail "the test's kernel does not compile"; }

test_a_right_kernel_is_ok_where_conditions_meet() {
    built
    expect 0 verify --kernel lib:kernel.so $(crossed) --case large_vocabulary
    out_has 'verdict: OK ('
}

test_mistakes_that_show_where_two_conditions_meet() {
    local fault
    for fault in CAP_PENALTY BF16_TAIL BF16_VH LSE_SKIPPED; do
        built -D$fault
        expect 1 verify --kernel lib:kernel.so $(crossed)
        out_has 'verdict: WRONG'
        expect 0 verify --kernel lib:kernel.so --case unit_normal --case layout_vh --case soft_cap --case penalty
    done
}

# An exact program, but for an edit of its inputs where both of two tensors or fields are there.
program() {
    cat >run.py <<'PY'
import json, os, struct, sys
source, target = sys.argv[2:]
b = bytearray(open(source, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
def place(name):
    begin, end = h[name]["data_offsets"]
    return 8 + n + begin, (end - begin) // 4
def read(name):
    at, count = place(name)
    return list(struct.unpack_from(f"<{count}f", b, at))
def write(name, values):
    at, count = place(name)
    struct.pack_into(f"<{count}f", b, at, *values)
if sys.argv[1] == "weights_ignored" and "weight" in h and "ignore_index" in h["__metadata__"]:
    write("weight", [1.0] * place("weight")[1])
if sys.argv[1] == "d_loss_weights" and "weight" in h and "d_loss" in h:
    write("d_loss", [x * y for x, y in zip(read("d_loss"), read("weight"))])
open("edited.safetensors", "wb").write(b)
os.execv(os.environ["GDNCTL"], [os.environ["GDNCTL"], "oracle", "run", "linear-ce", "--inputs", "edited.safetensors", "--out", target])
PY
    export GDNCTL
    verify --kernel "cmd:python3 run.py $1" "${@:2}"
}

test_programs_with_mistakes_where_two_conditions_meet() {
    expect 1 program weights_ignored $(some '.weighted and .ignores_rows and (.d_loss or .d_lse | not)')
    expect 0 program weights_ignored $(some '.weighted and (.ignores_rows | not)')
    expect 0 program weights_ignored $(some '.ignores_rows and (.weighted | not)')
    expect 1 program d_loss_weights $(some '.weighted and .d_loss')
    expect 0 program d_loss_weights $(some '.weighted and (.d_loss | not)')
    expect 0 program d_loss_weights $(some '.d_loss and (.weighted | not)')
}

test_labels_need_more_than_16_bits() {
    sed 's/c->labels\[i\]/(uint16_t)&/g' "$REPO/examples/cpu-ce/kernel.c" >kernel.c
    expect 1 verify --kernel src:kernel.c --case large_vocabulary --case unit_normal
    out_has 'verdict: WRONG (2 cases; 1 failed)'
}

test_a_mistake_is_analysed_once() {
    built -DCAP_PENALTY
    expect 1 verify --kernel lib:kernel.so $(crossed)
    grep -Eq '^       and [0-9]+ others?: ' "$WORK/out" || fail "nothing is alike"
    [ "$(grep -c '^case ' "$WORK/out")" -le 4 ] || fail "too many groups"
    expect 1 verify --kernel lib:kernel.so $(crossed) --json
    jq -e '[.items[] | select(.verdict == "WRONG" and .same_fault_as == null)] | length >= 1 and length <= 4' "$WORK/out" >/dev/null || fail "analysed"
    jq -e 'all(.items[] | select(.verdict == "WRONG"); .stage != null)' "$WORK/out" >/dev/null || fail "no stage"
}

test_what_a_kernel_is_declared_to_compute() {
    # Knows one layout only.
    sed 's|^static int run(.*{|&\n    if (c->layout != LINEAR_CE_HV) return GDN_UNSUPPORTED;|' "$REPO/examples/cpu-ce/kernel.c" >kernel.c
    expect 1 verify --kernel src:kernel.c --case layout_vh --case unit_normal
    expect 0 verify --kernel src:kernel.c --set layout=hv --case layout_vh --case unit_normal --json
    jq -e '.verdict == "OK" and .cases == 1 and .skipped.contract == [{name: "layout_vh", reason: "needs layout=vh"}]' "$WORK/out" >/dev/null || fail "skipped"
    expect 0 verify --kernel src:kernel.c --set layout=hv --case layout_vh --case unit_normal
    out_has '1  needs layout=vh'
    expect 9 verify --kernel src:kernel.c --set layout=hv --case layout_vh
    out_has 'verdict: NO_DATA (0 cases)'
    expect 2 verify --kernel src:kernel.c --set layout=xx
    expect 2 verify --kernel src:kernel.c --set nonsense=1
    expect 2 verify --kernel src:kernel.c --contract marin
    # A value that no case has.
    expect 0 verify --kernel builtin:fused --set soft_cap=30 --case unit_normal --case soft_cap
    out_has '1  needs soft_cap=1.5'
    expect 0 verify --kernel builtin:fused --set layout=vh --case unit_normal
}
