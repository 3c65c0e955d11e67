"""What a case may use: a git tree, a codex home that knows the scripted model and nobody else, and the driver."""
import json
import os
import secrets
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
env_key = "MOCK_KEY"
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


class Try:
    """One case."""

    def __init__(self, driver, codex, server, folder):
        self.driver, self.codex, self.server, self.folder = driver, codex, server, folder
        self.loop_id = "conformance-" + secrets.token_hex(8)
        self.run_name, self.last = None, None
        for name in ("tree", "home", "tmp", "log"):
            os.makedirs(os.path.join(folder, name))
        self.tree, self.home, self.log = (os.path.join(folder, n) for n in ("tree", "home", "log"))
        self.git("init", "-q", "-b", "main")
        with open(os.path.join(self.tree, "README.md"), "w") as f:
            f.write("a tree\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "start")
        self.head = self.git("rev-parse", "HEAD")

    def git(self, *words):
        environment = {"PATH": os.environ["PATH"], "HOME": self.home, "GIT_CONFIG_NOSYSTEM": "1"}
        got = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words], cwd=self.tree,
                             env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        demand(got.returncode == 0, f"git {words}: {got.stderr}")
        return got.stdout.strip()

    def commits(self):
        return int(self.git("rev-list", "--count", self.head + "..HEAD"))

    def configure(self, scenario, model="gpt-5.5", idle_ms=5000, more=""):
        self.run_name = "run-" + secrets.token_hex(6)
        with open(os.path.join(self.home, "config.toml"), "w") as f:
            f.write(CONFIG.format(model=model, url=self.server.url(scenario, self.run_name), idle_ms=idle_ms) + more)

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": self.home, "CODEX_HOME": self.home, "TMPDIR": os.path.join(self.folder, "tmp"),
                "MOCK_KEY": "dummy-provider-key", "HF_TOKEN": "hf_" + "x" * 34, "LANG": "C.UTF-8", "TZ": "UTC"}

    def start(self, prefix=(), **spec):
        whole = {"codex": self.codex, "worktree": self.tree, "prompt": "Improve the kernel.\n", "loop_id": self.loop_id, "log": self.log,
                 "environment": self.environment(), "also": ["MOCK_KEY"], **spec}
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

    def left(self):
        return carriers("GDNCTL_LOOP_ID=" + self.loop_id)

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
