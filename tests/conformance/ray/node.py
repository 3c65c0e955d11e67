#!/usr/bin/env python3
"""A Ray of one node with made-up TPUs on this machine, and its certain end.

By hand:   node.py 2.60.0 [token|disabled]     prints address and token, and runs until Ctrl-C

A node is `ray start --head --block` in a session of its own. Everything that it starts, jobs included, carries a
marker in its environment. A guard process holds the reading end of a pipe whose writing end is this process: when the
pipe closes, for whatever reason, the guard ends the node (SIGTERM to its `ray start`, which drains it), then
whatever still carries the marker, and removes the folder. Other Rays on the machine are left alone.
"""
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

MARKER = "GDNCTL_CONFORMANCE_NODE"
HERE = os.path.dirname(os.path.abspath(__file__))
VENVS = os.path.join(HERE, "../../../build/conformance/ray")
START_TIMEOUT_S = 30  # of jobs, on the nodes made here; a busy machine takes 20 s for the first one


class Unavailable(Exception):
    """Something that the machine lacks; what needs it is skipped."""


def venv(version):
    """The virtual environment with that Ray, made when missing. Raises Unavailable."""
    return package_venv("venv-" + version, ["-c", os.path.join(HERE, "constraints.txt"), "ray[default]==" + version])


