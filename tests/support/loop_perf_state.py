#!/usr/bin/env python3
"""loop_perf_state.py FOLDER [N]: a perf_state.json for the journal that loop_journal.py has written there.

Every kept iteration is measured and becomes champion, every one that a gate refused is measured and slower; the noise of
a pair is 0.3 %. Iteration 6, where there is one, is an outlier.
"""
import hashlib
import json
import pathlib
import sys

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
records = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
first = 1773161587
history, value = [], 5.0
common = {"metric": "gdn/forward_ms", "metric_source": "job-metric", "fingerprint_key": "00112233aabbccdd", "run_url": None}


def add(iteration, commit, measured, decision, champion):
    gain = (champion - measured) / champion * 100
    history.append({**common, "iteration": iteration, "commit": commit, "metric_value": measured, "points": [measured] * 3,
                    "decision": decision, "delta_vs_champion_pct": None if decision == "baseline" else -gain,
                    "timestamp_unix": first + iteration * 150,
                    "pairs": None if decision == "baseline" else
                    {"n": 5, "gain_pct": gain, "low_pct": gain - 0.2, "high_pct": gain + 0.2, "deviation_pct": 0.3,
                     "verdict": "keep" if gain > 0 else "refuse"}})


add(1, "b" * 40, value, "baseline", value)
for i in range(1, count + 1):
    head = hashlib.sha1(f"head {i}".encode()).hexdigest()
    if i % 3 == 1:
        better = value * (1 - 0.05 / i)
        add(i, head, better, "promoted", value)
        value, champion = better, history[-1]
    elif i % 3 == 0:
        add(i, head, value * (30 if i == 6 else 1.01 + 0.002 * (i % 7)), "regression", value)
(folder / "perf_state.json").write_text(json.dumps({"version": 2, "champion": champion, "history": history}, indent=2))
