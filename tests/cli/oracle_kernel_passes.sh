# gdnctl oracle verify: backward and decode of kernels of others.
FULL=$FIXTURES/kernels/full.c

verify() { "$GDNCTL" oracle verify gdn "$@"; }
# The kernel with statements at the end of an entry point, as kernel.so.
built() { cc -O2 -shared -fPIC -I "$REPO/include" "$@" -o kernel.so "$FULL" -lm || fail "the test's kernel does not compile"; }
gva() { verify --case gva_2 --kernel lib:kernel.so "$@"; }

test_all_passes_of_a_kernel_are_judged() {
    built
    expect 0 verify --kernel lib:kernel.so --case gva_2 --case odd_dims --case varlen --case decode_t3 --case decode_packed
    out_has 'edges: 3 OK'
    out_has 'edges backward: 3 OK'
    out_has 'decode: 4 OK'
    out_has 'verdict: OK (3 cases, 3 backward, 4 decode)'
    out_lacks 'FORWARD ONLY'
    expect 0 gva --json
    jq -e '.forward_only == false and .cases == 1 and .backward == 1 and .decode == 0 and .items[1].kind == "backward"' \
        "$WORK/out" >/dev/null || fail "the report"
}

test_gradients_of_a_built_in_kernel_are_judged() {
    expect 0 verify --kernel builtin:chunk --case gva_2 --case gate_1e4
    out_has 'edges backward: 1 OK'
    out_has '2 backward'
    expect 0 verify --kernel builtin:recurrent64 --case gva_2
    expect 0 verify --kernel builtin:fused --case gva_2
    out_has 'FORWARD ONLY'
}

test_wrong_gradients_are_found_where_they_are() {
    built -DDG_FACTOR=1.02
    expect 1 gva
    out_has 'stage: dg'
    out_has 'where: value heads'
    out_has 'verdict: WRONG (1 case, 1 backward; 1 failed)'
    expect 1 gva --json
    jq -e '.items[0].verdict == "OK" and .items[1].verdict == "WRONG" and .items[1].stage == "dg"' "$WORK/out" >/dev/null ||
        fail "the stage"
    built '-DBACKWARD_FAULT=((float*)c->dq.data)[5]=NAN;'
    expect 1 gva
    out_has 'verdict: NON_FINITE'
}

test_a_backward_that_leaves_its_bounds() {
    built '-DBACKWARD_FAULT=((float*)c->dbeta.data)[c->batch*c->tokens*c->value_heads]=1;'
    expect 1 gva
    out_has 'past the end of dbeta'
    built '-DBACKWARD_FAULT=((float*)c->d_out.data)[0]=1;'
    expect 1 gva
    out_has 'wrote to its input d_out, at byte 0'
    built '-DBACKWARD_FAULT=memset(c->dk.data,0,4);((volatile float*)c->dk.data)[0]+=0;'
    expect 1 gva
    built '-DBACKWARD_FAULT=abort();'
    expect 1 gva
    out_has 'verdict: CRASHED (1 case, 1 backward; 1 failed)'
}

test_a_backward_that_adds_or_does_not_write() {
    sed 's|((float \*)c->dk.data)\[i\] = (float)g_dk|((float *)c->dk.data)[i] += (float)g_dk|' "$FULL" >kernel.c
    expect 1 verify --case gva_2 --kernel src:kernel.c
    out_has 'verdict: INCOMPLETE'
    out_has 'values of dk were not changed by the call: never written, or accumulated into'
    sed 's|((float \*)c->dbeta.data)\[gate\] = |(void)|' "$FULL" >kernel.c
    expect 1 verify --case gva_2 --kernel src:kernel.c
    out_has 'of dbeta were not changed by the call'
}

test_gradients_that_depend_on_the_call() {
    built '-DBACKWARD_FAULT=static int calls;if(++calls==3)((float*)c->dv.data)[0]+=1;'
    expect 1 gva
    out_has 'verdict: UNSTEADY'
    built '-DBACKWARD_FAULT=static float kept[99999];static int n;if(n++)memcpy(c->dg.data,kept,64);else memcpy(kept,c->dg.data,64);'
    expect 0 gva
    built '-DBACKWARD_FAULT=static float kept[99999];static int n;if(n++)memcpy(c->dq.data,kept,64);else memcpy(kept,c->dq.data,64);'
    expect 1 gva
    out_has 'wrong for inputs with other signs'
}

