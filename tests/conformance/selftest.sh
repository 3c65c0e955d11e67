# The whole of `gdnctl oracle selftest`, which the unit tests run a part of.
# rooms: src/oracle
test_every_mutant_is_caught_and_no_honest_variant_is_flagged() {
    expect 0 "$GDNCTL" oracle selftest
    out_has 'selftest: passed'
    out_has 'false alarms'
}
