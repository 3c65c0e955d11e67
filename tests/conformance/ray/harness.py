"""What a case may use: one place where jobs run, a folder of its own, and the gdnctl binary by command line."""
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time

from node import call

CASES = []


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(on=("local", "ray", "iris"), tpu=False, alone=False, own_node=False):
    """Marks a function as a case. `on`: local, ray (2.60, token), open (2.60, no authentication), old (2.52), iris.
    tpu: it needs the one made-up TPU host, or a place in its queue; such cases run one after the other.
    alone: nothing else may run meanwhile. own_node: it looks into or ends processes of the node, so that a Ray that
    somebody else started cannot serve."""
    def mark(function):
        function.on, function.tpu, function.alone, function.own_node = on, tpu, alone, own_node
        CASES.append(function)
        return function
    return mark


class Place:
    """Where jobs run."""

    def __init__(self, kind, name, args, token="", node=None, url=None):
        self.kind, self.name, self.args, self.token, self.node, self.url = kind, name, args, token, node, url
        self.iris = kind == "iris"
        self.ray = kind in ("ray", "open", "old")
        self.tpu_turn = threading.Lock()


class Ran:
    def __init__(self, argv, code, out, err, maxrss_kib):
        self.argv, self.code, self.out_path, self.err_path, self.maxrss_kib = argv, code, out, err, maxrss_kib

    @property
    def out(self):
        with open(self.out_path, "rb") as f:
            return f.read()

    @property
    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    @property
    def json(self):
        lines = self.out.decode().splitlines()
        if len(lines) != 1:
            raise Failed(f"--json printed {len(lines)} lines: {self.out[:300]}")
        return json.loads(lines[0])

    def __str__(self):
        return f"$ {shlex.join(self.argv)}\n  exit {self.code}\n  stdout: {self.out[-1500:]!r}\n  stderr: {self.err[-2500:]}"


