#!/usr/bin/env python3
"""A codex that plays a scenario: no network, no model, the outside of the real program.

The folder in GDNCTL_FAKE_CODEX holds `scenario` (one step a line, see Play) and gets a line of `calls.jsonl` for every
call: argv, standard input, environment, working directory. GDNCTL_FAKE_CODEX_OLD=1: a program from before it could list
its models. Where `scenario.N` exists, it is the one of the N-th call with a prompt.
"""
import json
import os
import signal
import subprocess
import sys
import time
import uuid

FOLDER = os.environ.get("GDNCTL_FAKE_CODEX", "")
OLD = os.environ.get("GDNCTL_FAKE_CODEX_OLD") == "1"
MODELS = {"models": [
    {"slug": "model-a", "default_reasoning_level": "medium", "visibility": "list", "apply_patch_tool_type": "freeform",
     "supported_reasoning_levels": [{"effort": e} for e in ("low", "medium", "high", "xhigh")]},
    {"slug": "model-b", "default_reasoning_level": "low", "visibility": "list", "apply_patch_tool_type": "freeform",
     "supported_reasoning_levels": [{"effort": e} for e in ("low", "medium", "high", "xhigh", "max", "ultra")]}]}


def leave(code, text):
    print(text, file=sys.stderr)
    sys.exit(code)


