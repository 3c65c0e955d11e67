"""downloads.py GDNCTL [ROUNDS [FOLDER]]: hf-download-trace beside `hf download` and curl, from a fake Hub with nginx as its CDN.

nginx also answers for the addresses of files, so that no subject waits for the fake's Python but for the listing. Every round runs each subject once, in turn, so that what else the machine does hits all of them; printed are medians over the
rounds (5) and medians of the ratios within a round. All subjects make the same requests: an address from the Hub, then the
file from the CDN. `hf` is left out where tests/conformance/hub.sh has not installed it, nginx where it is missing (the
fake Hub then serves the files, which costs every subject the same). Everything lies in FOLDER (build/bench); in /dev/shm no
disk is measured. What a round has written stays until all rounds are over, unless it is large: ext4 looks at every inode
that was deleted lately when it creates a file.
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
COMMIT = "c0ffee" + "0" * 34


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

    def addresses(self):
        """What the Hub answers when it is asked for a file, for nginx."""
        rules = []
        for name in sorted(os.listdir(self.repo)):
            with open(os.path.join(self.repo, name), "rb") as f:
                etag = hash_all(f)
            size = os.path.getsize(os.path.join(self.repo, name))
            rules.append(f"location ~ ^/datasets/o/r/resolve/[^/]+/{re.escape(name)}$ {{ add_header X-Repo-Commit {COMMIT} always; "
                         f"add_header X-Linked-Size {size} always; add_header X-Linked-Etag '\"{etag}\"' always; "
                         f"return 302 {self.cdn}/datasets/o/r/{name}?X-Amz-Signature=s; }}")
        return "\n".join(rules)

    def start_nginx(self):
        with socket.socket() as cdn, socket.socket() as hub:
            for s in (cdn, hub):
                s.bind(("127.0.0.1", 0))
            port, hub_port = cdn.getsockname()[1], hub.getsockname()[1]
        at = os.path.join(self.folder, "nginx")
        os.makedirs(at)
        user = "user root;" if os.getuid() == 0 else ""
        temporary = " ".join(f"{kind}_temp_path {at}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(at + "/conf", "w") as f:
            f.write(f"daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error; {user} events {{ }} http {{ access_log off; "
                    f"sendfile on; keepalive_requests 100000; {temporary} server {{ listen 127.0.0.1:{port}; root {self.folder}/repos; }} "
                    f"server {{ listen 127.0.0.1:{hub_port}; include {at}/addresses; location / {{ proxy_pass {self.endpoint}; }} }} }}")
        open(at + "/addresses", "w").close()
        self.children.append(subprocess.Popen([self.nginx, "-e", at + "/error", "-p", at, "-c", at + "/conf"]))
        self.wait_for("nginx/pid")
        self.cdn = f"http://127.0.0.1:{port}"
        self.fake, self.endpoint = self.endpoint, f"http://127.0.0.1:{hub_port}"
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
        self.serve_addresses()

    def serve_addresses(self):
        if not self.nginx:
            return
        with open(os.path.join(self.folder, "nginx/addresses"), "w") as f:
            f.write(self.addresses())
        self.children[-1].send_signal(signal.SIGHUP)
        time.sleep(1)

    def close(self):
        for child in self.children:
            child.send_signal(signal.SIGTERM)
            child.wait()


def environment(world, home):
    return {"PATH": os.environ["PATH"], "HOME": home, "HF_HOME": home + "/hf", "HF_ENDPOINT": world.endpoint, "NO_COLOR": "1",
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def run(words, env, code=0):
    """Seconds."""
    start = time.perf_counter()
    done = subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != code:
        sys.exit(f"{' '.join(words)[:300]}: {done.returncode}: {done.stderr.decode()[-2000:]}")
    return seconds


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
            f.write(f'url = "{world.endpoint}/datasets/o/r/resolve/{COMMIT}/{name}"\noutput = "{out}/{name}"\n')
    os.makedirs(out, exist_ok=True)
    return ["curl", "-q", "-sSfL", "-Z", "--parallel-max", "8", "-K", config]


def compare(title, world, subjects, reference, keep=False):
    """subjects: {name: a function of the output folder that gives the command}."""
    print(title)
    seconds = {name: [] for name in subjects}
    kept = tempfile.mkdtemp(dir=world.folder)
    for turn in range(ROUNDS + 1):  # the first warms the caches up, of files too
        for name, words in subjects.items():
            home = tempfile.mkdtemp(dir=kept)
            out = home + "/out"
            taken = run(words(out), environment(world, home))
            with_files = sum(len([f for f in files if not f.startswith(".gdnctl")]) for at, _, files in os.walk(out) if "/.cache" not in at)
            if with_files != len(os.listdir(world.repo)):
                sys.exit(f"{name} has {with_files} files")
            if turn:
                seconds[name].append(taken)
            if not keep:
                shutil.rmtree(home)
    shutil.rmtree(kept)
    for name in subjects:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[reference]))
        print(f"  {name:<22} median {statistics.median(seconds[name]):7.3f} s  x {ratio:5.2f} of {reference}  min {min(seconds[name]):7.3f} s")
    return seconds


def small(world):
    names = [f"{i:03}.trace.json.gz" for i in range(200)]
    world.files({name: 100_000 for name in names})
    subjects = {"gdnctl": ours, **official(), "curl -Z, 8 at a time": lambda out: curl(world, names, out)}
    compare("200 files of 100 KB", world, subjects, "hf 2.4.0" if "hf 2.4.0" in subjects else "gdnctl", keep=True)


def large(world):
    world.files({"big.trace.json.gz": GIB})
    whole = os.path.join(world.repo, "big.trace.json.gz")
    hashing = []

    def sha256(out):
        start = time.perf_counter()
        with open(whole, "rb") as f:
            hash_all(f)
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
    return digest.hexdigest()


def resumed(world):
    """Half of the GiB is there; both sides of a round are ours."""
    first, second = [], []
    for turn in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=world.folder) as home:
            env, out = environment(world, home), home + "/out"
            first.append(run(ours(out, "--jobs", "1"), env))
            shutil.rmtree(out)
            world.setup(with_cdn=False, rules=[{"on": "cdn", "times": 1, "do": {"cut": GIB // 2, "turn": turn}}])
            run(ours(out, "--jobs", "1", "--retries", "0"), dict(env, HF_ENDPOINT=getattr(world, "fake", world.endpoint)), code=4)
            world.setup()
            second.append(run(ours(out, "--jobs", "1"), env))
            with open(out + "/.gdnctl-manifest.json") as f:
                moved = json.load(f)["files"][0]["bytes_transferred"]
    ratio = statistics.median(b / a for a, b in zip(first, second))
    print(f"1 GiB, half of it there    median {statistics.median(second):7.3f} s  x {ratio:.2f} of all of it ({statistics.median(first):.3f} s), {moved} bytes moved")


def memory(world):
    world.files({})
    with open(os.path.join(world.repo, "big.trace.json.gz"), "wb") as f:
        f.truncate(2_000_000_000)
    world.serve_addresses()
    with tempfile.TemporaryDirectory(dir=world.folder) as home:
        timed = ["/usr/bin/time", "-f", "%M", "-o", home + "/peak"]  # what this process has itself would count otherwise
        run(timed + ours(home + "/out"), environment(world, home))
        with open(home + "/peak") as f:
            print(f"2 GB: resident memory at most {int(f.read()) / 1024:.1f} MB")


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
    at = sys.argv[3] if len(sys.argv) > 3 else os.path.join(ROOT, "build/bench")
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
