#!/usr/bin/env python3
"""loop_kills.py GDNCTL FOLDER KIND INSTANTS RECORDS: runs of codex-loop that are broken off, then --resume.

KIND: inplace, worktree, held (in place, with a held dev TPU), gates (a target whose tests and profile are jobs, and that
has a running log), disk (in place, on a small disk that the agent leaves full). INSTANTS: kills at random instants, several
in one run. RECORDS: kills right after a record of the journal, spread over those of an undisturbed run, several in one run;
where entries are written into a log, one is right before that. Every kill must hit a loop that runs. Of a disk, INSTANTS is
in how many steps the space that is left grows. In the end everything must be as after an undisturbed run.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

GDNCTL, FOLDER, KIND, INSTANTS, RECORDS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
LOGS = ".agents/logs/gdn_codex_loop"
KILLS_IN_A_RUN = 5
# In iteration 2 it breaks a rule that the check looks at. It has a child that outlives it.
AGENT = """#!/bin/bash
set -e
read -r word n
setsid sleep 300 >/dev/null 2>&1 &
[ ! -e "FILLER" ] || rm "FILLER"
echo half >>notes.txt
sleep 0.01
echo "$((100 - 10 * n))" >kernel.c
rm -f notes.txt
git commit -qm "iteration $n" kernel.c
[ "$n" != 2 ] || { echo "bad" >kernel.c && git commit -qm spoil kernel.c; }
echo left >scratch.txt
if [ -n "LEAVE" ]; then
  free=$(df --output=avail -k . | tail -n 1)
  [ "$free" -le "LEAVE" ] || fallocate -l "$((free - LEAVE))K" "FILLER"
