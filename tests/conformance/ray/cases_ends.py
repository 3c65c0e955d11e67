"""How jobs end: by themselves, by a signal, by a stop, by a limit, and what gdnctl makes of each."""
import json
import os
import signal
import time

from harness import case, without_ray_lines
from node import START_TIMEOUT_S

ALL = ("local", "ray", "open", "old", "iris")
BUT_OPEN = ("local", "ray", "old", "iris")


@case(on=ALL)
def succeeds(t):
    t.target("echo to-out; echo to-err >&2; printf no-newline")
    ran = t.run(0, "ray-test", "--submission-id", t.id("ok"))
    t.equal(without_ray_lines(ran.out), t.stored(b"to-out\nto-err\nno-newline"), "the log")
    t.check(f"[gdnctl] Job submitted with ID: {t.id('ok')}\n" in ran.err, "no line with the id")
    t.check("[gdnctl] Job URL: " in ran.err and "status=SUCCEEDED Job finished successfully." in ran.err, "no status")
    if t.place.ray:
        t.check(f"{t.place.url}/#/jobs/{t.id('ok')}" in ran.err, "the URL is not that of the dashboard")
    if t.place.iris:
        t.check(f"{t.place.url}/#/job/%2Falice%2F{t.id('ok')}" in ran.err, "the URL is not that of the dashboard")
    ran = t.wait(0, t.id("ok"), "--json")
    got = ran.json
    t.equal(list(got)[:8], ["schema", "backend", "cluster", "address", "submission_id", "status", "error_type", "message"],
            "the order of keys")
    t.equal((got["backend"], got["status"], got["failure_class"]), ("ray" if t.place.ray else t.place.kind, "SUCCEEDED", "none"),
            "backend, status, class")
    t.equal(got["driver_exit_code"], None if t.place.iris else 0, "the command's exit code")
    t.check(got["end_time"] >= got["start_time"] > 1.6e12, f"times {got['start_time']}, {got['end_time']}")


@case(on=BUT_OPEN)
def fails_with_exit_code(t):
    t.target("echo before; echo reason; exit 3")
    ran = t.run(1, "ray-test", "--submission-id", t.id("f"), "--json")
    got = ran.json
    t.equal((got["status"], got["error_type"], got["failure_class"], got["driver_exit_code"]),
            ("FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR", "user", 3), "the end")
    if not t.place.iris:  # which says the exit code alone
        t.check("exit code 3, last available logs" in got["message"] and "reason" in got["message"], got["message"])
    t.check("before" in ran.err, "the log is not on stderr")
    t.wait(1, t.id("f"))
    t.wait(0, t.id("f"), "--compat-exit")


@case(on=BUT_OPEN)
def killed_entrypoint(t):
    t.target('[ "$(cat /proc/$PPID/comm)" != sh ] || kill -9 $PPID; kill -9 $$')
    got = t.run(1, "ray-test", "--json").json
    t.check(got["driver_exit_code"] in (-9, 137), f"exit code {got['driver_exit_code']}")
    t.equal((got["error_type"], got["failure_class"]), ("JOB_ENTRYPOINT_COMMAND_ERROR", "user"), "the end")


@case()
def killed_child_and_missing_command(t):
    t.target("sh -c 'kill -9 $$'; exit $?")
    t.equal(t.run(1, "ray-test", "--json").json["driver_exit_code"], 137, "of a killed child")
    t.target("no-such-command-anywhere")
    got = t.run(1, "ray-test", "--json").json
    t.equal((got["driver_exit_code"], got["failure_class"]), (127, "user"), "of a missing command")


