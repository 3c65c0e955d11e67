# gdnctl oracle verify with kernels of others: each way in which one can fail has a verdict of its own.
EXAMPLE=$REPO/examples/cpu-gdn/kernel.c

verify() { "$GDNCTL" oracle verify gdn --case odd_dims --case gva_2 "$@"; }
# The example with a statement put before the end of forward() (as kernel.c), or before its beginning.
at_end() { sed "s|^    return GDN_OK;|    { $1 }\n    return GDN_OK;|; s|#include <math.h>|&\n${2:-}|" "$EXAMPLE" >kernel.c; }
at_start() { sed "s|^    if (c->q.dtype|    { $1 }\n&|; s|#include <math.h>|&\n${2:-}|" "$EXAMPLE" >kernel.c; }
built() { cc -O1 -shared -fPIC -I "$REPO/include" -o kernel.so kernel.c -lm || fail "the test's kernel does not compile"; }
verdict_is() { out_has "verdict: $1"; }

test_the_example_is_right() {
    expect 0 verify --kernel "src:$EXAMPLE"
    out_has 'verdict: OK (2 cases)'
    grep -Eq '^network blocked by: (namespace|seccomp|none)$' "$WORK/out" || fail "nothing about the network"
    cp "$EXAMPLE" kernel.c
    built
    expect 0 verify --kernel lib:kernel.so --json
    jq -e '.verdict == "OK" and .not_run == 0 and (.items | length) == 2 and .items[0].fault == null and .items[0].bit_equal' \
        "$WORK/out" >/dev/null || fail "the report"
    jq -e '.network_barrier | length > 0' "$WORK/out" >/dev/null || fail "the barrier"
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR: $(ls "$TMPDIR")"
}

test_the_example_is_right_on_named_and_some_crossed_cases() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel "src:$EXAMPLE" $("$GDNCTL" oracle cases gdn --json |
        jq -r '[.cases[] | select(.set != "slow")] | to_entries[] | select(.value.set != "crossed" or .key % 12 == 0).value.name | "--case", .')
}

test_a_crash() {
    at_start '*(volatile int *)8 = 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is CRASHED
    out_has 'signal 11'
    out_has '       the kernel was killed by signal 11'
    at_start 'fprintf(stderr, "assertion 7"); abort();' '#include <stdio.h>'
    expect 1 verify --kernel src:kernel.c --json
    jq -e '.verdict == "CRASHED" and .failed == 2 and .items[1].fault.kind == "CRASHED"' "$WORK/out" >/dev/null || fail "the fault"
    jq -e '.items[0].fault.output | contains("assertion 7")' "$WORK/out" >/dev/null || fail "what the kernel said"
    at_start 'exit(0);'
    expect 1 verify --kernel src:kernel.c
    verdict_is CRASHED
}

test_a_hang() {
    at_start 'for (volatile int x = 1; x;) {}'
    expect 124 verify --kernel src:kernel.c --time-limit 0.4
    verdict_is 'TIMED_OUT (1 case; 1 failed, 1 not run)'
    out_has 'no result after 0.4 s'
    expect 124 verify --kernel src:kernel.c --time-limit 0.4 --json
    jq -e '.verdict == "TIMED_OUT" and .not_run == 1' "$WORK/out" >/dev/null || fail "the report"
}

test_too_much_memory() {
    at_start 'for (;;) memset(malloc(1u << 20), 1, 1u << 20);'
    expect 1 verify --kernel src:kernel.c --memory-limit 300
    verdict_is MEMORY_LIMIT
    out_has 'more than 300 MiB'
}

test_nan() {
    at_end '((float *)c->out.data)[3] = NAN;'
    expect 1 verify --kernel src:kernel.c
    verdict_is NON_FINITE
    out_has '1 values of out are not finite where the truth is'
}

test_wrong_values() {
    at_end '((float *)c->out.data)[3] += 1;'
    expect 1 verify --kernel src:kernel.c --json
    jq -e '.verdict == "WRONG" and .items[0].fault == null and .items[0].worst.tensor == "out"' "$WORK/out" >/dev/null || fail "the report"
}

