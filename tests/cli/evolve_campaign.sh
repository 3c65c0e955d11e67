# The campaign of seed 004 with a scripted agent: iterative, resumed, evolve cut short, full evolve, warm starts, and a
# second evolve that is weaker. Runs with GDNCTL_SLOW=1, on a fifth of the steps of then; on all with GDNCTL_SLOW=all.
# shellcheck disable=SC2154
. "$REPO/tests/cli/evolve.sh"

share=5
[ "${GDNCTL_SLOW:-}" = all ] && share=1
steps() { echo $((($1 + share - 1) / share)); }
# The agent has one success a run: at step $1, with a time of $2; other steps change nothing, break it, or are slower.
scripted() {
  agent "[ \$n = $1 ] && echo $2 >kernel.txt && exit
case \$((n % 5)) in 0) ;; 1) echo '<NO_VALID_EDIT/>' ;; 2) echo \"$2 wrong \$n\" >kernel.txt ;; 3) awk '{print \$1 * 1.1}' kernel.txt >k && mv k kernel.txt ;; *) exit 0 ;; esac"
}
run() {  # CODE LOG OPTION...
  expect "$1" "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir ".gdnctl/evolve/$2" "${@:3}"
}
attempts() { jq -s '[.[] | select(.type=="verdict" and .verdict!="abandoned" and .verdict!="quarantined")] | length' ".gdnctl/evolve/$1/journal.jsonl"; }
gain() { "$GDNCTL" loop-status --log-dir ".gdnctl/evolve/$1" --json | jq '.best.gain_against_base | exp | . * 10000 | round / 10000'; }
best_is() { expect 0 "$GDNCTL" evolve best --json; jq -e --arg run "$(jq -r .run ".gdnctl/evolve/$1/journal.jsonl" | head -n 1)" '.run == $run' "$WORK/out" >/dev/null || fail "the best is not of $1"; }

test_the_campaign_comes_out_right() {
  [ -n "${GDNCTL_SLOW:-}" ] || skip 'GDNCTL_SLOW=1 runs it'
  world
  echo 714.3 >kernel.txt && git commit -qam 'the naive one' && base=$(git rev-parse HEAD)  # speedup 1.4 of a reference of 1000
  iterative='--lineages 1 --operator-mix exploit=1'
  # Iterative: 22.4212 at step 17 of 25, then 15 more without a gain.
  scripted "$(steps 17)" 44.6007 && run 0 a-iterative $iterative --max-attempts "$(steps 25)"
  [ "$(gain a-iterative)" = 16.0154 ] || fail "iterative: $(gain a-iterative)"
  run 0 a-iterative $iterative --max-attempts "$(steps 40)" --resume
  [ "$(attempts a-iterative)" = "$(steps 40)" ] && [ "$(gain a-iterative)" = 16.0154 ] || fail 'resumed: +0'
  best_is a-iterative
  # Evolve is cut at 22 of 30: nothing that was paid for is lost, and it goes on from there.
  scripted "$(steps 21)" 35.0585
  launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir .gdnctl/evolve/b-evolve --max-attempts "$(steps 30)" --seed 1
  while kill -0 "$pid" 2>/dev/null && [ "$(attempts b-evolve 2>/dev/null)" -lt "$(steps 22)" ]; do sleep .1; done
  kill -9 "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  evaluated=$(attempts b-evolve)
  [ "$evaluated" -ge "$(steps 22)" ] || fail "$evaluated evaluated"
  expect 0 "$GDNCTL" loop-status --log-dir .gdnctl/evolve/b-evolve --json
  jq -e '.state != "running" and .best.attempt > 0' "$WORK/out" >/dev/null || fail 'the cut run has lost its best'
  run 0 b-evolve --max-attempts "$(steps 30)" --seed 1 --resume
  [ "$(attempts b-evolve)" = "$(steps 30)" ] || fail 'the resumed run repeated or lost attempts'
  best_is b-evolve
  # A full evolve: 31.8910 at 28 of 30. A warm start from it gains nothing.
  scripted "$(steps 28)" 31.3568 && run 0 c-evolve --max-attempts "$(steps 30)" --seed 2
  best_is c-evolve
  champion=$(git rev-parse "refs/gdnctl/evolve/$(jq -r .run .gdnctl/evolve/c-evolve/journal.jsonl | head -n 1)/best")
  scripted 999 1 && run 3 d-warm $iterative --max-attempts "$(steps 20)" --from "$champion"
  best_is c-evolve
  # A second full evolve is weaker, 28.7158, and neither it nor its warm start displaces the best.
  scripted "$(steps 16)" 34.8240 && run 0 e-evolve --max-attempts "$(steps 30)" --seed 3
  best_is c-evolve
  second=$(jq -r .run .gdnctl/evolve/e-evolve/journal.jsonl | head -n 1)
  scripted 999 1 && run 3 f-warm $iterative --max-attempts "$(steps 12)" --from "$second"
  best_is c-evolve
  [ "$(jq -r 'select(.type=="run_start") | .base' .gdnctl/evolve/f-warm/journal.jsonl)" = "$(git rev-parse "refs/gdnctl/evolve/$second/best")" ] || fail 'not a warm start'
  # The best of all is what a person gets, and nothing else has moved.
  [ "$(git rev-parse HEAD)" = "$base" ] && [ -z "$(git fsck --no-dangling 2>&1)" ] || fail 'the repository'
  expect 0 "$GDNCTL" evolve promote best --log-dir .gdnctl/evolve/c-evolve
  [ "$(git rev-parse HEAD)" = "$champion" ] || fail 'another candidate'
  for run in a-iterative b-evolve c-evolve d-warm e-evolve f-warm; do
    expect 0 "$GDNCTL" lint-log --template experiment --scope all --log-file ".gdnctl/evolve/$run/experiment-log.md"
    expect 0 "$GDNCTL" evolve lint --log-dir ".gdnctl/evolve/$run"
  done
}
