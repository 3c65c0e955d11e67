# What takes long with sanitizers: whole sets of cases through the release binary.

test_every_relation_holds_for_the_built_in_kernels() {
    for kernel in chunk fused recurrent32; do
        expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:$kernel --metamorphic
        case $kernel in chunk) n=15 ;; *) n=14 ;; esac  # with gradients, and without
        [ "$(tail -n 1 "$WORK/out")" = "verdict: OK ($n relations)" ] || fail "last line: $(tail -n 1 "$WORK/out")"
        [ "$(grep -c 'FORWARD ONLY' "$WORK/out")" = $((15 - n)) ] || fail "builtin:$kernel: $(cat "$WORK/out")"
    done
}

# But for crossed cases, of which some will do here: see tests/cli/oracle_verify.sh.
test_all_cases_of_the_full_kernel_are_right() {
    cc -O2 -shared -fPIC -I "$REPO/include" -o kernel.so "$FIXTURES/kernels/full.c" -lm || fail "the test's kernel does not compile"
    expect 0 "$GDNCTL" oracle verify gdn --kernel lib:kernel.so $("$GDNCTL" oracle cases gdn --json |
        jq -r '[.cases[] | select(.set != "slow")] | to_entries[] | select(.value.set != "crossed" or .key % 16 == 0).value.name | "--case", .')
    grep -Eq '^golden backward: [1-9][0-9]* OK$' "$WORK/out" || fail 'no gradients'
    grep -Eq '^decode: 30 OK$' "$WORK/out" || fail 'no steps'
}

test_the_verdict_of_the_embedded_target_names_its_kernel() {
    git init -q .
    printf '[targets.cpu-gdn]\nlog = "x.md"\n' >gdnctl.toml
    CC=/nowhere/cc expect 0 "$GDNCTL" ray-test --cluster local --target cpu-gdn --json
    grep -q '^\[gdnctl\] verdict: OK .* for builtin:chunk, the example kernel of gdnctl$' "$WORK/err" || fail "the example is not called so"
    jq -e '.verdict.kernel == "builtin:chunk"' "$WORK/out" >/dev/null || fail "no kernel in the JSON"
}
