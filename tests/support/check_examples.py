#!/usr/bin/env python3
"""check_examples.py GDNCTL PAGE...: runs the examples of Markdown pages and compares what they print.

An example is a block of kind `console`: lines that begin with `$ ` are commands for bash (a line that ends in `\\`
continues), the others are what a terminal shows then. A line `...` stands for any number of lines; a command without
output is expected to succeed. A comment `<!-- setup: COMMANDS -->` is run before the blocks that follow it, in the same
folder. There `clone` makes a repository of the example kernel, and `save FILE` keeps the block before the comment.
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
    line = line.replace(str(folder), "HERE").replace(os.environ["HOME"], "HOME")
    line = re.sub(r"/home/(me|ada)/(kernels|gdnctl)\b", "HERE", line)
    line = re.sub(r"/home/(me|ada)\b|(?<![\w/])~(?=/)", "HOME", line)
    line = line.replace(os.environ["XDG_STATE_HOME"], "HOME/.local/state")
    line = re.sub(r"gdnctl-(test|profile)-\w+-\d{8}T\d{6}-[0-9a-f]{8}", "ID", line)
    line = re.sub(r"\b[0-9a-f]{40}\b", "SHA", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([+-]\d\d:\d\d|Z)?", "TIME", line)
    if "ID" in line:
        line = re.sub(r"\b(\d+ min )?[\d.]+ m?s\b", "DURATION", line)
    if re.search(r"x budget|^ *worst|error budget|times smaller", line):
        line = re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\b\d+(e[+-]?\d+)? (?=x budget|times)|\bulp \d+", "N ", line)
    return re.sub(r" +", " ", line).rstrip()


def main(gdnctl, *pages):
    failed = run = 0
    for page in map(pathlib.Path, pages):
        text = page.read_text()
        if "<!-- setup:" not in text:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bin_folder = pathlib.Path(folder, "bin")
            work = pathlib.Path(folder, "work").resolve()
            bin_folder.mkdir(), work.mkdir()
            (bin_folder / "gdnctl").symlink_to(pathlib.Path(gdnctl).resolve())
            block_file = pathlib.Path(folder, "block")
            env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "REPO": str(REPO), "BLOCK": str(block_file)}

            def shell(script):
                done = subprocess.run(["bash", "-c", script], cwd=work, env=env, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
                return done.returncode, done.stdout

            for kind, body in pieces(text):
                if kind == "setup":
                    code, output = shell(FUNCTIONS + body)
                    if code:
                        sys.exit(f"{page}: setup failed ({code}): {body}\n{output}")
                    continue
                block_file.write_text(body)
                for command, expected in examples(body) if kind == "console" else ():
                    code, output = shell(command)
                    run += 1
                    want = [settled(line, work) for line in expected]
                    got = [settled(line, work) for line in output.splitlines()]
                    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in want)
                    if not re.fullmatch(pattern, "".join(line + "\n" for line in got)) or (not want and code):
                        failed += 1
                        diff = "\n".join(difflib.unified_diff(want, got, "documented", "printed", lineterm="", n=1))
                        print(f"{page}: $ {command}\n(exit code {code})\n{diff[:6000]}\n")
    print(f"{run} examples, {failed} differ")
    return 1 if failed or not run else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
