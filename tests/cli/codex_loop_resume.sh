# codex-loop --resume: the run's own options hold. Options in gdnctl.toml.
. "$REPO/tests/support/loop_repo.sh"
resume() { # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --resume "$@"
}
commits() { [ "$(git rev-list --count "$base"..HEAD)" = "$1" ] || fail "$(git rev-list --count "$base"..HEAD) commits, not $1"; }

test_resume_needs_no_other_option() {
  repo && agent "$works"
  loop 0 --iterations 1 --post-check "echo checked >>$WORK/checks" --directive 'be quick' --isolation worktree
  resume 0
  last_line 'reason=completed iteration=1 rc=0'
  resume 0 --iterations 3
  last_line 'reason=completed iteration=3 rc=0'
  commits 3
  [ "$(wc -l <"$WORK/checks")" = 3 ] || fail 'the post-check did not run each time'
  grep -q '^be quick$' $logs/iteration-003-prompt.txt || fail 'no directive'
  # The new total holds as well.
  agent 'exit 9'
  resume 0
  last_line 'reason=completed iteration=3 rc=0'
  mkdir -p deep/er && cd deep/er && resume 0 --iterations 3
}

test_every_other_difference_is_named_and_nothing_begins() {
  repo && agent "$works"
  loop 0 --iterations 1 --post-check true --max-failures 2
  local journal
  journal=$(md5sum <$logs/journal.jsonl)
  resume 2 --model other --post-check true --post-check false --max-failures 2 --resilient --iterations 4
  err_has '--resume: not what run 2'
  err_has '--model other (the run has gpt-5.3-codex)'
  err_has '--post-check true false (the run has true)'
  err_has '--resilient on (the run has off)'
  err_lacks --max-failures
  last_line 'reason=usage iteration=0 rc=2'
  resume 2 --target marin
  err_has '--target marin (the run has cpu-gdn)'
  : >other.toml
  resume 2 --config other.toml
  err_has "--config $PWD/other.toml (the run has none)"
  rm other.toml
  [ "$(md5sum <$logs/journal.jsonl)" = "$journal" ] || fail 'the journal is another'
  commits 1
  # What is the same may be repeated, defaults too.
  loop 0 --resume --post-check true --max-failures 2 --no-commit-policy fail --model gpt-5.3-codex --iterations 2 --plateau 9
  commits 2
}

test_resume_holds_after_a_kill() {
  repo && agent "$works" "[ -e $WORK/killed ] || { touch $WORK/killed; kill -9 \$PPID; sleep 9; }"
  loop 137 --iterations 2 --post-check true
  resume 0
  last_line 'reason=completed iteration=2 rc=0'
  grep -o '"options":"[^"]*' $logs/journal.jsonl | wc -l >"$WORK/n"
  [ "$(cat "$WORK/n")" = 2 ] || fail 'run and resume should both keep the options'
}

# The journal of a gdnctl that kept no options.
forget_options() {
  python3 - $logs/journal.jsonl <<'P'
import hashlib, json, sys
last, lines = "0" * 64, []
for line in open(sys.argv[1]):
    record = json.loads(line)
    record.pop("options", None)
    record["prev"] = last
    lines.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False))
    last = hashlib.sha256(lines[-1].encode()).hexdigest()
open(sys.argv[1], "w").write("".join(line + "\n" for line in lines))
P
}

test_a_journal_without_options_resumes_by_the_whole_command() {
  repo && agent "$works"
  loop 0 --iterations 1 --post-check true --isolation inplace
  forget_options
  resume 2
  err_has '--iterations is required'
  loop 2 --iterations 2 --resume
  err_has 'was started with --post-check, but this command omits it; its changes would be accepted without validation'
  loop 0 --iterations 2 --resume --post-check true --post-check true --isolation worktree
  err_has 'different post-checks than when the run started'
  err_has 'the run stays in place, as it started'
  commits 2
  # From now on it has them.
  resume 0 --iterations 3
  commits 3
}

