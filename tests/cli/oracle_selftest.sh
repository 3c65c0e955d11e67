# gdnctl oracle selftest.
test_help_says_what_it_does() {
    expect 0 "$GDNCTL" oracle selftest --help
    out_has 'makes the mistakes that'
    out_has 'gdnctl oracle selftest --json'
}

test_another_operator_is_a_usage_error() {
    expect 2 "$GDNCTL" oracle selftest softmax
    err_has "unknown operator 'softmax'"
    expect 2 "$GDNCTL" oracle selftest gdn --threads 9999
}

test_known_mistakes_are_found_and_correct_results_pass() {
    expect 0 "$GDNCTL" oracle selftest --json
    jq -e '.passed and .mutants.total > 200 and .backward.mutants.total >= 30 and .honest_variants.total > 40 and
           .honest_variants.false_alarms == 0 and .backward.honest_variants.false_alarms == 0' "$WORK/out" >/dev/null ||
        fail "selftest: $(cat "$WORK/out")"
    expect 0 "$GDNCTL" oracle selftest
    out_has 'selftest: passed'
}

test_an_interrupt_ends_it() {
    "$GDNCTL" oracle selftest >out 2>err &
    pid=$!
    sleep 0.5
    kill -TERM $pid
    wait $pid
    status=$?
    [ $status = 143 ] || fail "exit code $status: $(cat err)"
    [ ! -s out ] || fail 'a report in spite of the interrupt'
}
