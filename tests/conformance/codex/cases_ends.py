"""gdnctl codex-loop with the real codex: what would run for ever, signals, kills, what is left, what gets out."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from harness import CASES, KEY, LOGS, TOKENS, Skipped, case, case_that_waits, demand, equal

HERE = os.path.dirname(os.path.abspath(__file__))
BOTH = (("inplace", ("--isolation", "inplace", "--dirty-policy", "stash")), ("worktree", ("--isolation", "worktree")))


def in_both(function):
    for name, words in BOTH:
        def there(t, words=words):
            function(t, *words)
        there.__name__ = f"{function.__name__}_{name}"
        CASES.append(there)
    return function


# --- what codex would do for ever -------------------------------------------------------------------------------------


@case_that_waits
def no_headers_are_ended_by_the_idle_limit(t):
    done = t.loop("no-headers", "--codex-idle-timeout-seconds", "2", reason="timeout", code=124)
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["hang"], ["timeout"]))
    t.loop("no-headers+improve", "--codex-idle-timeout-seconds", "2", "--codex-retries", "1")


@case
def hanging_tool_call_is_ended_by_its_own_limit(t):
    words = ("--codex-idle-timeout-seconds", "1", "--codex-busy-timeout-seconds", "4")
    done = t.loop("long", *words, reason="timeout", code=124)
    done.says("hang: no event and no token for 4")
    done.says(", while a command was running")
    equal("status", t.status(), "")
    equal("what it had written", "+" in t.log_file("iteration-001-leftovers.patch"), True)


@case
def wall_limit_ends_an_attempt_that_is_busy(t):
    done = t.loop("slow", "--codex-timeout-seconds", "4", reason="timeout", code=124)
    equal("classes", done.classes(), ["wall-limit"])


@case_that_waits
def endless_tool_calls_meet_the_default_ceiling_of_tokens(t):
    done = t.loop("endless", reason="agent-error", code=124)
    equal("classes", done.classes(), ["token-limit"])
    tokens = t.records("attempt_end")[0]["tokens"]
    demand(50_000_000 <= tokens < 60_000_000, f"{tokens} tokens")


@case
def endless_tool_calls_meet_the_budget_of_the_run(t):
    done = t.loop("endless", "--max-tokens", "2000000", "--max-failures", "-1", iterations=5, reason="max-tokens")
    equal("classes", done.classes(), ["token-limit"])


@case
def endless_tool_calls_of_a_model_that_reports_no_usage_meet_the_ceiling_of_requests(t):
    done = t.loop("unmetered", "--codex-max-requests", "20", "--codex-retries", "3", reason="agent-error", code=124)
    equal("classes", done.classes(), ["request-limit"])
    counted, asked = int(re.search(r"asked the model (\d+) times", done.err).group(1)), len(t.requests())
    demand(20 < counted <= asked <= counted + 10 and asked < 200, f"{counted} of {asked} requests were counted")


@case
def context_that_is_summarised_again_and_again_meets_its_default_ceiling(t):
    done = t.loop("compaction", "--codex-retries", "3", reason="agent-error", code=124)
    equal("classes", done.classes(), ["compaction-limit"])  # once: a repeat would do the same
    done.says("summarised its context ")
    demand(len(t.requests()) < 200, f"{len(t.requests())} requests")


# --- what outlives it -------------------------------------------------------------------------------------------------


@case
def survivors_of_a_good_turn_are_ended_and_named(t):
    for scenario, command in (("survivor", "sleep 303"), ("bare", "sleep 304"), ("holds", "sleep 305")):
        done = t.loop(scenario, "--allow-no-commit")
        done.says(f"ended a process that outlived the agent: {command} (")
        done.says(" survivors=1")
        equal("left", t.left(), {})


@case
def background_is_spared_on_demand_and_ends_with_the_run(t):
    done = t.loop("survivor", "--allow-no-commit", "--keep-background")
    done.says("ended a process that outlived the run: sleep 303")
    equal("left", t.left(), {})


def with_users_work(t):
    t.write("README.md", "a tree\nmine, not committed\n")
    t.write("notes.txt", "mine, not even added\n")


def has_users_work(t):
    equal("status", t.status(), "M README.md\n?? notes.txt")
    equal("the user's file", open(os.path.join(t.tree, "README.md")).read(), "a tree\nmine, not committed\n")
    equal("the user's new file", open(os.path.join(t.tree, "notes.txt")).read(), "mine, not even added\n")
    equal("stashes", t.git("stash", "list"), "")


@in_both
def signals_in_the_middle_of_a_tool_call(t, *words):
    # Each command of codex has a session of its own.
    for scenario, number, reason, code in (("long", signal.SIGINT, "interrupted", 130), ("background", signal.SIGTERM, "terminated", 143),
                                           ("background", signal.SIGHUP, "interrupted", 130), ("dirty-then-long", signal.SIGINT, "interrupted", 130)):
        with_users_work(t)
        under_way = t.begin(scenario, *words)
        t.until("the tool call", lambda: t.left_of("sleep 300"))
        sessions = {os.getsid(pid) for pid in t.left_of("sleep 300")} - {os.getsid(under_way.process.pid)}
        demand(sessions, "the tool's command has no session of its own")
        started = time.monotonic()
        under_way.process.send_signal(number)
        under_way.demands(reason, code, 1)
        demand(time.monotonic() - started < 15, "that took too long")
        under_way.says("iteration 1 is unfinished: --resume finishes or repeats it")
        equal("left", t.left(), {})
        has_users_work(t)
        if scenario == "dirty-then-long":
            equal("half an edit on its ref", t.git("show", t.ref(1, "attempt-1/leftovers") + ":hello.txt"), "hello")
        t.loop("improve", *words, "--resume")
        equal("outcomes", t.outcomes(), ["accepted"])
        has_users_work(t)
        t.git("checkout", "-q", "README.md")
        os.unlink(os.path.join(t.tree, "notes.txt"))


@case
def second_signal_ends_it_at_once(t):
    under_way = t.begin("stubborn")
    t.until("the tool call", lambda: t.left_of("sleep 300"))
    under_way.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    started = time.monotonic()
    under_way.process.send_signal(signal.SIGINT)
    under_way.end()
    demand(under_way.process.returncode in (130, -signal.SIGINT), f"exit {under_way.process.returncode}")
    demand(time.monotonic() - started < 8, "that took too long")
    t.loop("improve", "--resume")
    equal("left", t.left(), {})


@case
def codex_killed_from_outside_is_tried_again(t):
    under_way = t.begin("background+improve", "--codex-retries", "1")
    t.until("the tool call", lambda: t.left_of("sleep 300"))
    program = next(pid for pid, line in t.left().items() if " exec " in line and "/bin/codex" in line.split(" ")[0])
    os.kill(program, signal.SIGKILL)
    under_way.demands("completed", 0)
    equal("classes", under_way.classes(), ["crashed", "ok"])
    under_way.says("codex iteration command failed (attempt 1/2, rc=137); retrying.")
    under_way.says("ended a process that outlived the agent: sleep 300")


# --- killed and resumed -----------------------------------------------------------------------------------------------


@in_both
def killed_in_mid_turn_and_resumed(t, *words):
    with_users_work(t)
    under_way = t.begin("improve+dirty-then-silent+improve", *words, iterations=3)
    t.until("the second thread's silence", lambda: len(t.threads()) == 2 and len(t.threads()[1]) == 2)
    under_way.process.kill()
    under_way.end()
    done = t.loop(None, *words, "--resume", iterations=3)
    equal("outcomes", t.outcomes(), ["accepted"] * 3)
    equal("commits", t.commits(), 3)
    equal("kernel", open(os.path.join(t.tree, "kernel.c")).read(), "int speed = 4;\n")
    equal("files of the commits", set(t.git("log", "--name-only", "--format=", t.head + "..").split()), {"kernel.c"})
    demand("=== codex iteration 1/3 ===" not in done.err and "=== codex iteration 3/3 ===" in done.err, "iterations that ran again")
    has_users_work(t)
    equal("half an edit on its ref", t.git("show", t.ref(2, "attempt-1/leftovers") + ":hello.txt"), "hello")


@in_both
def killed_in_mid_tool_and_swept_by_the_marker(t, *words):
    under_way = t.begin("background+improve", *words)
    t.until("the tool call", lambda: t.left_of("sleep 300"))
    under_way.process.kill()
    under_way.end()
    t.until("codex's end", lambda: not any("/bin/codex" in line for line in t.left().values()))
    demand(t.left_of("sleep 300"), "nothing was left to sweep")
    done = t.loop(None, *words, "--resume")
    done.says("ended a process of the interrupted run: sleep 300")
    equal("left", t.left(), {})
    equal("outcomes", t.outcomes(), ["accepted"])
    loops = os.path.join(t.home, ".local/state/gdnctl/loops")
    equal("what is left of the run's codex home", os.listdir(loops), [])


@case
def killed_while_it_waits_for_the_provider(t):
    under_way = t.begin("usage-limit+improve")
    under_way.until_says("waiting ")
    under_way.process.kill()
    under_way.end()
    t.loop(None, "--resume")
    equal("outcomes", t.outcomes(), ["accepted"])


# --- what gets out ----------------------------------------------------------------------------------------------------


class Watch:
    """The command lines of all processes, again and again."""

    def __init__(self, words):
        self.words, self.found, self.over = words, set(), threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.over.wait(0.01):
            for name in os.listdir("/proc"):
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as f:
                        line = f.read() if name.isdigit() else b""
                except OSError:
                    continue
                self.found.update(word for word in self.words if word.encode() in line)

    def end(self):
        self.over.set()
        self.thread.join()
        return self.found


def holds(path, word):
    opened = subprocess.run(["zcat", "-f", path], capture_output=True).stdout
    return word.encode() in opened


@case
def secrets_stay_where_they_are(t):
    t.git("remote", "add", "origin", "https://me:hunter2secret@example.invalid/x.git")
    words = {**TOKENS, "the provider's key": KEY, "the remote's password": "hunter2secret"}
    for isolation in ("inplace", "worktree"):
        watch = Watch(words.values())
        done = t.loop("environment+improve", "--isolation", isolation, "--post-check", "env", iterations=2)
        equal("secrets in command lines", watch.end(), set())
        for name in ("environment.txt", "above.txt"):  # of codex's commands, and of codex
            with open(os.path.join(t.tree, name)) as f:
                got = dict(line.rstrip("\n").partition("=")[::2] for line in f)
            equal(f"tokens in {name}", sorted(set(TOKENS) & set(got)), [])
            equal(f"values in {name}", [v for v in TOKENS.values() if v in str(got)], [])
            equal(f"marker in {name}", got.get("GDNCTL_LOOP_ID"), t.records("run")[0]["loop_id"])
            demand(got.get("OPENAI_API_KEY") == KEY and "RUST_BACKTRACE" not in got, got)
        for name, word in words.items():
            demand(word not in done.err, f"{name} is on standard error")
            for top in (os.path.join(t.tree, LOGS), os.path.join(t.home, ".local")):
                for folder, _, files in os.walk(top):
                    if "/worktrees/" in folder:  # the agent's checkout
                        continue
                    for file in files:
                        demand(not holds(os.path.join(folder, file), word), f"{name} is in {folder}/{file}")
        t.git("reset", "-q", "--hard", t.head)


JAIL = os.path.realpath(os.path.join(HERE, "../../../examples/agent-jail/codex-jail"))


@in_both
def in_the_jail_of_the_examples(t, *words):
    may(("bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-pid"), "bubblewrap")
    words += ("--codex-bin", JAIL)
    os.makedirs(os.path.join(t.home, ".ssh"))
    with open(os.path.join(t.home, ".ssh/id"), "w") as f:
        f.write("a private key\n")
    done = t.loop("reach", *words)
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["ok"], ["accepted"]))
    equal("commits and status", (t.commits(), t.status()), (1, ""))
    said = json.dumps([r["input"] for r in t.requests()])
    demand("Read-only file system" in said and "No such file or directory" in said, "nothing was refused")
    demand("a private key" not in said and not os.path.exists("/etc/gdnctl-was-here"), "it got out")
    equal("left", t.left(), {})
    for number in (signal.SIGTERM, signal.SIGKILL):
        under_way = t.begin("background", *words)
        t.until("the tool call", lambda: t.left_of("sleep 300"))
        under_way.process.send_signal(number)
        under_way.end()
        t.until("the end of all that it started", lambda: not t.left(), 5)
        t.loop("improve", *words, "--resume")
        equal("outcomes", t.outcomes(), ["accepted"])


ALONE = ("unshare", "--user", "--map-root-user", "--net")
SERVE = (sys.executable, os.path.join(HERE, "model_server.py"))


def may(words, what):
    probe = subprocess.run([*words, "true"], capture_output=True, text=True) if shutil.which(words[0]) else None
    if probe is None or probe.returncode != 0:
        raise Skipped(f"{what} is not allowed here: {probe.stderr.strip()[:100] if probe else words[0] + ' is not installed'}")


def tracer(t):
    trace = os.path.join(t.folder, "trace")
    words = ("strace", "-f", "-qq", "-o", trace, "-e", "trace=connect,sendto,sendmsg,sendmmsg")
    may(words, "tracing")
    return trace, words


def addresses(trace):
    """Lines that name an address of the network, and those that ask a resolver of this machine."""
    with open(trace) as f:
        lines = [line.strip() for line in f]
    return [line for line in lines if "sa_family=AF_INET" in line], [line for line in lines if "resolve" in line and "sun_path" in line]


@case_that_waits
def nothing_outside_this_machine_is_looked_up(t):
    trace, prefix = tracer(t)
    t.loop("commit+improve+429", "--isolation", "worktree", "--codex-max-wait", "0", iterations=3, reason="agent-error", code=1, prefix=prefix)
    inet, resolvers = addresses(trace)
    ours = [line for line in inet if f"sin_port=htons({t.server.port})" in line and 'inet_addr("127.0.0.1")' in line]
    demand(ours, "the trace does not even show the scripted model")
    equal("addresses outside", [line for line in inet if line not in ours], [])
    equal("resolvers asked", resolvers, [])


@case
def nothing_outside_this_machine_is_needed(t):
    may(ALONE, "a network namespace")
    t.configure("improve")
    t.begin(None, prefix=(*ALONE, *SERVE, os.path.join(t.codex_home, "config.toml"))).demands("completed", 0)
    equal("outcomes", t.outcomes(), ["accepted"])


@case
def codex_asks_others_unless_it_is_told_not_to(t):
    """What the switches in our configuration are for; it also shows that the trace would show it."""
    may(ALONE, "a network namespace")
    trace, prefix = tracer(t)
    t.configure("improve")
    path = t.edit_config(lambda text: text[:text.index("[features]")])
    t.begin(None, prefix=(*ALONE, *SERVE, path, *prefix)).demands("completed", 0)
    inet, resolvers = addresses(trace)
    demand(resolvers or [line for line in inet if 'inet_addr("127.0.0.1")' not in line or "htons(53)" in line], "it asked nobody")
