#!/usr/bin/env python3
"""evolve.py GDNCTL [ATTEMPTS]: what `codex-loop --mode evolve` adds to an attempt beyond its agent and its evaluations, in
repositories of 200 and of 10,000 files; and a dry run of ATTEMPTS (300): peak of its memory, time of `loop-status`, `git fsck`.

Of the first, a run of 9 attempts and one of 3 are compared; what the journal says of agent and stages is taken off. Before
the dry run ends, it is paused, and its repository is checked.
"""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

GDNCTL = os.path.abspath(sys.argv[1])
ATTEMPTS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
FEW, MANY, ROUNDS = 3, 9, 2
LIMITS_MS = {200: 300, 10_000: 1500}
LIMIT_MB, LIMIT_STATUS_MS, LIMIT_REBUILT_MS = 64, 50, 1000
CONFIG = """target = "mine"
[targets.mine]
kernel = ["kernel.txt"]
test = ["true"]
metric = { name = "mine/ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.mine.profile]
argv = ["sh", "-c", "printf '{\\"ms\\": %s}' $(cat kernel.txt)"]
"""
AGENT = """#!/bin/bash
read -r _ _ n _
cat >/dev/null
echo $((1000 + n)) >kernel.txt
"""


def make(repo, files):
    for i in range(files):
        os.makedirs(f"{repo}/d{i % 100}", exist_ok=True)
        with open(f"{repo}/d{i % 100}/f{i}.c", "w") as f:
            f.write(f"int value_{i};\n")
    with open(f"{repo}/gdnctl.toml", "w") as f:
        f.write(CONFIG)
    with open(f"{repo}/kernel.txt", "w") as f:
        f.write("100\n")
    subprocess.run("git init -q -b main . && git config user.name b && git config user.email b@example.org && "
                   "git config gc.auto 0 && git add -A && git commit -qm base", shell=True, cwd=repo, check=True)


def records(log):
    with open(f"{log}/journal.jsonl") as f:
        return [json.loads(line) for line in f]


def evolve(folder, repo, log, attempts):
    """Seconds of the whole run, and of them those of agents and of stages."""
    begun = time.monotonic()
    done = subprocess.run([GDNCTL, "codex-loop", "--mode", "evolve", "--agent", "command", "--agent-command", f"{folder}/agent",
                           "--sleep-seconds", "0", "--perf-pairs", "3", "--seed", "1", "--operator-mix", "explore=1",
                           "--log-dir", log, "--max-attempts", str(attempts)], cwd=repo, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    took = time.monotonic() - begun
    if done.returncode not in (0, 3):
        sys.exit(done.stderr[-2000:])
    agents = stages = 0.0
    for record in records(log):
        agents += record.get("wall_s", 0) if record["type"] == "proposal" else 0
        stages += record.get("wall_s", 0) if record["type"] == "eval_stage" else 0
    return took, agents, stages


def overhead(folder, files):
    repo = f"{folder}/files-{files}"
    os.mkdir(repo)
    make(repo, files)
    added, stages, number = [], [], 0
    for _ in range(ROUNDS):
        runs = []
        for attempts in (FEW, MANY):
            number += 1
            runs.append(evolve(folder, repo, f"{folder}/log-{files}-{number}", attempts))
        few, many = runs
        each = [1000 * (many[i] - few[i]) / (MANY - FEW) for i in range(3)]
        added.append(each[0] - each[1] - each[2])
        stages.append(each[2])
    median, limit = statistics.median(added), LIMITS_MS[files]
    print(f"evolve, {files:>6,} files          min {min(added):7.1f} ms  median {median:7.1f} ms an attempt beyond agent and stages"
          f"  limit {limit} ms  x{median / limit:.2f}  (stages, with their checkouts: {statistics.median(stages):.0f} ms)", flush=True)


def peak_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def timed(words, **more):
    begun = time.monotonic()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    return 1000 * (time.monotonic() - begun), done


def status(log):
    took, done = timed([GDNCTL, "loop-status", "--log-dir", log, "--json"])
    return took, json.loads(done.stdout) if done.returncode == 0 else {}


def dry_run(folder):
    log = f"{folder}/dry"
    run = subprocess.Popen([GDNCTL, "codex-loop", "--mode", "evolve", "--dry-run", "--max-attempts", str(ATTEMPTS), "--seed", "1",
                            "--log-dir", log], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           cwd=folder, env=dict(os.environ, TMPDIR=folder))
    begun, done, early = time.monotonic(), 0, 0.0
    while run.poll() is None and done < ATTEMPTS - max(10, ATTEMPTS // 50):  # before it ends between two looks
        time.sleep(2 if ATTEMPTS > 1000 else 0.1)
        done = status(log)[1].get("spent", {}).get("attempts", 0)
        if done and done <= ATTEMPTS / 5:
            early = peak_mb(run.pid)
    with open(f"{log}/PAUSE", "w"):
        pass
    while run.poll() is None and '"type":"pause"' not in open(f"{log}/journal.jsonl", "rb").read()[-4000:].decode(errors="replace"):
        time.sleep(0.1)
    took, late = time.monotonic() - begun, peak_mb(run.pid)
    repo = glob.glob(f"{folder}/gdnctl-evolve*/repository")[0]
    _, checked = timed(["git", "fsck", "--no-dangling"], cwd=repo)
    with_index = statistics.median(status(log)[0] for _ in range(9))
    os.rename(f"{log}/state.json", f"{log}/state.away")
    rebuilt = statistics.median(status(log)[0] for _ in range(3))
    os.rename(f"{log}/state.away", f"{log}/state.json")
    os.remove(f"{log}/PAUSE")
    run.wait()
    size = os.path.getsize(f"{log}/journal.jsonl") / 1e6
    print(f"evolve, {ATTEMPTS:,} attempts          peak {late:.1f} MB ({early:.1f} at a fifth)  limit {LIMIT_MB} MB  x{late / LIMIT_MB:.2f}"
          f"  {1000 * took / max(done, 1):.0f} ms each  journal {size:.1f} MB  git fsck {'clean' if checked.stderr + checked.stdout == '' else 'NOT CLEAN'}")
    print(f"loop-status, {ATTEMPTS:,} attempts     with index {with_index:.1f} ms  limit {LIMIT_STATUS_MS} ms  x{with_index / LIMIT_STATUS_MS:.2f}"
          f"  without {rebuilt:.0f} ms  limit {LIMIT_REBUILT_MS} ms  x{rebuilt / LIMIT_REBUILT_MS:.2f}")


with tempfile.TemporaryDirectory(prefix="gdnctl-bench-") as folder:
    os.environ.update(GDNCTL_STATE_DIR=f"{folder}/state", GIT_CONFIG_GLOBAL="/dev/null")
    with open(f"{folder}/agent", "w") as f:
        f.write(AGENT)
    os.chmod(f"{folder}/agent", 0o755)
    if ATTEMPTS < 1000:
        for files in LIMITS_MS:
            overhead(folder, files)
    dry_run(folder)
