#!/usr/bin/env python3
"""loop_journal.py FOLDER [--iterations N] [--open] [--nasty] [--total N]: a journal as codex-loop writes it.

Of every three iterations the first is kept and promoted, the second fails its tests after a retry of the agent, the
third is refused by a gate. --open leaves the last one in the middle of its second stage, without `stop`. --nasty puts
markup, line breaks, a control character and a token into reasons and names.
"""
import argparse
import datetime
import hashlib
import json
import pathlib


class Journal:
    def __init__(self):
        self.lines, self.now = [], datetime.datetime(2026, 3, 10, 16, 53, 7)

    def add(self, kind, iteration=0, seconds=1, **facts):
        self.now += datetime.timedelta(seconds=seconds)
        prev = hashlib.sha256(self.lines[-1].encode()).hexdigest() if self.lines else "0" * 64
        record = {"v": 1, "seq": len(self.lines) + 1, "ts": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"), "type": kind,
                  "prev": prev}
        if iteration:
            record["iteration"] = iteration
        record.update({key.replace("fact_", "fact."): value for key, value in facts.items()})
        self.lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")))


def sha(*words):
    return hashlib.sha1(" ".join(map(str, words)).encode()).hexdigest()


def iterate(journal, i, base, args):
    """One iteration; the commit that the branch is at afterwards."""
    fate = (i - 1) % 3
    nasty = " <b>&\n\x1b[31m \u202e\u009b2J\u200b hf_abcdefghijklmnopqrstuvwxyz012345" if args.nasty else ""
    add = lambda kind, seconds=1, **facts: journal.add(kind, i, seconds, **facts)
    add("iteration")
    add("base", sha=base, branch="refs/heads/main")
    for attempt in range(1, 3 if fate == 1 else 2):
        last = fate != 1 or attempt == 2
        add("attempt", attempt=attempt)
        add("attempt_end", 90, attempt=attempt, **{"class": "ok" if last else "server-error"}, rc=0 if last else 1,
            next="collect" if last else "retry", wall_ms=90000, tokens=12345)
    head = sha("head", i)
    title = ["Keep the state in registers", "Skip the last decay", "Fuse the two loops"][fate] + nasty
    add("candidate", head=head, diff="change", leftovers="", protected="", title=title)
    add("stage", name="protected", verdict="pass")
    if args.open and i == args.iterations:
        return base
    tests = "fail" if fate == 1 else "pass"
    facts = {"outcome": "test-fail", "sign": "t_long"} if fate == 1 else {}
    add("stage", 20, name="test", verdict=tests, reason="case t_long: WRONG" + nasty if fate == 1 else "", tpu_ms=20000,
        **facts)
    reason = "case t_long: WRONG" + nasty
    if fate != 1:
        gate = "pass 4.1 <= 5" if fate == 0 else "fail 6.25 <= 5 `while_ms` increased by 6.25 ms" + nasty
        reason = "" if fate == 0 else "`while_ms` increased by 6.25 ms" + nasty
        add("stage", 30, name="performance", verdict="pass" if fate == 0 else "fail", reason=reason, tpu_ms=30000,
            fact_step_ms=str(100 - i * 0.01),
            **{"fact.gate.while": gate, "fact.gate.conditional": "skip no value in the baseline"})
    verdict = "keep" if fate == 0 else "reject"
    outcome = ["accepted", "test-fail", "rejected"][fate]
    add("decision", outcome=outcome, verdict=verdict, reason=reason)
    add("settle_intent")
    add("settled", result="landed" if fate == 0 else "rejected", tip=head if fate == 0 else base)
    add("log_intent")
    add("logged", commit=sha("log", i))
    add("iteration_end", outcome=outcome, counted=int(fate != 0), failures=0, promoted=int(fate == 0))
    return head if fate == 0 else base


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--total", type=int)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--nasty", action="store_true")
    args = parser.parse_args()
    journal = Journal()
    journal.add("run", run="20260310t165307z", loop_id="loop-1", isolation="worktree", config="{}", trusted="{}",
                total=args.total or args.iterations)
    base = sha("base")
    for i in range(1, args.iterations + 1):
        base = iterate(journal, i, base, args)
    if not args.open:
        journal.add("stop", reason="iterations", rc=0)
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "journal.jsonl").write_text("".join(line + "\n" for line in journal.lines), encoding="utf-8")


main()
