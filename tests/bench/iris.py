"""iris.py GDNCTL [ROUNDS] [--real]: what a job and a held TPU on Iris cost, against the goals.

The controller is the scripted one (tests/support/iris_controller.py), which answers at once; with --real the figures of a
held TPU are those of a real local controller (see tests/conformance/iris), whose own time is in them. "Beyond packing" is the
difference between submissions with a tree of 20 MB and what packing that tree takes, and that of submissions without one.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + "/../conformance/iris", HERE + "/../support"]


class Scripted:
    def __init__(self, folder):
        os.makedirs(folder)
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-B", HERE + "/../support/iris_controller.py", folder],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not os.path.exists(folder + "/port"):
            time.sleep(0.02)
        with open(folder + "/port") as f:
            self.url = "http://127.0.0.1:" + f.read()

    def order(self, **what):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            urllib.request.Request(self.url + "/__control", json.dumps(what).encode())).read()

    def requests(self):
        with open(self.folder + "/requests") as f:
            return [json.loads(line) for line in f]

    def close(self):
        self.process.terminate()
        self.process.wait()


def run(argv, code=0, **more):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    if done.returncode != code:
        sys.exit(f"exit code {done.returncode} of {argv}:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return done


def tell(name, values, unit, goal):
    print(f"{name:<44} median {statistics.median(values):8.3f} {unit:<4} max {max(values):8.3f}   goal {goal}", flush=True)


def tree(megabytes):
    run(["git", "init", "-q"])
    for i in range(megabytes * 10):
        os.makedirs(f"tree/{i // 20}", exist_ok=True)
        with open(f"tree/{i // 20}/{i}", "wb") as f:
            f.write(os.urandom(100_000))
    run(["git", "add", "-A"])


def submission(gdnctl, server, rounds):
    """Seconds from the start of gdnctl to the arrival of the whole LaunchJob."""
    for name, words, goal in (("submission without a tree", ["--working-dir", "none"], "0.060"),
                              ("submission of 20 MB, packing included", [], "-")):
        took = []
        for _ in range(rounds):
            began = time.time()
            run([gdnctl, "ray-test", "--iris-url", server.url, "--no-wait", *words])
            took.append(next(r["time"] for r in reversed(server.requests()) if r["method"] == "LaunchJob") - began)
        tell(name, took, "s", goal)


def follow_delay(gdnctl, server, lines):
    """How much later a line is printed than the controller has it, in steps that are out of tune with any polling."""
    server.order(job={"name": "/me/slow", "state": "JOB_STATE_RUNNING"})
    follower = subprocess.Popen([gdnctl, "ray-logs", "slow", "-f", "--iris-url", server.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                stdin=subprocess.DEVNULL)
    time.sleep(12)  # past the quick looks of the first ten seconds
    began = len(server.requests())
    delays = []
    for i in range(lines):
        given = time.time()
        server.order(append=["/me/slow", [f"line {i}"]])
        follower.stdout.readline()
        delays.append(time.time() - given)
        time.sleep(0.37)
    took = sum(delays) + 0.37 * lines
    asked = [r["method"] for r in server.requests()[began:]]
    server.order(set=["/me/slow", {"state": "JOB_STATE_SUCCEEDED"}])
    follower.communicate(timeout=60)
    tell("a line is seen", delays, "s", "1.2")
    states = sum(m in ("GetJobState", "GetJobStatus") for m in asked)
    print(f"{'looks at the state of a followed job':<44} {states / took:15.2f} /s                    goal 1", flush=True)


def follow_much(gdnctl, server):
    server.order(job={"name": "/me/much", "state": "JOB_STATE_SUCCEEDED"}, log=[f"line {i} {'x' * 60}" for i in range(40_000)])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/dev/null", "w") as null:
        process = subprocess.Popen([gdnctl, "ray-logs", "much", "-f", "--tail", "1000000", "--iris-url", server.url], stdout=null, stderr=null)
        highest = 0
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status") as f:
                    highest = max(highest, next((int(line.split()[1]) for line in f if line.startswith("VmHWM:")), 0))
            except OSError:
                pass
            time.sleep(0.01)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{'follow of 40,000 lines':<44} {highest / 1024:8.1f} MB {cpu:8.2f} s of CPU, exit {process.returncode}   goal 64 MB, 1 s", flush=True)


def held(gdnctl, url, rounds):
    hold = ["--iris-url", url, "--tpu-name", "bench"]
    began = time.monotonic()
    run([gdnctl, "dev-tpu-allocate", *hold, "--tpu-type", "v5p-8", "--no-sync", "--detach"])
    tell("allocate to ready", [time.monotonic() - began], "s", "-")
    try:
        warm = []
        for _ in range(3 * rounds):
            began = time.monotonic()
            run([gdnctl, "dev-tpu-execute", *hold, "--no-sync", "--", "true"])
            warm.append(time.monotonic() - began)
        tell("execute --no-sync -- true", warm, "s", "0.4")
        first, again = [], []
        for i in range(rounds):
            with open("tree/0/0", "w") as f:
                f.write(f"changed {i}\n")
            for times in (first, again):
                began = time.monotonic()
                run([gdnctl, "dev-tpu-execute", *hold, "--", "true"])
                times.append(time.monotonic() - began)
        tell("execute with a new tree of 20 MB", first, "s", "4")
        tell("execute with the same tree again", again, "s", "-")
    finally:
        began = time.monotonic()
        run([gdnctl, "dev-tpu-release", *hold])
        tell("release", [time.monotonic() - began], "s", "-")


def main():
    gdnctl = os.path.abspath(sys.argv[1])
    numbers = [int(word) for word in sys.argv[2:] if word.isdigit()]
    rounds = numbers[0] if numbers else 5
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HOME=folder + "/home", XDG_STATE_HOME=folder + "/state", XDG_CONFIG_HOME=folder + "/config", IRIS_USER="me",
                          GDNCTL_METADATA_BASE="http://127.0.0.1:9/computeMetadata/v1")
        os.makedirs(folder + "/cwd")
        os.chdir(folder + "/cwd")
        with open("gdnctl.toml", "w") as f:
            f.write('target = "t"\n[targets.t]\ntest = ["true"]\n')
        tree(20)
        server = Scripted(folder + "/srv")
        real = None
        try:
            submission(gdnctl, server, 2 * rounds)
            follow_delay(gdnctl, server, 8 * rounds)
            follow_much(gdnctl, server)
            if "--real" in sys.argv:
                import controller as controllers
                real = controllers.Controller().start()
                real.warm()
            held(gdnctl, (real or server).url, rounds)
        finally:
            server.close()
            if real:
                real.close()


main()
