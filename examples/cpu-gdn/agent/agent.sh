#!/bin/sh
# An agent without a model: reads an iteration's prompt on standard input and commits the change that was recorded for
# that iteration, in the checkout that it is started in. Iterations without a record change nothing. `agent.sh FOLDER`
# takes the records of another example.
set -eu
here=$(cd "${1:-$(dirname "$0")}" && pwd)
iteration=$(sed -n 's/^- Iteration: *\([0-9][0-9]*\) .*/\1/p' | sed -n 1p)
[ -n "$iteration" ] || { echo 'the prompt has no line "- Iteration: N / M"' >&2; exit 2; }
set -- "$here/$iteration"-*.patch
[ -f "$1" ] || { echo "nothing is recorded for iteration $iteration"; exit 0; }
record=$1
cd "$(git rev-parse --show-toplevel)"
git apply --index "$record"
set --
git config user.email >/dev/null || set -- -c user.name='recorded agent' -c user.email=agent@localhost
sed '/^diff --git /,$d' "$record" | git "$@" commit --quiet --file -
echo "iteration $iteration: $(git log -1 --format=%s)"
