#!/usr/bin/env bash
# smoke.sh GDNCTL: a linked binary starts, lints a log, and reaches every library it names.
set -euo pipefail
binary=$1
fixtures=$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures" && pwd)
for library in libcurl libgit2 libcrypto libisal; do
    ldd "$binary" | grep -q "$library" || { echo "[smoke] $binary does not link $library" >&2; exit 1; }
done
"$binary" --version
"$binary" --help >/dev/null
"$binary" lint-log "$fixtures/runlog/clean.md"
"$binary" oracle verify gdn --kernel builtin:chunk
echo "[smoke] ok"