class Running:
    """A gdnctl that has been started."""

    def __init__(self, process, argv, out, err):
        self.process, self.argv, self.out, self.err, self.maxrss_kib = process, argv, out, err, 0

    def until(self, text, where="out", seconds=60):
        """Waits until the text is in what it printed."""
        path = self.out if where == "out" else self.err
        deadline = time.monotonic() + seconds
        while True:
            with open(path, "rb") as f:
                if text.encode() in f.read():
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"never said {text!r}: {self.finish()}")
            time.sleep(0.05)

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self, seconds=120):
        """Its end, with the most memory that it was seen to have had (rusage would count this process's, too)."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.maxrss_kib = max(self.maxrss_kib, high_water_kib(self.process.pid))
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                return Ran(self.argv, f"none within {seconds} s", self.out, self.err, self.maxrss_kib)
            time.sleep(0.02)
        return Ran(self.argv, self.process.returncode, self.out, self.err, self.maxrss_kib)


def high_water_kib(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) for line in f if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


class Try:
    """One case on one place."""

    def __init__(self, binary, place, folder, environment):
        self.binary, self.place, self.folder = binary, place, folder
        self.cwd = os.path.join(folder, "cwd")
        for sub in ("cwd", "home", "tmp", "run"):
            os.makedirs(os.path.join(folder, sub))
        self.env = dict(environment, HOME=folder + "/home", XDG_STATE_HOME=folder + "/state", TMPDIR=folder + "/tmp",
                        XDG_CONFIG_HOME=folder + "/config", COLUMNS="100", LC_ALL="C.UTF-8", TZ="UTC", USER="alice",
                        GIT_CONFIG_GLOBAL=folder + "/gitconfig", GIT_CONFIG_NOSYSTEM="1",
                        GDNCTL_LOCAL_RESOURCES='{"CPU":2,"TPU":4,"TPU-v5p-8-head":1}')
        if place.token:
            self.env["RAY_AUTH_TOKEN"] = place.token
        with open(folder + "/gitconfig", "w") as f:
            f.write("[user]\n\tname = Test\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n")
        self.count = 0
        self.running = []
        self.last = None
        self.prefix = re.sub("[^A-Za-z0-9]", "", os.path.basename(folder))

    # --- words -----------------------------------------------------------------------------------------------------
    def fail(self, text):
        raise Failed(f"{text}\n{self.last}" if self.last else text)

    def check(self, condition, text):
        if not condition:
            self.fail(text)

    def equal(self, got, want, what):
        self.check(got == want, f"{what} is {got!r}, expected {want!r}")

    def skip(self, why):
        raise Skipped(why)

    def until(self, condition, what, seconds=60, every=0.1):
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                self.fail(f"not within {seconds} s: {what}")
            time.sleep(every)
        return value

    def id(self, word):
        return f"{self.prefix}-{word}-{os.getpid()}"

    def path(self, name):
        return os.path.join(self.folder, name)

    def target(self, script, **keys):
        """Makes `sh -c script` the test of the target in this folder."""
        table = "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items() if not isinstance(v, dict))
        resources = "".join(f"{json.dumps(k)} = {v}\n" for k, v in keys.get("resources", {}).items())
        with open(os.path.join(self.cwd, "gdnctl.toml"), "w") as f:
            f.write(f'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", {json.dumps(script, ensure_ascii=False)}]\n{table}')
            if resources:
                f.write("[targets.t.test.resources]\n" + resources)

    # --- gdnctl ----------------------------------------------------------------------------------------------------
    def start(self, *words, place=True, env=None, args=None):
        self.count += 1
        out, err = self.path(f"run/{self.count}.out"), self.path(f"run/{self.count}.err")
        argv = [self.binary, *words[:1], *(args if args is not None else self.place.args if place else []), *words[1:]]
        environment = {k: v for k, v in {**self.env, **(env or {})}.items() if v is not None}
        with open(out, "wb") as o, open(err, "wb") as e:
            process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=o, stderr=e, cwd=self.cwd)
        started = Running(process, argv, out, err)
        self.running.append(started)
        return started

    def run(self, code, *words, seconds=120, **more):
        """Runs gdnctl and demands the exit code (None: any)."""
        self.last = self.start(*words, **more).finish(seconds)
        if code is not None:
            self.equal(self.last.code, code, "the exit code")
        return self.last

    def submit(self, word, script, *extra, **more):
        """Submits without waiting; the id."""
        id = self.id(word)
        self.target(script)
        ran = self.run(0, "ray-test", "--no-wait", "--submission-id", id, *extra, **more)
        self.equal(ran.out.decode(), f"[gdnctl] submission_id={id}\n", "stdout")
        return id

    def status(self, id):
        ran = self.start("ray-list", "--json", "--limit", "10000").finish()
        if ran.code != 0:
            raise Failed(str(ran))
        return next((j["status"] for j in ran.json["jobs"] if j["submission_id"] == id), "absent")

    def until_status(self, id, wanted, seconds=60):
        self.until(lambda: self.status(id) == wanted, f"{id} {wanted}", seconds)

    def wait(self, code, id, *extra, **more):
        return self.run(code, "ray-wait", id, "--poll", "0.2", *extra, **more)

    def stored(self, output):
        """What a job has written as the place keeps it: lines on Iris, which end with a newline each."""
        return output + b"\n" if self.place.iris and output and not output.endswith(b"\n") else output

    def log_of(self, id):
        """The job's log as the place itself has it, past gdnctl."""
        if self.place.iris:
            path = self.path(f"run/{id}.log")
            with open(path, "wb") as f:
                f.writelines(line.encode() + b"\n" for line in self.place.node.log(f"/{self.env['USER']}/{id}"))
        elif not self.place.ray:
            path = self.path(f"state/gdnctl/local/jobs/{id}/log")
        elif self.place.node:
            path = self.place.node.log_file(id)
        else:
            self.skip("the log file of somebody else's node is out of reach")
        return path

    def api(self, method, path, body=None):
        return call(self.place.url, self.place.token, method, path, body)

    def end(self):
        for started in self.running:
            if started.process.returncode is None:
                started.finish(0)

    def left(self, words):
        """pids of processes whose command line has the words."""
        return [pid for pid, line in command_lines() if words in line]


def command_lines():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    yield int(entry), f.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def without_ray_lines(log):
    """A job's own bytes: Ray writes two lines of its own into the log, anywhere near its start, even within a line."""
    log = re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\tINFO job_manager\.py:\d+ -- [^\n]*\n", b"", log)
    return re.sub(rb"Running entrypoint for job [^\n]*\n", b"", log)
