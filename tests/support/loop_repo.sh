# shellcheck shell=bash
# For tests of codex-loop: a repository, a scripted agent, and the loop that runs it.
repo() {  # a repository with a kernel, and a script as the agent
  git init -q . && printf 'int speed = 1;\n' >kernel.c && mkdir -p scripts/gdn/session_directives
  printf 'It {{ITERATION}}/{{TOTAL_ITERATIONS}} @ {{HEAD_SHA}}\n\n\n' >scripts/gdn/codex_iteration_prompt.md
  printf 'ours\n' >scripts/gdn/session_directives/ours.md
  git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
agent() {  # LINE...: what the agent does, in the folder where it works
  { printf '#!/bin/bash\nset -e\nprompt=$(cat)\n'; printf '%s\n' "$@"; } >"$WORK/agent" && chmod +x "$WORK/agent"
}
works='n=$(($(git rev-list --count HEAD) + 1)); echo "int speed = $n;" >kernel.c; git commit -qam "step $n"'
loop() {  # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --retry-sleep-seconds 0 "$@"
}
last_line() { [ "$(tail -n 1 "$WORK/err")" = "[gdnctl] codex-loop stopped: $1" ] || fail "last line is not: $1"; }
logs=.agents/logs/gdn_codex_loop
