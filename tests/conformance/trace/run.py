#!/usr/bin/env python3
# rooms: src/trace src/commands/traces
"""run.py GDNCTL [TALLY] [-k WORD,...]: `gdnctl trace` against xprof, jax's profiler and kineto, on this machine's CPU.

Installs requirements.txt into build/conformance/trace/venv with Python 3.12, which jax 0.12 needs, and runs suite.py
there. If that is not possible, the cases that need xprof or jax are skipped and say why; the others still run. Adds a
line `passed failed skipped` per case to the file TALLY.

The sample traces are read from GDNCTL_TEST_TRACES, or from ../shared/data/traces beside the checkout.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # leave the source tree unchanged

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.realpath(os.path.join(HERE, "../../../build/conformance/trace"))
VENV = os.path.join(HOME, "venv")
PYTHON = os.path.join(VENV, "bin/python")
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
PIP_LIMIT_S = 600


class Unavailable(Exception):
    """Something that this machine lacks. The cases that need it are skipped."""


def output(*command, **environment):
    """What a command prints, or None if it is missing or fails."""
    try:
        got = subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return got.stdout.strip() if got.returncode == 0 else None


def python312():
    """The path of a Python 3.12, from PATH, pyenv or uv."""
    where = "import sys; print(sys.executable)"
    versions = (output("pyenv", "versions", "--bare") or "").split()
    newest = max((v for v in versions if v.startswith("3.12.")), key=lambda v: int(v.rsplit(".", 1)[1]), default="")
    found = output("python3.12", "-c", where) or (newest and output("pyenv", "which", "python3.12", PYENV_VERSION=newest))
    found = found or output("uv", "python", "find", "--no-python-downloads", "3.12")
    if not found:
        raise Unavailable("no Python 3.12 on PATH, in pyenv or in uv")
    return found


def install():
    """Makes the virtual environment, again if the requirements have changed."""
    with open(REQUIREMENTS, "rb") as f:
        wanted = hashlib.sha256(f.read()).hexdigest()
    stamp = os.path.join(VENV, "complete")
    if os.path.exists(stamp) and open(stamp).read() == wanted:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    os.makedirs(HOME, exist_ok=True)
    if output(python312(), "-m", "venv", VENV) is None:
        raise Unavailable("Python 3.12 cannot make a virtual environment")
    command = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--retries", "5", "--timeout", "30",
               "--no-deps", "-r", REQUIREMENTS]
    try:
        got = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip did not finish within {PIP_LIMIT_S} s") from None
    if got.returncode != 0:
        last = (got.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"pip cannot install xprof and jax: {last[:160]}")
    with open(stamp, "w") as f:
        f.write(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gdnctl")
    parser.add_argument("tally", nargs="?")
    parser.add_argument("-k", dest="only", default="", help="run only cases with one of these words, separated by commas, in their name")
    words = parser.parse_args()
    python, options = PYTHON, []
    try:
        install()
    except Unavailable as why:
        python, options = sys.executable, ["--without", str(why)]
    command = [python, "-W", "ignore::DeprecationWarning", os.path.join(HERE, "suite.py"), os.path.abspath(words.gdnctl)]
    command += ["-k", words.only, *options]
    if words.tally:
        command += ["--tally", os.path.abspath(words.tally)]
    environment = dict(os.environ, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3", PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
