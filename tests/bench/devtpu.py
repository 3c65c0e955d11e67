"""devtpu.py GDNCTL [ROUNDS]: what a held dev TPU costs beyond ssh and rsync.

The host is a real sshd on loopback and the cluster a scripted dashboard that runs the holder at once (see
tests/support/sshd_host.sh), so that the queue and Ray's own start are not in the figures. Each command of gdnctl takes
turns with its peer, plain ssh or rsync through the same alias and connection; printed are the medians, what gdnctl
takes beyond the peer, and the ratio.
"""
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
  python3 -B %s --inside "http://127.0.0.1:$PORT" %d
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
        return inside(sys.argv[2], int(sys.argv[3]))
    here = os.path.dirname(os.path.abspath(__file__))
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(WORLD % (os.path.abspath(__file__), rounds))
        script.flush()
        run = subprocess.run(["bash", here + "/../support/run_cli_test.sh", script.name, "world", os.path.abspath(sys.argv[1])])
    return 0 if run.returncode == 77 else run.returncode


sys.exit(main())
