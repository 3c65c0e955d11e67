#!/usr/bin/env python3
"""A real Iris controller on this machine, with one made-up TPU host of four chips and hosts without, and its certain end.

By hand:   controller.py [PORT]     prints the address, and runs until Ctrl-C

It is `iris cluster start` of the pinned package, in a session and a home of its own; everything that it starts carries a
marker in its environment. As for a Ray (../ray/node.py), a guard process ends whatever carries the marker when this
process goes, for whatever reason, and removes the folder. Its log prints a session token, and stays in that folder.
"""
import glob
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../ray"))

import node as nodes
from node import Unavailable, carrying, end_all

MARKER = "GDNCTL_CONFORMANCE_IRIS"
PACKAGES = ["marin-iris==0.2.227.dev40316220070", "httpx<1", "protobuf<7", "marin-finelog-server==0.2.71.dev40003900277"]
CONFIG = """
name: t
platform: {local: }
controller: {local: {port: %d}}
worker_provider: {}
defaults:
  worker:
    task_outputs: {destination: "file://", ttl_days: 0}
scale_groups:
  g: {num_vms: 1, resources: {cpu: 208, ram: 448GB, disk: 200GB, device_type: tpu, device_variant: v5p-8, device_count: 4,
      capacity_type: preemptible}, buffer_slices: 0, max_slices: 1, slice_template: {num_vms: 1, local: }}
  cpu: {num_vms: 1, resources: {cpu: 64, ram: 256GB, disk: 2000GB, device_type: cpu, capacity_type: on-demand},
      buffer_slices: 0, max_slices: 2, slice_template: {num_vms: 1, local: }}
"""
# What comes from there needs a token; the loopback address does not, unless a proxy says for whom it asks.
AUTH = """
auth:
  iap: {url: "https://iris.example.org", oauth_client_id: a.apps, oauth_client_secret: s, signed_header_audience: /projects/1/x}
  trusted_cidrs: [10.0.0.0/8]
"""
CONTROLLER = "/iris.cluster.ControllerService/"
LOGS = "/proxy/system.log-server/finelog.logging.LogService/"


