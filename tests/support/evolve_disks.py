#!/usr/bin/env python3
"""evolve_disks.py GDNCTL FOLDER FULL SIZES: runs of codex-loop --mode evolve whose disk becomes full, then room, then --resume.

FULL: `start`, so much is left of the disk when the run begins; `agent`, when an agent ends; `files`, no file may become larger
(RLIMIT_FSIZE). In SIZES steps what is left grows to what an undisturbed run needs. A run that meets it ends with 8 and says
why; no candidate is blamed; after --resume every attempt has the verdict that it deserves. Needs a mount namespace of its own
(unshare -m), unless FULL is `files`.
"""
import json
import os
import re
import resource
import subprocess
import sys

GDNCTL, FOLDER, FULL, SIZES = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
DISK_KB, ATTEMPTS = 24 << 10, 1 if SIZES == 1 else 2
REASONS = ("No space left on device", "Out of diskspace", "File too large", "file size limit", "limit on the size of files")
TARGET = """target = "mine"
[targets.mine]
kernel = ["kernel.txt"]
protected = ["tests/**"]
validate = ["grep -q . kernel.txt >built"]
test = ["sh", "tests/judge.sh"]
metric = { name = "mine/forward_ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.mine.profile]
argv = ["sh", "tests/profile.sh"]
"""
JUDGE = """set -e
seq 9000 >big || { echo "verdict: WRONG: no room"; exit 1; }
grep -q wrong kernel.txt && { echo "verdict: WRONG: 1 of 1 cases"; exit 1; }
echo "verdict: OK"
"""
PROFILE = 'seq 9000 >big\nprintf \'{"ms": %s}\\n\' "$(head -n 1 kernel.txt)"\n'
# Odd attempts are faster, the others are wrong.
AGENT = """#!/bin/bash
prompt=$(cat)
ulimit -S -f unlimited
read -r _ _ n _ <<<"$prompt"
setsid sleep 300 >/dev/null 2>&1 &
if [ $((n % 2)) = 1 ]; then echo $(($(head -n 1 kernel.txt) - 1)) >kernel.txt; else echo "$n wrong" >kernel.txt; fi
echo "I changed it."
if [ -n "LEAVE" ]; then
  free=$(df --output=avail -k "PLACE" | tail -n 1)
  [ "$free" -le "LEAVE" ] || fallocate -l "$((free - LEAVE))K" "PLACE/filler"
fi
exit 0
"""


def sh(command, cwd):
    return subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)


