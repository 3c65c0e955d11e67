# lint-log as scripts and CI see it: exit codes, exact texts, streams, files.
entry() {  # COMMIT [NUMBER]: an entry without a fault
  cat <<TEXT
### Iteration ${2:-1} - wider tiles

- Date: 2026-02-18T12:55:20Z
- Commit: $1
- Hypothesis: wider tiles keep the unit busy
- Change summary: tile of 256
- Correctness checks:
  - Result: \`87 passed, 2 skipped\`
- Profile run:
  - Job ID: raysubmit_0123456789abcdef
- Hotspots observed (champion -> candidate):
  - Step duration: \`167.000 ms -> 160.000 ms\`
- Next hypothesis: overlap the gather

TEXT
}

test_missing_log_says_so_and_exits_2() {
  expect 2 "$GDNCTL" lint-log --log-file no/such.md
  out_empty
  {
    printf '[gdnctl] log file not found: %s/no/such.md\n' "$PWD"
    printf '[gdnctl] hint: `gdnctl log init --log-file no/such.md` starts one; a codex-loop sees it once it is committed\n'
  } >"$WORK/want"
  cmp "$WORK/want" "$WORK/err" || fail "another text"
}

test_the_log_can_be_an_argument() {
  entry '(pending)' >a.md
  expect 1 "$GDNCTL" lint-log a.md
  expect 2 "$GDNCTL" lint-log a.md --log-file a.md
  err_has 'FILE and --log-file are two logs; name one'
}

test_a_rule_explains_itself() {
  expect 0 "$GDNCTL" lint-log --explain L405
  out_has 'L405 unit-slip (warning)'
  out_has 'fix:'
  out_has '--rule L405=off'
  expect 0 "$GDNCTL" lint-log --explain unit-slip --json
  [ "$(jq -r '.schema, .rule' "$WORK/out")" = "$(printf 'gdnctl.lint-rule/1\nL405')" ] || fail 'another object'
  expect 2 "$GDNCTL" lint-log --explain L40
  err_has 'there is no rule L40'
}

test_default_log_is_the_targets_from_the_repository_root() {
  git init -q . && mkdir -p lib/levanter/src/levanter/layers lib/levanter/.agents/projects sub
  : >lib/levanter/src/levanter/layers/gated_deltanet.py
  cd sub || fail cd
  expect 2 "$GDNCTL" lint-log
  err_has "log file not found: $WORK/cwd/lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md"
  err_has 'hint: `gdnctl log init` starts one'
  entry '(pending)' >../lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md
  expect 1 "$GDNCTL" lint-log
  err_has 'gdn_pallas_tpu_hillclimb.md:'
  cd .. || fail cd
  sed -i 's/87 passed, 2/49 passed, 40/; s/(pending)/abcdef1/' lib/levanter/.agents/projects/*.md
  expect 0 "$GDNCTL" lint-log
  out_has 'warning L502 49 passed, 40 skipped: at least 87 must pass'
}

test_a_file_without_an_entry_was_not_checked() {
  : >empty.md
  printf '# Log\n' >none.md
  { printf '<!-- draft\n'; entry abcdef1; printf -- '-->\n'; } >draft.md
  for f in empty.md none.md draft.md; do
    printf '[gdnctl] nothing was checked: no entry in %s\n' $f >"$WORK/want"
    expect 0 "$GDNCTL" lint-log --log-file $f
    tail -n 1 "$WORK/out" | cmp "$WORK/want" - || fail "another text"
    out_has "$f:1:1: warning L004 "
    expect 1 "$GDNCTL" lint-log --log-file $f --strict
    tail -n 1 "$WORK/out" | cmp "$WORK/want" - || fail "another text with --strict"
    expect 0 "$GDNCTL" lint-log --log-file $f --rule L004=off
    cmp "$WORK/want" "$WORK/out" || fail "another text without the rule"
    [ ! -s "$WORK/err" ] || fail "stderr is not empty"
  done
  printf 'ghp_%s\n' "$(printf 'a%.0s' $(seq 36))" >none.md
  expect 1 "$GDNCTL" lint-log --log-file none.md
  [ "$(tail -n 1 "$WORK/out")" = '[gdnctl] nothing was checked: no entry in none.md' ] || fail "another text with a secret"
  out_has 'none.md:1:1: error L602 '
}

test_findings_go_to_stdout_and_their_count_to_stderr() {
  entry abcdef1 | sed 's/^- Commit.*/&  \n- Date: 2026-02-18\n- Commit: abcdef1/' >log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git
  [ "$(tail -n 1 "$WORK/out")" = '[gdnctl] log lint passed: log.md' ] || fail "the verdict is not last"
  out_has 'log.md:4:18: note L604 '
  out_has 'log.md:5:1: warning L105 '
  [ "$(grep -c '^log.md:[0-9]*:[0-9]*: [a-z]* L[0-9]* ' "$WORK/out")" = "$(($(wc -l <"$WORK/out") - 1))" ] || fail "other lines on stdout"
  [ "$(cat "$WORK/err")" = '0 errors, 2 warnings, 1 note, 1 fixable' ] || fail "count: $(cat "$WORK/err")"
  expect 1 "$GDNCTL" lint-log --log-file log.md --no-git --strict
  out_lacks '[gdnctl]'
  out_has 'log.md:5:1: error L105 '
  [ "$(cat "$WORK/err")" = '2 errors, 0 warnings, 1 note, 1 fixable' ] || fail "count: $(cat "$WORK/err")"
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git --output found.txt
  out_empty
  grep -q '^log.md:5:1: warning L105 ' found.txt || fail "no findings in the file"
  grep -qx '\[gdnctl\] log lint passed: log.md' found.txt || fail "no verdict in the file"
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git --diff
  out_has '+- Commit: abcdef1'
  err_has '1 fixable'
}

test_a_secret_is_found_at_every_scope() {
  git init -q . && { entry abcdef1 1; printf -- '- Token: ghp_%s\n\n' "$(printf 'a%.0s' $(seq 36))"; entry abcdef1 2; } >log.md
  git add . && git commit -qm one
  for scope in '--scope last-entry' '--scope all' '--since HEAD'; do
    expect 1 "$GDNCTL" lint-log --log-file log.md $scope
    out_has 'log.md:15:10: error L602 '
    err_lacks 'ghp_aa'
    out_lacks 'ghp_aa'
  done
}

test_marks_of_a_merge_are_found_outside_the_last_entry() {
  { entry abcdef1 1; printf '<<<<<<< HEAD\n=======\n>>>>>>> topic\n'; entry abcdef1 2; } >log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git
  out_has 'log.md:15:1: warning L108 '
  expect 1 "$GDNCTL" lint-log --log-file log.md --no-git --strict
}

test_pending_texts_are_exact() {
  { entry '(pending)' 1; entry '(pending)' 2; } >log.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --scope all
  printf '[gdnctl] unresolved `Commit: (pending)` entries in log.md:\n[gdnctl]   line 4\n[gdnctl]   line 18\n' >"$WORK/want"
  cmp "$WORK/want" "$WORK/err" || fail "another text"
  out_lacks passed
  expect 1 "$GDNCTL" lint-log --log-file log.md
  err_has '[gdnctl]   line 18'
  err_lacks '[gdnctl]   line 4'
  expect 0 "$GDNCTL" lint-log --log-file log.md --allow-pending
}

test_this_commit_outside_git() {
  printf '### Iteration 9\n- Commit: this commit\n' >log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has 'log.md:2:1: warning L002 '
  expect 1 "$GDNCTL" lint-log --log-file log.md --strict
  err_has '[gdnctl] unresolved `Commit: this commit` entries in log.md:'
  expect 0 "$GDNCTL" lint-log --log-file log.md --strict --allow-this-commit
}

test_this_commit_is_looked_up_in_history() {
  git init -q . && { entry 'this commit' 1 | tee log.md; } >/dev/null
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has 'note L002 `this commit` resolves when the entry is committed'
  git add log.md && git commit -qm one
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has "note L002 \`this commit\` is $(git rev-parse HEAD | cut -c1-12)"
  entry 'this commit' 2 >>log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all --no-git
  out_has 'cannot be resolved'
  sha=$(git rev-parse HEAD)
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all --fix
  grep -q "^- Commit: $sha\$" log.md || fail "not stamped"
  grep -q '^- Commit: this commit$' log.md || fail "the new entry was touched"
}

test_this_commit_outside_entries_is_found_like_a_pending_one() {
  { printf '# L\n\n- Commit: this commit\n\n'; entry abcdef1; printf '## Appendix\n\n- Commit: `this commit`\n'; } >log.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --no-git --scope all --strict
  err_has '[gdnctl] unresolved `Commit: this commit` entries in log.md:'
  err_has '[gdnctl]   line 3'
  err_has '[gdnctl]   line 21'
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git
  out_has 'log.md:21:1: warning L002 `this commit` outside every entry'
  out_lacks 'log.md:3:'
  expect 0 "$GDNCTL" lint-log --log-file log.md --no-git --scope all --allow-this-commit
  out_lacks L002
}

test_shallow_clone_is_named_as_the_reason() {
  git init -q origin && cd origin || fail cd
  entry 'this commit' >log.md && git add . && git commit -qm one
  printf 'x\n' >other && git add . && git commit -qm two
  cd .. && git clone -q --depth 1 "file://$PWD/origin" clone && cd clone || fail clone
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has 'the clone is shallow'
  out_lacks 'no git history'
}

test_a_shallow_clone_is_one_finding() {
  git init -q origin && cd origin || fail cd
  for i in 1 2 3; do git commit -q --allow-empty -m "change $i" && entry "$(git rev-parse HEAD)" "$i" >>log.md; done
  git add . && git commit -qm log && cd .. || fail origin
  git clone -q --depth 1 "file://$PWD/origin" clone && cd clone || fail clone
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all --allow-non-monotonic
  [ "$(grep -c 'the clone is shallow' "$WORK/out")" = 1 ] || fail 'not once'
  out_has 'fetch-depth: 0'
  out_lacks 'is not a commit of this repository'
  # A check that was not made is not passed.
  expect 1 "$GDNCTL" lint-log --log-file log.md --scope all --allow-non-monotonic --strict
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all --allow-non-monotonic --format json
  jq -e '[.findings[] | select(.message | contains("shallow"))] | length == 1' "$WORK/out" >/dev/null || fail json
  expect 2 "$GDNCTL" lint-log --log-file log.md --since HEAD~2
  err_has 'the clone is shallow and lacks HEAD~2'
  err_has 'fetch-depth: 0'
  git fetch -q --unshallow
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all --allow-non-monotonic
  out_lacks shallow
  expect 0 "$GDNCTL" lint-log --log-file log.md --since HEAD~2 --allow-non-monotonic
}

# The YAML block of the page, and its commands in a clone as actions/checkout makes it.
test_the_workflow_of_the_docs_is_complete() {
  sed -n '/^```yaml$/,/^```$/p' "$REPO/docs/running-log.md" | grep -v '^```' >workflow.yml
  for part in '^name: ' '^on: pull_request$' '^jobs:$' '    runs-on: ' '    steps:' 'uses: actions/checkout@' '          fetch-depth: 0' 'gdnctl/dev build release' '  security-events: write' 'uses: github/codeql-action/upload-sarif@' 'sarif_file: lint-log.sarif'; do
    grep -qE -- "$part" workflow.yml || fail "the workflow lacks: $part"
  done
  local check sarif builds=$(grep -n 'dev build release' workflow.yml | cut -d: -f1)
  [ "$builds" -lt "$(grep -n ' lint-log --' workflow.yml | head -n 1 | cut -d: -f1)" ] || fail 'gdnctl is used before it is built'
  sed -n 's|^ *run: .gdnctl/build/release/gdnctl|"$GDNCTL"|p' workflow.yml >steps
  check=$(sed -n 1p steps) sarif=$(sed -n 2p steps)
  [ "$(wc -l <steps)" = 2 ] || fail 'other steps that run lint-log'
  git init -q origin && cd origin && entry none >gdn-log.md && git add . && git commit -qm base && git checkout -q -b change || fail origin
  printf '\n%s\n' "$(entry '(pending)' 2)" >>gdn-log.md && git commit -qam change && cd .. || fail change
  git clone -q --depth 1 --branch change "file://$PWD/origin" clone && cd clone || fail clone
  export GITHUB_ACTIONS=true GITHUB_BASE_REF=main
  expect 2 bash -ec "$check"
  err_has 'fetch-depth: 0'
  # What fetch-depth: 0 adds.
  git fetch -q --unshallow origin '+refs/heads/*:refs/remotes/origin/*' || fail fetch
  expect 1 bash -ec "$check"
  out_has '::error file=gdn-log.md'
  err_has '[gdnctl] unresolved `Commit: (pending)` entries in gdn-log.md:'
  expect 0 bash -ec "$sarif"
  jq -e '.version == "2.1.0" and (.runs[0].results | length > 0)' lint-log.sarif >/dev/null || fail 'no SARIF'
  sed -i 's/(pending)/none (a measurement)/' gdn-log.md && git commit -qam mended
  expect 0 bash -ec "$check"
  expect 0 bash -ec "$sarif"
}