test_decode_in_place_and_not() {
    built '-DDECODE_FAULT=if(c->final_state.data==c->initial_state.data)((float*)c->final_state.data)[0]+=1;'
    expect 1 verify --case decode_t2 --kernel lib:kernel.so --json
    jq -e '.items[0].verdict == "OK" and .items[1].verdict == "WRONG" and .items[1].name == "decode_t2 in place"' \
        "$WORK/out" >/dev/null || fail "in place"
    built '-DDECODE_FAULT=if(c->tokens==7)((float*)c->out.data)[0]+=1;'
    expect 1 verify --case decode_t6 --case decode_t7 --kernel lib:kernel.so
    out_has 'verdict: WRONG (0 cases, 4 decode; 2 failed)'
    built '-DDECODE_FAULT=((float*)c->initial_state.data)[0]=0;'
    expect 1 verify --case decode_t1 --kernel lib:kernel.so
    out_has 'wrote to its input initial_state'
}

test_a_program_that_gives_gradients() {
    cat >run.sh <<'SH'
"$GDNCTL" oracle run gdn --inputs "$1" --backward --out "$2" >/dev/null
SH
    expect 0 verify --kernel 'cmd:sh run.sh' --case gva_2 --json
    jq -e '.forward_only == false and .cases == 1' "$WORK/out" >/dev/null || fail "gradients were not judged"
    cat >run.sh <<'SH'
"$GDNCTL" oracle run gdn --inputs "$1" --out "$2" >/dev/null
SH
    expect 0 verify --kernel 'cmd:sh run.sh' --case gva_2
    out_has 'FORWARD ONLY'
}

# The kernel without an entry point, as kernel.so.
without() {
    sed_words=
    for entry in "$@"; do sed_words="$sed_words;/^    .$entry = /d"; done
    sed "$sed_words" "$FULL" >part.c
    cc -O2 -shared -fPIC -Wno-unused-function -I "$REPO/include" -o kernel.so part.c -lm || fail "the test's kernel does not compile"
}

test_a_kernel_with_nothing_but_a_decode() {
    without forward backward
    expect 0 verify --kernel lib:kernel.so
    out_has 'decode: 30 OK'
    out_has 'skipped, not in the kernel: forward (182 cases), backward (179 cases)'
    out_has 'DECODE ONLY: no gradient was compared'
    expect 0 verify --kernel lib:kernel.so --case g1 --case decode_t4 --json
    jq -e '.verdict == "OK" and .cases == 0 and .decode == 2 and .skipped == {forward: 1, backward: 1, decode: 0}' \
        "$WORK/out" >/dev/null || fail "the report"
    expect 9 verify --kernel lib:kernel.so --case g1
    out_has 'skipped, not in the kernel: forward (1 case), backward (1 case)'
    out_has 'verdict: NO_DATA (0 cases)'
    expect 9 verify --kernel lib:kernel.so --metamorphic
    out_has "no entry point 'forward'"
    expect 0 "$GDNCTL" oracle bench gdn --shape 2,2,4,5,16,8 --rounds 2 --runs 1 --kernel lib:kernel.so --json
    jq -e '.decode.verified and .forward.verified == null and (.not_measured.forward | length > 0)' "$WORK/out" >/dev/null ||
        fail "the times"
}

test_a_kernel_with_nothing_but_a_backward() {
    without forward decode
    expect 0 verify --kernel lib:kernel.so --case gva_2 --case decode_t4
    out_has 'edges backward: 1 OK'
    out_has 'skipped, not in the kernel: forward (1 case), decode (1 case)'
    out_has 'verdict: OK (0 cases, 1 backward)'
    out_lacks 'ONLY'
    expect 9 verify --kernel lib:kernel.so --case no_tokens --case decode_t4  # where nothing has gradients
    out_has 'verdict: NO_DATA'
    expect 0 "$GDNCTL" oracle bench gdn --shape 1,2,4,70,16,8 --rounds 2 --runs 1 --kernel lib:kernel.so --json
    jq -e '.backward.verified and .forward.verified == null' "$WORK/out" >/dev/null || fail "the times"
}

test_cases_that_a_kernel_has_no_entry_point_for_are_counted() {
    without backward decode
    expect 0 verify --kernel lib:kernel.so --case gva_2 --case decode_t4
    out_has 'skipped, not in the kernel: backward (1 case), decode (1 case)'
    expect 9 verify --kernel lib:kernel.so --case decode_t4
    out_has 'verdict: NO_DATA'
    without forward backward decode
    expect 9 verify --kernel lib:kernel.so --case decode_t4
    out_has "no entry point 'decode'"
    expect 9 "$GDNCTL" oracle bench gdn --shape 1,2,4,70,16,8 --rounds 2 --runs 1 --kernel lib:kernel.so
    out_has "no entry point 'forward'"
}
