# `gdnctl oracle selftest` for every operator, and all mutants, of which the unit tests judge a part.
# rooms: src/oracle
test_every_known_mistake_is_found_and_no_correct_result_is_flagged() {
    for op in gdn linear-ce; do
        expect 0 "$GDNCTL" oracle selftest $op
        out_has 'selftest: passed'
    done
}

test_every_mutant_is_caught_and_no_correct_variant_is_flagged() {
    local unit
    unit=$(ls -t "$REPO"/build/*/unit 2>/dev/null | head -1)
    [ -n "$unit" ] || skip 'the unit tests are not built'
    GDNCTL_SLOW=1 expect 0 "$unit" --test-case='mutants: all *,mutants: linear-ce *'
    out_has '2 passed'
}
