#!/usr/bin/env python3
"""programs.py ROOT: finds programs that the scripts call and that neither `./dev` installs nor Debian's minimal base has.

Reads the shell scripts of ROOT (dev, .ci/run, tests/), and the command lines in its Python and C++ tests. programs.txt
says which package brings a program; `./dev` says which packages it installs for which of its words. A program that a
script looks for with `command -v` may be missing. Prints one line per violation; exits with 1 if there are any.
"""
import os
import re
import subprocess
import sys

WORDS = {"tests/bench": "bench", "tests/lint": "lint", "tests/conformance": "conformance",
         "tests/support/sshd_host.sh": "conformance", "tests/binary/bare.sh": "bare"}  # others: test
BUILTINS = set(": . [ alias bg break builtin caller cd command compgen complete continue declare dirs disown echo enable "
               "eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf "
               "pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset "
               "ulimit umask unalias unset wait".split())
BEFORE_COMMAND = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "coproc"}
# Words before the command that they run, with their options that take a value.
WRAPPERS = {"builtin": "", "command": "", "env": "-u -C -S", "exec": "-a", "expect": "", "launch": "", "nice": "-n",
            "nohup": "", "setsid": "", "sudo": "-u", "taskset": "", "timeout": "-k -s",
            "xargs": "-d -I -n -P -L -a", "as_root": ""}
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*$")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")