test_attempts_under_the_refs_of_a_loop_are_known() {
  git init -q . && git commit -q --allow-empty -m base
  git commit -q --allow-empty -m attempt && sha=$(git rev-parse HEAD)
  git update-ref refs/gdnctl/20260310-main/iter-001 HEAD && git reset -q --hard HEAD~1
  entry "$sha" >log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_lacks L202
  git update-ref -d refs/gdnctl/20260310-main/iter-001
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has L202
}

test_sequence_block() {
  printf '### Iteration 3\n### Iteration 4\n### Iteration 4\n' >log.md
  expect 1 "$GDNCTL" lint-log --log-file log.md
  err_has '[gdnctl] non-monotonic iteration headings in log.md:'
  err_has '[gdnctl]   duplicate iteration number: line 2 `### Iteration 4` -> line 3 `### Iteration 4`'
  expect 0 "$GDNCTL" lint-log --log-file log.md --allow-non-monotonic
}

test_usage_errors_exit_2_before_anything() {
  entry '(pending)' >log.md
  expect 2 "$GDNCTL" lint-log --log-file log.md --scop all
  expect 2 "$GDNCTL" lint-log --log-file log.md --scope some
  expect 2 "$GDNCTL" lint-log --log-file log.md --format xml
  expect 2 "$GDNCTL" lint-log --log-file log.md --rule L50=off
  err_has 'did you mean'
  expect 2 "$GDNCTL" lint-log --log-file log.md --rule L501=loud
  expect 2 "$GDNCTL" lint-log --log-file log.md --rules-file none.txt
  expect 2 "$GDNCTL" lint-log --log-file log.md --diff --json
  expect 2 "$GDNCTL" lint-log --log-file log.md --since HEAD
  expect 2 "$GDNCTL" lint-log --log-file log.md --output log.md
  expect 2 "$GDNCTL" lint-log --log-file log.md --repo .
}