def python():
    """A Python 3.12, which the package wants: on PATH, of pyenv, or one that uv knows or fetches. Raises Unavailable."""
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which("python3.12"), *sorted(glob.glob(root + "/versions/3.12.*/bin/python3.12"))]
    if shutil.which("uv"):
        for words in (["find", "3.12"], ["install", "3.12"], ["find", "3.12"]):
            ran = subprocess.run(["uv", "python", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if words[0] == "find" and ran.returncode == 0:
                found.append(ran.stdout.strip())
                break
    for path in filter(None, found):
        # The shim of a pyenv is there also where that version is not.
        ran = subprocess.run([path, "-c", "import sys; print(sys.version_info[:2] == (3, 12))"], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True)
        if ran.stdout.strip() == "True":
            return path
    raise Unavailable("no Python 3.12: neither on PATH nor in pyenv, and no uv to fetch one")


def venv():
    """The virtual environment with the pinned controller, made when missing. Raises Unavailable."""
    return nodes.package_venv("../iris/venv", ["--pre", "-c", os.path.join(HERE, "constraints.txt"), *PACKAGES], python())


class Controller:
    def __init__(self, port=0, auth=False):
        self.venv = venv()
        self.temp = tempfile.mkdtemp(prefix="gdniris.")
        self.marker = f"{MARKER}={os.getpid()}-{secrets.token_hex(6)}"
        self.port = port or nodes.free_ports(1, 0)
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = (CONFIG + (AUTH if auth else "")) % self.port
        self.process = self._guard = None

    def start(self):
        if self._guard is None:
            self._guard = subprocess.Popen([sys.executable, os.path.join(HERE, "../ray/node.py"), "guard", self.marker, self.temp],
                                           stdin=subprocess.PIPE, start_new_session=True)
        with open(self.temp + "/local.yaml", "w") as f:
            f.write(self.config)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("IRIS_", "TPU_", "GDNCTL_", "MARIN_"))}
        name, value = self.marker.split("=")
        os.makedirs(self.temp + "/home", exist_ok=True)
        env.update({name: value, "HOME": self.temp + "/home"})
        with open(self.temp + "/iris.log", "ab") as log:
            self.process = subprocess.Popen([self.venv + "/bin/iris", "--config", self.temp + "/local.yaml", "cluster", "start"], env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.temp)
        self._until_ready()
        return self

    def _until_ready(self):
        deadline = time.monotonic() + 60
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.temp + "/iris.log", errors="replace") as f:
                    said = [line for line in f if "oken" not in line][-8:]
                raise Unavailable("the controller did not start: " + "".join(said)[-1500:])
            try:
                with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + "/health", timeout=3):
                    break
            except OSError:
                time.sleep(0.1)

    def warm(self):
        """Waits until a host of each kind has run a job: a first one takes up to half a minute."""
        names = [f"/warm/{kind}-{secrets.token_hex(4)}" for kind in ("cpu", "tpu")]
        for name in names:
            self.launch(name, "true", tpu=name.startswith("/warm/tpu"))
        deadline = time.monotonic() + 60
        while any(self.state(name) != "JOB_STATE_SUCCEEDED" for name in names):
            if time.monotonic() > deadline:
                raise Unavailable("the controller runs no jobs")
            time.sleep(0.1)

    def call(self, method, body, timeout=60):
        """One call past gdnctl: its answer. Raises OSError (HTTPError included)."""
        return call(self.url, method, body, timeout)

    def state(self, name):
        return self.call("GetJobState", {"jobIds": [name]}).get("states", {}).get(name, "absent")

    def launch(self, name, script, tpu=False, **more):
        device = {"device": {"tpu": {"variant": "v5p-8", "count": 4}}} if tpu else {}
        return self.call("LaunchJob", {
            "name": name, "entrypoint": {"runCommand": {"argv": ["bash", "-c", script]}},
            "resources": {"cpuMillicores": 100, "memoryBytes": "100000000", "diskBytes": "1000000", **device},
            "environment": {"envVars": {}}, "replicas": 1, **more})

    def log(self, name):
        """The lines of a job's log."""
        lines, cursor = [], "0"
        while True:
            page = self.call("FetchLogs", {"source": name + "/", "matchScope": "MATCH_SCOPE_PREFIX", "cursor": cursor, "maxLines": 5000})
            if not page.get("entries"):
                return lines
            lines += [entry["data"] for entry in page["entries"]]
            cursor = page["cursor"]

    def jobs(self, part=""):
        return self.call("ListJobs", {"query": {"nameFilter": part, "limit": 500}}).get("jobs", [])

    def processes(self, words):
        """pids of what this controller has started whose command line has the words."""
        return [pid for pid, line in carrying(self.marker).items() if words in line]

    def restart(self):
        """It dies with SIGKILL, and another one, which knows nothing, takes its place."""
        end_all(self.marker)
        self.process.wait()
        self.start()

    def away(self, seconds):
        """Answers nothing, and knows everything afterwards."""
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self):
        if self._guard is None:
            shutil.rmtree(self.temp, ignore_errors=True)
            return
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self._guard.stdin.close()
        if self.process:
            self.process.wait()
        self._guard.wait()
        self._guard = None


def call(url, method, body, timeout=60):
    request = urllib.request.Request(url + (LOGS if method == "FetchLogs" else CONTROLLER) + method, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
        return json.loads(answer.read() or b"{}")


def main(argv):
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, lambda *_: sys.exit(1))
    controller = Controller(int(argv[0]) if argv else 0)
    try:
        controller.start().warm()
        print(f"--iris-url {controller.url}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        controller.close()


if __name__ == "__main__":
    main(sys.argv[1:])
