# codex-loop: where it works, what it keeps, and what single options change.
. "$REPO/tests/support/loop_repo.sh"

pkg() { # a repository whose work is in a folder of its own
  repo && mkdir -p pkg/sub && git mv kernel.c pkg/ && printf 'deep directive\n' >pkg/sub/extra.md && git add . && git commit -qm pkg
  base=$(git rev-parse HEAD)
}

test_workdir_is_where_agent_and_checks_work() {
  pkg && agent "pwd >$WORK/agent_at" "$works"
  local how top
  for how in inplace worktree; do
    loop 0 --iterations 1 --workdir pkg --isolation $how --post-check "pwd >$WORK/check_at; test -e kernel.c"
    [ "$(cat "$WORK/agent_at")" = "$(cat "$WORK/check_at")" ] || fail "agent and check in other folders, $how"
    top=$(dirname "$(cat "$WORK/agent_at")")
    [ "$(cat "$WORK/agent_at")" = "$top/pkg" ] || fail "the agent worked in $(cat "$WORK/agent_at"), $how"
    case $how in
      inplace) [ "$top" = "$PWD" ] || fail "in place it worked in $top" ;;
      worktree) [ "$top" != "$PWD" ] || fail 'a worktree is not the checkout' ;;
    esac
  done
  [ "$(git log --format=%s "$base"..HEAD | wc -l)" = 2 ] || fail 'not both commits are on the branch'
  [ -z "$(git status --porcelain)" ] || fail 'the tree is dirty'
  [ -s $logs/journal.jsonl ] || fail 'the log directory is not at the root of the repository'
}

test_workdir_is_what_codex_is_told() {
  pkg && mkdir -p "$WORK/bin" "$WORK/fake" "$HOME/.codex" && ln -s "$REPO/tests/support/fake_codex.py" "$WORK/bin/codex"
  printf '%s\n' thread 'write kernel.c int speed = 2;' 'commit faster' 'message done' 'completed 1 0 1 0' >"$WORK/fake/scenario"
  export PATH=$WORK/bin:$PATH GDNCTL_FAKE_CODEX=$WORK/fake
  expect 0 "$GDNCTL" codex-loop --iterations 1 --model model-a --workdir pkg
  python3 - "$WORK/fake/calls.jsonl" "$PWD/pkg" <<'PY' || fail 'codex was told of another folder'
import json, sys
calls = [c for c in map(json.loads, open(sys.argv[1])) if c["stdin_bytes"]]
sys.exit(not (len(calls) == 1 and calls[0]["argv"][:3] == ["exec", "-C", sys.argv[2]] and calls[0]["cwd"] == sys.argv[2]))
PY
  [ "$(git show --name-only --format= HEAD)" = pkg/kernel.c ] || fail 'another file was committed'
}

test_files_are_named_from_the_root_of_the_repository_wherever_one_stands() {
  pkg && agent true && cd pkg/sub || fail cd
  loop 0 --iterations 1 --directive-file pkg/sub/extra.md --dry-run
  out_has 'deep directive'
  loop 2 --iterations 1 --directive-file extra.md
  err_has "directive file not found for extra.md: $(git rev-parse --show-toplevel)/extra.md"
  loop 0 --iterations 1 --directive-file pkg/sub/extra.md --allow-no-commit
  grep -q '^deep directive$' "../../$logs/iteration-001-prompt.txt" || fail 'the directive is not in the prompt'
  [ ! -e .agents ] || fail 'the log directory is below the folder where it was called'
}