class Shell:
    """The commands of a shell script, in the order in which they appear; not a full grammar, but enough for scripts."""

    def __init__(self, text):
        self.text, self.at, self.found, self.functions, self.optional, self.heredocs = text, 0, [], set(), set(), []
        self.commands("")

    def nested(self, text):
        inner = Shell(text)
        self.found += inner.found
        self.functions |= inner.functions
        self.optional |= inner.optional

    def peek(self, n=1):
        return self.text[self.at:self.at + n]

    def commands(self, stop):
        """Reads commands until `stop` (")", or "" for the end of the text)."""
        words, in_case, pattern = [], [], False
        while self.at < len(self.text):
            c = self.peek()
            if c in " \t" or self.peek(2) == "\\\n":
                self.at += 2 if c == "\\" else 1
            elif c == "#":  # a word that has begun takes its own
                self.at = (self.text + "\n").find("\n", self.at)
            elif c == "\n" or c in ";&|":
                self.command(words)
                if self.peek(2) == ";;" and in_case:
                    pattern = True
                self.at += 2 if self.peek(2) in (";;", "&&", "||", "|&") else 1
                words = []
                if c == "\n":
                    self.skip_heredocs()
            elif c == ")":
                self.at += 1
                if pattern:
                    words, pattern = [], False
                elif stop == ")":
                    self.command(words)
                    return
                else:
                    self.command(words)
                    words = []
            elif c == "(":
                if pattern:
                    self.at += 1
                elif self.peek(2) == "((" and words in ([], ["for"]):
                    self.arithmetic()
                elif len(words) == 1 and re.match(r"\(\s*\)", self.text[self.at:]):
                    self.functions.add(words[0])
                    self.at = self.text.find(")", self.at) + 1
                    words = []
                else:
                    self.at += 1
                    self.command(words)
                    self.commands(")")
                    words = ["done"]
            elif c in "<>" and self.peek(2) not in ("<(", ">("):
                self.redirection()
            else:
                word = self.word()
                if word in BEFORE_COMMAND and not words:
                    continue
                if pattern and word == "esac" or word == "esac" and not words:
                    in_case.pop()
                    words, pattern = ["esac"], False
                elif not pattern:
                    if not (words == [] and word is not None and ASSIGNMENT.match(word)):
                        words.append(word)
                    if len(words) >= 3 and words[0] == "case" and word == "in":
                        in_case.append(True)
                        words, pattern = [], True
                    elif words and words[0] == "[[" and word == "[[":
                        self.condition()
        self.command(words)

    def condition(self):
        while self.at < len(self.text) and not re.match(r"\s\]\]", self.text[self.at:]):
            if self.peek() in " \t\n<>()&|;!":
                self.at += 1
            else:
                self.word()
        self.at += 3

    def redirection(self):
        here = re.match(r"<<(-?)\s*(['\"\\]?)(\w+)['\"]?", self.text[self.at:])
        if here and self.peek(3) != "<<<":
            self.heredocs.append((here[3], here[2] == "", here[1] == "-"))
            self.at += here.end()
            return
        while self.peek() and self.peek() in "<>&|":
            self.at += 1
        while self.peek() == " ":
            self.at += 1
        if self.peek() not in ("", "\n"):
            self.word()

    def skip_heredocs(self):
        for end, expands, tabs in self.heredocs:
            start = self.at
            while self.at < len(self.text):
                stop = (self.text + "\n").find("\n", self.at)
                line = self.text[self.at:stop]
                self.at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
            if expands:
                self.nested('"' + self.text[start:self.at].replace('"', " ") + '"')
        self.heredocs = []

    def word(self):
        """The next word; None if it is not known before the script runs."""
        text, known = "", True
        while self.at < len(self.text):
            c = self.peek()
            if self.peek(2) in ("$(", "<(", ">(", "${") or c == "`":
                known = False
                self.expansion()
            elif c == "'" or self.peek(2) == "$'":
                self.at += 1 if c == "'" else 2
                end = self.text.find("'", self.at)
                if c == "$":
                    end = re.compile(r"(?:\\.|[^'\\])*", re.S).match(self.text, self.at).end()
                text += self.text[self.at:end]
                self.at = end + 1
            elif c == '"':
                inner, sure = self.quoted()
                text, known = text + inner, known and sure
            elif c == "\\":
                text += self.text[self.at + 1:self.at + 2]
                self.at += 2
            elif c == "(" and ASSIGNMENT.fullmatch(text):  # an array
                self.at += 1
                self.array()
                return text
            elif c in " \t\n;&|<>()":
                break
            else:
                known = known and c != "$"
                text += c
                self.at += 1
        return text if known or ASSIGNMENT.match(text) else None

    def array(self):
        while self.at < len(self.text) and self.peek() != ")":
            if self.peek() == "#":
                self.at = self.text.find("\n", self.at)
            elif self.peek() in " \t\n<>&|;(":
                self.at += 1
            else:
                self.word()
        self.at += 1

    def quoted(self):
        text, known = "", True
        self.at += 1
        while self.at < len(self.text) and self.peek() != '"':
            if self.peek(2) in ("$(", "${") or self.peek() == "`":
                known = False
                self.expansion()
            elif self.peek() == "\\":
                text += self.text[self.at + 1:self.at + 2]
                self.at += 2
            else:
                known = known and self.peek() != "$"
                text += self.peek()
                self.at += 1
        self.at += 1
        return text, known

    def expansion(self):
        if self.peek(3) == "$((":
            self.at += 1
            self.arithmetic()
            return
        if self.peek() == "`":
            end = self.text.find("`", self.at + 1)
            self.nested(self.text[self.at + 1:end])
            self.at = end + 1
        elif self.peek(2) == "${":
            self.at += 2
            while self.at < len(self.text) and self.peek() != "}":
                if self.peek(2) in ("$(", "${") or self.peek() == "`":
                    self.expansion()
                elif self.peek() == '"':
                    self.quoted()
                else:
                    self.at += 2 if self.peek() == "\\" else 1
            self.at += 1
        else:
            self.at += 2
            self.commands(")")

    def arithmetic(self):
        depth = 0
        while self.at < len(self.text):
            if self.peek(2) in ("$(", "${"):
                self.expansion()
                continue
            depth += {"(": 1, ")": -1}.get(self.peek(), 0)
            self.at += 1
            if depth == 0:
                return

    def command(self, words):
        """Takes note of the program that these words call."""
        if not words or words[0] is None or words[0] in ("for", "done", "fi", "esac", "}", "case", "select", "in"):
            return
        first = words[0]
        if first == "function" and len(words) > 1:
            self.functions.add(words[1])
            return
        if first == "trap" and len(words) > 2 and words[1]:
            self.nested(words[1])
        if first in ("sh", "bash", "dash") and len(words) > 2 and words[1] and re.fullmatch(r"-l?c", words[1]) and words[2]:
            self.nested(words[2])
        for n, word in enumerate(words[:-1]):
            if first == "find" and word in ("-exec", "-execdir"):
                self.command(words[n + 1:])
        self.found.append(first)
        if first == "command" and words[1:2] in (["-v"], ["-V"]):
            self.optional |= {word for word in words[2:] if word}
        elif first in WRAPPERS:
            self.command(self.wrapped(words[1:], WRAPPERS[first].split()))

    @staticmethod
    def wrapped(words, valued):
        while words and words[0] is not None:
            if words[0] in valued:
                words = words[2:]
            elif words[0].startswith("-") or ASSIGNMENT.match(words[0]) or re.fullmatch(r"[0-9.]+[smh]?", words[0]):
                words = words[1:]
            else:
                break
        return words


