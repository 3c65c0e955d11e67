# shellcheck shell=bash
# For tests of codex-loop with gates: a target whose jobs report what files contain, and an agent that writes them.
world() { # a target whose test gives the result in state.txt, and whose profile prints the number in speed.txt as ms
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE  # the log's dates are compared with the commits'
  git init -q . && mkdir -p scripts/gdn
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
log = "log.md"
protected = ["gdnctl.toml", "judge.sh"]
test = ["sh", "judge.sh"]
metric = { name = "mine/forward_ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.mine.profile]
argv = ["sh", "-c", "printf '{\"ms\": %s}\\n' \"$(cat speed.txt)\""]
TOML
  cat >judge.sh <<SH
echo run >>$WORK/tests_run
case \$(cat state.txt) in
  ok) echo 'verdict: OK' ;;
  wrong) printf 'case   t_hand                     WRONG          6.3e+06 x budget\n'
    printf '       where: value head 0 of 1; chunk 0 (of 64 tokens)\n       stage: order; also possible: intra\n'
    printf 'verdict: WRONG: 1 of 1 cases\n'; exit 1 ;;
  infra) echo 'ConnectionResetError: peer'; exit 1 ;;
  oom) echo 'RESOURCE_EXHAUSTED: vmem'; exit 1 ;;
esac
SH
  printf '# Log\n\n## Iterations\n' >log.md
  echo 'It {{ITERATION}}' >scripts/gdn/codex_iteration_prompt.md
  echo ok >state.txt && echo 10 >speed.txt
  git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
agent() { # SPEED:STATE per iteration; `-`: no change
  { printf '#!/bin/bash\nset -e\ncase $(cat) in\n'
    local n=0 one
    for one in "$@"; do
      n=$((n + 1))
      if [ "$one" = - ]; then printf '"It %d"*) exit 0 ;;\n' $n; continue; fi
      printf '"It %d"*) echo %s >speed.txt; echo %s >state.txt ;;\n' $n "${one%%:*}" "${one#*:}"
    done
    printf 'esac\ndate +%%N >note.txt; git add -A; git commit -qm "Speed $(cat speed.txt)" -m "Because it is."\n'
  } >"$WORK/agent" && chmod +x "$WORK/agent"
}
loop() { # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 \
    --retry-sleep-seconds 0 --validation-retry-sleep 0 --validation-ray-cluster local "$@"
}
kept() { [ "$(git rev-list --count "$base"..HEAD -- speed.txt)" = "$1" ] || fail "$1 candidates should be on the branch"; }
entries() { [ "$(grep -c '^### Iteration ' log.md)" = "$1" ] || fail "$(grep -c '^### Iteration ' log.md) entries in the log, not $1"; }
clean_log() { # the linter reports nothing
  expect 0 "$GDNCTL" lint-log --scope all --strict --json
  out_lacks '"rule"'
}
log_has() { grep -qF -- "$1" log.md || { cat log.md >&2; fail "log.md lacks: $1"; }; }
