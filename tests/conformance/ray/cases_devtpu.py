"""Holding the one made-up TPU host: how long, by whom, and without ssh. (The ssh side is in tests/conformance/devtpu.sh.)"""
import signal
import time

from harness import case

HELD = ("local", "ray", "old", "iris")
READY = "TPU allocation is active. Press Ctrl-C to release..."


def allocate(t, name, *words, **more):
    return t.start("dev-tpu-allocate", "--tpu-name", name, "--tpu-type", "v5p-8", "--no-sync", *words, **more)


def detach(t, name, *words, code=0, **more):
    return t.run(code, "dev-tpu-allocate", "--tpu-name", name, "--tpu-type", "v5p-8", "--no-sync", "--detach", *words, **more)


def holds(t, name):
    return [h for h in t.run(0, "dev-tpu-list", "--json").json["holds"] if h["tpu_name"] == name]


def release(t, name):
    t.run(0, "dev-tpu-release", "--tpu-name", name)


@case(on=HELD, tpu=True)
def held_listed_released(t):
    name = t.id("h")
    began = time.monotonic()
    running = allocate(t, name)
    running.until(READY, "err")
    t.check(time.monotonic() - began < 30, "ready too late")
    held = holds(t, name)
    t.equal([(h["status"], h["tpu_type"], h["owner"]) for h in held], [("RUNNING", "v5p-8", "mine")], "the list")
    t.check(held[0]["lease_ends"] < held[0]["cap_ends"], "the ends")
    began = time.monotonic()
    running.signal(signal.SIGINT)
    ran = running.finish()
    t.equal(ran.code, 130, "the exit code")
    t.check("TPU allocation released." in ran.err, "not released")
    t.check(time.monotonic() - began < 5, "released too late")
    t.equal(holds(t, name), [], "what is held")
    release(t, name)


@case(on=HELD, tpu=True)
def a_killed_client_frees_it(t):
    name = t.id("k")
    running = allocate(t, name, "--lease", "4", "--grace", "6")
    running.until(READY, "err")
    running.signal(signal.SIGKILL)
    running.finish()
    t.equal(len(holds(t, name)), 1, "holds")
    t.until(lambda: not holds(t, name), "the lease to end", 14)


@case(on=("ray", "iris"), tpu=True)
def kept_without_ssh_until_its_cap(t):
    """Nothing answers by ssh here: jobs on the holder's host, on Iris commands in its container, renew the lease, each some seconds after the last. (On this
    machine the lease is a file: tests/cli/dev_tpu.sh.)"""
    name = t.id("c")
    running = allocate(t, name, "--lease", "9", "--grace", "20", "--max-hold", "15")
    running.until(READY, "err")
    time.sleep(10)
    t.equal(len(holds(t, name)), 1, "holds after more than a lease")
    ran = running.finish(30)
    t.equal(ran.code, 124, "the exit code")
    t.check("has reached its cap of 15.0 s" in ran.err, "no word of the cap")


@case(on=HELD, tpu=True)
def commands_run_beside_the_holder(t):
    name = t.id("x")
    detach(t, name)
    with open(t.cwd + "/note", "w") as f:
        f.write("from here\n")
    t.run(0, "dev-tpu-execute", "--tpu-name", name, "--", "cat", "note")
    t.check(b"from here\n" in t.last.out, "the tree did not travel")
    t.run(7, "dev-tpu-execute", "--tpu-name", name, "--no-sync", "--", "sh", "-c", "exit 7")
    t.target("echo tested")
    t.run(0, "dev-tpu-test", "--tpu-name", name, "--json")
    t.equal(t.last.json["status"], "SUCCEEDED", "the test")
    release(t, name)
    t.run(4, "dev-tpu-execute", "--tpu-name", name, "true")


@case(on=HELD, tpu=True)
def adopted_by_its_owner_refused_to_others(t):
    name = t.id("a")
    running = allocate(t, name)
    running.until(READY, "err")
    running.signal(signal.SIGKILL)
    running.finish()
    id = holds(t, name)[0]["submission_id"]
    t.equal(detach(t, name, "--json").json["adopted"], True, "adopted")
    t.equal([h["submission_id"] for h in holds(t, name)], [id], "holds")
    detach(t, name, code=2, env={"USER": "bob"})
    t.run(2, "dev-tpu-release", "--tpu-name", name, env={"USER": "bob"})
    release(t, name)


@case(on=HELD, tpu=True)
def given_up_while_it_waits(t):
    first, second = t.id("w1"), t.id("w2")
    detach(t, first)
    detach(t, second, "--ready-timeout", "3", code=124)
    release(t, first)
    # On Ray a job that was given up while it waited starts all the same, and is stopped at once.
    t.until(lambda: not holds(t, second), "the second hold to be over", 60)
    detach(t, first)
    release(t, first)