test_unusable_files_exit_2() {
  mkdir folder
  expect 2 "$GDNCTL" lint-log --log-file folder
  head -c 1048577 /dev/zero | tr '\0' x >line.md
  expect 2 "$GDNCTL" lint-log --log-file line.md
  err_has 'longer than 1 MiB'
  truncate -s 67108865 big.md
  expect 2 "$GDNCTL" lint-log --log-file big.md
  for _ in $(seq 1001); do printf '### Iteration 1\n%.0s' $(seq 100); done >many.md
  expect 2 "$GDNCTL" lint-log --log-file many.md
  err_has 'more than 100000 entries'
}

test_an_unreadable_log_exits_2() {
  powerless
  entry abcdef1 >log.md && chmod 000 log.md
  expect 2 "${as[@]}" "$GDNCTL" lint-log --log-file log.md
  err_has 'log.md: Permission denied'
}

test_odd_bytes_are_no_failure() {
  head -c 1048576 /dev/zero | tr '\0' x >line.md
  expect 0 "$GDNCTL" lint-log --log-file line.md
  { entry abcdef1; printf -- '- Note: \377 \000\n'; } >bytes.md
  expect 0 "$GDNCTL" lint-log --log-file bytes.md --json
  python3 -c 'import json,sys; json.load(sys.stdin)' <"$WORK/out" || fail "no JSON"
  head -c 300000 "$GDNCTL" >binary.md
  "$GDNCTL" lint-log --log-file binary.md --scope all >"$WORK/out" 2>"$WORK/err" && code=0 || code=$?
  [ "$code" -le 2 ] || fail "exit $code on a binary file"
  entry '(pending)' >real.md && ln -s real.md link.md
  expect 1 "$GDNCTL" lint-log --log-file link.md
  err_has 'entries in link.md:'
  printf '### Iteration 1\r- Commit: (pending)\r' >cr.md
  expect 1 "$GDNCTL" lint-log --log-file cr.md
  err_has 'line 2'
}