test_files_of_old_iterations_go_and_their_refs_stay() {
  repo && agent 'case $prompt in "It 2/"*) echo half >kernel.c; exit 1 ;; esac' "$works"
  loop 0 --iterations 4 --keep-iterations 2 --max-failures -1
  ls $logs | sed -n 's/^iteration-\([0-9]*\)-.*/\1/p' | sort -u | xargs >"$WORK/got"
  [ "$(cat "$WORK/got")" = '003 004' ] || fail "files of iterations $(cat "$WORK/got")"
  local n
  for n in 001/base 001/head 002/base 002/leftovers 003/head 004/head; do
    [ "$(git for-each-ref --format='%(refname)' "refs/gdnctl/*/iter-$n" | wc -l)" = 1 ] || fail "no ref of $n"
  done
  expect 0 "$GDNCTL" loop-status
  expect 0 "$GDNCTL" loop-explain 1
}

test_a_killed_run_holds_no_lock() {
  repo && agent "echo \$\$ >$WORK/at_work; [ -e $WORK/second ] || sleep 300" "$works"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1
  until [ -s "$WORK/at_work" ]; do kill -0 $pid || fail 'it ended'; sleep 0.02; done
  kill -9 $pid
  : >"$WORK/second" # not a moment later, and while nobody has waited for the killed one
  loop 0 --iterations 1
  last_line 'reason=completed iteration=1 rc=0'
  wait $pid 2>/dev/null
  [ "$(git rev-list --count "$base"..HEAD)" = 1 ] || fail 'not one commit'
  [ -z "$(git status --porcelain)" ] || fail 'the tree is dirty'
}

test_an_index_that_somebody_locks_for_a_moment_is_waited_for() {
  repo && agent "$works"
  git clone -q --bare . ../upstream.git && git remote add origin ../upstream.git
  git clone -q ../upstream.git ../other && (cd ../other && echo theirs >theirs.txt && git add . && git commit -qm theirs && git push -q)
  : >.git/index.lock
  (sleep 3; rm .git/index.lock) &
  loop 0 --iterations 1 --sync-main-policy once
  wait
  err_lacks 'left behind by a git process that was killed'
  [ -e theirs.txt ] && [ "$(git log -1 --format=%s)" = 'step 3' ] || fail "not merged, or not worked: $(git log --oneline)"
}

test_errors_of_iterations_are_counted_up_to_the_limit() {
  repo && agent 'git switch -qc "other$RANDOM"' "$works"
  loop 2 --iterations 4 --iteration-error-policy count-failure --max-failures 1
  last_line 'reason=iteration-error iteration=2 rc=2'
  err_has 'Continuing due to policy=count-failure.'
  loop 0 --iterations 2 --iteration-error-policy count-failure --max-failures 2
  last_line 'reason=completed iteration=2 rc=0'
}

test_sync_main_needs_names() {
  repo && agent "$works"
  loop 2 --iterations 1 --sync-main-policy once --sync-main-remote ''
  err_has '--sync-main-remote'
  last_line 'reason=usage iteration=0 rc=2'
  loop 2 --iterations 1 --sync-main-policy each-iteration --sync-main-branch ''
  err_has '--sync-main-branch'
  [ ! -e .agents ] && [ "$(git rev-parse HEAD)" = "$base" ] || fail 'something was done'
  loop 0 --iterations 1 --sync-main-remote '' # it is off: nobody asks for it
}

test_the_end_of_a_failed_jobs_log_is_as_long_as_asked() {
  repo && agent "$works"
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
test = ["sh", "-c", "for i in 1 2 3 4 5; do echo line $i of five; done; exit 1"]
profile = ["true"]
TOML
  git add . && git commit -qm target
  local tail
  for tail in 4 0; do
    loop 1 --iterations 1 --validation-ray-cluster local --validation-ray-log-tail $tail --perf-mode off
    err_has 'reason=validation-tests'
    err_lacks 'line 3 of five'
    if [ $tail = 4 ]; then err_has 'line 5 of five'; else err_lacks 'line 5 of five'; fi
  done
  loop 2 --iterations 1 --validation-ray-log-tail -1
  err_has '--validation-ray-log-tail must be >= 0.'
}

# A Marin-like cluster that gcloud knows nothing of, and gates that need it.
away() {
  repo && agent ": >$WORK/paid" "$works" && mkdir -p infra "$WORK/bin"
  printf 'cluster_name: marin-c\nprovider: {type: gcp, region: r, availability_zone: r-a, project_id: p}\n' >infra/marin-c.yaml
  printf 'target = "mine"\n[targets.mine]\ntest = ["true"]\nprofile = ["true"]\n' >gdnctl.toml
  printf '#!/bin/sh\nexit 0\n' >"$WORK/bin/gcloud" && chmod +x "$WORK/bin/gcloud" && export PATH=$WORK/bin:$PATH RAY_AUTH_TOKEN=t
  git add . && git commit -qm cluster
}

test_a_cluster_that_is_away_is_found_before_an_agent_is_paid() {
  away
  loop 4 --iterations 1 --perf-mode off --validation-ray-cluster c
  err_has '[gdnctl] no cluster that validation needs can be used: c: '
  err_has 'with --resilient the run starts anyway'
  last_line 'reason=infrastructure iteration=0 rc=4'
  [ ! -e "$WORK/paid" ] || fail 'the agent worked'
  [ ! -e $logs/journal.jsonl ] || fail 'a run began'
  # Without gates nobody needs it, and where jobs are this machine's nobody is asked.
  loop 0 --iterations 1
  loop 0 --iterations 1 --perf-mode off --validation-ray-cluster c --validation-ray-cluster local --dry-run
}

test_a_resilient_run_begins_while_its_cluster_is_away() {
  away
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --resilient --perf-mode off --validation-ray-cluster c
  until [ -e "$WORK/paid" ]; do kill -0 $pid || fail 'it ended'; sleep 0.02; done
  kill -TERM $pid
  wait $pid
  [ $? = 143 ] || fail 'exit code'
  err_has 'continuing, since it may come back'
  # A file that says nothing of such a cluster does not come back.
  rm "$WORK/paid"
  loop 2 --iterations 1 --resilient --perf-mode off --validation-ray-cluster d
  err_has 'No cluster config found for region d'
  [ ! -e "$WORK/paid" ] || fail 'the agent worked'
}

test_a_token_that_is_refused_does_not_come_back_by_itself() {
  away && unset RAY_AUTH_TOKEN
  loop 5 --iterations 1 --resilient --validation-ray-cluster c
  last_line 'reason=authentication iteration=0 rc=5'
  [ ! -e "$WORK/paid" ] || fail 'the agent worked'
}

test_gates_and_a_held_tpu() {
  away && printf '#!/bin/sh\necho asked >>%s\nexit 3\n' "$WORK/allocated" >"$WORK/allocator" && chmod +x "$WORK/allocator"
  local held=(--iterations 1 --perf-mode off --validation-ray-cluster c --hold-dev-tpu --dev-tpu-name t
    --dev-tpu-allocator "$WORK/allocator" --hold-dev-tpu-policy best-effort)
  loop 1 "${held[@]}" # it is not to be had, and no cluster is either
  err_has 'continuing without one'
  err_has 'no cluster that validation needs can be used: c: '
  last_line 'reason=dev-tpu-hold iteration=0 rc=1'
  [ ! -e "$WORK/paid" ] || fail 'the agent worked'
}

test_links_of_a_worktree_replace_nothing_of_the_users() {
  repo && mkdir "$WORK/decoy" sub && echo precious >"$WORK/decoy/x" && echo s >sub/s.txt && printf '.venv/\nsub/.cache/\n' >.gitignore
  git add . && git commit -qm more && agent "$works"
  local link
  for link in "$WORK/decoy" '' . ./ .. ../decoy sub/../../decoy .git .git/refs sub/.git kernel.c sub; do
    loop 2 --iterations 1 --isolation worktree --worktree-link "$link"
    err_has "--worktree-link $link: "
    [ "$(cat "$WORK/decoy/x")" = precious ] || fail "$link: what it names is gone"
    [ ! -e $logs/journal.jsonl ] || fail "$link: the run had begun"
  done
  # One that leads out of the worktree through a link that git tracks.
  ln -s "$WORK/decoy" out && git add out && git commit -qm out
  loop 0 --iterations 1 --isolation worktree --worktree-link out/x
  err_has '--worktree-link out/x: out leads out of the worktree: skipped'
  [ ! -L "$WORK/decoy/x" ] && [ "$(cat "$WORK/decoy/x")" = precious ] || fail 'what lies behind the link was touched'
  # Those that are meant: with slashes, below a folder, and where the agent has put something else.
  mkdir -p .venv/bin sub/.cache && echo py >.venv/bin/python && echo c >sub/.cache/c
  agent 'cat .venv/bin/python sub/.cache/c' 'rm .venv; mkdir .venv; echo other >.venv/other' "$works"
  loop 0 --iterations 2 --isolation worktree --worktree-link ./.venv/ --worktree-link sub/.cache
  [ "$(ls .venv)$(ls sub/.cache)" = binc ] || fail 'the linked folders are not as they were'
}