fi
exit 0
"""
# Who holds the TPU is one file; the next one who asks gets it, as after a crash.
ALLOCATOR = """#!/bin/bash
trap 'rm -f "HELD"; exit 0' INT TERM
echo $$ >"HELD"
echo $$ >>"HELD.all"
echo 'TPU allocated successfully!'
while :; do sleep 0.05; done
"""
TARGET = """target = "x"
[targets.x]
log = "log.md"
test = ["sh", "-c", "! grep -q bad kernel.c"]
metric = { name = "ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.x.profile]
argv = ["sh", "-c", "echo {\\\\\\"ms\\\\\\": $(cat kernel.c)}"]
"""
ENTRIES = ["### Iteration 0 - iteration 1", "### Iteration 1 - spoil", "### Iteration 2 - iteration 3"]
number = 0


def sh(command, cwd):
    return subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)


class World:
    def __init__(self, root=None):
        global number
        number += 1
        self.root = root or os.path.join(FOLDER, f"world-{number}")
        self.repo, self.tpu = os.path.join(self.root, "repo"), os.path.join(self.root, "tpu")
        os.makedirs(self.repo)
        self.set_agent("")
        write(os.path.join(self.root, "allocator"), ALLOCATOR.replace("HELD", self.tpu))
        write(os.path.join(self.repo, "prompt.md"), "iteration {{ITERATION}}\n")
        if KIND == "gates":
            write(os.path.join(self.repo, "gdnctl.toml"), TARGET)
            write(os.path.join(self.repo, "log.md"), "# Log\n\n## Iterations\n")
        sh("git init -q . && echo 100 >kernel.c && git add . && git commit -qm base && echo mine >mine.txt", self.repo)
        self.env = dict(os.environ, GDNCTL_STATE_DIR=os.path.join(self.root, "state"))

    def set_agent(self, leave):  # KB of the disk; "": all that is free
        write(os.path.join(self.root, "agent"), AGENT.replace("FILLER", f"{self.root}/filler").replace("LEAVE", str(leave)))

    def start(self):
        words = [GDNCTL, "codex-loop", "--iterations", "3", "--resume", "--prompt-file", "prompt.md", "--agent", "command",
                 "--agent-command", os.path.join(self.root, "agent"), "--sleep-seconds", "0", "--max-failures", "-1"]
        words += ["--isolation", "worktree" if KIND in ("worktree", "gates") else "inplace"]
        if KIND == "gates":
            words += ["--validation-mode", "required", "--validation-ray-cluster", "local", "--validation-policy",
                      "count-failure", "--perf-mode", "off"]
        else:
            words += ["--dirty-policy", "stash", "--post-check", "! grep -q bad kernel.c", "--post-check-policy", "count-failure"]
        if KIND == "held":
            words += ["--hold-dev-tpu", "--dev-tpu-name", "me", "--dev-tpu-allocator", os.path.join(self.root, "allocator")]
        self.errors = open(os.path.join(self.root, "stderr"), "a")
        return subprocess.Popen(words, cwd=self.repo, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)

    def journal(self):
        try:
            with open(os.path.join(self.repo, LOGS, "journal.jsonl")) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def kill(self, child):
        """Whether there was a loop to kill."""
        child.send_signal(signal.SIGKILL)
        return child.wait() == -signal.SIGKILL

    def kill_at(self, record):
        """Whether a loop was killed that had just written this record."""
        def written():
            return record in [(r.get("iteration", 0), r["type"]) for r in self.journal()]
        if written():  # by the loop before: its kill came too late
            return False
        child = self.start()
        while child.poll() is None and not written():
            time.sleep(0.001)
        if child.poll() not in (None, 0):
            self.fail(f"exit code {child.returncode}")
        return self.kill(child)

    def finish(self):
        status = self.start().wait(timeout=300)
        if status != 0:
            self.fail(f"exit code {status}")

    def fail(self, why):
        with open(os.path.join(self.root, "stderr"), errors="replace") as f:
            print(f.read()[-14000:], file=sys.stderr)
        print("\n".join(map(str, self.journal()[-12:])), file=sys.stderr)
        sys.exit(f"FAILED in {self.root} ({KIND}): {why}")

    def check(self):
        def same(what, got, wanted):
            if got != wanted:
                self.fail(f"{what}: {got!r} instead of {wanted!r}")
        commits, kernel, status, mine, stashes, head = self.look()
        same("commits", commits, "base\niteration 1\niteration 3")
        same("kernel", kernel, "70")
        same("status", set(status.split("\n")) - {"?? scratch.txt"}, {"?? mine.txt"})
        same("work of the user", mine, "mine")
        same("stashes", stashes, "")
        same("refused work", sh(f"git show {head}:kernel.c", self.repo), "bad")
        records = self.journal()
        same("outcomes", [(r["iteration"], r["outcome"]) for r in records if r["type"] == "iteration_end"],
             [(1, "accepted"), (2, "test-fail"), (3, "accepted")])
        with open(os.path.join(self.repo, LOGS, "ledger.jsonl")) as f:
            same("ledger", [json.loads(line)["loop"]["index"] for line in f], [1, 2, 3])
        if KIND == "gates":
            with open(os.path.join(self.repo, "log.md")) as f:
                same("entries", [line.rstrip() for line in f if line.startswith("### ")], ENTRIES)
            logs = sh("git log --reverse --format=%s -- log.md log.records.jsonl", self.repo)
            same("log commits", logs, "base\nLog iteration 0: accepted\nLog iteration 1: test-fail\nLog iteration 2: accepted")
        same("TPU", [os.path.exists(self.tpu), os.path.exists(self.tpu + ".all")], [False, KIND == "held"])
        loop_id = f"GDNCTL_LOOP_ID={records[0]['loop_id']}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if loop_id in f.read().split(b"\0"):
                        self.fail(f"process {pid} lives on")
            except OSError:
                pass
        return [(r.get("iteration", 0), r["type"]) for r in records if r["type"] not in ("run", "resume", "stop")]

    def look(self):
        parts = ["git log --reverse --format=%s -- kernel.c", "cat kernel.c", "git status --porcelain -- . ':!.agents'", "cat mine.txt",
                 "git stash list", "git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-002/head'"]
        return [part.strip() for part in sh("; printf '\\001'; ".join(parts), self.repo).split("\001")]


def undisturbed():
    world = World()
    begun = time.monotonic()
    world.finish()
    return time.monotonic() - begun, world.check()


def at_instants(whole):
    done = 0
    while done < INSTANTS:
        world = World()
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
    wanted = list(dict.fromkeys(wanted))
    runs = -(-len(wanted) // KILLS_IN_A_RUN)
    for first in range(runs):
        kill_at(wanted[first::runs])
    return len(wanted)


def kill_at(wanted):
    """A busy machine may look too late: what was missed is tried in a run of its own."""
    for _ in range(5):
        world = World()
        wanted = [record for record in wanted if not world.kill_at(record)]
        world.finish()
        world.check()
        if not wanted:
            return
    sys.exit(f"FAILED: no loop ran when it was to be killed at {wanted}")


def on_full_disks():
    """What is left of the disk after the agent: from nothing to what an iteration needs."""
    met = 0
    for step in range(INSTANTS):
        place = os.path.join(FOLDER, f"disk-{step}")
        os.makedirs(place)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], check=True)
        world = World(os.path.join(place, "world"))
        leave = 4 * (step * 40 // INSTANTS)
        world.set_agent(leave)
        status = world.start().wait(timeout=300)
        with open(os.path.join(world.root, "stderr")) as f:
            words = f.read()
        if status != 0:
            met += 1
            if status != 8 or "reason=local-io" not in words or not ("No space left" in words or "Out of diskspace" in words):
                world.fail(f"exit code {status} on a full disk with {leave} KB left")
        if os.path.exists(f"{world.root}/filler"):
            os.remove(f"{world.root}/filler")
        world.set_agent("")
        world.finish()
        world.check()
        subprocess.run(["umount", "-l", place], check=True)
    if met == 0:
        sys.exit("FAILED: no disk was full")
    return met


random.seed(6)
if KIND == "disk":
    print(f"{on_full_disks()} full disks of {INSTANTS}")
else:
    whole, records = undisturbed()
    at_instants(whole)
    print(f"{KIND}: {INSTANTS} kills at instants, {at_records(records) if RECORDS else 0} at records")
