#!/usr/bin/env python3
"""loop_kills.py GDNCTL FOLDER ISOLATION HOW COUNT: kill -9 in the middle of runs of codex-loop, then --resume.

HOW is `instants` (COUNT kills at random instants, several in one run) or `records` (one kill right after each of COUNT
records of the journal, spread evenly). After each run the repository must look as after an undisturbed one.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

GDNCTL, FOLDER, ISOLATION, HOW, COUNT = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
LOGS = ".agents/logs/gdn_codex_loop"
# In iteration 2 it breaks a rule that the post-check looks at. Its own work takes a moment, and has a child.
AGENT = """#!/bin/bash
set -e
prompt=$(cat)
n=${prompt#iteration }
n=${n%%[!0-9]*}
setsid sleep 300 >/dev/null 2>&1 &
echo half >>notes.txt
sleep 0.1
echo "int speed = $n;" >kernel.c
rm -f notes.txt
git commit -qam "iteration $n"
[ "$n" = 2 ] && echo "bad" >kernel.c && git commit -qam "spoil"
exit 0
"""
number = 0


def sh(command, cwd):
    return subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class World:
    def __init__(self):
        global number
        number += 1
        self.root = os.path.join(FOLDER, f"world-{number}")
        self.repo = os.path.join(self.root, "repo")
        os.makedirs(os.path.join(self.repo, "scripts/gdn"))
        with open(os.path.join(self.root, "agent"), "w") as f:
            f.write(AGENT)
        os.chmod(os.path.join(self.root, "agent"), 0o755)
        with open(os.path.join(self.repo, "scripts/gdn/codex_iteration_prompt.md"), "w") as f:
            f.write("iteration {{ITERATION}}")
        sh("git init -q . && echo 'int speed = 0;' >kernel.c && git add . && git commit -qm base && echo mine >mine.txt", self.repo)
        self.env = dict(os.environ, GDNCTL_STATE_DIR=os.path.join(self.root, "state"))

    def start(self):
        words = [GDNCTL, "codex-loop", "--iterations", "3", "--resume", "--agent", "command", "--agent-command",
                 os.path.join(self.root, "agent"), "--sleep-seconds", "0", "--isolation", ISOLATION, "--dirty-policy", "stash",
                 "--post-check", "! grep -q bad kernel.c", "--post-check-policy", "count-failure", "--max-failures", "-1"]
        self.errors = open(os.path.join(self.root, "stderr"), "a")
        return subprocess.Popen(words, cwd=self.repo, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)

    def journal(self):
        try:
            with open(os.path.join(self.repo, LOGS, "journal.jsonl")) as f:
                return f.read().split("\n")[:-1]
        except FileNotFoundError:
            return []

    def kill(self, child):
        child.send_signal(signal.SIGKILL)
        child.wait()

    def finish(self):
        child = self.start()
        status = child.wait(timeout=300)
        if status != 0:
            self.fail(f"exit code {status}")

    def fail(self, why):
        with open(os.path.join(self.root, "stderr")) as f:
            print(f.read()[-6000:], file=sys.stderr)
        print("\n".join(self.journal()[-12:]), file=sys.stderr)
        sys.exit(f"FAILED in {self.root} ({HOW}, {ISOLATION}): {why}")

    def check(self):
        def same(what, got, wanted):
            if got != wanted:
                self.fail(f"{what}: {got!r} instead of {wanted!r}")
        same("commits", sh("git log --reverse --format=%s", self.repo), "base\niteration 1\niteration 3")
        same("kernel", sh("cat kernel.c", self.repo), "int speed = 3;")
        same("status", sh("git status --porcelain -- . ':!.agents'", self.repo), "?? mine.txt")
        same("work of the user", sh("cat mine.txt", self.repo), "mine")
        same("stashes", sh("git stash list", self.repo), "")
        records = [json.loads(line) for line in self.journal()]
        same("outcomes", [(r["iteration"], r["outcome"]) for r in records if r["type"] == "iteration_end"],
             [(1, "accepted"), (2, "test-fail"), (3, "accepted")])
        head = sh("git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-002/head'", self.repo)
        same("refused work", sh(f"git show {head}:kernel.c", self.repo), "bad")
        loop_id = f"GDNCTL_LOOP_ID={records[0]['loop_id']}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if loop_id in f.read().split(b"\0"):
                        self.fail(f"process {pid} lives on")
            except OSError:
                pass
        return len(records)


def undisturbed():
    world = World()
    begun = time.monotonic()
    world.finish()
    return time.monotonic() - begun, world.check()


def at_instants(whole):
    done = 0
    while done < COUNT:
        world = World()
        for _ in range(min(5, COUNT - done)):
            child = world.start()
            try:
                child.wait(timeout=random.uniform(0.01, whole * 0.7))
                break
            except subprocess.TimeoutExpired:
                world.kill(child)
                done += 1
        world.finish()
        world.check()


def at_records(records):
    for index in sorted({1 + i * (records - 1) // max(1, COUNT - 1) for i in range(COUNT)}):
        world = World()
        child = world.start()
        while child.poll() is None and len(world.journal()) < index:
            time.sleep(0.001)
        world.kill(child)
        world.finish()
        world.check()


random.seed(6)
whole, records = undisturbed()
if HOW == "instants":
    at_instants(whole)
else:
    at_records(records)
print(f"{COUNT} kills, {records} records")
