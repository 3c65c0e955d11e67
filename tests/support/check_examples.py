#!/usr/bin/env python3
"""check_examples.py [--slow] GDNCTL PAGE...: runs the examples of Markdown pages and compares what they print.

An example is a block of kind `console`: lines that begin with `$ ` are commands for bash (a line that ends in `\\`
continues), the others are what a terminal shows then. A line `...` stands for any number of lines; a command without
output is expected to succeed. A comment `<!-- setup: COMMANDS -->` is run before the blocks that follow it, in the same
folder. There `clone` makes a repository of the example kernel, and `save FILE` keeps the block before the comment.
A page with `slow` in such a comment is run with --slow, and the others without it.
Paths, ids and times differ from run to run and are not compared, nor are digits of rounding errors.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = """set -euo pipefail
save() { cp "$BLOCK" "$1"; }
slow() { :; }
clone() {
    mkdir -p tests/fixtures
    cp -r "$REPO"/{gdnctl.toml,examples,prompts,session_directives} . && cp -r "$REPO/tests/fixtures/oracle" tests/fixtures
    git init -q . && git add -A && git commit -qm 'The example kernel'
}
"""


def pieces(page):
    """(kind, text) for each block and each setup comment, in order."""
    pattern = r"^```(\w*)\n(.*?)^```$|^<!-- setup:(.*?)-->$"
    for found in re.finditer(pattern, page, re.S | re.M):
        block, text, setup = found.groups()
        yield ("setup", setup) if setup is not None else (block, text)


def examples(block):
    """(command, expected lines) for each command of a block."""
    command, expected, more = None, [], False
    for line in block.splitlines():
        if more:
            command += "\n" + line
        elif line.startswith("$ "):
            if command is not None:
                yield command, expected
            command, expected = line[2:], []
        else:
            expected.append(line)
        more = (more or line.startswith("$ ")) and line.endswith("\\")
    if command is not None:
        yield command, expected


def settled(line, folder):
    """The line without what differs from run to run."""
    line = line.replace(str(folder / "work"), "HERE").replace(str(folder / "home"), "HOME")
    line = re.sub(r"/home/(me|ada)/(kernels|gdnctl)\b", "HERE", line)
    line = re.sub(r"/home/(me|ada)\b|(?<![\w/])~(?=/)", "HOME", line)
    line = re.sub(r"gdnctl-(test|profile)-\w+-\d{8}T\d{6}-[0-9a-f]{8}", "ID", line)
    line = re.sub(r"\b[0-9a-f]{40}\b", "SHA", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([+-]\d\d:\d\d|Z)?", "TIME", line)
    if "ID" in line:
        line = re.sub(r"\b(\d+ min )?[\d.]+ m?s\b", "DURATION", line)
    if re.search(r"x budget|^ *worst|error budget|times smaller", line):
        line = re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\b\d+(e[+-]?\d+)? (?=x budget|times)|\bulp \d+", "N ", line)
    return re.sub(r" +", " ", line).rstrip()


def main(*words):
    slow = words[0] == "--slow"
    gdnctl, *pages = words[slow:]
    failed = run = 0
    for page in map(pathlib.Path, pages):
        text = page.read_text()
        if "<!-- setup:" not in text or ("<!-- setup: slow" in text) != slow:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name).resolve()
            for part in ("bin", "work", "home"):
                (folder / part).mkdir()
            (folder / "bin/gdnctl").symlink_to(pathlib.Path(gdnctl).resolve())
            env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
            env |= {"PATH": f"{folder}/bin:{env['PATH']}", "HOME": f"{folder}/home", "REPO": str(REPO), "BLOCK": f"{folder}/block"}

            def shell(script):
                done = subprocess.run(["bash", "-c", script], cwd=folder / "work", env=env, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
                return done.returncode, done.stdout

            for kind, body in pieces(text):
                if kind == "setup":
                    code, output = shell(FUNCTIONS + body)
                    if code:
                        sys.exit(f"{page}: setup failed ({code}): {body}\n{output}")
                    continue
                (folder / "block").write_text(body)
                for command, expected in examples(body) if kind == "console" else ():
                    code, output = shell(command)
                    run += 1
                    want = [settled(line, folder) for line in expected]
                    got = [settled(line, folder) for line in output.splitlines()]
                    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in want)
                    if not re.fullmatch(pattern, "".join(line + "\n" for line in got)) or (not want and code):
                        failed += 1
                        diff = "\n".join(difflib.unified_diff(want, got, "documented", "printed", lineterm="", n=1))
                        print(f"{page}: $ {command}\n(exit code {code})\n{diff[:6000]}\n")
    print(f"{run} examples, {failed} differ")
    return 1 if failed or not run else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
