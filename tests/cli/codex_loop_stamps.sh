# codex-loop --stamp-mode: where the entry of an iteration and its commit go.

. "$REPO/tests/support/loop_repo.sh"
world() { # a target whose test asks state.txt; the agent writes an entry of its own into the log when OWN says so
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE
  git init -q . && mkdir -p scripts/gdn
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
log = "log.md"
test = ["sh", "-c", "[ $(cat state.txt) = ok ] && echo 'verdict: OK'"]
[targets.mine.profile]
argv = ["true"]
TOML
  printf '# Log\n\n## Iterations\n' >log.md
  echo 'It {{ITERATION}}' >scripts/gdn/codex_iteration_prompt.md
  echo ok >state.txt
  git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
agent() { # STATE[+own] of each iteration
  { printf '#!/bin/bash\nset -e\ncase $(cat) in\n'
    local n=0 one
    for one in "$@"; do
      n=$((n + 1))
      printf '"It %d"*) echo %s >state.txt; own=%s ;;\n' $n "${one%+own}" "${one#"${one%+own}"}"
    done
    printf 'esac\ndate +%%N >note.txt\n'
    printf 'if [ -n "$own" ]; then n=$(grep -c "^### " log.md) || true; printf "\\n### Iteration %%d - mine\\n\\n- Date: 2026-03-10T12:00:00Z\\n- Commit: this commit\\n- Hypothesis: it is\\n" "$n" >>log.md; fi\n'
    printf 'git add -A; git commit -qm "Work of $(cat state.txt)"\n'
  } >"$WORK/agent" && chmod +x "$WORK/agent"
}
plain() { # CODE OPTION...: without gates
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 "$@"
}
gated() { # CODE OPTION...
  local want=$1
  shift
  plain "$want" --perf-mode off --validation-policy count-failure --validation-ray-cluster local --max-failures -1 "$@"
}
work() { git log --format=%H --grep '^Work of' --reverse "$base..HEAD" | sed -n "$1p"; }
log_commits() { git log --format=%s "$base"..HEAD | grep -c '^Log iteration ' || true; }

test_the_commit_of_an_agents_entry_follows_with_the_next_entry() {
  world && agent ok+own ok+own bad ok
  gated 0 --iterations 4 --stamp-mode next-entry
  [ "$(git log --format=%s "$base"..HEAD)" = "$(printf '%s\n' 'Log iteration 3: accepted' 'Work of ok' \
    'Log iteration 2: test-fail' 'Log iteration 0: accepted' 'Work of ok' 'Work of ok')" ] ||
    { git log --format=%s "$base"..HEAD >&2; fail 'other commits'; }
  grep -qF -- "- Commit: $(work 1)" log.md || fail 'the first entry is not stamped'
  grep -qF -- "- Commit: $(work 2)" log.md || fail 'the second entry is not stamped'
  [ "$(grep -c '^### Iteration ' log.md)" = 4 ] || fail 'entries'
  [ -z "$(git status --porcelain -uno)" ] || fail 'the tree is dirty'
}

test_a_log_commit_names_run_record_work_and_code() {
  world && agent ok bad
  gated 0 --iterations 2
  local run id
  run=$(sed -n '1s/.*"run":"\([^"]*\)".*/\1/p' $logs/journal.jsonl)
  for n in 1 2; do
    id=$(sed -n "${n}p" log.records.jsonl | grep -oE '"id":"[0-9]{8}T[0-9]{6}Z-[0-9]+"' | cut -d'"' -f4)
    git log -1 --format=%B "HEAD~$((2 - n))" >"$WORK/message"
    grep -qx "Gdnctl-Run: $run $n" "$WORK/message" || fail "run of $n"
    grep -qx "Gdnctl-Log: $id" "$WORK/message" || fail "record of $n"
    grep -qx "Gdnctl-Code: $(work 1)" "$WORK/message" || fail "code of $n"
    [ "$(grep -c "^Gdnctl-Stamps: $(work 1)\$" "$WORK/message")" = $((2 - n)) ] || fail "work of $n"
  done
}

test_the_last_entry_of_a_run_keeps_this_commit_when_it_is_stamped_with_the_next() {
  world && agent ok+own
  gated 0 --iterations 1 --stamp-mode next-entry
  [ "$(log_commits)" = 0 ] || fail 'a log commit'
  grep -qF -- '- Commit: this commit' log.md || fail 'another commit line'
  expect 0 "$GDNCTL" lint-log --scope all
}

test_notes_touch_neither_the_log_nor_the_branch_and_refused_work_has_one_too() {
  world && agent ok bad
  gated 0 --iterations 2 --stamp-mode notes
  [ "$(log_commits)" = 0 ] || fail 'a log commit'
  git diff --quiet "$base" HEAD -- log.md || fail 'the log was changed'
  local refused
  refused=$(git for-each-ref --format='%(objectname)' 'refs/gdnctl/*/iter-002/head')
  git notes --ref=gdnctl show "$(work 1)" >"$WORK/note1" || fail 'no note'
  git notes --ref=gdnctl show "$refused" >"$WORK/note2" || fail 'no note of what was refused'
  grep -q '^### Iteration 1 - Work of ok' "$WORK/note1" || fail 'no entry in the note'
  grep -qF -- "- Commit: $(work 1)" "$WORK/note1" || fail 'no commit in the note'
  grep -q '^### Iteration 2 - Work of bad' "$WORK/note2" || fail 'no entry of what was refused'
  tail -1 "$WORK/note1" | grep -Eq '^Gdnctl-Run: [^ ]+ 1$' || fail 'no run in the note'
  [ "$(git for-each-ref --format='%(refname)' refs/notes)" = refs/notes/gdnctl ] || fail 'other notes'
}

test_notes_need_no_log_and_one_iteration_has_one_note() {
  world && git rm -q log.md && git commit -qm 'No log' && base=$(git rev-parse HEAD) && agent ok
  gated 0 --iterations 1 --stamp-mode notes
  err_lacks 'no running log'
  local before journal=$logs/journal.jsonl
  before=$(git notes --ref=gdnctl show HEAD)
  # As if killed between the note and its record.
  grep -n '"logged"' $journal | cut -d: -f1 >"$WORK/at"
  head -n $(($(cat "$WORK/at") - 1)) $journal >"$WORK/cut" && cp "$WORK/cut" $journal
  gated 0 --iterations 1 --stamp-mode notes --resume
  [ "$(git notes --ref=gdnctl show HEAD)" = "$before" ] || fail 'the note is another one'
}

test_off_leaves_the_log_to_the_agent() {
  world && agent ok+own bad
  gated 0 --iterations 2 --stamp-mode off --hillclimb-log-file log.md
  err_has '--hillclimb-log-file has no effect: --stamp-mode off writes no entry'
  [ "$(log_commits)" = 0 ] || fail 'a log commit'
  grep -qF -- '- Commit: this commit' log.md || fail 'stamped'
  [ -z "$(git for-each-ref refs/notes)" ] || fail 'a note'
}

test_a_run_without_gates_has_log_commits_when_they_are_asked_for() {
  world && agent ok ok
  plain 0 --iterations 1
  [ "$(log_commits)" = 0 ] || fail 'a log commit that nobody asked for'
  plain 0 --iterations 2 --stamp-mode commit --isolation inplace
  [ "$(log_commits)" = 2 ] || fail 'no log commits'
}

test_in_place_the_agents_entry_is_stamped_after_the_commit_and_no_other() {
  world && agent ok+own
  plain 0 --iterations 1 --stamp-mode inplace
  local code
  code=$(git rev-parse HEAD)
  err_has "[gdnctl] stamped last hill-climb log entry with commit ${code:0:12}"
  [ "$(git status --porcelain -uno)" = ' M log.md' ] || fail 'not the log alone is dirty'
  grep -qF -- "- Commit: $code" log.md || fail 'not stamped'
  # The tree is dirty now: what the recipe did then, we do.
  plain 2 --iterations 1 --stamp-mode inplace
  err_has 'log.md'
  git checkout -q log.md
  agent ok
  plain 0 --iterations 1 --stamp-mode inplace
  err_lacks 'stamped'
  [ -z "$(git status --porcelain -uno)" ] || fail 'an older entry was stamped'
}

test_in_place_goes_neither_with_a_worktree_nor_with_taking_back() {
  world && agent ok
  gated 2 --iterations 1 --stamp-mode inplace
  err_has '--stamp-mode inplace needs --isolation inplace'
  plain 2 --iterations 1 --stamp-mode inplace --isolation inplace --perf-mode required
  err_has '--stamp-mode inplace cannot go with --perf-regression-policy revert-count-failure'
  plain 2 --iterations 1 --stamp-mode sideways
  [ ! -e $logs/journal.jsonl ] || fail 'a run began'
}

test_a_detached_head_is_named() {
  world && agent ok && git checkout -q --detach
  plain 0 --iterations 1
  err_has 'HEAD is detached: accepted work will be on no branch'
}