test_writes_beside_its_outputs() {
    local n='c->sequences * c->value_heads * c->key_dim * c->value_dim'
    at_end "((float *)c->final_state.data)[$n] = 1;"
    expect 1 verify --case odd_dims --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'past the end of final_state'
    at_end '((float *)c->out.data)[-1] = 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'wrote 4 bytes before the start of out'
    at_end "for (int i = 0; i < 999; ++i) ((volatile float *)c->final_state.data)[$n + i] = 1;"
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'bytes past the end of final_state'
    # Far from it too: a wrong stride.
    at_end "((float *)c->out.data)[c->batch * c->tokens * c->value_heads * c->value_dim + 20000] = 1;"
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'wrote 80000 bytes past the end of out'
    at_end '((float *)c->final_state.data)[-3000000] = 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'wrote 12000000 bytes before the start of final_state'
    at_end '((float *)c->q.data)[0] = 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'wrote to its input q, at byte 0'
    at_end '((volatile char *)c->workspace)[c->workspace_size + 64] = 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'outside its workspace'
}

test_reads_beside_its_inputs() {
    at_end 'volatile float x = 0; for (int i = 0; i < 9999; ++i) x += ((const volatile float *)c->beta.data)[i];'
    expect 1 verify --kernel src:kernel.c
    verdict_is OUT_OF_BOUNDS
    out_has 'past the end of beta'
}

test_outputs_that_are_not_written() {
    at_start 'n = (size_t)(c->sequences * c->value_heads * c->key_dim * c->value_dim) * 4; kept = malloc(n); memcpy(kept, c->final_state.data, n);' 'static size_t n; static void *kept;'
    sed -i 's|^    return GDN_OK;|    memcpy(c->final_state.data, kept, n);\n    return GDN_OK;|' kernel.c
    expect 1 verify --kernel src:kernel.c
    verdict_is INCOMPLETE
    out_has 'of final_state were not changed by the call'
    sed 's|out\[j\] = 0;|(void)0;|' "$EXAMPLE" >kernel.c  # adds to what it finds
    expect 1 verify --kernel src:kernel.c
    verdict_is INCOMPLETE
    out_has 'values of out were not changed by the call: never written, or accumulated into'
}

test_results_that_depend_on_the_call() {
    at_end 'static int calls; if (++calls == 3) ((float *)c->out.data)[0] += 1;'
    expect 1 verify --kernel src:kernel.c
    verdict_is UNSTEADY
    out_has 'right in the first call, but wrong when it was given the same inputs again'
    # Outputs kept from the first call with these shapes.
    at_end 'static float kept[1 << 16]; static size_t n; size_t m = (size_t)(c->tokens * c->batch * c->value_heads * c->value_dim); if (n != m) { n = m; memcpy(kept, c->out.data, 4 * n); } else memcpy(c->out.data, kept, 4 * n);'
    expect 1 verify --kernel src:kernel.c
    verdict_is UNSTEADY
    out_has 'wrong for inputs with other signs'
}

test_results_written_after_the_call() {
    at_end 'kept = c; pthread_create(\&id, 0, later, 0); ' '#include <pthread.h>\n#include <unistd.h>\n#include <gdn/gdn_kernel.h>\nstatic const gdn_call *kept; static pthread_t id;\nstatic void *later(void *p) { usleep(2000); ((float *)kept->out.data)[0] = 0.5f; return p; }'
    sed -i 's|^    { kept = c;|    ((float *)c->out.data)[0] = 9;\n&|' kernel.c
    expect 1 verify --kernel src:kernel.c
    out_lacks 'verdict: OK'
}

test_kernels_that_decline() {
    at_start 'return GDN_UNSUPPORTED;'
    expect 1 verify --kernel src:kernel.c
    verdict_is UNSUPPORTED
    at_start 'return GDN_FAILED;'
    expect 1 verify --kernel src:kernel.c
    verdict_is REFUSED
    out_has 'returned 4 (GDN_FAILED)'
}

test_no_entry_point() {
    echo 'int forward(void) { return 0; }' >kernel.c
    built
    expect 9 verify --kernel lib:kernel.so
    verdict_is 'NO_ENTRY_POINT (1 case; 1 failed, 1 not run)'
    out_has "exports no 'gdn_kernel'"
    sed 's|    .forward = forward,||; s|^static int forward|int forward|' "$EXAMPLE" >kernel.c
    built
    expect 9 verify --kernel lib:kernel.so
    out_has "no entry point 'forward'"
    sed 's|.abi_version = GDN_ABI_VERSION|.abi_version = 77|' "$EXAMPLE" >kernel.c
    built
    expect 9 verify --kernel lib:kernel.so --json
    jq -e '.verdict == "NO_ENTRY_POINT" and (.items[0].fault.text | contains("version 77"))' "$WORK/out" >/dev/null || fail "the fault"
    echo 'not a library' >kernel.so
    expect 9 verify --kernel lib:kernel.so
    out_has 'cannot be loaded'
}

