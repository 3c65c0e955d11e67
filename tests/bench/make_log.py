"""make_log.py BYTES: a running log without violations of about that size, with entries of the size of real ones (7 KB)."""
import sys

FILLER = (
    "  - `{key}`: `{before:.6f} ms -> {after:.6f} ms`\n"
    "  - The trace shows the same order of kernels as before; the share of the decay product is unchanged within noise.\n"
)


def entry(number: int) -> str:
    head = (
        f"### Iteration {number} - widen the chunk of the state update, attempt {number}\n\n"
        f"- Date: 2026-03-10T{number % 24:02d}:{number % 60:02d}:00Z\n"
        f"- Commit: {number + 0xABC0000:040x}\n"
        "- Hypothesis: fewer passes over the state matrix\n"
        "- Change summary: one chunk covers two segments\n"
        "- Correctness checks:\n  - Command: uv run pytest tests/test_gdn_kernels.py\n  - Result: 87 passed, 2 skipped\n"
        "- Profile run:\n  - Command: gdnctl ray-profile\n  - Job ID: raysubmit_0123456789abcdef\n"
        "  - Trace location: profiles/run\n- Hotspots observed:\n"
    )
    lines = [FILLER.format(key=f"scope_{i}", before=1 + i / 7, after=1 + i / 8) for i in range(38)]
    return head + "".join(lines) + "- MFU/throughput delta: none\n- Next hypothesis: overlap the gather\n\n"


def main() -> None:
    limit, size, number = int(sys.argv[1]), 0, 0
    out = sys.stdout
    out.write("# Hill climb\n\n")
    while size < limit:
        text = entry(number)
        out.write(text)
        size += len(text)
        number += 1


main()
