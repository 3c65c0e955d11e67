"""A repository with a run of codex-loop of three iterations, to be broken off: by a kill, by a disk that is full.

KIND: inplace, worktree, held (in place, with a held dev TPU), sync (in place, with an upstream to be merged first), gates and
gates-inplace (a target whose tests and profile are jobs, and a running log).
"""
import json
import os
import re
import subprocess
import sys

MINE = subprocess.run("(echo mine; seq 9000) | md5sum", shell=True, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
LOGS = ".agents/logs/gdn_codex_loop"
KINDS = ("inplace", "worktree", "held", "sync", "gates", "gates-inplace")
# In iteration 2 it breaks a rule that the check looks at. It has a child that outlives it.
AGENT = """#!/bin/bash
set -e
ulimit -S -f unlimited
read -r word n
setsid sleep 300 >/dev/null 2>&1 &
[ ! -e "FILLER" ] || rm "FILLER"
echo half >>notes.txt
sleep 0.01
echo "$((100 - 10 * n))" >kernel.c
seq "$n" 8000 >data.txt
rm -f notes.txt
git add data.txt
git commit -qm "iteration $n" kernel.c data.txt
[ "$n" != 2 ] || { echo "bad" >kernel.c && : >data.txt && git commit -qm spoil kernel.c data.txt; }
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
# Two histories that have to be merged, with files enough for a kill to come between two of them.
UPSTREAM = """git clone -q --bare . ../upstream.git && git remote add origin ../upstream.git && git clone -q ../upstream.git ../other && git fetch -q && git remote set-head origin -a >/dev/null
cd ../other && mkdir theirs && for i in $(seq 400); do seq $i 2000 >theirs/$i; done && git add . && git commit -qm theirs && git push -q
cd ../repo && echo ours >ours.txt && git add ours.txt && git commit -qm ours
"""


def sh(command, cwd):
    return subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)


class World:
    def __init__(self, gdnctl, root, kind, logs=None):
        self.gdnctl, self.root, self.kind = gdnctl, root, kind
        self.repo, self.tpu = os.path.join(root, "repo"), os.path.join(root, "tpu")
        self.filler = os.path.join(root, "filler")
        self.gates = kind.startswith("gates")
        self.isolation = "worktree" if kind in ("worktree", "gates") else "inplace"
        os.makedirs(self.repo)
        self.logs = logs or os.path.join(self.repo, LOGS)
        self.set_agent("")
        write(os.path.join(root, "allocator"), ALLOCATOR.replace("HELD", self.tpu))
        write(os.path.join(self.repo, "prompt.md"), "iteration {{ITERATION}}\n")
        if self.gates:
            write(os.path.join(self.repo, "gdnctl.toml"), TARGET)
            write(os.path.join(self.repo, "log.md"), "# Log\n\n## Iterations\n")
        sh("git init -q . && echo 100 >kernel.c && git add . && git commit -qm base && echo mine >mine.txt && seq 9000 >mine-too.txt", self.repo)
        if self.kind == "sync":
            sh(UPSTREAM, self.repo)
        self.env = dict(os.environ, GDNCTL_STATE_DIR=os.path.join(root, "state"))

    def set_agent(self, leave):  # size of the disk in KB; "": all free space
        write(os.path.join(self.root, "agent"), AGENT.replace("FILLER", self.filler).replace("LEAVE", str(leave)))

    def words(self):
        words = [self.gdnctl, "codex-loop", "--iterations", "3", "--resume", "--prompt-file", "prompt.md", "--agent", "command",
                 "--agent-command", os.path.join(self.root, "agent"), "--sleep-seconds", "0", "--retry-sleep-seconds", "0",
                 "--max-failures", "-1", "--isolation", self.isolation, "--dirty-policy", "stash", "--log-dir", self.logs]
        if self.gates:
            words += ["--validation-mode", "required", "--validation-ray-cluster", "local", "--validation-policy",
                      "count-failure", "--validation-retry-sleep", "0", "--perf-mode", "off"]
        else:
            words += ["--post-check", "! grep -q bad kernel.c", "--post-check-policy", "count-failure"]
        if self.kind == "sync":
            words += ["--sync-main-policy", "once", "--sync-main-branch", sh("git symbolic-ref --short HEAD", self.repo)]
        if self.kind == "held":
            words += ["--hold-dev-tpu", "--dev-tpu-name", "me", "--dev-tpu-allocator", os.path.join(self.root, "allocator")]
        return words

    def start(self, **more):
        self.errors = open(os.path.join(self.root, "stderr"), "a")
        return subprocess.Popen(self.words(), **{**self.surroundings(), "stderr": self.errors, **more})

    def surroundings(self):
        return {"cwd": self.repo, "env": self.env, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}

    def say(self, **more):
        """Runs it to its end: exit code and words, which need no disk."""
        done = subprocess.run(self.words(), **{**self.surroundings(), **more}, stderr=subprocess.PIPE, timeout=300)
        return done.returncode, done.stderr.decode(errors="replace")

    def journal(self):
        try:
            with open(os.path.join(self.logs, "journal.jsonl")) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def finish(self):
        status, words = self.say()
        if status != 0:
            self.fail(f"exit code {status}", words)

    def fail(self, why, words=None):
        if words is None and os.path.exists(os.path.join(self.root, "stderr")):
            with open(os.path.join(self.root, "stderr"), errors="replace") as f:
                words = f.read()
        print((words or "")[-14000:], file=sys.stderr)
        print("\n".join(map(str, self.journal()[-12:])), file=sys.stderr)
        sys.exit(f"FAILED in {self.root} ({self.kind}): {why}")

    def same(self, what, got, wanted):
        if got != wanted:
            self.fail(f"{what}: {got!r} instead of {wanted!r}")

    def check(self):
        """That everything is as after an undisturbed run. Returns the steps that the journal has."""
        commits, kernel, status, mine, stashes, head, subjects = self.look()
        self.same("commits", commits, "base\niteration 1\niteration 3")
        self.same("kernel", kernel, "70")
        self.same("status", set(status.split("\n")) - {"?? scratch.txt"}, {"?? mine.txt", "?? mine-too.txt"})
        self.same("work of the user", mine, MINE)
        self.same("data", sh("md5sum <data.txt", self.repo), sh("seq 3 8000 | md5sum", self.repo))
        self.same("stashes", stashes, "")
        self.same("refused work", sh(f"git show {head}:kernel.c", self.repo), "bad")
        records = self.journal()
        self.same("outcomes", [(r["iteration"], r["outcome"]) for r in records if r["type"] == "iteration_end"],
                  [(1, "accepted"), (2, "test-fail"), (3, "accepted")])
        with open(os.path.join(self.logs, "ledger.jsonl")) as f:
            self.same("ledger", [json.loads(line)["loop"]["index"] for line in f], [1, 2, 3])
        entries = re.sub(r"[0-9]+", "N", "".join(line for line in subjects.splitlines(True) if line.startswith("Log ")))
        self.same("log commits", entries.strip(), "Log iteration N: accepted\nLog iteration N: test-fail\nLog iteration N: accepted" if self.gates else "")
        if self.gates:
            with open(os.path.join(self.repo, "log.md")) as f:
                self.same("entries", f.read().count("\n### Iteration "), 3)
        if self.kind == "sync":
            self.same("merges", len(sh("git log --merges --format=%s", self.repo).split("\n")), 1)
            self.same("what was merged", sh("git diff --name-only HEAD origin/HEAD -- theirs | wc -l; ls theirs | wc -l", self.repo), "0\n400")
        self.same("TPU", [os.path.exists(self.tpu), os.path.exists(self.tpu + ".all")], [False, self.kind == "held"])
        self.check_processes(records)
        return [(r.get("iteration", 0), r["type"]) for r in records if r["type"] not in ("run", "resume", "stop")]

    def check_processes(self, records):
        loop_id = f"GDNCTL_LOOP_ID={records[0]['loop_id']}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if loop_id in f.read().split(b"\0"):
                        self.fail(f"process {pid} lives on")
            except OSError:
                pass

    def look(self):
        parts = ["git log --reverse --format=%s -- kernel.c", "cat kernel.c", "git status --porcelain -- . ':!.agents'", "cat mine.txt mine-too.txt | md5sum",
                 "git stash list", "git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-002/head'", "git log --reverse --format=%s"]
        return [part.strip() for part in sh("; printf '\\001'; ".join(parts), self.repo).split("\001")]
