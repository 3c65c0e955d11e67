# All mutants, of which the unit tests judge a part: half an hour of processor time.
# slow
test_every_mutant_is_caught_and_no_correct_variant_is_flagged() {
    GDNCTL_SLOW=1 expect 0 "$(dirname "$GDNCTL")/mutants"
    grep -qE 'test cases: +[1-9]' "$WORK/out" || fail 'no test ran'
}
