#!/usr/bin/env bash
# shapes.sh [OPTION...]: `oracle bench gdn OPTION...` on twelve shapes, each on one thread and on all. A line for each
# kernel: median, fraction of sgemm (decoding: of the longer of moving the states and multiplying), and * where that is
# more than 15 % below what docs/benchmarks.md promises.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# B, Hk, Hv, T, dk, dv: one thing changed at a time, then the smallest, the odd and the many.
for shape in 1,4,8,4096,128,128 1,4,8,512,128,128 1,4,8,1024,128,128 1,4,8,4095,128,128 1,4,8,32768,128,128 \
    1,4,8,4096,64,64 1,4,8,4096,256,256 1,1,2,4096,128,128 1,1,2,512,64,64 1,8,8,2048,128,128 8,4,8,512,128,128 \
    4,8,16,1023,64,64; do
    for threads in 1 "$(nproc)"; do
        build/release/gdnctl oracle bench gdn --shape $shape --threads "$threads" "$@" --json | jq -r --arg at "$shape x$threads" '
            {"builtin:fused": 1.0, "builtin:chunk": 0.8, "builtin:backward": 0.75, "builtin:decode": 0.75} as $promised
            | [.forward, .backward, .decode, .peers[][]] | map(select(type == "object" and .kernel != null))[]
            | ([.sgemm_fraction, .bandwidth_fraction, .arithmetic_fraction] | max) as $of
            | [$at, .kernel, .median_ms // "wrong", $of // "-",
               (if $of != null and $promised[.kernel] != null and $of < 0.85 * $promised[.kernel] then "*" else "" end)]
            | @tsv'
    done
done
