#!/usr/bin/env bash
# run.sh [BASE]: clang-format and clang-tidy over the project's own files, warnings are errors. With BASE (a git
# revision) clang-tidy sees only what changed since the merge base with it: those sources, and the sources that reach a
# changed header. Results of clean files are remembered in build/lint/clean, by content.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
base=${1:-}
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

list() { git ls-files -co --exclude-standard -- "$@" | sort -u | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

mapfile -t formatted < <(list 'src/*.cpp' 'src/*.h' 'include/*.h' 'tests/*.cpp' 'tests/*.h' 'cmake/*.h')
echo "[lint] clang-format over ${#formatted[@]} files" >&2
status=0
clang-format-19 --dry-run -Werror "${formatted[@]}" || { echo "[lint] hint: ./dev fmt mends the layout" >&2; status=1; }

mapfile -t tidied < <(list 'src/*.cpp')
if [ -n "$base" ]; then
    from=$(git merge-base "$base" HEAD)
    touched=$(git diff --name-only "$from" -- src include)
    while :; do  # a source or header that includes a touched header is touched
        more=$touched
        for header in $(grep '\.h$' <<<"$touched" || true); do
            more+=$'\n'$(grep -rlF "\"${header#*/}\"" src include || true)
        done
        more=$(sort -u <<<"$more")
        [ "$more" != "$touched" ] || break
        touched=$more
    done
    if ! git diff --quiet "$from" -- .clang-tidy; then touched=$(printf '%s\n' "${tidied[@]}"); fi
    mapfile -t tidied < <(comm -12 <(printf '%s\n' "${tidied[@]}") <(sort -u <<<"$touched"))
fi

clean=build/lint/clean
mkdir -p "$clean"
headers=$(list 'src/*.h' 'include/*.h' .clang-tidy | xargs sha256sum | sha256sum | cut -c1-16)
pending=()
for f in "${tidied[@]}"; do
    key=$(sha256sum "$f" | cut -c1-32)-$headers
    [ -e "$clean/$key" ] || pending+=("$f $clean/$key")
done
echo "[lint] clang-tidy over ${#pending[@]} of ${#tidied[@]} sources, $jobs at a time" >&2
[ ${#pending[@]} -gt 0 ] || exit $status
# shellcheck disable=SC2086  # two words each
python3 tests/lint/tidy.py "$jobs" ${pending[*]} || status=1
exit $status
