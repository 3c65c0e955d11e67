"""devtpu.py GDNCTL [ROUNDS] [--ray]: what a held dev TPU costs beyond ssh and rsync.

The host is a real sshd on loopback and the cluster a scripted dashboard that runs the holder at once (see
tests/support/sshd_host.sh), so that the queue and Ray's own start are not in the figures. Each command of gdnctl takes
turns with its peer, plain ssh or rsync through the same alias and connection; printed are the medians, what gdnctl
takes beyond the peer, and the ratio. With --ray the cluster is a real Ray of one node (see tests/conformance/ray), and the
peer of an allocation and of a release is a job of one line that asks for the same TPU.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FILES = 10_000
WORLD = """
world() {
  . "$REPO/tests/support/sshd_host.sh"
  host
  export REMOTE
  python3 -B %s --inside "http://127.0.0.1:$PORT" %d %s
}
"""


def timed(argv, **more):
    began = time.monotonic()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    took = time.monotonic() - began
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {argv}:\n{done.stdout.decode(errors='replace')}")
    return took, done.stdout.decode(errors="replace")


def tell(name, ours, peer, peer_name, goal):
    a, b = statistics.median(ours), statistics.median(peer)
    print(f"{name:<34} {a:6.3f} s  {peer_name:<22} {b:6.3f} s  {a - b:+7.3f} s  x{a / b:.1f}   goal {goal}", flush=True)


def plain_job(node, name):
    """A job that takes the TPU and says one word, past gdnctl: seconds until the word is in its log, and seconds from the
    request to stop it until its end."""
    def until(path, word):
        while word not in json.dumps(node.api("GET", path)):
            time.sleep(0.05)

    began = time.monotonic()
    node.api("POST", "/api/jobs/", {"submission_id": name, "entrypoint": "echo 'a'wake; exec sleep 600",
                                    "entrypoint_resources": {"TPU": 4, "TPU-v5p-8-head": 1}})
    until(f"/api/jobs/{name}/logs", "awake")
    up = time.monotonic()
    node.api("POST", f"/api/jobs/{name}/stop", {})
    until(f"/api/jobs/{name}", '"STOPPED"')
    return up - began, time.monotonic() - up


def on_ray(rounds):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance/ray"))
    import node as nodes
    node = nodes.Node("2.60.0")
    node.start()
    try:
        os.environ["RAY_AUTH_TOKEN"] = node.token
        gdnctl, hold = os.environ["GDNCTL"], ["--ray-address", node.url, "--tpu-name", "a"]
        plain_job(node, "first")  # the first job of a node waits for its workers
        ready, released, plain_ready, plain_released = [], [], [], []
        for i in range(rounds):
            up, down = plain_job(node, f"plain-{i}")
            plain_ready.append(up)
            plain_released.append(down)
            ready.append(timed([gdnctl, "dev-tpu-allocate", *hold, "--tpu-type", "v5p-8", "--username", "root", "--no-setup",
                                "--detach"])[0])
            released.append(timed([gdnctl, "dev-tpu-release", *hold])[0])
        tell("on Ray: allocate to ready", ready, plain_ready, "a job of one line", "+4 s")
        tell("on Ray: release", released, plain_released, "stopping that job", "2 s")
    finally:
        node.close()


def inside(url, rounds):
    gdnctl, home = os.environ["GDNCTL"], os.environ["HOME"]
    hold = ["--ray-address", url, "--tpu-name", "a"]
    ssh = ["ssh", "-F", home + "/.ssh/config", "-o", "BatchMode=yes"]
    allocate = [gdnctl, "dev-tpu-allocate", *hold, "--tpu-type", "v5p-8", "--username", "root", "--no-setup", "--detach"]
    execute = [gdnctl, "dev-tpu-execute", *hold]
    close = [*ssh, "-O", "exit", "dev-tpu-a"]
    ready, cold, released, warm = [], [], [], []
    for _ in range(rounds):
        ready.append(timed(allocate)[0])
        subprocess.run(close, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        cold.append(timed([*ssh, "dev-tpu-a", "true"])[0])
        warm.append(timed([*ssh, "dev-tpu-a", "true"])[0])
        released.append(timed([gdnctl, "dev-tpu-release", *hold])[0])
    tell("allocate to ready", ready, cold, "ssh, new connection", "+4 s")
    tell("release", released, warm, "ssh, warm", "2 s")

    timed(allocate)
    plain, ours = [], []
    timed([*ssh, "dev-tpu-a", "true"])
    for _ in range(5 * rounds):
        plain.append(timed([*ssh, "dev-tpu-a", "true"])[0])
        ours.append(timed([*execute, "--no-sync", "true"])[0])
    tell("execute --no-sync", ours, plain, "ssh, warm", "+0.15 s")

    for i in range(FILES):
        os.makedirs(f"tree/{i // 100}", exist_ok=True)
        with open(f"tree/{i // 100}/{i}", "w") as f:
            f.write(f"file {i}\n" * 20)
    timed(["git", "add", "-A"])
    names = timed(["git", "ls-files", "-z"])[1]
    first, _ = timed([*execute, "true"])
    print(f"{f'sync of {FILES:,} files, first':<34} {first:6.3f} s", flush=True)
    rsync = ["rsync", "-azL", "--from0", "--files-from=-", "-e", " ".join(ssh), "./", "dev-tpu-a:marin/"]
    peer, again = [], []
    for i in range(rounds):
        with open("tree/0/0", "w") as f:
            f.write(f"changed {i}\n")
        again.append(timed([*execute, "true"])[0] - statistics.median(ours))
        began = time.monotonic()
        subprocess.run(rsync, input=names.encode(), check=True)
        peer.append(time.monotonic() - began)
    tell(f"sync of {FILES:,} files again", again, peer, "rsync of the same list", "1 s")
    timed([gdnctl, "dev-tpu-release", *hold])


def main():
    if sys.argv[1] == "--inside":
        return on_ray(int(sys.argv[3])) if "--ray" in sys.argv else inside(sys.argv[2], int(sys.argv[3]))
    here = os.path.dirname(os.path.abspath(__file__))
    numbers = [int(word) for word in sys.argv[2:] if word.isdigit()]
    rounds = numbers[0] if numbers else 5
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(WORLD % (os.path.abspath(__file__), rounds, "--ray" if "--ray" in sys.argv else ""))
        script.flush()
        run = subprocess.run(["bash", here + "/../support/run_cli_test.sh", script.name, "world", os.path.abspath(sys.argv[1])])
    return 0 if run.returncode == 77 else run.returncode


sys.exit(main())