test_a_source_that_does_not_compile() {
    echo 'int broken(' >kernel.c
    expect 9 verify --kernel src:kernel.c
    verdict_is BUILD_FAILED
    out_has 'kernel.c:1:'
    out_has 'error:'
    CC=/no/such/compiler expect 8 verify --kernel "src:$EXAMPLE"
    err_has 'install a C compiler'
}

# A source that refuses to be compiled without optimisation, and without the instructions of this machine. No macro tells
# -O3 from -O2: that is read from the words that the compiler was given.
test_a_source_is_compiled_for_this_machine() {
    cat >cc.sh <<'SH'
#!/bin/sh
echo "$@" >>words
exec cc "$@"
SH
    chmod +x cc.sh
    { echo '#ifndef __OPTIMIZE__'; echo '#error "not optimised"'; echo '#endif'; } >kernel.c
    local known=0 macro
    for macro in __AVX__ __AVX2__ __FMA__ __AVX512F__ __ARM_NEON; do
        cc -march=native -dM -E -x c /dev/null | grep -q "#define $macro " || continue
        known=$((known + 1))
        printf '#ifndef %s\n#error "without %s, which this machine has"\n#endif\n' $macro $macro >>kernel.c
    done
    cat "$EXAMPLE" >>kernel.c
    CC=$PWD/cc.sh expect 0 verify --kernel src:kernel.c
    verdict_is OK
    local words=" $(head -n 1 words) "
    case $words in *' -O3 '*) ;; *) fail "not with -O3:$words" ;; esac
    case $words in *' -march=native '*) ;; *) fail "not with -march=native:$words" ;; esac
    case " ${words##*' -O3 '}" in *' -O'[0-2sg]*) fail "another -O follows -O3:$words" ;; esac
    # The same source is refused where these are missing: the #errors are reached.
    cc -O3 -march=native -I "$REPO/include" -fsyntax-only kernel.c || fail "the test's source is wrong"
    cc -O0 -march=native -I "$REPO/include" -fsyntax-only kernel.c 2>/dev/null && fail "not optimised, and taken"
    [ $known = 0 ] || ! cc -O3 -march=x86-64 -I "$REPO/include" -fsyntax-only kernel.c 2>/dev/null || fail "taken without -march=native"
}

test_names_of_kernels() {
    expect 2 verify --kernel src:missing.c
    err_has 'does not exist'
    expect 2 verify --kernel lib:missing.so
    expect 2 verify --kernel lib:.
    err_has 'is not a file'
    expect 2 verify --kernel file.c
    err_has 'did you mean `src:file.c`?'
    expect 2 verify --kernel cmd:
    expect 2 verify --kernel "src:$EXAMPLE" --time-limit 0
    expect 2 verify --kernel "src:$EXAMPLE" --memory-limit 0
}

test_a_kernel_has_no_network() {
    at_start 'struct sockaddr_in to = {AF_INET, htons(9), {htonl(0x7f000001)}, {0}}; int s = socket(AF_INET, SOCK_DGRAM, 0); if (s >= 0 \&\& connect(s, (struct sockaddr *)\&to, sizeof to) == 0) return GDN_FAILED;' '#include <arpa/inet.h>\n#include <sys/socket.h>'
    verify --kernel src:kernel.c >out 2>err
    grep -q 'network blocked by: none' out && skip "this system allows neither barrier"
    expect 0 verify --kernel src:kernel.c
    verdict_is OK
}

test_a_program_has_no_network() {
    cat >kernel.py <<'PY'
import os, socket, sys
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", 9))
    sys.exit("there is a network")
except OSError:
    os.execv(sys.argv[1], [sys.argv[1], "oracle", "run", "gdn", "--inputs", sys.argv[2], "--method", "chunk", "--out", sys.argv[3]])
PY
    verify --kernel "cmd:python3 kernel.py $GDNCTL" >out 2>err
    grep -q 'network blocked by: none' out && skip "this system allows neither barrier"
    expect 0 verify --kernel "cmd:python3 kernel.py $GDNCTL"
    grep -Eq '^network blocked by: (namespace|seccomp)$' "$WORK/out" || fail 'nothing about the network'
}

