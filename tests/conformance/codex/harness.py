"""What a case may use: a git tree, a codex home that knows the scripted model and nobody else, gdnctl, and the driver."""
import gzip
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import time

CASES = []

CONFIG = """\
model = "{model}"
model_provider = "mock"
web_search = "disabled"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = {idle_ms}
supports_websockets = false
[features]
plugins = false
[analytics]
enabled = false
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def case_that_waits(function):
    """Most of its time is pauses: it begins before the others, so that they fill them."""
    CASES.insert(0, function)
    return function


def demand(holds, text):
    if not holds:
        raise Failed(text)


def equal(what, got, wanted):
    demand(got == wanted, f"{what} is {got!r} and should be {wanted!r}")


def carriers(entry):
    """pid -> command line of the processes that have this entry in their environment."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
            with open(f"/proc/{name}/environ", "rb") as f:
                if entry.encode() not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as f:
                found[int(name)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
    return found


PROMPT = "Improve the kernel, iteration {{ITERATION}}/{{TOTAL_ITERATIONS}} from {{HEAD_SHA}}.\n"
LOGS = ".agents/logs/gdn_codex_loop"
# What gdnctl has in its environment and must keep to itself, and the provider's key, which codex alone needs.
KEY = "sk-proj-" + secrets.token_hex(24)
TOKENS = {"HF_TOKEN": "hf_" + secrets.token_hex(17), "WANDB_API_KEY": secrets.token_hex(20),
          "RAY_AUTH_TOKEN": "ray-" + secrets.token_hex(16), "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20)}


class Loop:
    """A codex-loop under way."""

    def __init__(self, trial, process, err, words):
        self.trial, self.process, self.words = trial, process, words
        self.err_path, self.out = err, ""

    @property
    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def until_says(self, text, seconds=60):
        self.trial.until(f"the line {text!r}", lambda: text in self.err, seconds)

    def end(self, seconds=120):
        try:
            self.out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise Failed(f"gdnctl did not end within {seconds} s\n{self.err[-2000:]}") from None
        self.trial.last = f"{self.words}\nexit {self.process.returncode}\n{self.out}\n{self.err[-6000:]}"
        return self

    def demands(self, reason, code, iteration=None):
        """Ends it; its last line and its exit code must say this."""
        self.end()
        last = (self.err.strip().splitlines() or [""])[-1]
        got = re.fullmatch(r"\[gdnctl\] codex-loop stopped: reason=(\S+) iteration=(\d+) rc=(\d+)", last)
        demand(got, f"the last line is {last!r}")
        equal("reason and exit code", (got[1], int(got[3]), self.process.returncode), (reason, code, code))
        if iteration is not None:
            equal("iteration of the last line", int(got[2]), iteration)
        return self

    def says(self, text):
        demand(text in self.err, f"standard error lacks {text!r}")

    def classes(self):
        return re.findall(r"codex attempt \d+: class=(\S+)", self.err)


class Try:
    """One case."""

    def __init__(self, gdnctl, driver, codex, server, folder):
        self.gdnctl, self.driver, self.codex, self.server, self.folder = gdnctl, driver, codex, server, folder
        self.loop_id = "conformance-" + secrets.token_hex(8)
        self.mark = "GDNCTL_TEST_MARK=" + secrets.token_hex(12)  # gdnctl has it, and so has all that descends from it
        self.run_name, self.last, self.loops = None, None, 0
        for name in ("tree", "home", "tmp", "log", "bin"):
            os.makedirs(os.path.join(folder, name))
        self.tree, self.home, self.log = (os.path.join(folder, n) for n in ("tree", "home", "log"))
        self.codex_home = os.path.join(self.home, ".codex")
        os.makedirs(self.codex_home)
        os.symlink(codex, os.path.join(folder, "bin", "codex"))
        self.git("init", "-q", "-b", "main")
        self.write("README.md", "a tree\n")
        self.write("kernel.c", "int speed = 1;\n")
        self.write("scripts/gdn/codex_iteration_prompt.md", PROMPT)
        self.commit_all("start")
        self.head = self.git("rev-parse", "HEAD")

    def git(self, *words):
        environment = {"PATH": os.environ["PATH"], "HOME": self.home, "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8"}
        got = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words], cwd=self.tree,
                             env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        demand(got.returncode == 0, f"git {words}: {got.stderr}")
        return got.stdout.strip()

    def write(self, name, text):
        path = os.path.join(self.tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        return path

    def commit_all(self, text):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", text)

    def commits(self):
        return int(self.git("rev-list", "--count", self.head + "..HEAD"))

    def status(self):
        return self.git("status", "--porcelain")

    def configure(self, scenario, model="gpt-5.5", idle_ms=5000, more=""):
        self.run_name = "run-" + secrets.token_hex(6)
        with open(os.path.join(self.codex_home, "config.toml"), "w") as f:
            f.write(CONFIG.format(model=model, url=self.server.url(scenario, self.run_name), idle_ms=idle_ms) + more)

    def edit_config(self, change):
        """Codex's config.toml is what `change` makes of its text; the path of it."""
        path = os.path.join(self.codex_home, "config.toml")
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(change(text))
        return path

    def environment(self):
        return {"PATH": os.path.join(self.folder, "bin") + ":" + os.environ["PATH"], "HOME": self.home, "LANG": "C.UTF-8", "TZ": "UTC",
                "TMPDIR": os.path.join(self.folder, "tmp"), "OPENAI_API_KEY": KEY, "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com", "GIT_COMMITTER_NAME": "t",
                "GIT_COMMITTER_EMAIL": "t@example.com", **dict([self.mark.split("=")]), **TOKENS}

    # --- the command ---

    def begin(self, plan, *options, iterations=1, prefix=(), environment=None, argv=None, cwd=None, **config):
        """gdnctl codex-loop --agent codex with the scripted model playing `plan`: what the n-th thread plays, joined by +."""
        if plan:
            self.configure(plan, **config)
        words = [*prefix, *(argv or [self.gdnctl]), "codex-loop", "--agent", "codex", "--iterations", str(iterations), "--sleep-seconds", "0",
                 "--retry-sleep-seconds", "0", *options]
        return self.spawn(words, environment, cwd)

    def spawn(self, words, environment=None, cwd=None):
        self.loops += 1
        path = os.path.join(self.folder, f"err-{self.loops}")
        whole = {**self.environment(), **(environment or {})}
        with open(path, "w") as err:
            process = subprocess.Popen(words, env={k: v for k, v in whole.items() if v is not None}, cwd=cwd or self.tree,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
        return Loop(self, process, path, shlex.join(words))

    def loop(self, plan, *options, reason="completed", code=0, **more):
        return self.begin(plan, *options, **more).demands(reason, code)

    def log_file(self, name):
        """A file of the log directory, packed or not."""
        path = os.path.join(self.tree, LOGS, name)
        if os.path.exists(path + ".gz"):
            with gzip.open(path + ".gz", "rt", errors="replace") as f:
                return f.read()
        with open(path, errors="replace") as f:
            return f.read()

    def records(self, kind):
        return [r for r in map(json.loads, self.log_file("journal.jsonl").splitlines()) if r["type"] == kind]

    def outcomes(self):
        return [r["outcome"] for r in self.records("iteration_end")]

    def ref(self, iteration, name):
        """A ref of the last run."""
        run = json.loads(self.log_file("state.json"))["run"]
        return f"refs/gdnctl/{run}/iter-{iteration:03}/{name}"

    # --- the driver ---

    def start(self, prefix=(), **spec):
        whole = {"codex": self.codex, "worktree": self.tree, "prompt": "Improve the kernel.\n", "loop_id": self.loop_id, "log": self.log,
                 "environment": self.environment(), **spec}
        path = os.path.join(self.folder, "spec.json")
        with open(path, "w") as f:
            json.dump(whole, f)
        # Its own environment is empty: what reaches codex comes from the list alone.
        # (What looks for leaks does not work under a tracer.)
        environment = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=" + ("0" if prefix else "1")}
        return subprocess.Popen([*prefix, self.driver, path], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, seconds=150):
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Failed(f"the driver did not end within {seconds} s\n{err[-2000:]}") from None
        self.last = f"driver: exit {process.returncode}\n{out}\n{err[-3000:]}"
        demand(process.returncode == 0, "the driver failed")
        return json.loads(out)

    def run(self, scenario=None, config_model="gpt-5.5", idle_ms_stream=5000, prefix=(), more="", **spec):
        if scenario:
            self.configure(scenario, config_model, idle_ms_stream, more)
        return self.finish(self.start(prefix, **spec))

    def requests(self):
        return self.server.requests(self.run_name)

    def threads(self):
        """The requests of each thread, in the order in which the threads began."""
        found = {}
        for request in self.requests():
            found.setdefault(request["prompt_cache_key"], []).append(request)
        return list(found.values())

    def left(self):
        return {**carriers(self.mark), **carriers("GDNCTL_LOOP_ID=" + self.loop_id)}

    def left_of(self, text):
        return [pid for pid, line in self.left().items() if line.startswith(text)]

    def until(self, what, holds, seconds=60):
        deadline = time.monotonic() + seconds
        while not holds():
            demand(time.monotonic() < deadline, f"{what} did not happen within {seconds} s")
            time.sleep(0.05)

    def end(self):
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