def literal_commands(text, suffix):
    """Programs by name at the start of a list of words, in Python or C++."""
    if suffix == ".py":
        return re.findall(r"(?:subprocess\.\w+|\bPopen|\brun|check_output|check_call)\(\s*\[\s*[\"']([^\"'/ ]+)[\"']", text)
    return re.findall(r"argv = \{\"([^\"/ ]+)\"", text) + re.findall(r"\bsystem\(\"([\w.+-]+)", text)


def scripts(root):
    for top in ("dev", ".ci/run", "tests"):
        path = os.path.join(root, top)
        for folder, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
            if "/fixtures" in folder:
                continue
            for name in sorted(names):
                file = os.path.join(folder, name)
                suffix = os.path.splitext(name)[1]
                if os.path.isfile(file) and (suffix in (".sh", ".py", ".cpp", ".h") or top != "tests"):
                    yield os.path.relpath(file, root), suffix


def word_of(path):
    return next((word for top, word in WORDS.items() if (path + "/").startswith(top + "/")), "test" if path.startswith("tests/") else "all")


def packages(root, word):
    script = open(os.path.join(root, "dev")).read()
    lists = re.search(r"^packages_of\(\) \{.*?^\}", script, re.M | re.S)
    words = ["run", "test", "lint", "fmt", "bench", "conformance", "bare"] if word == "all" else [word, "run"]
    # As on a machine that has none of them yet.
    code = "die() { exit 1; }; command() { false; }\n" + lists[0] + "\n" + "\n".join("packages_of " + w for w in words)
    return set(subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split())


def main():
    root = sys.argv[1]
    brought = {}
    for line in open(os.path.join(root, "tests/structure/programs.txt")):
        if line.strip() and not line.startswith("#"):
            package, programs = line.split(":")
            for program in programs.split():
                brought.setdefault(program, set()).add(package)
    calls, functions = [], set()
    for path, suffix in scripts(root):
        text = open(os.path.join(root, path), encoding="utf-8").read()
        if suffix in (".py", ".cpp", ".h"):
            calls.append((path, literal_commands(text, suffix), set()))
        else:
            shell = Shell(text)
            functions |= shell.functions
            calls.append((path, shell.found, shell.optional))
    installed = {word: packages(root, word) | {"base", "own"} for word in {word_of(path) for path, _, _ in calls}}
    bad = []
    for path, found, optional in calls:
        word = word_of(path)
        for name in sorted(set(found) - BUILTINS - functions - optional):
            packages_of_name = brought.get(name, set())
            if not NAME.match(name) or name.isdigit() or packages_of_name & installed[word]:
                continue
            if packages_of_name:
                bad.append(f"{path}: calls {name} of {', '.join(sorted(packages_of_name))}, which `./dev deps {word}` "
                           "does not install")
            else:
                bad.append(f"{path}: calls {name}, which no package in tests/structure/programs.txt brings")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