test_formats() {
  git init -q . && mkdir logs
  { entry '(pending)' 1; entry 'this commit' 1; } >"logs/a b.md"
  expect 1 "$GDNCTL" lint-log --log-file "$PWD/logs/a b.md" --scope all --json
  out_has '"file":"logs/a b.md"'
  out_lacks "$WORK"
  python3 - "$WORK/out" <<'PY' || fail "not the documented JSON"
import json, sys
o = json.load(open(sys.argv[1]))
assert list(o) == ["schema", "tool", "file", "scope", "entries", "summary", "exit_code", "findings"], list(o)
assert o["schema"] == "gdnctl.lint/1" and o["exit_code"] == 1 and o["entries"] == 2
assert o["summary"]["error"] == sum(f["severity"] == "error" for f in o["findings"])
PY
  expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md" --scope all --format sarif --output r.sarif
  out_empty
  grep -q '"uri": "logs/a%20b.md"' r.sarif || fail "no uri"
  GITHUB_STEP_SUMMARY=$PWD/summary.md expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md" --scope all --format github
  out_has '::error file=logs/a b.md,line=4,endLine=4,col=1,title=L001 pending-commit::iteration 1: '
  grep -q '| L001 pending-commit |' summary.md || fail "no summary"
  rm summary.md
  GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=$PWD/summary.md expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md"
  out_has '::error file=logs/a b.md,'
  err_has '[gdnctl] non-monotonic iteration headings in logs/a b.md:'
  grep -q '| L003 ' summary.md || fail "no summary"
  GITHUB_ACTIONS=true expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md" --format text
  out_lacks '::error'
  GITHUB_ACTIONS=true expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md" --format auto
  out_has '::error'
  expect 1 "$GDNCTL" lint-log --log-file "logs/a b.md" --format auto
  err_has 'non-monotonic'
}

