# gdnctl oracle selftest. What it judges is tested in tests/unit/oracle/selftest_test.cpp: a whole run takes minutes with
# sanitizers.
test_help_says_what_it_does() {
    expect 0 "$GDNCTL" oracle selftest --help
    out_has 'plants one fault at a time'
    out_has 'gdnctl oracle selftest --json'
}

test_another_operator_is_a_usage_error() {
    expect 2 "$GDNCTL" oracle selftest softmax
    err_has "unknown operator 'softmax'"
    expect 2 "$GDNCTL" oracle selftest gdn --threads 9999
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
