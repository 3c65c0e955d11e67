# `gdnctl oracle selftest` for every operator.
# rooms: src/oracle
test_every_known_mistake_is_found_and_no_correct_result_is_flagged() {
    for op in gdn linear-ce; do
        expect 0 "$GDNCTL" oracle selftest $op
        out_has 'selftest: passed'
    done
}
