"""Holding the one made-up TPU host of a real Iris controller, beyond what holds everywhere (../ray/cases_devtpu.py)."""
import os
import signal
import subprocess
import time

from cases_devtpu import READY, allocate, detach, holds, release
from cases_iris import IRIS, kick, name_of
from harness import case


HERE = os.path.dirname(os.path.abspath(__file__))


def hold_name(t, name):
    return name_of(t, holds(t, name)[0]["submission_id"])


@case(on=IRIS, tpu=True)
def commands_in_the_container_are_byte_exact(t):
    name = t.id("b")
    detach(t, name)
    execute = ("dev-tpu-execute", "--tpu-name", name, "--no-sync", "--")
    ran = t.run(7, *execute, "sh", "-c", r"printf 'a\377\000b\r\n'; printf '\300end'; exit 7")
    t.equal(ran.out, b"a\xff\0b\r\n\xc0end", "the bytes")
    size = 3_000_000
    ran = t.run(0, *execute, "sh", "-c", f"head -c {size} /dev/urandom >/tmp/gdnctl-conf-{name}; cat /tmp/gdnctl-conf-{name}; sha256sum </tmp/gdnctl-conf-{name} | cut -c-64; rm /tmp/gdnctl-conf-{name}")
    import hashlib
    t.equal(ran.out[size:size + 64].decode(), hashlib.sha256(ran.out[:size]).hexdigest(), "SHA-256 of 3 MB")
    t.run(0, *execute, "sh", "-c", "cat; exit 0")  # nothing on standard input
    began = time.monotonic()
    t.run(0, *execute, "true")
    t.check(time.monotonic() - began < 3, "a warm command took too long")
    # A tree and what a run leaves in it.
    with open(t.cwd + "/note", "w") as f:
        f.write("from here\n")
    t.run(0, "dev-tpu-execute", "--tpu-name", name, "--", "sh", "-c", "cat note; mkdir -p .venv; echo kept >.venv/mark")
    t.equal(t.last.out, b"from here\n", "the tree")
    t.equal(t.run(0, "dev-tpu-execute", "--tpu-name", name, "--", "cat", ".venv/mark").out, b"kept\n", "the same tree again")
    mark = f"90{os.getpid()}.{t.prefix[-3:].encode().hex()}"
    running = t.start(*execute[:-1], "--", "sh", "-c", f"echo up; sleep {mark}; :")
    running.until("up")
    running.signal(signal.SIGINT)
    t.equal(running.finish(30).code, 130, "interrupted")
    t.until(lambda: not t.left(f"sleep {mark}"), "the command is gone there", 15)
    release(t, name)


@case(on=IRIS, tpu=True)
def released_by_completing_it(t):
    name = t.id("r")
    running = allocate(t, name)
    running.until(READY, "err")
    job = hold_name(t, name)
    held = t.place.node.call("GetJobStatus", {"jobId": job})["request"]
    t.equal((held["resources"]["device"], held["maxRetriesPreemption"]), ({"tpu": {"variant": "v5p-8", "count": 4}}, 0), "the request")
    release(t, name)
    t.equal(t.place.node.state(job), "JOB_STATE_SUCCEEDED", "the job")
    t.last = running.finish(30)
    t.equal(t.last.code, 3, "the exit code of the allocate")
    running = allocate(t, name)
    running.until(READY, "err")
    t.place.node.call("CompleteJob", {"jobId": hold_name(t, name)})
    t.equal(running.finish(30).code, 3, "completed by somebody else")
    t.equal(holds(t, name), [], "what is held")


@case(on=IRIS, tpu=True)
def preempted_hold(t):
    name = t.id("p")
    running = allocate(t, name)
    running.until(READY, "err")
    kick(t, holds(t, name)[0]["submission_id"], "Preempted by /somebody/big/0")
    t.last = running.finish(60)
    t.equal(t.last.code, 4, "the exit code")
    t.check("was preempted" in t.last.err, "not said")
    t.equal(holds(t, name), [], "what is held")


