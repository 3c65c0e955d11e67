#!/usr/bin/env python3
"""loop_kills.py GDNCTL FOLDER KIND INSTANTS RECORDS: runs of codex-loop that are broken off by kill -9, then --resume.

KIND: see loop_world.py. INSTANTS: kills at random instants, several in one run. RECORDS: kills right after a record of the
journal, spread over those of an undisturbed run, several in one run; where entries are written into a log, one is right
before that. Every kill must hit a loop that runs. In the end everything must be as after an undisturbed run.
"""
import os
import random
import signal
import subprocess
import sys
import time

from loop_world import World, sh

GDNCTL, FOLDER, KIND, INSTANTS, RECORDS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
KILLS_IN_A_RUN = 5
ENTRIES = ["### Iteration 1 - iteration 1", "### Iteration 2 - spoil", "### Iteration 3 - iteration 3"]
LOG_COMMITS = "base\nLog iteration 1: accepted\nLog iteration 2: test-fail\nLog iteration 3: accepted"
number = 0


class Killed(World):
    def __init__(self):
        global number
        number += 1
        super().__init__(GDNCTL, os.path.join(FOLDER, f"world-{number}"), KIND)

    def kill(self, child):
        """Whether there was a loop to kill."""
        child.send_signal(signal.SIGKILL)
        return child.wait() == -signal.SIGKILL

    def kill_at(self, record):
        """Whether a loop was killed that had just written this record."""
        def written():
            return record in [(r.get("iteration", 0), r["type"]) for r in self.journal()]
        if written():  # by the previous loop: its kill came too late
            return False
        child = self.start()
        while child.poll() is None and not written():
            time.sleep(0.001)
        if record[1] == "merge_intent":
            time.sleep(random.uniform(0.01, 0.05))  # the announced step takes about this long
        if child.poll() not in (None, 0):
            self.fail(f"exit code {child.returncode}")
        return self.kill(child)

    def check(self):
        steps = super().check()
        if self.gates:
            with open(os.path.join(self.repo, "log.md")) as f:
                self.same("entries", [line.rstrip() for line in f if line.startswith("### ")], ENTRIES)
            self.same("log commits", sh("git log --reverse --format=%s -- log.md log.records.jsonl", self.repo), LOG_COMMITS)
        return steps


def undisturbed():
    world = Killed()
    begun = time.monotonic()
    world.finish()
    return time.monotonic() - begun, world.check()


def at_instants(whole):
    done = 0
    while done < INSTANTS:
        world = Killed()
        for _ in range(min(KILLS_IN_A_RUN, INSTANTS - done)):
            child = world.start()
            try:
                child.wait(timeout=random.uniform(0.01, whole * 0.35))
                break
            except subprocess.TimeoutExpired:
                done += world.kill(child)
        world.finish()
        world.check()


def at_records(records):
    wanted = [records[i * (len(records) - 1) // max(1, RECORDS - 1)] for i in range(RECORDS)] if RECORDS < len(records) else records
    intents = [record for record in records if record[1] == "log_intent"]
    if KIND == "gates" and not intents:
        sys.exit("FAILED: no entry is ever about to be written")
    if intents and not set(intents) & set(wanted):
        wanted.insert(1, intents[len(intents) // 2])
    merges = [record for record in records if record[1] == "merge_intent"]
    if merges:
        for _ in range(2 * min(RECORDS, 20)):
            kill_at(merges)
    wanted = list(dict.fromkeys(wanted))
    runs = -(-len(wanted) // KILLS_IN_A_RUN)
    for first in range(runs):
        kill_at(wanted[first::runs])
    return len(wanted)


def kill_at(wanted):
    """A busy machine may look too late: what was missed is tried in a run of its own."""
    for _ in range(5):
        world = Killed()
        wanted = [record for record in wanted if not world.kill_at(record)]
        world.finish()
        world.check()
        if not wanted:
            return
    sys.exit(f"FAILED: no loop ran when it was to be killed at {wanted}")


random.seed(6)
whole, records = undisturbed()
at_instants(whole)
print(f"{KIND}: {INSTANTS} kills at instants, {at_records(records) if RECORDS else 0} at records")