class Words:
    """The options of `exec` as the real program takes them."""

    VALUES = {"-C", "-o", "-m", "-c", "-p", "-s", "--disable", "--enable", "--add-dir", "--color"}
    FLAGS = {"--json", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-"}

    def __init__(self, words):
        self.options, self.resume = {}, None
        words = list(words)
        before_resume = {"-C", "-s", "-p", "--add-dir", "--color"}
        while words:
            word = words.pop(0)
            if word == "resume":
                self.resume = words.pop(0)
            elif word == "--search" and OLD:
                self.options[word] = True
            elif word in self.VALUES:
                if self.resume and word in before_resume:
                    leave(2, f"error: unexpected argument '{word}' found")
                self.options[word] = words.pop(0)
            elif word in self.FLAGS:
                self.options[word] = True
            else:
                leave(2, f"error: unexpected argument '{word}' found")
        if self.options.get("--disable", "unbounded_connection_retries") != "unbounded_connection_retries":
            leave(1, f"Error: Unknown feature flag: {self.options['--disable']}")


class Play:
    def __init__(self, words):
        self.words = words
        self.thread = words.resume or str(uuid.uuid4())
        self.commands, self.message, self.rollout_file = [], None, None
        signal.signal(signal.SIGINT, self.interrupted)

    def interrupted(self, *_):
        for child in self.commands:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.rollout({"type": "event_msg", "payload": {"type": "turn_aborted", "reason": "interrupted"}})
        os._exit(1)

    def out(self, line):
        data = line if isinstance(line, bytes) else (line + "\n").encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def rollout(self, record):
        if self.rollout_file is None:
            if "--ephemeral" in self.words.options:
                return
            home = os.environ.get("CODEX_HOME") or os.path.join(os.environ["HOME"], ".codex")
            day = os.path.join(home, "sessions", time.strftime("%Y/%m/%d"))
            os.makedirs(day, exist_ok=True)
            known = [n for n in os.listdir(day) if n.endswith(f"-{self.thread}.jsonl")]
            name = known[0] if known else time.strftime("rollout-%Y-%m-%dT%H-%M-%S-") + self.thread + ".jsonl"
            self.rollout_file = open(os.path.join(day, name), "a")
        print(json.dumps({"timestamp": "2026-11-20T12:00:00.000Z", **record}, separators=(",", ":")),
              file=self.rollout_file, flush=True)

    def step(self, word, rest):
        cwd = self.words.options.get("-C", ".")
        if word == "thread":  # thread [ID]: the first event
            self.thread = rest or self.thread
            self.out(json.dumps({"type": "thread.started", "thread_id": self.thread}, separators=(",", ":")))
            self.out('{"type":"turn.started"}')
        elif word == "event":
            self.out(rest)
        elif word == "raw":  # with Python escapes; adds no newline
            self.out(rest.encode().decode("unicode_escape").encode("latin-1"))
        elif word == "long":  # an event of N bytes
            self.out(json.dumps({"type": "item.completed", "item": {"id": "item_9", "type": "agent_message", "text": "x" * int(rest)}}))
        elif word == "flood":  # N bytes to both streams
            for stream in (sys.stdout.buffer, sys.stderr.buffer):
                stream.write((b"y" * 99 + b"\n") * (int(rest) // 100))
                stream.flush()
        elif word == "err":
            print(rest, file=sys.stderr, flush=True)
        elif word == "usage":  # input cached output reasoning: one model response
            numbers = dict(zip(("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens"), map(int, rest.split())))
            self.rollout({"type": "token_usage_record", "payload": {"response_id": "r", "usage": numbers}})
        elif word == "answers":  # N responses, each with a tool call and its output, from a server that does not report usage
            for _ in range(int(rest)):
                for kind in ("reasoning", "function_call", "function_call_output"):
                    self.rollout({"type": "response_item", "payload": {"type": kind, "call_id": "c"}})
        elif word == "rollout":
            self.rollout(json.loads(rest))
        elif word == "failed":  # MESSAGE [|| codex_error_info as JSON]: fails the turn
            message, _, info = rest.partition(" || ")
            if info:
                self.rollout({"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": None, "error": {
                    "message": message, "codex_error_info": json.loads(info)}}})
            self.out(json.dumps({"type": "error", "message": message}))
            self.out(json.dumps({"type": "turn.failed", "error": {"message": message}}))
        elif word == "message":
            self.message = rest
            self.out(json.dumps({"type": "item.completed", "item": {"id": "item_7", "type": "agent_message", "text": rest}}))
        elif word == "completed":  # input cached output reasoning
            keys = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
            self.out(json.dumps({"type": "turn.completed", "usage": dict(zip(keys, map(int, rest.split())))}))
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "write":
            name, _, text = rest.partition(" ")
            with open(os.path.join(cwd, name), "w") as f:
                f.write(text + "\n")
        elif word == "git":  # a shell command in the tree
            subprocess.run(["/bin/sh", "-c", f"git {rest}"], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
        elif word == "commit":
            subprocess.run(["git", "add", "-A"], cwd=cwd, check=True)
            subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", rest], cwd=cwd, check=True)
        elif word == "command":  # a tool command in its own session, which only SIGINT to us ends
            self.commands.append(subprocess.Popen(["/bin/sh", "-c", rest], start_new_session=True, cwd=cwd, stdout=subprocess.DEVNULL))
        elif word == "survivor":  # session | double | bare | holds: a process that outlives us
            self.survivor(rest)
        elif word == "ignore":
            signal.signal(getattr(signal, rest), signal.SIG_IGN)
        elif word == "panic":
            leave(101, "thread 'main' panicked at src/main.rs:1:1:")
        elif word == "exit":
            self.end(int(rest))
        elif word == "signal":
            os.kill(os.getpid(), int(rest))
        elif word:
            leave(70, f"fake_codex: no such step: {word}")

    def survivor(self, kind):
        if kind == "bare":  # no environment, no parent, no session
            shell = "env -i setsid sleep 600 >/dev/null 2>&1 &"
        elif kind == "holds":  # keeps our standard output
            shell = "setsid sleep 600 &"
        elif kind == "double":
            shell = "setsid sh -c 'setsid sleep 600 &' >/dev/null 2>&1 &"
        else:
            shell = "setsid sleep 600 >/dev/null 2>&1 &"
        subprocess.run(["/bin/sh", "-c", shell], check=True)
        time.sleep(0.3)

    def end(self, code):
        path = self.words.options.get("-o")
        if path and code == 0:
            with open(path, "w") as f:
                f.write(self.message or "")
        for child in self.commands:  # kill commands that are still open at the end of the turn
            if code == 0:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        sys.exit(code)


def record(prompt):
    if not FOLDER:
        return 0
    path = os.path.join(FOLDER, "calls.jsonl")
    with open(path, "a") as f:
        f.write(json.dumps({"argv": sys.argv[1:], "stdin": prompt[:65536], "stdin_bytes": len(prompt.encode()),
                            "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}) + "\n")
    with open(path) as f:
        return sum(1 for line in f if json.loads(line)["stdin_bytes"])


def lines_of(number):
    for name in (f"scenario.{number}", "scenario"):
        path = os.path.join(FOLDER, name)
        if FOLDER and os.path.exists(path):
            with open(path) as f:
                return f.read().split("\n")
    return ["thread", "message nothing to do", "completed 10 0 5 0"]


def run_exec(words):
    options = Words(words)
    early = lines_of(1)
    if early and early[0] == "late-stdin":  # writes before it reads
        Play(options).step("flood", early[1])
    prompt = sys.stdin.read()
    number = record(prompt)
    directory = options.options.get("-C", ".")
    if not os.path.isdir(directory):
        leave(1, "Error: No such file or directory (os error 2)")
    if not prompt:
        leave(1, "No prompt provided via stdin.")
    if "-o" in options.options:
        open(options.options["-o"], "a").close()
    play = Play(options)
    lines = lines_of(number)
    if lines[0] == "late-stdin":
        lines = lines[2:]
    for line in lines:
        word, _, rest = line.partition(" ")
        play.step(word, rest)
    play.end(0)


def main():
    words = sys.argv[1:]
    if words == ["--version"]:
        print("codex-cli 0.50.0" if OLD else "codex-cli 0.169.0")
    elif words[:2] == ["exec", "--help"]:
        print("Usage: codex exec [OPTIONS] [PROMPT]\n      --json\n" + ("      --search\n" if OLD else ""))
    elif OLD and words[:1] in (["debug"], ["features"]):
        leave(2, f"error: unrecognized subcommand '{words[0]}'")
    elif words == ["debug", "models", "--bundled"]:
        print(json.dumps(MODELS))
    elif words == ["features", "list"]:
        print("some_feature                  stable  true\nunbounded_connection_retries  stable  true")
    elif words[:1] == ["exec"]:
        run_exec(words[1:])
    else:
        leave(2, f"error: unrecognized subcommand '{words[0] if words else ''}'")


main()