test_options_in_gdnctl_toml() {
  repo && agent "$works"
  cat >gdnctl.toml <<TOML
[codex-loop]
iterations = 2
agent = "command"
agent-command = "$WORK/agent"
sleep-seconds = 0
post-check = ["true", "echo checked >>$WORK/checks"]
TOML
  git add . && git commit -qm configured && base=$(git rev-parse HEAD)
  expect 0 "$GDNCTL" codex-loop
  last_line 'reason=completed iteration=2 rc=0'
  [ "$(wc -l <"$WORK/checks")" = 2 ] || fail 'the post-check did not run each time'
  expect 0 "$GDNCTL" codex-loop --iterations 1 --post-check true
  last_line 'reason=completed iteration=1 rc=0'
  [ "$(wc -l <"$WORK/checks")" = 2 ] || fail 'a list on the command line replaces the one in the file'
  # The command line of the start holds, although the file says something else.
  resume 0
  last_line 'reason=completed iteration=1 rc=0'
  sed -i 's/^iterations = 2/iterations = 3/; s/^sleep-seconds = 0/sleep-seconds = 1/' gdnctl.toml
  git commit -qam changed
  resume 2
  err_has 'gdnctl.toml:5: --sleep-seconds 1 (the run has 0)'
  resume 0 --sleep-seconds 0
  last_line 'reason=completed iteration=3 rc=0'
}

test_a_bad_table_stops_the_loop_and_config_show_and_nothing_else() {
  repo && agent "$works"
  printf '[codex-loop]\nmodle = "x"\n' >gdnctl.toml
  loop 2 --iterations 1
  err_has "gdnctl.toml:2: unknown key 'codex-loop.modle'"
  err_has 'hint: did you mean `model`?'
  last_line 'reason=config iteration=0 rc=2'
  expect 2 "$GDNCTL" config show
  err_has "error: gdnctl.toml:2: unknown key 'codex-loop.modle'"
  expect 0 "$GDNCTL" cluster list
  expect 0 "$GDNCTL" codex-loop --help
  printf '[codex-loop]\nmax-failures = "soon"\n' >gdnctl.toml
  loop 2 --iterations 1
  err_has "gdnctl.toml:2: invalid value 'soon' for 'codex-loop.max-failures': not a whole number"
  printf '[codex-loop]\nresilient = "yes"\n' >gdnctl.toml
  loop 2 --iterations 1
  err_has "gdnctl.toml:2: 'codex-loop.resilient' must be true or false"
}

test_a_secret_is_not_kept_and_has_to_be_given_again() {
  repo && agent "$works"
  local check='true hf_abcdefghijklmnopqrstuvwxyz012345'
  loop 0 --iterations 1 --post-check "$check"
  ! grep -rq abcdefghijklmnop $logs || fail 'the secret is in the log directory'
  resume 2
  err_has 'has a secret in --post-check, which its journal does not keep'
  resume 0 --post-check "$check" --iterations 2
  err_lacks abcdefghijklmnop
  commits 2
}

test_resume_of_a_run_that_failed_and_has_no_iteration_left() {
  repo && agent 'exit 9'
  loop 9 --iterations 1
  resume 0
  err_has 'no iteration is left to resume, and the last one ended the run: agent-error'
  err_has 'hint: --iterations 2 adds one'
  last_line 'reason=completed iteration=1 rc=0'
  agent "$works"
  loop 3 --iterations 1 --post-check 'exit 3'
  resume 0
  err_has 'no iteration is left to resume, and the last one ended the run: post-check'
  agent 'exit 9'
  loop 9 --iterations 1
  agent "$works"
  resume 0 --iterations 2
  last_line 'reason=completed iteration=2 rc=0'
  resume 0
}

test_a_signal_after_resume_says_that_the_agent_is_stopped() {
  repo && agent "touch $WORK/running; sleep 60"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1
  for _ in 1 2; do
    until [ -e "$WORK/running" ]; do sleep 0.05; done
    kill -INT $pid
    wait $pid
    err_has 'Ctrl-C: the agent is being stopped, and what it did so far is kept'
    rm "$WORK/running" && launch "$GDNCTL" codex-loop --resume
  done
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  kill -TERM $pid
  wait $pid
  [ $? = 143 ] || fail 'exit code'
}

test_an_emptied_journal_is_damage_and_not_no_run() {
  repo && agent "$works"
  loop 0 --iterations 1
  for harm in : 'head -c 300 /dev/zero'; do
    eval "$harm" >$logs/journal.jsonl
    resume 7 --iterations 2
    err_has 'journal.jsonl:1: the journal is damaged: it was emptied'
    for command in loop-status loop-report 'loop-explain 1'; do
      # shellcheck disable=SC2086
      expect 7 "$GDNCTL" $command
    done
  done
  commits 1
  # A start moves it aside; a run that was never written down is none.
  loop 0 --iterations 1
  rm $logs/state.json && : >$logs/journal.jsonl
  expect 6 "$GDNCTL" loop-status
}
