#!/usr/bin/env python3
# rooms: src/services/agent src/loop src/commands/loop
"""run.py GDNCTL [TALLY] [-k WORD,...]: codex-loop with the real Codex CLI and a scripted model on loopback.

A few cases drive codex_driver, which is built beside GDNCTL. The versions of package-lock.json are installed into
build/conformance/codex; GDNCTL_TEST_CODEX=PROGRAM uses that codex instead. Without npm, or without a way to its
registry, every case is skipped, and says why. Adds a line `passed failed skipped` per case to the file TALLY.
"""
import argparse
import concurrent.futures
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True  # the tree stays as it is

import cases_agent  # noqa: F401  (each adds its cases)
import cases_ends  # noqa: F401
import cases_loop  # noqa: F401
import cases_recipe  # noqa: F401
from harness import CASES, Failed, Skipped, Try
from model_server import ModelServer

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.realpath(os.path.join(HERE, "../../../build/conformance/codex"))
NPM_LIMIT_S = 400
WORKERS = 6  # they wait most of the time


class Unavailable(Exception):
    pass


def install():
    """The path of npm's wrapper around the pinned codex. Raises Unavailable."""
    with open(os.path.join(HERE, "package-lock.json"), "rb") as f:
        wanted = hashlib.sha256(f.read()).hexdigest()
    stamp, wrapper = os.path.join(HOME, "complete"), os.path.join(HOME, "node_modules/.bin/codex")
    if os.path.exists(stamp) and open(stamp).read() == wanted and os.path.exists(wrapper):
        return wrapper
    if not shutil.which("npm"):
        raise Unavailable("npm is not installed (apt-get install npm)")
    shutil.rmtree(HOME, ignore_errors=True)
    os.makedirs(HOME)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(HERE, name), HOME)
    try:
        got = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=2",
                              "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"], cwd=HOME, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=NPM_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm was not done within {NPM_LIMIT_S} s") from None
    if got.returncode != 0 or not os.path.exists(wrapper):
        said = [line.removeprefix("npm error ") for line in got.stderr.splitlines() if line.startswith("npm error ")]
        reason = next((line for line in said if not line.startswith(("code ", "errno ", "syscall ", "A complete log"))), "no reason given")
        raise Unavailable(f"npm cannot install codex: {reason[:160]}")
    with open(stamp, "w") as f:
        f.write(wanted)
    return wrapper


class Suite:
    def __init__(self, gdnctl, tally):
        self.gdnctl, self.tally = os.path.abspath(gdnctl), tally
        self.driver = os.path.join(os.path.dirname(self.gdnctl), "codex_driver")
        self.counts, self.lock = [0, 0, 0], threading.Lock()
        self.folder = tempfile.mkdtemp(prefix="gdnctl-conformance.")

    def note(self, verdict, name, text=""):
        with self.lock:
            self.counts[verdict] += 1
            if self.tally:
                with open(self.tally, "a") as f:
                    f.write(["1 0 0", "0 1 0", "0 0 1"][verdict] + "\n")
            print(f"[conformance] codex: {name}: " + ["ok", "FAILED", "skipped"][verdict] + text, flush=True)

    def one(self, function, codex, server):
        folder = os.path.join(self.folder, function.__name__)
        os.makedirs(folder)
        started, trial = time.monotonic(), None
        try:
            trial = Try(self.gdnctl, self.driver, codex, server, folder)
            function(trial)
            left = trial.left()
            if left:
                raise Failed(f"left running: {left}")
            self.note(0, function.__name__, f" ({time.monotonic() - started:.1f} s)")
        except Skipped as why:
            self.note(2, function.__name__, f": {why}")
        except Failed as why:
            self.note(1, function.__name__, f"\n{why}\n{trial.last if trial else ''}")
        except Exception:
            self.note(1, function.__name__, f"\n{traceback.format_exc()}\n{trial.last if trial else ''}")
        finally:
            if trial:
                trial.end()
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, chosen):
        try:
            codex = os.environ.get("GDNCTL_TEST_CODEX") or install()
        except Unavailable as why:
            for function in chosen:
                self.note(2, function.__name__, f": {why}")
            return
        server = ModelServer()
        try:
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                list(pool.map(lambda function: self.one(function, codex, server), chosen))
        finally:
            server.close()

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gdnctl")
    parser.add_argument("tally", nargs="?")
    parser.add_argument("-k", dest="only", default="", help="only cases with one of these words, separated by commas, in their name")
    words = parser.parse_args()
    # Also what a shell ignores for us in the background: else the programs under test would, too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    suite = Suite(words.gdnctl, words.tally)
    for program in filter(None, (suite.gdnctl, suite.driver, os.environ.get("GDNCTL_TEST_CODEX"))):
        if not os.path.exists(program):
            print(f"[conformance] codex: there is no {program} (./dev conformance builds gdnctl and codex_driver)", flush=True)
            return 2
    try:
        suite.run([c for c in CASES if any(w in c.__name__ for w in words.only.split(","))])
    finally:
        suite.close()
    print(f"[conformance] codex: {suite.counts[0]} ok, {suite.counts[1]} failed, {suite.counts[2]} skipped", flush=True)
    return 1 if suite.counts[1] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(70)  # 1 is for failed cases, which are counted
