# codex-loop with the Codex CLI (a program that plays it), and with a held dev TPU (a script that plays the allocator).
repo() {
  git init -q . && printf 'int speed = 1;\n' >kernel.c && printf 'make it faster' >prompt.md && git add . && git commit -qm base
  mkdir -p "$HOME/.codex" "$WORK/bin" "$WORK/fake"
  ln -s "$REPO/tests/support/fake_codex.py" "$WORK/bin/codex"
  export PATH=$WORK/bin:$PATH GDNCTL_FAKE_CODEX=$WORK/fake
}
scenario() { printf '%s\n' "$@" >"$WORK/fake/scenario"; }
golden=('thread' 'usage 6000 5000 170 50' 'write kernel.c int speed = 2;' 'commit faster' 'message Committed one optimization.' 'completed 6000 5000 170 50')
loop() {
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --prompt-file prompt.md --model model-a --sleep-seconds 0 --retry-sleep-seconds 0 "$@"
}
calls() { python3 -c "
import json,sys
for line in open('$WORK/fake/calls.jsonl'):
    c = json.loads(line)
    if c['stdin_bytes']: print($1)"; }
logs=.agents/logs/gdn_codex_loop

test_golden_run_of_codex() {
  repo && scenario "${golden[@]}"
  loop 0 --iterations 1 --json
  err_has "using codex binary: "
  err_has 'supported model_reasoning_effort values: low, medium, high, xhigh'
  err_has ' codex attempt 1: class=ok rc=0 thread='
  err_has 'tokens=6000/5000/170'
  [ "$(cat $logs/iteration-001-last-message.txt)" = 'Committed one optimization.' ] || fail message
  [ "$(git log --format=%s -1)" = faster ] || fail commit
  grep -q '"tokens":6170' "$WORK/out" || fail tokens
  [ "$(calls "c['stdin']")" = 'make it faster' ] || fail prompt
  for f in events.jsonl rollout.jsonl; do [ -s $logs/iteration-001-attempt-1-$f.gz ] || fail "no $f"; done
  calls "'HF_TOKEN' in c['env'], 'GDNCTL_LOOP_ID' in c['env'], c['env']['CODEX_HOME']" >"$WORK/got"
  grep -q '^False True /' "$WORK/got" && ! grep -q "$HOME/.codex" "$WORK/got" || fail environment
}

test_search_is_a_setting_and_ephemeral_a_flag_defect_1_case_40() {
  repo && scenario "${golden[@]}"
  loop 0 --iterations 1 --search --codex-ephemeral
  calls "' '.join(c['argv'])" >"$WORK/got"
  grep -q 'web_search="live"' "$WORK/got" && grep -q -- '--ephemeral -$' "$WORK/got" || fail argv
  git reset -q --hard HEAD~1 && rm "$WORK/fake/calls.jsonl"
  loop 0 --iterations 1 --no-codex-ephemeral
  calls "' '.join(c['argv'])" >"$WORK/got"
  grep -q 'web_search="disabled"' "$WORK/got" && ! grep -q -- --ephemeral "$WORK/got" || fail argv
}

test_old_codex_gets_the_search_flag_defect_1() {
  repo && scenario "${golden[@]}" && export GDNCTL_FAKE_CODEX_OLD=1
  loop 0 --iterations 1 --search --agent-env GDNCTL_FAKE_CODEX_OLD
  err_has 'supported model_reasoning_effort values: unknown'
  calls "' '.join(c['argv'])" | grep -q -- ' --search' || fail argv
}

# Another program of that name: it knows no questions, and does the same whatever it is asked.
other_codex() {
  repo && rm "$WORK/bin/codex" && printf '#!/bin/bash\ncat >/dev/null\necho call >>%s\n%s\n' "$WORK/calls" "$1" >"$WORK/bin/codex" && chmod +x "$WORK/bin/codex"
}
last_line() { [ "$(tail -n 1 "$WORK/err")" = "[gdnctl] codex-loop stopped: $1" ] || fail "last line is not: $1"; }

test_a_program_that_knows_no_questions_works_and_is_asked_elsewhere() {
  other_codex 'echo "int speed = 2;" >kernel.c; git add -A; git commit -qm work; echo done'
  loop 0 --iterations 1
  err_has 'this codex cannot list its models: model and effort are not checked'
  [ "$(git log --format=%s | tr '\n' ' ')" = 'work base ' ] || fail "commits: $(git log --oneline)"
  [ -z "$(git status --porcelain)" ] || fail 'it was asked in the repository'
  [ -z "$(ls "$TMPDIR")" ] || fail "left: $(ls "$TMPDIR")"
}

test_its_failures_are_tried_again_and_its_status_is_the_runs() {
  local code
  for code in 7 1 2; do
    mkdir w && cd w && other_codex "exit $code" && : >"$WORK/questions"
    loop $code --iterations 2 --codex-retries 2
    err_has 'attempt 3: class=failed'
    last_line "reason=agent-error iteration=1 rc=$code"
    loop 0 --iterations 2 --max-failures -1
    last_line 'reason=completed iteration=2 rc=0'
    cd .. && rm -rf w
  done
}

test_an_empty_prompt_that_is_not_answered_as_codex_does_is_no_refusal() {
  other_codex 'case "$*" in "debug models --bundled") echo "{\"models\":[{\"slug\":\"model-a\",\"supported_reasoning_levels\":[{\"effort\":\"xhigh\"}]}]}"; exit;; exec*-C*) ;; *) exit 3;; esac
echo "int speed = 2;" >kernel.c; git add -A; git commit -qm work'
  loop 0 --iterations 1
  err_has 'this program does not respond to an empty prompt as Codex does'
  [ "$(git log --format=%s | tr '\n' ' ')" = 'work base ' ] || fail "commits: $(git log --oneline)"
}

test_the_key_that_the_provider_names_reaches_codex_and_no_other() {
  repo && scenario "${golden[@]}"
  printf 'model_provider = "mock"\n[model_providers.other]\nenv_key = "OTHER_KEY"\n[model_providers."mock"]\nbase_url = "x"\nenv_key = "MOCK_KEY" # ours\n' >"$HOME/.codex/config.toml"
  MOCK_KEY=sesame-open-1 OTHER_KEY=sesame-open-2 loop 0 --iterations 1
  [ "$(calls "c['env'].get('MOCK_KEY'), c['env'].get('OTHER_KEY')")" = 'sesame-open-1 None' ] || fail "$(calls "c['env']")"
  ! grep -rq sesame-open $logs || fail 'a key is in the log directory'
}

test_what_is_not_shown_is_in_the_transcript() {
  repo && printf '#!/bin/bash\necho before\necho "file update: kernel.c"\nprintf "diff --git a/kernel.c b/kernel.c\\n--- a/kernel.c\\n+++ b/kernel.c\\n@@ -1 +1 @@\\n-int speed = 1;\\n+int speed = 2;\\n"\necho after\n' >"$WORK/agent"
  chmod +x "$WORK/agent"
  expect 0 "$GDNCTL" codex-loop --prompt-file prompt.md --agent command --agent-command "$WORK/agent" --iterations 1 --allow-no-commit
  err_lacks 'file update:'
  zcat $logs/iteration-001-transcript.log.gz >"$WORK/got"
  for line in before 'file update: kernel.c' '+int speed = 2;' after; do grep -qF -- "$line" "$WORK/got" || fail "the transcript lacks: $line"; done
}

test_unknown_effort_is_refused_before_any_session() {
  repo && scenario "${golden[@]}"
  loop 2 --iterations 1 --reasoning-effort enormous
  err_has 'low, medium, high, xhigh'
  [ -z "$(calls 1)" ] || fail 'a session began'
}

test_no_codex_says_how_to_get_one() {
  repo && rm -rf "$WORK/bin/codex" "$HOME/.codex"
  loop 2 --iterations 1
  err_has '[gdnctl] Could not find a `codex` binary. Install Codex CLI or pass --codex-bin /path/to/codex.'
  err_has 'hint: npm install -g @openai/codex'
}

test_log_in_refused_ends_the_run_at_once_defect_17() {
  repo && scenario thread 'failed unexpected status 401 Unauthorized: no' 'exit 1'
  loop 1 --iterations 5 --resilient
  err_has 'reason=codex-auth iteration=1 rc=1'
}

test_an_answer_cut_short_is_asked_for_once_more_whatever_the_budget() {
  repo && scenario thread 'failed Incomplete response returned, reason: max_output_tokens' 'exit 1'
  loop 1 --iterations 1 --codex-retries 5
  [ "$(calls 1 | wc -l)" = 2 ] || fail "$(calls 1 | wc -l) attempts"
  last_line 'reason=agent-error iteration=1 rc=1'
  # Other causes in between do not give it another chance, and have their own.
  rm "$WORK/fake/calls.jsonl" && cp "$WORK/fake/scenario" "$WORK/fake/scenario.1" && cp "$WORK/fake/scenario" "$WORK/fake/scenario.3"
  scenario thread 'failed stream disconnected before completion: x' 'exit 1'
  loop 1 --iterations 1 --codex-retries 5
  [ "$(calls 1 | wc -l)" = 3 ] || fail "$(calls 1 | wc -l) attempts"
}

test_a_signal_ends_the_wait_for_a_usage_limit() {
  repo && scenario thread 'failed You’ve hit your usage limit. Visit https://chatgpt.com/codex or try again later.' 'exit 1'
  launch "$GDNCTL" codex-loop --prompt-file prompt.md --model model-a --iterations 1
  until grep -q 'usage-limit: .*; waiting ' "$WORK/err"; do kill -0 $pid || fail 'it ended'; sleep 0.05; done
  kill -INT $pid
  wait $pid
  [ $? = 130 ] || fail 'exit code'
  last_line 'reason=interrupted iteration=1 rc=130'
}

test_stale_message_is_not_used_defect_16() {
  repo && scenario thread 'failed stream disconnected before completion: x' 'exit 1'
  mkdir -p $logs && echo stale >$logs/iteration-001-last-message.txt
  loop 1 --iterations 1
  [ ! -s $logs/iteration-001-last-message.txt ] || fail stale
  [ "$(cat $logs/previous/*/iteration-001-last-message.txt)" = stale ] || fail 'earlier file'
}

test_survivors_are_ended_and_output_ends_with_codex_defect_18() {
  repo && scenario thread 'survivor holds' 'survivor double' "${golden[@]:1}"
  loop 0 --iterations 1
  err_has 'ended a process that outlived the agent: sleep 600'
}

test_idle_codex_is_ended_with_124() {
  repo && scenario thread 'sleep 60'
  loop 124 --iterations 1 --codex-idle-timeout-seconds 1
  err_has 'reason=timeout iteration=1 rc=124'
}

allocator() {
  printf '#!/bin/bash\necho "$@" >>%s\n%s\n' "$WORK/calls" "$1" >"$WORK/allocator" && chmod +x "$WORK/allocator"
}
holds="trap 'echo released >>$WORK/released; exit 0' INT; echo 'TPU allocated successfully!'; while :; do sleep 0.05; done"
hold() {
  local want=$1
  shift
  loop "$want" --hold-dev-tpu --dev-tpu-name me-gdn --dev-tpu-allocator "$WORK/allocator" --dev-tpu-type v5p-8 --self-command gdnctl "$@"
}

test_held_tpu_is_told_released_and_falls_back() {
  repo && scenario "${golden[@]}" && allocator "[ \$2 = us-central1 ] && { echo 'no capacity'; exit 3; }; $holds"
  hold 0 --iterations 1 --dev-tpu-fallback-cluster us-east5-a --post-check 'true ray-test' --post-check 'true dev-tpu-test --cluster us-east5-a --tpu-name me-gdn'
  [ "$(tail -n 1 "$WORK/calls")" = '--cluster us-east5-a --tpu-name me-gdn allocate --sync-path . --tpu-type v5p-8' ] || fail argv
  [ "$(cat "$WORK/released")" = released ] || fail 'not released'
  calls "c['stdin']" | grep -q 'cluster us-east5-a' || fail directive
  err_has '[gdnctl] WARNING: --hold-dev-tpu is active but --post-check contains a Ray TPU command. Prefer dev-tpu-test/dev-tpu-profile for this loop session.'
  err_lacks 'does not target'
}

test_held_tpu_not_to_be_had() {
  repo && scenario "${golden[@]}" && allocator 'echo no capacity; exit 3'
  hold 1 --iterations 1
  err_has 'no capacity'
  err_has 'reason=dev-tpu-hold iteration=0 rc=1'
  [ -z "$(calls 1)" ] || fail 'a session began'
  hold 0 --iterations 1 --hold-dev-tpu-policy best-effort
  calls "c['stdin']" | grep -q Managed && fail 'directive without a TPU'
  return 0
}

test_held_tpu_is_released_on_every_way_out_defect_19() {
  repo && scenario thread 'message nothing' 'completed 1 0 1 0' && allocator "$holds"
  hold 3 --iterations 1
  [ "$(wc -l <"$WORK/released")" = 1 ] || fail 'no commit'
  scenario thread "command touch $WORK/running; sleep 300" 'sleep 300'
  launch "$GDNCTL" codex-loop --prompt-file prompt.md --model model-a --iterations 1 --hold-dev-tpu --dev-tpu-name x --dev-tpu-allocator "$WORK/allocator"
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  kill -TERM $pid
  wait $pid
  [ $? = 143 ] || fail 'exit code'
  [ "$(wc -l <"$WORK/released")" = 2 ] || fail 'SIGTERM'
}

test_the_recipes_command_line_is_taken_as_it_is() {
  repo && scenario "${golden[@]}" && allocator "$holds" && echo mine >mine.txt
  mkdir -p scripts/gdn && printf 'It {{ITERATION}} @ {{HEAD_SHA}}\n' >scripts/gdn/codex_iteration_prompt.md
  printf 'dev_tpu_allocator = "%s"\n' "$WORK/allocator" >gdnctl.toml
  git add gdnctl.toml scripts && git commit -qm tools
  expect 0 "$GDNCTL" codex-loop --iterations 1 --model gpt-5.3-codex --reasoning-effort xhigh --resilient --directive-preset triangular-inversion \
    --dirty-policy stash --no-commit-policy count-failure --hold-dev-tpu --dev-tpu-cluster us-central1 --dev-tpu-fallback-cluster us-east5-a \
    --dev-tpu-name me-gdn --dev-tpu-type v5p-8 --dev-tpu-allocate-attempts 2 --dev-tpu-allocate-retry-sleep 20 \
    --prompt-file scripts/gdn/codex_iteration_prompt.md --post-check 'true dev-tpu-test --cluster us-central1 --tpu-name me-gdn --tests both' --json
  err_has '[gdnctl] session directives: 2 loaded'
  err_lacks WARNING
  grep -q '"isolation":"inplace"' "$WORK/out" && grep -q '"accepted":1' "$WORK/out" || fail 'another run'
  [ "$(head -n 1 $logs/iteration-001-prompt.txt)" = "It 1 @ $(git rev-parse HEAD~1)" ] || fail prompt
  grep -q '^\[Directive 2\]$' $logs/iteration-001-prompt.txt && grep -q -- '--cluster us-central1` and `--tpu-name me-gdn`' $logs/iteration-001-prompt.txt ||
    fail 'directives'
  [ "$(cat mine.txt) $(git log --format=%s -1)" = 'mine faster' ] || fail 'mine, or the commit'
  [ "$(cat "$WORK/released")" = released ] || fail 'not released'
}
