"""A real Iris controller behind a bad road, and one that goes away."""
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import controller as controllers
from cases_iris import IRIS, name_of
from harness import case
from proxy import Proxy

TICKS = "for i in $(seq 60); do echo tick $i; sleep 0.05; done; echo end"


def through(proxy):
    return ["--iris-url", proxy.url]


@case(on=IRIS)
def lost_answers_make_no_second_job(t):
    for word, what in (("swallowed", "swallow"), ("dropped", "drop"), ("cut", ("cut", 4))):
        seen = []

        def rule(asked, n):
            if asked.path.endswith("/LaunchJob"):
                seen.append(asked)
                return what if len(seen) == 1 else None

        with Proxy(t.place.url, rule=rule) as proxy:
            t.target("echo once")
            ran = t.run(0, "ray-test", "--submission-id", t.id(word), args=through(proxy))
            t.equal(ran.out, b"once\n", "the log")
            t.equal(len(seen), 2, "launches")


@case(on=IRIS)
def name_taken_by_another_while_the_answer_was_lost(t):
    def rule(asked, n):
        if asked.path.endswith("/LaunchJob") and not t.place.node.jobs(t.id("foreign")):
            t.place.node.launch(name_of(t, t.id("foreign")), "echo theirs")
            return "drop"

    with Proxy(t.place.url, rule=rule) as proxy:
        t.target("echo mine")
        t.run(2, "ray-test", "--submission-id", t.id("foreign"), args=through(proxy))
    t.equal(t.place.node.log(name_of(t, t.id("foreign"))), ["theirs"], "the log of the other")


@case(on=IRIS)
def follow_through_cut_connections(t):
    count = {"log": 0, "state": 0}

    def rule(asked, n):
        if asked.path.endswith("/FetchLogs"):
            count["log"] += 1
            return ("cut", 60) if count["log"] % 3 == 1 else None
        if asked.path.endswith(("/GetJobState", "/GetJobStatus")):
            count["state"] += 1
            return "drop" if count["state"] % 4 == 2 else None

    with Proxy(t.place.url, rule=rule) as proxy:
        t.target(TICKS)
        ran = t.run(0, "ray-test", "--submission-id", t.id("cut"), args=through(proxy))
    with open(t.log_of(t.id("cut")), "rb") as f:
        t.equal(ran.out, f.read(), "what was followed")
    t.equal(ran.out.splitlines()[-1], b"end", "the last line")
    t.check(count["log"] > 3 and count["state"] > 2, f"nothing was cut: {count}")


@case(on=IRIS)
def state_is_asked_once_a_second_at_most(t):
    with Proxy(t.place.url) as proxy:
        id = t.submit("pace", "sleep 16", args=through(proxy))
        time.sleep(11)
        proxy.asked.clear()
        t.wait(0, id, args=through(proxy))
        began = time.monotonic()
        t.check(len(proxy.asked) <= 30, f"{len(proxy.asked)} requests")
    with Proxy(t.place.url) as proxy:
        t.wait(0, id, args=through(proxy))
        t.check(len(proxy.asked) <= 4, f"{proxy.paths()} of ray-wait on a job that has ended")
    t.check(time.monotonic() - began < 10, "too long")


@case(on=IRIS)
def a_controller_that_asks_for_a_login(t):
    """A real one with auth.iap, and requests that came through a proxy."""
    controller = controllers.Controller(auth=True)
    try:
        controller.start()
        with Proxy(controller.url, add=[("X-Forwarded-For", "203.0.113.9")]) as proxy:
            t.target("echo never")
            for words in (["ray-list"], ["ray-test", "--no-wait"], ["ray-wait", "x"], ["ray-logs", "x"], ["ray-stop", "x"]):
                before = len(proxy.asked)
                ran = t.run(5, *words, args=through(proxy))
                t.check("authentication required" in ran.err, "the text")
                t.equal(len(proxy.asked) - before, 1, f"requests of {words[0]}")
            t.run(5, "ray-list", args=through(proxy), env={"MARIN_CLUSTER_TOKEN": "nonsense-0123456789"})
            t.check("authentication failed" in t.last.err and "nonsense" not in t.last.err, "the text")
    finally:
        controller.close()


@case(on=IRIS)
def killed_while_it_submits(t):
    """Twenty clients, each killed at a random instant: one job or none, and the same command again finds out which."""
    with open(os.path.join(t.cwd, "gdnctl.toml"), "w") as f:
        f.write('target = "t"\n[targets.t]\ntest = ["echo", "ran"]\n')
    fate = random.Random(os.getpid())
    lock = threading.Lock()

    def one(number):
        id = t.id(f"kill{number}")
        with lock:
            client = t.start("ray-test", "--no-wait", "--submission-id", id)
        time.sleep(fate.uniform(0, 0.12))
        client.signal(signal.SIGKILL)
        client.finish()
        time.sleep(0.3)
        found = [job["jobId"] for job in t.place.node.jobs(id) if job["jobId"] == name_of(t, id)]
        with lock:
            again = t.start("ray-test", "--no-wait", "--submission-id", id)
        return id, len(found), again.finish().code

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(20)))
    for id, found, code in results:
        t.equal(code, 2 if found else 0, f"the second submission of {id}, of which there were {found}")
        t.equal(len([job for job in t.place.node.jobs(id) if job["jobId"] == name_of(t, id)]), 1, f"jobs of {id}")


@case(on=IRIS, alone=True, own_node=True)
def away_for_ten_seconds(t):
    id = t.id("away")
    t.target("for i in $(seq 26); do echo tick $i; sleep 0.5; done; echo end")
    following = t.start("ray-test", "--submission-id", id)
    following.until("tick 2")
    waiting = t.start("ray-wait", id, "--poll", "0.5")
    waiting.until("status=RUNNING", where="err")
    t.place.node.away(10)
    for running in (following, waiting):
        t.last = running.finish(90)
        t.equal(t.last.code, 0, "the exit code")
    with open(following.out, "rb") as f:
        t.equal(f.read(), b"".join(b"tick %d\n" % i for i in range(1, 27)) + b"end\n", "what was followed")


@case(on=IRIS, alone=True, own_node=True)
def zz_comes_back_and_knows_nothing(t):
    id = t.submit("gone", "echo up; sleep 600")
    t.until_status(id, "RUNNING")
    waiting = t.start("ray-wait", id, "--poll", "0.5")
    waiting.until("status=RUNNING", where="err")
    following = t.start("ray-logs", id, "-f")
    following.until("up\n")
    t.place.node.restart()
    for running in (waiting, following):
        t.last = running.finish(120)
        t.equal(t.last.code, 4, "the exit code")
        t.check("job record vanished" in t.last.err, "the text")
    t.wait(4, id)
    t.wait(6, t.id("never"))