@case(on=IRIS, tpu=True)
def lease_ends_with_its_reason(t):
    name = t.id("l")
    running = allocate(t, name, "--lease", "3", "--grace", "6")
    running.until(READY, "err")
    job = hold_name(t, name)
    time.sleep(5)
    t.equal(t.place.node.state(job), "JOB_STATE_RUNNING", "after more than a lease")
    running.signal(signal.SIGKILL)
    running.finish()
    t.until(lambda: t.place.node.state(job) == "JOB_STATE_SUCCEEDED", "the lease to end", 12)
    t.until(lambda: any("GDNCTL_RELEASED" in line and '"lease"' in line for line in t.place.node.log(job)), "the reason in the log", 10)


@case(on=IRIS, tpu=True)
def killed_while_it_is_made(t):
    """Ten clients, each killed at another instant: one job each or none, and the TPU is free soon after."""
    names = [t.id(f"k{i}") for i in range(10)]
    running = []
    for i, name in enumerate(names):
        running.append((time.monotonic() + 0.03 + 0.2 * i, allocate(t, name, "--lease", "2", "--grace", "3", "--ready-timeout", "8")))
    for until, client in running:
        time.sleep(max(0, until - time.monotonic()))
        client.signal(signal.SIGKILL)
        client.finish()
    for name in names:
        jobs = t.place.node.jobs(f"-{name}-")
        t.check(len(jobs) <= 1, f"jobs of {name}: {[j['jobId'] for j in jobs]}")
    t.until(lambda: all(j["state"] not in ("JOB_STATE_RUNNING", "JOB_STATE_PENDING") for j in t.place.node.jobs(f"{t.prefix}-k")),
            "all of them are over", 40)
    detach(t, names[0])
    release(t, names[0])


@case(on=IRIS, tpu=True)
def a_python_kernel_is_judged_as_a_job_and_on_a_hold(t):
    if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True).returncode != 0:
        t.skip("no /usr/bin/python3 with numpy")
    with open(os.path.join(HERE, "../../fixtures/python/my_gdn.py")) as f:
        wrong = f.read()
    lines = [line for line in wrong.splitlines(True) if not line.startswith("        S = S * decay")]
    mine = "".join("        S = S * decay[:, t]\n" + line if line.startswith("        d = ") else line for line in lines)
    for name, text in (("wrong.py", wrong), ("mine.py", mine)):
        with open(os.path.join(t.cwd, name), "w") as f:
            f.write(text)
    t.target("true")
    hold = t.id("k")
    detach(t, hold)
    verify = ("oracle", "verify", "gdn", "--python", "/usr/bin/python3", "--allow-cpu", "--case", "device_003")
    for where in ([], ["--tpu-name", hold]):
        folder = "failures" + "".join(where[1:])
        where += t.place.args
        got = t.run(0, *verify, "--kernel", "py:mine.py", "--json", *where, place=False).json
        t.equal((got["verdict"], got["environment"]["framework"], got["job"]["backend"]), ("OK", "numpy", "iris"), "the verdict")
        t.equal(t.run(1, *verify, "--kernel", "py:wrong.py", "--json", "--save-failures", folder, *where, place=False).json["verdict"], "WRONG", "the verdict")
        for part in ("inputs", "outputs"):
            t.check(os.path.exists(f"{t.cwd}/{folder}/device_003.{part}.safetensors"), f"{part} of the failure {where}")
        ran = t.run(0, "oracle", "bench", "gdn", "--python", "/usr/bin/python3", "--allow-cpu", "--shape", "1,1,2,32,16,16", "--rounds", "2",
                    "--runs", "1", "--kernel", "py:mine.py", "--json", *where, place=False)
        t.check(ran.json["forward"]["verified"], "verified")
    release(t, hold)
