#!/usr/bin/env bash
# run.sh [--alone] [--touched | BASE]: clang-format and clang-tidy over the project's own files, warnings are errors; with
# --alone that every source and every header compiles by itself instead, which builds of several files at once do not show.
# BASE (a git revision) leaves what changed since the merge base with it: those sources, and the sources that reach a
# changed header. --touched leaves what the last ten commits touched.
# Results of files without findings are remembered in build/lint/clean, by content.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
alone='' recent='' base=''
for word in "$@"; do
    case $word in
        --alone) alone=1 ;;
        --touched) recent=1 ;;
        -*) echo "[lint] there is no option '$word'" >&2; exit 2 ;;
        *) base=$word ;;
    esac
done
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

list() { git ls-files -co --exclude-standard -- "$@" | sort -u | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

status=0
if [ -z "$alone" ]; then
    mapfile -t formatted < <(list 'src/*.cpp' 'src/*.h' 'include/*.h' 'tests/*.cpp' 'tests/*.h' 'cmake/*.h')
    echo "[lint] clang-format over ${#formatted[@]} files" >&2
    clang-format-19 --dry-run -Werror "${formatted[@]}" || { echo "[lint] hint: ./dev fmt mends the layout" >&2; status=1; }
    mapfile -t looked_at < <(list 'src/*.cpp')
else
    mapfile -t looked_at < <(list 'src/*.cpp' 'src/*.h' 'include/*.h')
fi

only() {  # FILE...: of what would be looked at
    mapfile -t looked_at < <(comm -12 <(printf '%s\n' "${looked_at[@]}") <(printf '%s\n' "$@" | sort -u))
}
if [ -n "$recent" ]; then
    mapfile -t touched < <(git log -10 --no-merges --name-only --format= -- src include)
    only "${touched[@]}"
elif [ -n "$base" ]; then
    from=$(git merge-base "$base" HEAD)
    touched=$(git diff --name-only "$from" -- src include)
    while [ -z "$alone" ]; do  # a source or header that includes a touched header is touched
        more=$touched
        for header in $(grep '\.h$' <<<"$touched" || true); do
            more+=$'\n'$(grep -rlF "\"${header#*/}\"" src include || true)
        done
        more=$(sort -u <<<"$more")
        [ "$more" != "$touched" ] || break
        touched=$more
    done
    git diff --quiet "$from" -- .clang-tidy || touched=$(printf '%s\n' "${looked_at[@]}")
    mapfile -t touched <<<"$touched"
    only "${touched[@]}"
fi

clean=build/lint/clean
mkdir -p "$clean"
headers=$(list 'src/*.h' 'include/*.h' .clang-tidy | xargs sha256sum | sha256sum | cut -c1-16)
pending=()
for f in "${looked_at[@]}"; do
    key=$(sha256sum "$f" | cut -c1-32)-$headers${alone:+-alone}
    [ -e "$clean/$key" ] || pending+=("$f $clean/$key")
done
echo "[lint] ${alone:+each alone: }${#pending[@]} of ${#looked_at[@]} files, $jobs at a time" >&2
[ ${#pending[@]} -gt 0 ] || exit $status
# shellcheck disable=SC2086  # two words each
python3 "tests/lint/$([ -n "$alone" ] && echo alone || echo tidy).py" "$jobs" ${pending[*]} || status=1
exit $status