test_since_checks_only_what_a_branch_changed() {
  git init -q . && entry '(pending)' 1 >log.md && git add . && git commit -qm one
  expect 0 "$GDNCTL" lint-log --log-file log.md --since HEAD
  out_has '[gdnctl] nothing was checked: no entry in log.md is new or changed since HEAD'
  entry '(pending)' 2 >>log.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --since HEAD --json
  out_has '"scope":"since"'
  expect 1 "$GDNCTL" lint-log --log-file log.md --since HEAD
  err_has 'line 18'
  err_lacks 'line 4'
  expect 2 "$GDNCTL" lint-log --log-file log.md --since no-such-branch
}

test_rules_files_and_severities() {
  entry '(pending)' >log.md
  printf '# ours\nL001 = warning\n' >rules.txt
  expect 0 "$GDNCTL" lint-log --log-file log.md --rules-file rules.txt
  out_has 'log.md:4:1: warning L001'
  expect 1 "$GDNCTL" lint-log --log-file log.md --rules-file rules.txt --rule L001=error
  printf 'L001 = loud\n' >rules.txt
  expect 2 "$GDNCTL" lint-log --log-file log.md --rules-file rules.txt
  err_has 'rules.txt:1'
}

test_experiment_log_of_nine_entries() {
  expect 0 "$GDNCTL" lint-log --log-file "$FIXTURES/runlog/experiment.md" --scope all --json
  out_has '"entries":9,'
  out_lacks '"severity":"error"'
  expect 0 "$GDNCTL" lint-log --log-file "$FIXTURES/runlog/experiment.md" --template hillclimb --json
  out_has '"entries":0,'
}

