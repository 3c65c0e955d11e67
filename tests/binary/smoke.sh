#!/usr/bin/env bash
# smoke.sh GDNCTL: a linked binary starts, lints a log, and reaches every library it names.
set -euo pipefail
binary=$1
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Kept first and searched after: under pipefail, a search that stops at its first hit ends ldd with SIGPIPE.
linked=$(ldd "$binary")
for library in libcurl libgit2 libcrypto libisal; do
    [[ $linked == *"$library"* ]] || { echo "[smoke] $binary does not link $library" >&2; exit 1; }
done
"$binary" --version
"$binary" --help >/dev/null
python3 "$tests/bench/make_log.py" 3000 >"$log"
"$binary" lint-log --log-file "$log"
"$binary" oracle verify gdn --kernel builtin:chunk
echo "[smoke] ok"