@case(on=ALL)
def stop_while_running(t):
    id = t.submit("s", "trap 'echo got-TERM; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    t.until(lambda: b"up\n" in t.run(0, "ray-logs", id).out, "the job is up")
    ran = t.run(0, "ray-stop", id, "--wait", "--json")
    t.equal((ran.json["stopped"], ran.json["status"]), (True, "STOPPED"), "the stop")
    t.check(f"Job {id} stop requested" in ran.err, "not said")
    t.wait(3, id)
    t.check("status=STOPPED Job was intentionally stopped." in t.last.err, "no status line")
    if not t.place.iris:  # a local controller kills at once
        t.check(b"got-TERM\n" in t.run(0, "ray-logs", id).out, "the job saw no SIGTERM")
    ran = t.run(0, "ray-stop", id, "--json")
    t.equal((ran.json["stopped"], ran.json["failure_class"]), (False, "stopped"), "the second stop")


@case(on=("local", "ray"))
def stop_of_one_that_ignores_it(t):
    mark = f"86{os.getpid()}.{t.prefix[-3:].encode().hex()}"
    id = t.submit("i", f"trap '' TERM; setsid sleep {mark} & echo up; while :; do sleep 0.1; done")
    t.until(lambda: b"up\n" in t.run(0, "ray-logs", id).out, "the job is up")
    started = time.monotonic()
    t.run(0, "ray-stop", id, "--wait")
    took = time.monotonic() - started
    t.wait(3, id)
    t.check(took >= 2.5, f"killed after {took:.1f} s, before the 3 s that a job has")
    t.until(lambda: not t.left(f"sleep {mark}"), "the child in a session of its own is gone", 10)


@case(on=ALL)
def ids_that_nobody_has(t):
    for words in (["ray-wait", "nobody"], ["ray-logs", "nobody"], ["ray-stop", "nobody"], ["ray-logs", "nobody", "-f"]):
        ran = t.run(6, *words)
        t.check("Job nobody does not exist" in ran.err, "the text")
    t.run(1, "ray-wait", "nobody", "--compat-exit")
    t.run(2, "ray-wait", "latest")


@case(on=BUT_OPEN)
def duplicate_id(t):
    id = t.submit("d", "echo first")
    ran = t.run(2, "ray-test", "--no-wait", "--submission-id", id)
    t.check(f"Job with submission_id {id} already exists. Please use a different submission_id." in ran.err, "the text")
    t.wait(0, id, "--show-logs")
    t.equal(without_ray_lines(t.last.out), b"first\n", "the first one's log")


@case(on=BUT_OPEN, tpu=True)
def queue_for_the_tpu(t):
    go = t.path("go")
    first = t.submit("q1", f"echo up; while [ ! -e {go} ]; do sleep 0.1; done", "--tpu", "v5p-8")
    t.until_status(first, "RUNNING")
    second = t.submit("q2", "echo second ran", "--tpu", "v5p-8")
    third = t.submit("q3", "echo third ran", "--tpu", "v5p-8")
    time.sleep(1.5)
    t.equal(t.status(second), "PENDING", "the second job's state")
    t.run(0, "ray-logs", second)
    t.equal(t.last.out, b"", "the log of a job that waits")
    # Given up while it waits: on local it is over at once; Ray says yes, and does it when the job's turn comes.
    ran = t.run(0, "ray-stop", third, "--json")
    t.equal(ran.json["stopped"], True, "stopped")
    t.equal(t.status(third), "PENDING" if t.place.ray else "STOPPED", "the third job's state after the stop")
    open(go, "w").close()
    t.wait(0, first)
    t.wait(0, second, "--show-logs")
    t.check(b"second ran\n" in t.last.out, "the second job did not run")
    # A stop that meets a command which has just ended makes Ray fail over its own feet; it is a stop all the same.
    t.wait(3, third)


@case(on=("local", "ray"), tpu=True)
def start_timeout(t):
    limit = {"RAY_JOB_START_TIMEOUT_SECONDS": "2"} if not t.place.ray else {}
    id = t.submit("late", "echo never", "--tpu", "v6e-8", env=limit)
    ran = t.wait(4, id, "--json", "--poll", "0.5")
    got = ran.json
    t.equal((got["status"], got["error_type"], got["failure_class"]),
            ("FAILED", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "infra"), "the end")
    seconds = START_TIMEOUT_S if t.place.ray else 2
    t.check(f"Job supervisor actor failed to start within {seconds:.1f} seconds" in got["message"].replace(" 2 s", " 2.0 s"),
            got["message"])


@case(on=BUT_OPEN)
def our_time_limit_leaves_the_job_alone(t):
    go = t.path("go")
    id = t.submit("t", f"while [ ! -e {go} ]; do sleep 0.1; done")
    t.until_status(id, "RUNNING")
    ran = t.wait(124, id, "--timeout", "0.6", "--json")
    t.equal((ran.json["status"], ran.json["failure_class"]), ("RUNNING", "timeout"), "the report")
    t.wait(2, id, "--timeout", "0.3", "--compat-exit")
    t.equal(t.status(id), "RUNNING", "the job's state")
    open(go, "w").close()
    t.wait(0, id)


@case()
def time_limit_of_the_target_stops_the_job(t):
    t.target("echo up; sleep 300", timeout_s=6)
    t.run(124, "ray-test", "--submission-id", t.id("limit"))
    t.wait(3, t.id("limit"))


def interrupted(t, word, number, code, after, *extra):
    go = t.path("go-" + word)
    id = t.id(word)
    t.target(f"echo up; while [ ! -e {go} ]; do sleep 0.1; done")
    running = t.start("ray-test", "--submission-id", id, *extra)
    running.until("up\n")
    running.signal(number)
    t.last = running.finish(60)
    t.equal(t.last.code, code, "the exit code")
    t.equal(t.status(id), after, "the job's state")
    if after == "RUNNING":
        t.check("gdnctl ray-wait" in t.last.err and id in t.last.err, "no next commands")
    open(go, "w").close()
    t.wait(0 if after == "RUNNING" else 3, id)


@case()
def interrupted_by_ctrl_c(t):
    interrupted(t, "int", signal.SIGINT, 130, "RUNNING")


@case()
def interrupted_by_sigterm_and_hangup(t):
    interrupted(t, "term", signal.SIGTERM, 143, "RUNNING")
    interrupted(t, "hup", signal.SIGHUP, 130, "RUNNING")


@case()
def auto_stop(t):
    interrupted(t, "auto", signal.SIGINT, 130, "STOPPED", "--auto-stop")


@case()
def client_killed_the_job_goes_on(t):
    go = t.path("go")
    id = t.id("kill")
    t.target(f"echo up; while [ ! -e {go} ]; do sleep 0.1; done; echo end")
    running = t.start("ray-test", "--submission-id", id)
    running.until("up\n")
    running.signal(signal.SIGKILL)
    running.finish()
    open(go, "w").close()
    t.wait(0, id, "--show-logs")
    t.check(b"end\n" in t.last.out, "the end of the log")


@case()
def background_children_end_with_their_job(t):
    mark = f"87{os.getpid()}.{t.prefix[-3:].encode().hex()}"
    for word, script in (("bg", f"sleep {mark} & echo done"), ("bgfail", f"(sleep {mark} &) ; echo done; exit 4")):
        id = t.submit(word, script)
        t.wait(0 if word == "bg" else 1, id)
        t.until(lambda: not t.left(f"sleep {mark}"), f"the background child of {word} is gone", 10)
    if t.place.iris:
        return  # what a container would end lives on where there is none
    id = t.submit("away", f"setsid sleep {mark} & sleep 1; echo done")
    t.wait(0, id)
    time.sleep(0.5)
    # A child in a session of its own escapes the group that our entrypoint ends on Ray; nothing escapes local.
    t.equal(len(t.left(f"sleep {mark}")) > 0, t.place.ray, "a child in a session of its own outlives its job")
    for pid in t.left(f"sleep {mark}"):
        os.kill(pid, signal.SIGKILL)


@case(own_node=True, on=("local", "ray", "old"))
def supervisor_killed(t):
    mark = f"88{os.getpid()}.{t.prefix[-3:].encode().hex()}"
    id = t.submit("sup", f"echo up; sleep {mark}")
    t.until(lambda: b"up\n" in t.run(0, "ray-logs", id).out, "the job is up")
    if t.place.ray:
        def sleeper():
            return next((pid for pid in t.left(f"sleep {mark}") if "sh -c" not in line_of(pid)), None)
        t.until(sleeper, "the job sleeps")
        pid = sleeper()
        while "JobSupervisor" not in line_of(pid):
            pid = parent_of(pid)
    else:
        with open(t.path(f"state/gdnctl/local/jobs/{id}/supervisor.json")) as f:
            pid = json.load(f)["supervisor"]["pid"]
    os.kill(pid, signal.SIGKILL)
    got = t.wait(4, id, "--json").json
    t.equal((got["status"], got["error_type"], got["failure_class"]), ("FAILED", "JOB_SUPERVISOR_ACTOR_DIED", "infra"), "the end")
    t.until(lambda: not t.left(f"sleep {mark}"), "the job's processes are gone", 10)


def line_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read().replace(b"\0", b" ").decode(errors="replace")


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])
