#!/usr/bin/env bash
# Files and lines of each room, and of all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
printf '\n%-20s %6s %8s\n' room files lines
for room in include src/* ; do
    [ -d "$room" ] || continue
    find "$room" -type f -print0 | xargs -0 wc -l | awk -v room="${room#src/}" '!/ total$/ { files++; lines += $1 }
        END { printf "%-20s %6d %8d\n", room, files, lines }'
done | awk '{ print; files += $2; lines += $3 } END { printf "%-20s %6d %8d\n", "all", files, lines }'
