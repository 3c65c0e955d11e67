#!/bin/sh
# An agent without a model: reads the prompt of an iteration, or of an attempt, on standard input and commits the change that
# was recorded for its number, in the checkout that it is started in. Numbers without a record change nothing. `agent.sh
# FOLDER` takes the records of another example.
set -eu
here=$(cd "${1:-$(dirname "$0")}" && pwd)
line=$(sed -n 's/^- Iteration: *\([0-9][0-9]*\) .*/iteration \1/p; s/^# Attempt \([0-9][0-9]*\) of run .*/attempt \1/p' | sed -n 1p)
kind=${line% *} iteration=${line#* }
[ -n "$iteration" ] || { echo 'the prompt has no line "- Iteration: N / M" or "# Attempt N of run ..."' >&2; exit 2; }
set -- "$here/$iteration"-*.patch
[ -f "$1" ] || { echo "nothing is recorded for iteration $iteration"; exit 0; }
record=$1
cd "$(git rev-parse --show-toplevel)"
# The parent of an attempt may be any candidate: what the change was recorded on is put in its place first.
if [ "$kind" = attempt ]; then
  before=$(sed -n 's/^index \([0-9a-f]*\)\.\..*/\1/p' "$record")
  file=$(sed -n 's|^diff --git a/.* b/||p' "$record")
  git cat-file blob "$before" >"$file" && git add "$file"
fi
git apply --index "$record"
set --
git config user.email >/dev/null || set -- -c user.name='recorded agent' -c user.email=agent@localhost
sed '/^diff --git /,$d' "$record" | git "$@" commit --quiet --file -
title=$(git log -1 --format=%s)
# The answer to an attempt begins with what it tried.
if [ "$kind" = attempt ]; then printf '{"technique": "%s"}\n' "$title"; fi
echo "iteration $iteration: $title"
