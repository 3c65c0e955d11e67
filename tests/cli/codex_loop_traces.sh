# What a codex-loop leaves behind: nothing in the user's tree, and no secret in what it writes.
. "$REPO/tests/support/loop_repo.sh"
repo() {
  git init -q . && printf 'int speed = 1;\n' >kernel.c && printf 'make it faster' >prompt.md && git add . && git commit -qm base
}
loop() {
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --prompt-file prompt.md --sleep-seconds 0 "$@"
}
no_trace_of() {  # TEXT: not on standard error, not in the log directory, packed or not, not in the state directory
  err_lacks "$1"
  local found
  mkdir -p "$XDG_STATE_HOME"
  found=$(find "$logs" "$XDG_STATE_HOME" -type f | while read -r file; do
    case $file in *.gz) zcat "$file" ;; *) cat "$file" ;; esac | grep -qF -- "$1" && echo "$file"
  done)
  [ -z "$found" ] || fail "'$1' is in $found"
}

test_log_directory_never_makes_the_tree_dirty_defect_12() {
  repo && agent "$works"
  loop 0 --iterations 1 --isolation worktree
  [ -z "$(git status --porcelain)" ] || fail "in a worktree: $(git status --porcelain)"
  loop 0 --iterations 1 --isolation inplace
  [ -z "$(git status --porcelain)" ] || fail 'in place'
}

test_passwords_of_the_git_configuration_are_not_written_down() {
  repo && agent "$works"
  git remote add origin https://me:hunter2secret@example.invalid/x.git
  git config url.https://x-access-token:otherhunter2@example.invalid/.insteadOf gh:
  git config credential.helper '!echo password=thirdhunter2'
  for where in inplace worktree; do
    loop 0 --iterations 1 --isolation $where
    for secret in hunter2secret otherhunter2 thirdhunter2; do no_trace_of $secret; done
    loop 0 --iterations 2 --resume
    err_lacks 'are not used'
    for secret in hunter2secret otherhunter2 thirdhunter2; do no_trace_of $secret; done
    rm -r $logs
  done
}

test_settings_that_were_changed_after_a_kill_are_still_not_used() {
  repo && agent "$works" 'kill -9 $PPID'
  git config credential.helper ours
  "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --prompt-file prompt.md --iterations 1 2>"$WORK/err"
  find .agents/logs -type f -exec touch -d '-1 minute' {} +  # the user's changes come later
  git config credential.helper theirs
  git config filter.new.clean theirs
  agent "$works"
  expect 0 "$GDNCTL" codex-loop --resume
  err_has 'settings that name programs were changed; this run ignores them: credential.helper, filter.new.clean'
}

test_keys_that_the_agent_has_are_masked_in_what_a_run_keeps() {
  repo && agent "$works" 'echo "out $OPENAI_API_KEY $MY_TOKEN"; echo "err $OPENAI_API_KEY" >&2'
  export OPENAI_API_KEY=plainwordofprovider MY_TOKEN=anotherplainword WANDB_API_KEY=0123456789012345678901234567890123456789 NOT_A_TOKENIZER=parallelism
  loop 0 --iterations 1 --agent-env MY_TOKEN --post-check 'echo "check $WANDB_API_KEY $NOT_A_TOKENIZER"'
  grep -q '^out ' $logs/iteration-001-last-message.txt || fail 'no last message'
  rm $logs/iteration-001-last-message.txt  # the agent's own words
  for secret in "$OPENAI_API_KEY" "$MY_TOKEN" "$WANDB_API_KEY"; do no_trace_of "$secret"; done
  err_has parallelism
}

test_post_checks_find_what_their_caller_finds_and_this_program() {
  repo && agent "$works"
  mkdir "$WORK/first" "$WORK/mine"
  printf 'PATH=%s:/usr/bin:/bin\n' "$WORK/first" >"$HOME/.profile"
  printf '#!/bin/sh\necho the login shell\n' >"$WORK/first/tool"
  printf '#!/bin/sh\necho the caller\n' | tee "$WORK/mine/tool" >"$WORK/mine/other"
  chmod +x "$WORK"/first/* "$WORK"/mine/*
  export PATH=$WORK/mine:$PATH
  loop 0 --iterations 1 --post-check 'tool && other && gdnctl --version; exit $?'
  err_has '$ bash -lc '"'tool && other && gdnctl --version; exit \$?'"
  [ "$(sed -n 's/^the //p' $logs/iteration-001-post-check-1.log*)" = $'login shell\ncaller' ] || fail "$(cat $logs/iteration-001-post-check-1.log)"
  grep -q '^gdnctl ' $logs/iteration-001-post-check-1.log || fail 'no gdnctl'
  agent "$works"
  loop 5 --iterations 1 --post-check 'false || (exit 5)'
}

test_secrets_in_the_words_of_a_check_are_masked_in_the_journal() {
  repo && agent "$works"
  local token=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH
  loop 1 --iterations 1 --post-check "TOKEN=$token false"
  no_trace_of $token
  grep -q '"config":.*TOKEN=hf_a\*\*\* false' $logs/journal.jsonl || fail "$(cat $logs/journal.jsonl)"
  err_has '$ bash -lc '
}
