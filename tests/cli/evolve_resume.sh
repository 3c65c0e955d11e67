# codex-loop --mode evolve --resume: the run's own options hold. What evolve commands say where the run's commits are not.
# shellcheck disable=SC2154
. "$REPO/tests/cli/evolve.sh"
resume() { expect "$1" "$GDNCTL" codex-loop --mode evolve --resume "${@:2}"; }

test_evolve_resume_needs_no_other_option() {
  world && agent 'echo $((10 - n)) >kernel.txt'
  expect 0 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --lineages 2 --seed 2 --max-attempts 1
  resume 0
  last_line 'reason=max-attempts attempt=1 rc=0'
  resume 0 --max-attempts 2
  last_line 'reason=max-attempts attempt=2 rc=0'
  # The new budget holds as well.
  resume 0
  last_line 'reason=max-attempts attempt=2 rc=0'
  log=$(echo .gdnctl/evolve/*) && journal=$(md5sum <"$log/journal.jsonl")
  resume 2 --perf-pairs 5 --lineages 3 --seed 4 --sleep-seconds 0 --max-attempts 9
  err_has '--perf-pairs 5 (the run has 3)'
  err_has '--lineages 3 (the run has 2)'
  err_has '--seed 4 (the run has 2)'
  err_has '--accept-config-change'
  last_line 'reason=usage attempt=0 rc=2'
  expect 2 "$GDNCTL" codex-loop --resume --log-dir "$log"
  err_has '--mode climb (the run has evolve)'
  [ "$(md5sum <"$log/journal.jsonl")" = "$journal" ] || fail 'the journal is another'
  resume 0 --lineages 3 --accept-config-change --max-attempts 3 --sleep-seconds 1 --directive 'be quick'
  resume 0 --max-attempts 4
  last_line 'reason=max-attempts attempt=4 rc=0'
  grep -q '^be quick$' "$log/attempt-0004/prompt.md" || fail 'the new directive does not hold'
  [ "$(jq -s 'map(select(.type=="config_change")) | length' "$log/journal.jsonl")" = 1 ] || fail 'the accepted change does not hold'
}

test_an_emptied_journal_is_damage_and_no_new_run() {
  world && agent 'exit 0'
  evolve 3 --max-attempts 1
  for harm in : 'head -c 300 /dev/zero'; do
    eval "$harm" >"$WORK/log/journal.jsonl"
    for command in 'evolve log' 'evolve fsck' 'loop-status' 'codex-loop --mode evolve --max-attempts 2 --agent command --agent-command true'; do
      # shellcheck disable=SC2086
      expect 7 "$GDNCTL" $command --log-dir "$WORK/log"
      err_has 'journal.jsonl:1: the journal is damaged: it was emptied'
    done
    evolve 7 --max-attempts 2 --resume
  done
}

test_candidates_of_a_dry_run_or_of_another_repository() {
  world && agent 'echo 9 >kernel.txt'
  dry 0 --max-attempts 4 --seed 3 --log-dir "$WORK/log"
  missing() { # WORDS: what each command says
    for command in 'diff base best' 'replay best' 'promote best' "export best --to $WORK/export"; do
      # shellcheck disable=SC2086
      expect 6 "$GDNCTL" evolve $command --log-dir "$WORK/log"
      err_has "$1"
      err_has 'hint: '
    done
    [ ! -e "$WORK/export" ] || fail 'something was exported'
  }
  missing 'was a dry run: its candidates were in a temporary repository'
  rm -r "$WORK/log"
  evolve 0 --max-attempts 1
  mkdir ../other && cd ../other && git init -q . && cp ../cwd/gdnctl.toml . && git add . && git commit -qm other
  missing "$PWD lacks commit ${base:0:12} of run "
}
