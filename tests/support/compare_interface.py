#!/usr/bin/env python3
"""compare_interface.py BEFORE [AFTER]: what scripts rely on of a gdnctl, as JSON, or what differs between two.

Of every command: its headings, options (names, value, default, choices), arguments and exit codes, from `--help` and the
manual pages; the schemas that the binary names; and exit code and JSON structure of calls that need nothing. BEFORE and
AFTER are binaries or files that this script has written. Exit code 1: they differ.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

PROBES = ["", "nonsense", "lint-log", "lint-log --json", "lint-log --nonsense", "config show --json", "config init",
          "loop-status", "loop-status --json", "loop-report", "loop-explain 1", "policy show --json", "prompts list --json",
          "prompts show nonsense", "cluster list --json", "cluster check nonsense", "ray-list --cluster local --json",
          "ray-wait nonsense --cluster local", "ray-logs nonsense --cluster local", "ray-stop nonsense --cluster local",
          "ray-test --dry-run --json", "ray-profile --size 7b", "oracle cases gdn --json", "oracle compare gdn --out nonsense",
          "oracle verify gdn", "oracle verify gdn --kernel builtin:nonsense", "oracle selftest nonsense", "log init --json", "log show last",
          "log summary --json", "log context", "codex-loop", "codex-loop --iterations 0", "codex-loop --iterations 1 --model",
          "codex-loop --iterations 1 --validation-mode off --perf-mode required", "dev-tpu-list --cluster local --json",
          "dev-tpu-release --tpu-name nonsense", "dev-tpu-execute --tpu-name nonsense true", "hf-download-trace",
          "wandb-download-trace nonsense", "completion nonsense", "--version --json"]


class Program:
    def __init__(self, binary):
        self.binary = os.path.abspath(binary)
        self.folder = tempfile.TemporaryDirectory()
        self.env = {"PATH": os.environ["PATH"], "HOME": self.path("home"), "COLUMNS": "100", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        os.makedirs(self.path("home"))
        os.makedirs(self.path("cwd"))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def call(self, *words):
        done = subprocess.run([self.binary, *words], env=self.env, cwd=self.path("cwd"), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        return done.returncode, done.stdout.decode(errors="replace")


def plain(roff):
    return roff.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


def notes_of(text):
    """What stands in the last parentheses: "required", "default: 5", "environment: X"."""
    found = re.search(r" \(((?:required|repeatable|default: |environment: ).*)\)$", text)
    return found.group(1).split("; ") if found else []


def page(text):
    """A manual page: sections in order, each with its rows {tag: text}."""
    sections, name, tag = {}, None, None
    for line in plain(text).split("\n"):
        if line.startswith(".SH "):
            name, tag = line[4:].strip('"'), None
            sections[name] = {}
        elif line.startswith(".B ") and name:
            tag = line[3:]
            sections[name].setdefault(tag, [])
        elif tag and not line.startswith("."):
            sections[name][tag].append(line)
    return sections


def command(sections, help_text):
    facts = {"headings": [line[:-1] for line in help_text.split("\n") if re.fullmatch(r"[A-Z][^.`]*:", line)],
             "usage": re.search(r"Usage:\n((?:  .*\n)+)", help_text).group(1).split(), "options": {}, "arguments": [], "exit_codes": {}}
    for name, rows in sections.items():
        for tag, lines in rows.items():
            if name == "EXIT STATUS":
                facts["exit_codes"][tag] = " ".join(lines)
            elif name == "ARGUMENTS":
                facts["arguments"].append(tag)
            elif tag.startswith("-"):
                choices = [line.split(":")[0] for line in lines[1:]]
                facts["options"][tag] = {"group": name, "notes": notes_of(lines[0] if lines else ""), "choices": choices}
    return facts


def shape(value):
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return value if isinstance(value, str) and value.startswith("gdnctl.") else type(value).__name__


def probe(program, words):
    status, out = program.call(*words.split())
    try:
        return {"exit": status, "json": shape(json.loads(out))}
    except ValueError:
        return {"exit": status}


def interface(binary):
    if binary.endswith(".json"):
        with open(binary) as file:
            return json.load(file)
    program = Program(binary)
    program.call("__docs", "man", "--out", program.path("man"))
    facts = {"commands": {}, "schemas": [], "probes": {}}
    names = re.findall(r"^## gdnctl (.+)$", program.call("__docs", "markdown")[1], re.MULTILINE)
    groups = {name.split()[0] for name in names if " " in name}
    for name in names:
        if name not in groups:
            with open(program.path("man/gdnctl-" + name.replace(" ", "-") + ".1")) as file:
                facts["commands"][name] = command(page(file.read()), program.call(*name.split(), "--help")[1])
    with open(binary, "rb") as file:
        facts["schemas"] = sorted({found.decode() for found in re.findall(rb"gdnctl\.[a-z][a-z-]*/[0-9]+", file.read())})
    for words in PROBES:
        facts["probes"][words] = probe(program, words)
    return facts


def differences(before, after, at=""):
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        lines = [f"- {at}/{key}" for key in before if key not in after] + [f"+ {at}/{key}" for key in after if key not in before]
        for key in before:
            if key in after:
                lines += differences(before[key], after[key], f"{at}/{key}")
        return lines
    return [f"! {at}: {json.dumps(before)} -> {json.dumps(after)}"]


def main():
    if len(sys.argv) == 2:
        print(json.dumps(interface(sys.argv[1]), indent=1))
        return 0
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    found = differences(interface(sys.argv[1]), interface(sys.argv[2]))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
