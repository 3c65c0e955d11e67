# Reports as an agent reads them: short Markdown, errors as one JSON line; nothing else changes.
dir=.agents/logs/gdn_codex_loop
record() { python3 "$REPO/tests/support/loop_journal.py" "$@" || fail "no journal"; }

test_reports_are_short_markdown() {
  record $dir
  export GDNCTL_AGENT=1
  for report in loop-status 'loop-explain 2' 'loop-explain last'; do
    expect 0 "$GDNCTL" $report
    [ "$(head -n 1 "$WORK/out")" = "# gdnctl ${report%% *}" ] || fail "the heading of $report"
    [ "$(tail -n 1 "$WORK/out")" = '```' ] || fail "the end of $report"
  done
  expect 0 "$GDNCTL" loop-report
  [ "$(head -n 1 "$WORK/out")" = '# Run 20260310t165307z' ] || fail 'the report is Markdown already'
  err_has 'GDNCTL_AGENT is set: printing at most 8000 bytes of Markdown; --json prints everything, GDNCTL_AGENT=0 plain text'
  record long --iterations 300
  expect 0 "$GDNCTL" loop-report --log-dir long
  [ "$(wc -c <"$WORK/out")" -le 8000 ] || fail 'too long'
  out_has ' lines are left out; --json prints everything'
  out_has '| 300 |'
}

test_a_verdict_of_the_oracle_and_its_exit_code() {
  "$GDNCTL" oracle verify gdn --kernel cmd:false --case g1 >"$WORK/out" 2>"$WORK/err" && fail 'a kernel that fails passes'
  CLAUDECODE=1 expect $? "$GDNCTL" oracle verify gdn --kernel cmd:false --case g1
  out_has '# gdnctl oracle verify'
  CLAUDECODE=1 expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:fused --case g1
  [ "$(sed -n '1p;3p' "$WORK/out" | tr '\n' ' ')" = '# gdnctl oracle verify ``` ' ] || fail 'not Markdown'
  err_has 'CLAUDECODE is set'
}

test_an_error_is_one_json_line_with_its_hint() {
  export CODEX_THREAD_ID=t1
  expect 6 "$GDNCTL" loop-explain 3
  out_empty
  tail -n 1 "$WORK/err" | jq -e '.schema == "gdnctl.error/1" and .exit_code == 6 and (.hint | contains("codex-loop"))' >/dev/null || fail 'no JSON'
  expect 2 "$GDNCTL" oracle verify gdn --kernl builtin:fused
  tail -n 1 "$WORK/err" | jq -e '.exit_code == 2 and (.hint | contains("--kernel"))' >/dev/null || fail 'no JSON for an unknown option'
  err_lacks '[gdnctl] error:'
}

test_it_is_off_where_it_does_not_belong() {
  record $dir
  expect 0 "$GDNCTL" loop-status
  cp "$WORK/out" plain
  CODEX_HOME=$PWD expect 0 "$GDNCTL" loop-status
  cmp "$WORK/out" plain || fail 'CODEX_HOME is a place, not an agent'
  CLAUDECODE=1 GDNCTL_AGENT=0 expect 0 "$GDNCTL" loop-status
  cmp "$WORK/out" plain || fail 'GDNCTL_AGENT=0'
  # What a job prints is read by gdnctl.
  CLAUDECODE=1 GDNCTL_SUBMISSION_ID=j expect 0 "$GDNCTL" loop-status
  cmp "$WORK/out" plain || fail 'the output of a job'
  export GDNCTL_AGENT=1
  expect 0 "$GDNCTL" loop-status --json
  jq -e . "$WORK/out" >/dev/null || fail json
  err_lacks 'GDNCTL_AGENT is set'
  expect 0 "$GDNCTL" prompts list
  out_lacks '# gdnctl'
  expect 0 "$GDNCTL" oracle cases gdn
  out_lacks '# gdnctl'
  printf '# L\n\n### Iteration 1\n- Commit: (pending)\n' >log.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --no-git
  out_lacks '# gdnctl'
  err_has '[gdnctl] unresolved `Commit: (pending)` entries in log.md:'
  expect 3 "$GDNCTL" log show 7 --log-file log.md
  err_has '[gdnctl] error: '
}

test_a_job_on_this_machine_prints_as_always() {
  printf 'target = "mine"\n[targets.mine]\ntest = ["gdnctl", "oracle", "verify", "gdn", "--kernel", "builtin:fused", "--case", "g1"]\n' >gdnctl.toml
  git init -q . && git add . && git commit -qm start
  CLAUDECODE=1 expect 0 "$GDNCTL" ray-test --cluster local
  out_lacks '# gdnctl'
  out_has 'OK'
}