# nobody_is_intruded HOW BEFORE...: kernels of each kind and operator try to write to the memory of gdnctl (with -DALL,
# and to that of all above it); BEFORE are the words before gdnctl.
nobody_is_intruded() {
    local how=$1 op shape example kernel
    shift
    : >"$WORK/intruded"
    mkdir -p "$WORK/own" && chmod 1777 "$WORK/own" "$WORK/intruded"
    printf 'int main(void) { return 0; }\n' | cat "$FIXTURES/kernels/intruder.c" - >program.c
    cc -w "$how" "-DINTRUDED=\"$WORK/intruded\"" -o intruder program.c || fail "the test's program does not compile"
    for op in gdn linear-ce; do
        example=$REPO/examples/cpu-gdn/kernel.c shape='--shape 1,1,1,16,8,8'
        [ $op = gdn ] || example=$REPO/examples/cpu-ce/kernel.c shape='--batch 4 --hidden 8 --vocab 40'
        cat "$FIXTURES/kernels/intruder.c" "$example" >intruder.c
        cc -w -O1 -shared -fPIC "$how" "-DINTRUDED=\"$WORK/intruded\"" -I "$REPO/include" -o intruder.so intruder.c -lm || fail "the test's kernel does not compile"
        printf '%s/intruder; exec "%s" oracle run %s --inputs "$1" --out "$2"\n' "$PWD" "$GDNCTL" $op >intruder.sh
        chmod -R a+rX .
        for kernel in lib:intruder.so 'cmd:sh intruder.sh'; do
            : >"$WORK/intruded"
            TMPDIR=$WORK/own expect 0 "$@" "$GDNCTL" oracle bench $op $shape --rounds 1 --runs 1 --kernel "$kernel"
            grep -q refused "$WORK/intruded" || fail "$op, $kernel: nothing was tried"
            ! grep -q opened "$WORK/intruded" || fail "$op, $kernel: a kernel may write to the memory of what is above it"
        done
    done
}

test_a_kernel_cannot_write_to_the_process_that_times_it() {
    nobody_is_intruded -DALL
    powerless
    cp "$EXAMPLE" "$WORK/own/example.c"  # the tree can be in a home directory that others cannot read
    # A program with a second thread, as the one with sanitizers, gets no namespace.
    TMPDIR=$WORK/own expect 0 "${as[@]}" "$GDNCTL" oracle bench gdn --shape 1,1,1,16,8,8 --rounds 1 --runs 1 --kernel "src:$WORK/own/example.c" --json
    if [ ${#as[@]} -gt 0 ] && jq -e '.forward.network_barrier == "namespace"' "$WORK/out" >/dev/null; then
        nobody_is_intruded -DALL "${as[@]}" sh -c '"$@"; exit $?' sh
    fi
    # Where users get no namespaces of their own.
    cc -o "$WORK/no_namespaces" "$FIXTURES/kernels/no_namespaces.c" || fail "the test's program does not compile"
    nobody_is_intruded -DONE "${as[@]}" "$WORK/no_namespaces"
}

# In place of a kernel that changes gdnctl's memory: a clock that runs at half speed for gdnctl, as such a kernel did.
test_a_clock_that_is_wrong_gives_no_time() {
    cat >slow.c <<'C'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec* now) {
    const int result = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_MONOTONIC) {
        const long long half = (now->tv_sec * 1000000000LL + now->tv_nsec) / 2;
        now->tv_sec = half / 1000000000, now->tv_nsec = half % 1000000000;
    }
    return result;
}
C
    cc -shared -fPIC -o slow.so slow.c || fail "the test's library does not compile"
    sed 's|^    if (c->q.dtype|    nanosleep(\&(struct timespec){0, 30000000}, NULL);\n&|; s|#include <math.h>|&\n#include <time.h>|' "$EXAMPLE" >gdn.c
    sed 's|^    if (c->x.dtype|    nanosleep(\&(struct timespec){0, 30000000}, NULL);\n&|; s|#include <math.h>|&\n#include <time.h>|' "$REPO/examples/cpu-ce/kernel.c" >ce.c
    local bench='oracle bench gdn --shape 1,1,1,16,8,8 --rounds 1 --runs 1'
    expect 1 env LD_PRELOAD="$PWD/slow.so" "$GDNCTL" $bench --kernel src:gdn.c --json
    jq -e '.forward.fault.kind == "IMPOSSIBLE" and .forward.median_ms == null' "$WORK/out" >/dev/null || fail "gdn has a time"
    expect 1 env LD_PRELOAD="$PWD/slow.so" "$GDNCTL" $bench --kernel "cmd:sleep 0.2; '$GDNCTL' oracle run gdn --method chunk --inputs \"\$1\" --out \"\$2\"; true"
    out_has 'IMPOSSIBLE: gdnctl'
    expect 1 env LD_PRELOAD="$PWD/slow.so" "$GDNCTL" oracle bench linear-ce --batch 4 --hidden 8 --vocab 40 --rounds 1 --runs 1 --kernel src:ce.c --json
    jq -e '.gradients.fault.kind == "IMPOSSIBLE" and .gradients.median_ms == null' "$WORK/out" >/dev/null || fail "linear-ce has a time"
}