test_fixture_logs() {
  expect 0 "$GDNCTL" --target marin lint-log --log-file "$FIXTURES/runlog/good.md" --scope all --no-git
  printf '[gdnctl] log lint passed: %s/runlog/good.md\n' "$FIXTURES" >"$WORK/want"
  cmp "$WORK/want" "$WORK/out" || fail "findings in a good log"
  expect 1 "$GDNCTL" lint-log --log-file "$FIXTURES/runlog/faulty.md" --scope all --no-git
  for rule in L002 L101 L106 L301 L302 L401 L403 L404 L408 L601; do out_has " $rule "; done
}

test_needs_no_libgit2_where_history_is_not_asked() {
  ldd "$GDNCTL" | grep -q 'libgit2\.so' && skip 'this build links its libraries'
  git init -q . && printf '### Iteration 1\n- Commit: none (x)\n' >log.md
  LD_DEBUG=libs "$GDNCTL" doctor 2>"$WORK/trace" >/dev/null
  grep -q 'libgit2\.so' "$WORK/trace" || skip 'the loader does not tell what it opens'
  LD_DEBUG=libs "$GDNCTL" lint-log --log-file log.md >/dev/null 2>"$WORK/trace" || fail "lint failed"
  ! grep 'libgit2\.so' "$WORK/trace" || fail "libgit2 was opened"
}

test_records_of_a_log_with_another_ending_are_checked() {
  "$GDNCTL" log init --log-file n.txt 2>/dev/null
  "$GDNCTL" log append --log-file n.txt --title one --commit 'none (x)' 2>/dev/null
  [ -f n.txt.records.jsonl ] || fail 'no records beside the log'
  printf 'garbage\n{}\n' >>n.txt.records.jsonl
  expect 2 "$GDNCTL" lint-log --log-file n.txt
  err_has 'n.txt.records.jsonl'
}

test_damaged_records_exit_2_and_the_log_is_still_checked() {
  { entry '(pending)'; printf -- '- Date: 2026-02-18\n'; } >log.md
  printf 'garbage\n{}\n' >log.records.jsonl
  expect 2 "$GDNCTL" lint-log --log-file log.md
  err_has 'log.records.jsonl'
  err_has '[gdnctl]   line 4'
  out_has 'warning L105'
  out_lacks L605
  expect 2 "$GDNCTL" lint-log --log-file log.md --json
  out_has '"exit_code":2'
  entry abcdef1 >log.md
  printf '{"schema":"gdnctl.iteration/2","id":"20260301T000000Z-1","iteration":1}\n' >log.records.jsonl
  expect 2 "$GDNCTL" lint-log --log-file log.md
  err_has 'log.records.jsonl'
  out_lacks 'log lint passed'
}

test_generated_entries_without_their_records_are_found() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title one --commit 'none (x)' 2>/dev/null
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_lacks L605
  : >empty.jsonl
  expect 0 "$GDNCTL" lint-log --log-file log.md --records empty.jsonl
  out_has 'warning L605 the generated entry has no record'
  rm log.records.jsonl
  expect 0 "$GDNCTL" lint-log --log-file log.md
  out_has 'warning L605 the generated entry has no record'
  entry abcdef1 >hand.md
  expect 0 "$GDNCTL" lint-log --log-file hand.md
  out_lacks L605
}