class World:
    def __init__(self, name):
        self.place = os.path.join(FOLDER, name)
        os.makedirs(self.place)
        if FULL != "files":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", self.place], check=True)
        self.repo, self.log = os.path.join(self.place, "repo"), os.path.join(self.place, "log")
        # Under a limit, what the user's own test cannot write is its own business.
        lines = "9" if FULL == "files" else "9000"
        for file, text in (("gdnctl.toml", TARGET), ("tests/judge.sh", JUDGE), ("tests/profile.sh", PROFILE), ("kernel.txt", "100\n")):
            write(os.path.join(self.repo, file), text.replace("9000", lines))
        sh("git init -q . && git add . && git commit -qm base", self.repo)
        self.base = sh("git rev-parse HEAD", self.repo)
        self.agent = os.path.join(FOLDER, name + "-agent")
        self.env = dict(os.environ, GDNCTL_STATE_DIR=os.path.join(self.place, "state"), TMPDIR=os.path.join(self.place, "tmp"))
        os.makedirs(self.env["TMPDIR"])

    def run(self, leave="", limit=0):
        write(self.agent, AGENT.replace("LEAVE", str(leave)).replace("PLACE", self.place))
        words = [GDNCTL, "codex-loop", "--mode", "evolve", "--agent", "command", "--agent-command", self.agent, "--sleep-seconds", "0",
                 "--perf-pairs", "3", "--log-dir", self.log, "--lineages", "2", "--operator-mix", "exploit=1", "--seed", "4",
                 "--max-attempts", str(ATTEMPTS), "--resume"]
        bound = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))) if limit else None
        done = subprocess.run(words, cwd=self.repo, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=280, preexec_fn=bound)
        return done.returncode, done.stderr.decode(errors="replace")

    def free_kb(self):
        disk = os.statvfs(self.place)
        return disk.f_bavail * disk.f_frsize >> 10

    def fill(self, leave):
        with open(os.path.join(self.place, "filler"), "wb") as f:
            os.posix_fallocate(f.fileno(), 0, max(1, self.free_kb() - leave) << 10)

    def make_room(self):
        if os.path.exists(os.path.join(self.place, "filler")):
            os.remove(os.path.join(self.place, "filler"))

    def gone(self):
        if FULL != "files":
            subprocess.run(["umount", "-l", self.place], check=True)

    def records(self):
        try:
            with open(os.path.join(self.log, "journal.jsonl")) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def fail(self, why, words=""):
        print(words[-8000:], "\n".join(map(str, self.records()[-12:])), sep="\n", file=sys.stderr)
        sys.exit(f"FAILED in {self.place} ({FULL}): {why}")

    def same(self, what, got, wanted, words=""):
        if got != wanted:
            self.fail(f"{what}: {got!r} instead of {wanted!r}", words)

    def no_blame(self, words=""):
        for record in self.records():
            if record["type"] == "verdict" and record["verdict"] != "abandoned":
                self.same(f"verdict of {record['attempt']}", record["verdict"], "kept" if record["attempt"] % 2 else "invalid", words)

    def check(self, words):
        self.no_blame(words)
        records = self.records()
        verdicts = [r["verdict"] for r in records if r["type"] == "verdict" and r["verdict"] != "abandoned"]
        self.same("attempts", len(verdicts), ATTEMPTS, words)
        self.same("last record", records[-1]["type"], "stop", words)
        run = records[0]["run"]
        kept = [r["attempt"] for r in records if r["type"] == "verdict" and r["verdict"] == "kept"] or [None]
        best = sh(f"git rev-parse refs/gdnctl/evolve/{run}/best", self.repo)
        self.same("best", best, sh(f"git rev-parse refs/gdnctl/evolve/{run}/cand/{kept[-1]}", self.repo) if kept[-1] else self.base, words)
        self.same("checkout", sh("git rev-parse HEAD; git status --porcelain; git stash list", self.repo), self.base, words)
        self.same("worktrees", sh("git worktree list | wc -l", self.repo), "1", words)
        self.same("git fsck", sh("git fsck --no-dangling 2>&1", self.repo), "", words)
        done = subprocess.run([GDNCTL, "evolve", "fsck", "--log-dir", self.log], cwd=self.repo, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.same("evolve fsck", done.returncode, 0, done.stdout)
        loop_id = f"GDNCTL_LOOP_ID={records[0]['loop_id']}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if loop_id in f.read().split(b"\0"):
                        self.fail(f"process {pid} lives on", words)
            except OSError:
                pass


def finish(world):
    status, words = world.run()
    if status not in (0, 3):
        world.fail(f"exit code {status}", words)
    world.check(words)


def largest_file(folder):
    return max(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names if not os.path.islink(os.path.join(at, name)))


def undisturbed():
    world = World("undisturbed")
    before = world.free_kb()
    finish(world)
    # Below 256 KB no step begins.
    need = largest_file(world.place) if FULL == "files" else before - world.free_kb() + 320
    world.gone()
    return need


def sweep():
    need, met = undisturbed(), 0
    for step in range(SIZES):
        # Small sizes are closer together, so that each write is hit separately.
        size = int(need * ((step if FULL == "agent" else step + 1) / (SIZES + 1)) ** 1.5)
        world = World(f"disk-{step}")
        if FULL == "start":
            world.fill(size)
        status, words = world.run(leave=size if FULL == "agent" else "", limit=size if FULL == "files" else 0)
        if status not in (0, 3):
            met += 1
            last = words.rstrip("\n").rsplit("\n", 1)[-1]
            if status != 8 or not re.search(r"codex-loop stopped: reason=local-io attempt=[0-9]+ rc=8$", last):
                world.fail(f"{size}: exit code {status}, last line: {last}", words)
            if not any(reason in words for reason in REASONS):
                world.fail("nothing says that the disk is full", words)
        world.no_blame(words)
        world.make_room()
        finish(world)
        world.gone()
    if met == 0:
        sys.exit("FAILED: no disk was full")
    print(f"evolve, {FULL}: met {met} times in {SIZES} sizes up to {need}")


sweep()