def package_venv(name, words, python=sys.executable):
    """A virtual environment of that Python with what `pip install WORDS` installs, made when missing. Raises Unavailable."""
    folder = os.path.realpath(os.path.join(VENVS, name))
    stamp = os.path.join(folder, "complete")
    if os.path.exists(stamp):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([python, "-m", "venv", folder], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable("no virtual environment (apt-get install python3-venv)")
    pip = [os.path.join(folder, "bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-input",
           "--retries", "5", "--timeout", "30", *words]
    for _ in range(2):
        try:
            got = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"pip did not install {words[-1]} within 300 s") from None
        if got.returncode == 0:
            open(stamp, "w").close()
            return folder
    shutil.rmtree(folder, ignore_errors=True)
    last = (got.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise Unavailable(f"pip cannot install {words[-1]}: {last[:160]}")


def carrying(marker, whole_sessions=True):
    """pid -> command line of the processes that carry the marker. With whole_sessions also of their sessions' other
    members: a process that gives itself a title overwrites its environment."""
    lines, sessions, marked, own = {}, {}, set(), set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                state, _, _, session = f.read().rsplit(")", 1)[1].split()[:4]
            with open(f"/proc/{entry}/environ", "rb") as f:
                if marker.encode() in f.read().split(b"\0"):
                    marked.add(int(session))
                    own.add(int(entry))
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state != "Z":
            lines[int(entry)], sessions[int(entry)] = line, int(session)
    return {pid: line for pid, line in lines.items() if pid in own or (whole_sessions and sessions[pid] in marked)}


_GIVEN_PORTS = set()  # by this process: their node may not have come up yet


def free_ports(count, also=300):
    """The first of a run of ports that nobody uses now: `count` are tried, `also` more belong to workers."""
    for base in range(20000 + os.getpid() % 7 * 500, 31000, count + also):
        if base in _GIVEN_PORTS:
            continue
        try:
            for port in range(base, base + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            _GIVEN_PORTS.add(base)
            return base
        except OSError:
            continue
    raise Unavailable("no free ports")


def guard(marker, folder):
    """Runs in a process of its own until its standard input closes."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    sys.stdin.buffer.read()

    def blocking():
        return [pid for pid, line in carrying(marker).items() if "start --head --block" in line]

    for pid in blocking():
        os.kill(pid, signal.SIGTERM)
    for _ in range(100):
        if not blocking():
            break
        time.sleep(0.1)
    end_all(marker)
    shutil.rmtree(folder, ignore_errors=True)


def end_all(marker, whole_sessions=True):
    for _ in range(50):
        left = carrying(marker, whole_sessions)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not left:
            return
        time.sleep(0.1)


class Node:
    def __init__(self, version, auth="token", ports=None):
        self.version, self.auth = version, auth
        self.token = "conformance-" + secrets.token_hex(12) if auth == "token" else ""
        self.venv = venv(version)
        # The sockets below it must stay within 107 bytes.
        self.temp = tempfile.mkdtemp(prefix="gdnray.", dir=None if len(tempfile.gettempdir()) < 20 else "/tmp")
        self.marker = f"{MARKER}={os.getpid()}-{secrets.token_hex(6)}"
        self.base = ports or free_ports(4)
        self.url = f"http://127.0.0.1:{self.base + 1}"
        self.process = self._guard = None

    def start(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TPU_", "GDNCTL_"))}
        name, value = self.marker.split("=")
        env.update({name: value, "HOME": self.temp, "RAY_AUTH_MODE": self.auth, "TPU_ACCELERATOR_TYPE": "v5p-8",
                    "TPU_NAME": "fake-tpu", "TPU_WORKER_ID": "0", "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_memory_monitor_refresh_ms": "0", "RAY_JOB_START_TIMEOUT_SECONDS": str(START_TIMEOUT_S)})
        if self.token:
            env["RAY_AUTH_TOKEN"] = self.token
        base = self.base
        argv = [self.venv + "/bin/ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={base}",
                "--dashboard-host=127.0.0.1", f"--dashboard-port={base + 1}", f"--dashboard-agent-listen-port={base + 2}",
                f"--ray-client-server-port={base + 3}", f"--min-worker-port={base + 10}", f"--max-worker-port={base + 300}",
                "--num-cpus=2", "--object-store-memory=100000000", "--include-log-monitor=false", "--disable-usage-stats",
                "--temp-dir=" + self.temp + "/t", '--resources={"TPU":4,"TPU-v5p-8-head":1}']
        self._guard = subprocess.Popen([sys.executable, os.path.abspath(__file__), "guard", self.marker, self.temp],
                                       stdin=subprocess.PIPE, start_new_session=True)
        with open(self.temp + "/ray.log", "ab") as log:
            self.process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, cwd=self.temp)
        self._until_ready()
        return self

    def _until_ready(self):
        deadline = time.monotonic() + 90
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.temp + "/ray.log", errors="replace") as f:
                    said = f.read()[-2000:]
                raise Unavailable(f"ray {self.version} did not start: {said}")
            try:
                self.api("GET", "/api/version", timeout=3)
                break
            except OSError:
                time.sleep(0.2)
        # The version answers before jobs can run.
        id = "ready-" + secrets.token_hex(4)
        for _ in range(20):
            try:
                self.api("POST", "/api/jobs/", {"entrypoint": "true", "submission_id": id})
                break
            except urllib.error.HTTPError:
                time.sleep(0.5)
        while self.api("GET", f"/api/jobs/{id}")["status"] != "SUCCEEDED":
            if time.monotonic() > deadline:
                raise Unavailable(f"ray {self.version} runs no jobs")
            time.sleep(0.2)

    def api(self, method, path, body=None, timeout=20):
        """One call of the Jobs API, past gdnctl: the JSON it answers. Raises OSError (HTTPError included)."""
        return call(self.url, self.token, method, path, body, timeout)

    def processes(self, words):
        """pids of this node's processes whose command line has the words."""
        return [pid for pid, line in carrying(self.marker).items() if words in line]

    def log_file(self, id):
        return f"{self.temp}/t/session_latest/logs/job-driver-{id}.log"

    def restart_head(self):
        """The head dies, all of it at once, and another one takes its place at the same address."""
        kept, old = self.temp, self._guard
        self.temp = tempfile.mkdtemp(prefix="gdnray.", dir=os.path.dirname(kept))
        end_all(self.marker)
        self.process.wait()
        old.stdin.close()
        old.wait()
        self.start()

    def restart_dashboard(self, down_s=1.0):
        """Ends the dashboard process alone; the node starts none again, so this does, with its own words."""
        pid = self.processes("dashboard/dashboard.py")[0]
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            argv = f.read().split(b"\0")[:-1]
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(item.split(b"=", 1) for item in f.read().split(b"\0") if b"=" in item)
        os.kill(pid, signal.SIGTERM)  # the end that `ray start --block` takes for an ordinary one
        while pid in carrying(self.marker):
            time.sleep(0.05)
        time.sleep(down_s)
        with open(self.temp + "/ray.log", "ab") as log:
            return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.temp,
                                    start_new_session=True)

    def close(self):
        if self._guard is None:
            shutil.rmtree(self.temp, ignore_errors=True)
            return
        self._guard.stdin.close()
        if self.process:
            self.process.wait()
        self._guard.wait()
        self._guard = None


def call(url, token, method, path, body=None, timeout=20):
    request = urllib.request.Request(url + path, method=method)
    request.add_header("User-Agent", "gdnctl-conformance")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, data, timeout=timeout) as answer:
        return json.loads(answer.read() or b"null")


def main(argv):
    if argv[:1] == ["guard"]:
        return guard(*argv[1:])
    if not 1 <= len(argv) <= 2 or argv[1:] not in ([], ["token"], ["disabled"]):
        sys.exit(__doc__)
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: sys.exit(1))
    node = Node(*argv)
    try:
        node.start()
        print(f"export RAY_API_SERVER_ADDRESS={node.url}" + (f" RAY_AUTH_TOKEN={node.token}" if node.token else ""), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        node.close()


if __name__ == "__main__":
    main(sys.argv[1:])
