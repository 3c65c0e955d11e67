"""follow_delay.py GDNCTL [LINES]: how much later than it is written a followed line of a job's log appears.

A job of a real Ray (installed and started as the conformance suite does) writes the time every 0.31 s, out of step with
any polling; printed are median and maximum of the difference to the time at which `ray-test` has printed each line. It
waits for three seconds before, so that the job has been seen to run.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance/ray"))

import node as nodes


def measure(program, arguments, environment, lines):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/gdnctl.toml", "w") as f:
            f.write('target = "t"\n[targets.t.test]\nargv = ["sh", "-c", "sleep 3; for i in $(seq %d); do date +at=%%s.%%N; sleep 0.31; done"]\n' % lines)
        run = subprocess.Popen([program, "ray-test", *arguments], cwd=folder, env={**environment, "HOME": folder},
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        delays = []
        for line in run.stdout:
            if line.startswith(b"at="):
                delays.append(time.time() - float(line[3:]))
        if run.wait() != 0 or len(delays) != lines:
            sys.exit(f"exit code {run.returncode}, {len(delays)} of {lines} lines")
    return delays


def main():
    program, lines = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60
    environment = {"PATH": os.environ["PATH"]}
    node = nodes.Node("2.60.0")
    try:
        node.start()
        places = [("ray 2.60.0", ["--ray-address", node.url], {"RAY_AUTH_TOKEN": node.token}), ("local", ["--cluster", "local"], {})]
        for name, arguments, more in places:
            delays = measure(program, arguments, {**environment, **more}, lines)
            print(f"follow, {name:<12} median {statistics.median(delays):.2f} s  max {max(delays):.2f} s  of {lines} lines", flush=True)
    finally:
        node.close()


main()
