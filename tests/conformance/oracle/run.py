#!/usr/bin/env python3
# rooms: src/oracle src/harness src/commands/oracle
"""run.py GDNCTL [TALLY] [-k WORD,...] [--torch]: the oracle against the real implementations, on this machine's CPU.

levanter's own functions under JAX, transformers' functions through recorded vectors (and live where torch is there),
and tensor files of the real savers. The versions of *.txt beside this are installed into a virtual environment below
build/conformance/oracle; --torch installs torch and transformers too. Where they cannot be installed, everything is
skipped, and says why. Adds a line `passed failed skipped` per case to the file TALLY.

run.py GDNCTL --bench [--threads N] [--gradient]: times levanter's compiled chunk function beside gdnctl instead.
run.py GDNCTL --bench linear-ce [--threads N] [--bf16] [--torch]: levanter's and torch's cross-entropy beside gdnctl's.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree stays as it is

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.realpath(os.path.join(HERE, "../../../build/conformance/oracle"))
VENV = os.path.join(HOME, "venv")
PYTHON = os.path.join(VENV, "bin/python")
PIP_LIMIT_S = 400


class Unavailable(Exception):
    """Something that the machine lacks; what needs it is skipped."""


def pip(*words, limit_s=PIP_LIMIT_S):
    command = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--no-compile", "--retries", "5",
               "--timeout", "30", *words]
    try:
        got = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip was not done within {limit_s} s") from None
    if got.returncode != 0:
        last = (got.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"pip cannot install what is compared with: {last[:160]}")


def path(name):
    return os.path.join(HERE, name)


def install(torch):
    """The virtual environment, made anew when the versions change. Raises Unavailable."""
    with open(path("requirements.txt"), "rb") as f:
        wanted = hashlib.sha256(f.read()).hexdigest()
    stamp = os.path.join(VENV, "complete")
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        shutil.rmtree(VENV, ignore_errors=True)
        os.makedirs(HOME, exist_ok=True)
        made = subprocess.run([sys.executable, "-m", "venv", VENV], stdin=subprocess.DEVNULL, capture_output=True)
        if made.returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            raise Unavailable("no virtual environment (apt-get install python3-venv)")
        pip("--no-deps", "--ignore-requires-python", "-r", path("requirements.txt"))
        with open(stamp, "w") as f:
            f.write(wanted)
    if torch and subprocess.run([PYTHON, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        pip("-r", path("torch.txt"), limit_s=3600)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gdnctl")
    parser.add_argument("tally", nargs="?")
    parser.add_argument("-k", dest="only", default="", help="only cases with one of these words, separated by commas, in their name")
    parser.add_argument("--torch", action="store_true", help="install torch and transformers, and run the cases that need them")
    parser.add_argument("--bench", nargs="?", const="gdn", choices=("gdn", "linear-ce"), help="time levanter's functions beside gdnctl")
    parser.add_argument("--bf16", action="store_true", help="with --bench linear-ce: bf16 operands")
    parser.add_argument("--gradient", action="store_true", help="with --bench: its gradient too")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="with --bench: threads of both")
    words = parser.parse_args()
    try:
        install(words.torch)
    except Unavailable as why:
        # The cases are made by modules that need what could not be installed: they are counted by file.
        for name in sorted(n[:-3] for n in os.listdir(HERE) if n.startswith("cases_")):
            print(f"[conformance] oracle: {name}: skipped: {why}", flush=True)
            if words.tally:
                with open(words.tally, "a") as f:
                    f.write("0 0 1\n")
        return 0
    environment = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPYCACHEPREFIX=os.path.join(HOME, "pycache"),
                       JAX_COMPILATION_CACHE_DIR=os.path.join(HOME, "jax-cache"))
    script = {None: "suite.py", "gdn": "bench.py", "linear-ce": "bench_ce.py"}[words.bench]
    options = ["-k", words.only]
    if words.bench:
        options = [f"--threads={words.threads}"] + ["--gradient"] * words.gradient + ["--bf16"] * words.bf16
    command = [PYTHON, path(script), os.path.abspath(words.gdnctl)]
    if words.tally and not words.bench:
        command.append(os.path.abspath(words.tally))
    return subprocess.run([*command, *options], env=environment, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
