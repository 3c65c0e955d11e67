"""downloads.py GDNCTL [ROUNDS]: hf-download-trace beside `hf download` and curl, from a fake Hub with nginx as its CDN.

Every round runs each subject once, in turn, so that what else the machine does hits all of them; printed are medians over the
rounds (5) and medians of the ratios within a round. All subjects make the same requests: an address from the Hub, then the
file from the CDN. `hf` is left out where tests/conformance/hub.sh has not installed it, nginx where it is missing (the
fake Hub then serves the files, which costs every subject the same).
"""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GDNCTL = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
GIB = 1 << 30


class World:
    """A fake Hub with one dataset, o/r, in a folder; nginx hands out its files."""

    def __init__(self, folder):
        self.folder, self.children = folder, []
        self.repo = os.path.join(folder, "repos/datasets/o/r")
        os.makedirs(self.repo)
        self.setup()
        fake = [sys.executable, "-B", os.path.join(ROOT, "tests/support/fake_hub.py"), folder]
        self.children.append(subprocess.Popen(fake))
        self.endpoint = "http://127.0.0.1:" + self.wait_for("port")
        self.nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        if self.nginx:
            self.start_nginx()

    def wait_for(self, name):
        path = os.path.join(self.folder, name)
        for _ in range(400):
            if os.path.exists(path) and os.path.getsize(path):
                with open(path) as f:
                    return f.read().strip()
            time.sleep(0.02)
        sys.exit("the server does not start: no " + path)

    def start_nginx(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        at = os.path.join(self.folder, "nginx")
        os.makedirs(at)
        user = "user root;" if os.getuid() == 0 else ""
        temporary = " ".join(f"{kind}_temp_path {at}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(at + "/conf", "w") as f:
            f.write(f"daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error; {user} events {{ }} http {{ access_log off; "
                    f"sendfile on; {temporary} server {{ listen 127.0.0.1:{port}; root {self.folder}/repos; }} }}")
        self.children.append(subprocess.Popen([self.nginx, "-e", at + "/error", "-p", at, "-c", at + "/conf"]))
        self.wait_for("nginx/pid")
        self.cdn = f"http://127.0.0.1:{port}"
        self.setup()

    def setup(self, **more):
        if getattr(self, "cdn", None) and more.pop("with_cdn", True):
            more["cdn"] = self.cdn
        more.pop("with_cdn", None)
        with open(os.path.join(self.folder, "setup.new"), "w") as f:
            json.dump(more, f)
        os.rename(os.path.join(self.folder, "setup.new"), os.path.join(self.folder, "setup.json"))

    def files(self, sizes):
        shutil.rmtree(self.repo)
        os.makedirs(self.repo)
        for name, size in sizes.items():
            with open(os.path.join(self.repo, name), "wb") as f:
                while size:
                    block = os.urandom(min(size, 1 << 24))
                    f.write(block)
                    size -= len(block)

    def close(self):
        for child in self.children:
            child.send_signal(signal.SIGTERM)
            child.wait()


def environment(world, home):
    return {"PATH": os.environ["PATH"], "HOME": home, "HF_HOME": home + "/hf", "HF_ENDPOINT": world.endpoint, "NO_COLOR": "1",
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def run(words, env, code=0):
    """Seconds, and the resident memory at its highest, in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) != code:
        sys.exit(f"{' '.join(words)[:300]}: {os.waitstatus_to_exitcode(status)}: {said.decode()[-2000:]}")
    return seconds, usage.ru_maxrss / 1024


def ours(out, *more):
    return [GDNCTL, "hf-download-trace", "--repo-id", "o/r", "--include", "*", "--output-dir", out, *more]


def official():
    found = {}
    for version in ("2.4.0", "0.36.2"):
        program = os.path.join(ROOT, f"build/conformance/hub/huggingface_hub-{version}/bin/hf")
        if os.path.exists(program):
            found[f"hf {version}"] = lambda out, program=program: [program, "download", "o/r", "--repo-type", "dataset", "--local-dir", out]
    return found


def curl(world, names, out):
    config = os.path.join(world.folder, "curl")
    with open(config, "w") as f:
        for name in names:
            f.write(f'url = "{world.endpoint}/datasets/o/r/resolve/{"c0ffee" + "0" * 34}/{name}"\noutput = "{out}/{name}"\n')
    os.makedirs(out, exist_ok=True)
    return ["curl", "-q", "-sSfL", "-Z", "--parallel-max", "8", "-K", config]


def compare(title, world, subjects, reference):
    """subjects: {name: a function of the output folder that gives the command}."""
    print(title)
    seconds, memory = {name: [] for name in subjects}, {name: 0 for name in subjects}
    for turn in range(ROUNDS + 1):  # the first warms the caches up, of files too
        for name, words in subjects.items():
            with tempfile.TemporaryDirectory(dir=world.folder) as home:
                out = home + "/out"
                taken, most = run(words(out), environment(world, home))
                with_files = sum(len([f for f in files if not f.startswith(".gdnctl")]) for at, _, files in os.walk(out) if "/.cache" not in at)
                if with_files != len(os.listdir(world.repo)):
                    sys.exit(f"{name} has {with_files} files")
            if turn:
                seconds[name].append(taken)
                memory[name] = max(memory[name], most)
    for name in subjects:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[reference]))
        print(f"  {name:<22} median {statistics.median(seconds[name]):7.3f} s  x {ratio:5.2f} of {reference}  min {min(seconds[name]):7.3f} s  {memory[name]:5.0f} MB")
    return seconds


def small(world):
    names = [f"{i:03}.trace.json.gz" for i in range(200)]
    world.files({name: 100_000 for name in names})
    subjects = {"gdnctl": ours, **official(), "curl -Z, 8 at a time": lambda out: curl(world, names, out)}
    compare("200 files of 100 KB", world, subjects, "hf 2.4.0" if "hf 2.4.0" in subjects else "gdnctl")


def large(world):
    world.files({"big.trace.json.gz": GIB})
    whole = os.path.join(world.repo, "big.trace.json.gz")
    hashing = []

    def sha256(out):
        start = time.perf_counter()
        with open(whole, "rb") as f:
            hashlib.file_digest(f, "sha256") if hasattr(hashlib, "file_digest") else hash_all(f)
        hashing.append(time.perf_counter() - start)
        return curl(world, ["big.trace.json.gz"], out)

    subjects = {"gdnctl": ours, "gdnctl --jobs 1": lambda out: ours(out, "--jobs", "1"),
                "gdnctl --no-verify": lambda out: ours(out, "--no-verify"), **official(), "curl": sha256}
    seconds = compare("1 GiB", world, subjects, "curl")
    goal = [a / (b + c) for a, b, c in zip(seconds["gdnctl"], seconds["curl"], hashing[1:])]
    print(f"  sha256 alone           median {statistics.median(hashing[1:]):7.3f} s; gdnctl takes x {statistics.median(goal):.2f} of curl and sha256 together")


def hash_all(f):
    digest = hashlib.sha256()
    while block := f.read(1 << 20):
        digest.update(block)


def resumed(world):
    """Half of the GiB is there; both sides of a round are ours."""
    first, second = [], []
    for turn in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=world.folder) as home:
            env, out = environment(world, home), home + "/out"
            first.append(run(ours(out, "--jobs", "1"), env)[0])
            shutil.rmtree(out)
            world.setup(with_cdn=False, rules=[{"on": "cdn", "times": 1, "do": {"cut": GIB // 2, "turn": turn}}])
            run(ours(out, "--jobs", "1", "--retries", "0"), env, code=4)
            world.setup()
            second.append(run(ours(out, "--jobs", "1"), env)[0])
            with open(out + "/.gdnctl-manifest.json") as f:
                moved = json.load(f)["files"][0]["bytes_transferred"]
    ratio = statistics.median(b / a for a, b in zip(first, second))
    print(f"1 GiB, half of it there    median {statistics.median(second):7.3f} s  x {ratio:.2f} of all of it ({statistics.median(first):.3f} s), {moved} bytes moved")


def memory(world):
    world.files({})
    with open(os.path.join(world.repo, "big.trace.json.gz"), "wb") as f:
        f.truncate(2_000_000_000)
    with tempfile.TemporaryDirectory(dir=world.folder) as home:
        print(f"2 GB: resident memory at most {run(ours(home + '/out'), environment(world, home))[1]:.1f} MB")


def first_request(world):
    listener = socket.create_server(("127.0.0.1", 0))
    seen = []

    def serve():
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                seen.append(time.perf_counter())
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    times = []
    with tempfile.TemporaryDirectory(dir=world.folder) as home:
        env = dict(environment(world, home), HF_ENDPOINT=f"http://127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(40):
            seen.clear()
            start = time.perf_counter()
            run(ours(home + "/out"), env, code=6)
            times.append((seen[0] - start) * 1000)
    print(f"start to first request: median {statistics.median(times):.1f} ms, min {min(times):.1f} ms")


def main():
    if re.search(rb"__asan_init", open(GDNCTL, "rb").read()):
        sys.exit("a build with AddressSanitizer says nothing about time")
    at = os.path.join(ROOT, "build/bench")
    os.makedirs(at, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=at) as folder:
        world = World(folder)
        try:
            print(f"files come from {'nginx' if world.nginx else 'the fake Hub'}; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
            first_request(world)
            small(world)
            large(world)
            resumed(world)
            memory(world)
        finally:
            world.close()


main()