test_a_kernel_sees_no_secrets() {
    at_start 'if (getenv("HF_TOKEN")) return GDN_FAILED; if (getenv("WANDB_API_KEY")) return GDN_FAILED; if (!getenv("GDN_TUNING")) return GDN_FAILED;'
    HF_TOKEN=hf_0123456789 WANDB_API_KEY=0123456789 GDN_TUNING=1 expect 0 verify --kernel src:kernel.c
}

test_a_program() {
    cat >kernel.sh <<SH
[ -z "\$HF_TOKEN" ] || exit 3
exec "$GDNCTL" oracle run gdn --inputs "\$1" --method chunk --out "\$2"
SH
    HF_TOKEN=hf_0123456789 expect 0 verify --kernel 'cmd:sh kernel.sh'
    verdict_is 'OK (2 cases)'
    expect 1 verify --kernel 'cmd:echo broke; false'
    verdict_is CRASHED
    out_has '| broke'
    ! grep -q 'has none: .*backward' "$WORK/out" || fail "a program that died is said to have no backward"
    expect 1 verify --kernel 'cmd:true'
    verdict_is INCOMPLETE
    out_has 'wrote no outputs file'
    expect 124 verify --kernel 'cmd:sleep 60 #' --time-limit 0.4
    verdict_is TIMED_OUT
    expect 9 verify --kernel 'cmd:echo nonsense >"$2" #'
    verdict_is WRONG_SHAPE
}

test_a_program_with_wrong_outputs() {
    cat >kernel.py <<'PY'
import json, struct, sys
inputs, outputs, what = sys.argv[2], sys.argv[3], sys.argv[1]
header = json.loads(open(inputs, "rb").read()[8:][:struct.unpack("<Q", open(inputs, "rb").read(8))[0]])
b, t, h, d = header["v"]["shape"]
shape = [b, t, h, d] if what == "out" else [b, h, t, d]
text = json.dumps({"out": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * b * t * h * d]}}).encode()
open(outputs, "wb").write(struct.pack("<Q", len(text)) + text + bytes(4 * b * t * h * d))
PY
    expect 1 verify --kernel 'cmd:python3 kernel.py out'
    verdict_is INCOMPLETE
    out_has 'final_state was not returned at all'
    sed -i 's|"data_offsets": \[0, 4 \* b \* t \* h \* d\]}}|"data_offsets": [0, 4 * b * t * h * d]}, "final_state": {"dtype": "F32", "shape": [0], "data_offsets": [4 * b * t * h * d] * 2}}|' kernel.py
    expect 9 verify --kernel 'cmd:python3 kernel.py transposed' --json
    jq -e '.verdict == "WRONG_SHAPE" and (.items[0].fault.text | contains("expected"))' "$WORK/out" >/dev/null || fail "the fault"
}

test_terminated_leaves_no_kernel() {
    at_start 'for (volatile int x = 1; x;) {}'
    "$GDNCTL" oracle verify gdn --kernel src:kernel.c >out 2>err &
    pid=$!
    until pgrep -P $pid -f __kernel-host >/dev/null; do
        kill -0 $pid || fail "ended early: $(cat out err)"
        sleep 0.05
    done
    child=$(pgrep -P $pid -f __kernel-host)
    kill -TERM $pid
    wait $pid
    status=$?
    [ $status = 143 ] || fail "exit code $status: $(cat err)"
    kill -0 "$child" 2>/dev/null && fail "the kernel lives on"
    [ -z "$(ls "$TMPDIR")" ] || fail "something is left in TMPDIR"
}

# Of this seed, the state leaves fp32's range before the exact result does. That is no kernel's fault; NaN from the first token on is.
test_inputs_that_explode_under_another_seed() {
    at_end '((float *)c->out.data)[0] = NAN;'
    for kernel in builtin:fused "src:$EXAMPLE"; do
        GDNCTL_EVAL_SEED=33202381898029 expect 0 "$GDNCTL" oracle verify gdn --kernel "$kernel" --case unnormalised_keys
        out_has 'UNSTABLE_INPUT as expected'
    done
    GDNCTL_EVAL_SEED=33202381898029 expect 1 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case unnormalised_keys
    out_has NON_FINITE
}
