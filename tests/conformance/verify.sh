# The whole of `gdnctl oracle verify`, which takes minutes with sanitizers; the other tests run a part of it.
# rooms: src/oracle src/harness
test_every_case_is_ok() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --slow -v
    out_has 'case   long_65537 '
    out_has 'verdict: OK (183 cases, 180 backward)'
}

test_the_example_is_right_on_every_case() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel "src:$REPO/examples/cpu-gdn/kernel.c"
    out_has 'verdict: OK (182 cases)'
}
