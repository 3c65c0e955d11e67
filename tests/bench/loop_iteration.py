#!/usr/bin/env python3
"""loop_iteration.py GDNCTL [ITERATIONS]: what codex-loop adds to an iteration beyond the agent's own time, in a
repository of 10,000 files, as a user runs it; and the peak of its memory over ITERATIONS (1000) on a small one.

A run of 24 iterations and one of 4 are taken in turns, and 20 times the agent alone between them: their difference.
"""
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

GDNCTL = os.path.abspath(sys.argv[1])
ITERATIONS = sys.argv[2] if len(sys.argv) > 2 else "1000"
FILES, FEW, MANY, ROUNDS, LIMIT_MS, LIMIT_MB = 10_000, 4, 24, 5, 200, 64
AGENT = """#!/bin/sh
cat >/dev/null
echo "int changed = $$;" >d7/f7.c
exec git commit -qm change d7/f7.c
"""


def make(repo, files):
    for i in range(files):
        os.makedirs(f"{repo}/d{i % 100}", exist_ok=True)
        with open(f"{repo}/d{i % 100}/f{i}.c", "w") as f:
            f.write(f"int value_{i};\n")
    with open(f"{repo}/prompt.md", "w") as f:
        f.write("iteration {{ITERATION}}\n")
    subprocess.run("git init -q -b main . && git config user.name b && git config user.email b@example.org && "
                   "git config gc.auto 0 && git add -A && git commit -qm base", shell=True, cwd=repo, check=True)


def loop(folder, repo, isolation, iterations):
    begun = time.monotonic()
    done = subprocess.run([GDNCTL, "codex-loop", "--prompt-file", "prompt.md", "--agent", "command", "--agent-command",
                           f"{folder}/agent", "--sleep-seconds", "0", "--isolation", isolation, "--iterations", str(iterations)],
                          cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    return time.monotonic() - begun


def alone(folder, repo, times):
    begun = time.monotonic()
    for _ in range(times):
        subprocess.run(["bash", "-c", f"{folder}/agent"], cwd=repo, stdin=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


with tempfile.TemporaryDirectory(prefix="gdnctl-bench-") as folder:
    os.environ.update(GDNCTL_STATE_DIR=f"{folder}/state", GIT_CONFIG_GLOBAL="/dev/null")
    with open(f"{folder}/agent", "w") as f:
        f.write(AGENT)
    os.chmod(f"{folder}/agent", 0o755)
    os.mkdir(f"{folder}/large")
    make(f"{folder}/large", FILES)
    for isolation in ("inplace", "worktree"):
        loop(folder, f"{folder}/large", isolation, 1)
        added, agents = [], []
        for _ in range(ROUNDS):
            few = loop(folder, f"{folder}/large", isolation, FEW)
            many = loop(folder, f"{folder}/large", isolation, MANY)
            agents.append(1000 * alone(folder, f"{folder}/large", MANY - FEW) / (MANY - FEW))
            added.append(1000 * (many - few) / (MANY - FEW) - agents[-1])
        median = statistics.median(added)
        print(f"codex-loop, {isolation + ', 10,000 files':<24} min {min(added):6.1f} ms  median {median:6.1f} ms an iteration"
              f" beyond the agent's {statistics.median(agents):.1f} ms  limit {LIMIT_MS} ms  x{median / LIMIT_MS:.2f}", flush=True)
    os.mkdir(f"{folder}/small")
    make(f"{folder}/small", 10)
    took = loop(folder, f"{folder}/small", "worktree", ITERATIONS)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    logs = subprocess.run(["du", "-sk", f"{folder}/small/.agents"], stdout=subprocess.PIPE, text=True).stdout.split()[0]
    print(f"codex-loop, {ITERATIONS + ' iterations':<24} peak {peak:.1f} MB (git and agent included)  limit {LIMIT_MB} MB"
          f"  x{peak / LIMIT_MB:.2f}  {1000 * took / int(ITERATIONS):.0f} ms each  log directory {int(logs) / 1024:.1f} MB")
