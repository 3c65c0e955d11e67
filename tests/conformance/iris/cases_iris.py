"""Jobs on a real Iris controller, beyond the contract: names, ends, causes, archives, lines."""
import json
import os
import time

from harness import case

IRIS = ("iris",)


def name_of(t, id):
    return f"/{t.env['USER']}/{id}"


def kick(t, id, reason):
    t.place.node.call("KickTasks", {"targets": [name_of(t, id)], "desiredState": "TASK_STATE_PREEMPTED", "reason": reason})


@case(on=IRIS)
def report_and_names(t):
    t.target("echo hello")
    got = t.run(0, "ray-test", "--submission-id", t.id("n"), "--json").json
    t.equal((got["backend"], got["job_id"], got["attempts"], got["root_cause"], got["outputs"]), ("iris", name_of(t, t.id("n")), 1, [], []), "the report")
    keys = list(got)
    t.equal(keys[keys.index("url"):][:5], ["url", "job_id", "attempts", "root_cause", "outputs"], "the keys after url")
    t.equal(t.run(0, "ray-logs", name_of(t, t.id("n"))).out, b"hello\n", "the log by the whole name")
    # Somebody else's job of the same id is another job.
    t.place.node.launch(f"/somebody/{t.id('n')}", "echo theirs; exit 3")
    t.wait(0, t.id("n"))
    got = t.wait(1, f"/somebody/{t.id('n')}", "--json").json
    t.equal((got["submission_id"], got["driver_exit_code"]), (f"/somebody/{t.id('n')}", 3), "theirs")
    # And a longer name is no part of it.
    t.place.node.launch(name_of(t, t.id("n") + "2"), "echo of a neighbour")
    t.wait(0, t.id("n") + "2")
    t.equal(t.run(0, "ray-logs", t.id("n")).out, b"hello\n", "the log beside that of a longer name")


@case(on=IRIS)
def names_of_ended_jobs_are_taken(t):
    id = t.submit("e", "echo first; exit 3")
    t.wait(1, id)
    t.target("echo second")
    ran = t.run(2, "ray-test", "--submission-id", id)
    t.check(f"Job with submission_id {id} already exists. Please use a different submission_id." in ran.err, "the text")
    t.equal(t.run(0, "ray-logs", id).out, b"first\n", "the log of the first")
    for word in ("4711", "a/b", "latest"):
        t.run(2, "ray-test", "--submission-id", word)


@case(on=IRIS)
def lists_of_one_user_and_of_all(t):
    user = t.prefix + "carol"
    good = t.submit("a", "true", env={"USER": user})
    t.wait(0, good, env={"USER": user})
    bad = t.submit("b", "exit 1", env={"USER": user + "x"})
    t.wait(1, f"/{user}x/{bad}")
    mine = t.run(0, "ray-list", "--mine", "--json", env={"USER": user}).json["jobs"]
    t.equal([j["submission_id"] for j in mine], [good], "--mine")
    every = [j["submission_id"] for j in t.run(0, "ray-list", "--json", "--limit", "500", env={"USER": user}).json["jobs"]]
    t.check(every.index(f"/{user}x/{bad}") < every.index(good), f"the order: {every[:10]}")
    failed = [j["submission_id"] for j in t.run(0, "ray-list", "--status", "FAILED", "--json", "--limit", "500", env={"USER": user}).json["jobs"]]
    t.check(f"/{user}x/{bad}" in failed and good not in failed, "--status FAILED")
    t.equal(t.run(0, "ray-list", "--mine", "--json", env={"USER": "x", "IRIS_USER": user}).json["jobs"][0]["submission_id"], good, "IRIS_USER")


@case(on=IRIS)
def cannot_ever_be_scheduled(t):
    t.target("echo never")
    ran = t.run(2, "ray-test", "--tpu", "v6e-8", "--submission-id", t.id("v"))
    t.check("no scaling group provides device tpu:v6e-8" in ran.err, "the text")
    t.wait(6, t.id("v"))
    t.target("echo never", resources={"CPU": 900})
    t.check("is unschedulable" in t.run(2, "ray-test").err, "the text for too many cores")


@case(on=IRIS, tpu=True)
def busy_until_the_limit(t):
    t.place.node.launch(f"/somebody/{t.id('busy')}", "sleep 60", tpu=True)
    t.until(lambda: t.place.node.state(f"/somebody/{t.id('busy')}") == "JOB_STATE_RUNNING", "the TPU is taken")
    try:
        t.target("echo never")
        ran = t.run(4, "ray-test", "--tpu", "v5p-8", "--json", env={"RAY_JOB_START_TIMEOUT_SECONDS": "3"})
        t.equal((ran.json["status"], ran.json["error_type"], ran.json["failure_class"]),
                ("FAILED", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "infra"), "the end")
        t.check("Insufficient TPUs" in ran.err, "the reason is not shown")
    finally:
        t.place.node.call("TerminateJob", {"jobId": f"/somebody/{t.id('busy')}"})


@case(on=IRIS)
def ends_seen_past_gdnctl(t):
    """Jobs of other programs, whose stderr Iris sees."""
    for word, script, code, type_ in (("bad", "echo 'RuntimeError: No accelerator found' >&2; exit 1", 4, "JOB_SUPERVISOR_ACTOR_DIED"),
                                      ("seg", "kill -SEGV $$; sleep 1", 1, "JOB_ENTRYPOINT_COMMAND_ERROR"),
                                      ("err", "echo reason >&2; exit 9", 1, "JOB_ENTRYPOINT_COMMAND_ERROR")):
        t.place.node.launch(name_of(t, t.id(word)), script)
        got = t.wait(code, t.id(word), "--json").json
        t.equal(got["error_type"], type_, f"the type of {word}")
    t.equal(got["driver_exit_code"], 9, "the exit code")
    t.check("reason" in got["message"] and "Cumulative" not in got["message"], got["message"])
    t.equal(t.wait(1, t.id("seg"), "--json").json["driver_exit_code"], -11, "the signal")
    t.place.node.call("LaunchJob", {"name": name_of(t, t.id("none")), "entrypoint": {"runCommand": {"argv": ["/no/such/program"]}},
                                    "resources": {"cpuMillicores": 100, "memoryBytes": "100000000", "diskBytes": "1000000"}, "replicas": 1})
    t.equal(t.wait(1, t.id("none"), "--json").json["error_type"], "JOB_ENTRYPOINT_COMMAND_START_ERROR", "the type of no program")


@case(on=IRIS)
def completed_by_somebody(t):
    id = t.submit("c", "echo up; sleep 60")
    t.until_status(id, "RUNNING")
    t.place.node.call("CompleteJob", {"jobId": name_of(t, id)})
    t.wait(0, id)
    t.equal(t.run(0, "ray-stop", id, "--json").json["stopped"], False, "the stop")


@case(on=IRIS)
def stop_of_one_that_waits_for_its_processes(t):
    mark = f"89{os.getpid()}.{t.prefix[-3:].encode().hex()}"
    id = t.submit("w", f"trap '' TERM; echo up; while :; do sleep {mark}; done")
    t.until(lambda: t.left(f"sleep {mark}"), "the job is up")
    t.equal(t.run(0, "ray-stop", id, "--wait", "--json").json["status"], "STOPPED", "the status")
    t.equal(t.left(f"sleep {mark}"), [], "processes after --wait")


@case(on=IRIS)
def preempted_in_a_test(t):
    id = t.id("p")
    t.target("echo up; sleep 60")
    running = t.start("ray-test", "--submission-id", id, "--json")
    running.until("up", where="err")
    kick(t, id, "Preempted by /somebody/big/0")
    t.last = running.finish(60)
    t.equal(t.last.code, 4, "the exit code")
    got = t.last.json
    t.equal((got["status"], got["error_type"], got["failure_class"]), ("FAILED", "JOB_SUPERVISOR_ACTOR_DIED", "infra"), "the end")
    t.check("Preempted by /somebody/big/0" in got["message"], got["message"])


@case(on=IRIS)
def cause_of_a_failure(t):
    t.target("echo working; echo 'Traceback (most recent call last):'; echo '  File \"x.py\", line 3, in f'; echo 'ValueError: shapes do not match'; exit 3")
    ran = t.run(1, "ray-test", "--submission-id", t.id("t"), "--json")
    t.equal(ran.json["root_cause"][-1:], ["ValueError: shapes do not match"], "root_cause")
    t.check("[gdnctl] cause, says Iris: ValueError: shapes do not match" in ran.err, "not said")


def profile(t, script):
    t.target("true")
    with open(t.cwd + "/gdnctl.toml", "a") as f:
        f.write(f'[targets.t.profile]\nargv = ["sh", "-c", {json.dumps(script)}]\n')


@case(on=IRIS)
def archive_of_outputs(t):
    profile(t, "mkdir -p $GDNCTL_OUTPUT_DIR/plugins/profile/s1; head -c 100000 /dev/urandom >$GDNCTL_OUTPUT_DIR/plugins/profile/s1/h.xplane.pb; "
               "sha256sum <$GDNCTL_OUTPUT_DIR/plugins/profile/s1/h.xplane.pb")
    ran = t.run(0, "ray-profile", "--tpu", "v5p-8", "--outputs", "traces", "--submission-id", t.id("o"), "--json")
    output = ran.json["outputs"][0]
    t.equal((output["task"], output["state"]), (name_of(t, t.id("o")) + "/0", "uploaded"), "the archive")
    t.check(output["uri"].startswith("file://") and output["bytes"] > 100000 and len(output["sha256"]) == 64, str(output))
    with open(t.cwd + "/traces/plugins/profile/s1/h.xplane.pb", "rb") as f:
        import hashlib
        t.check(hashlib.sha256(f.read()).hexdigest() in ran.err, "other bytes came home")
    t.check("[gdnctl] outputs: file://" in ran.err, "not said")
    profile(t, "echo partial >$GDNCTL_OUTPUT_DIR/part; exit 3")
    t.run(1, "ray-profile", "--tpu", "v5p-8", "--outputs", "failed", "--submission-id", t.id("f"))
    t.check(os.path.exists(t.cwd + "/failed/part"), "the outputs of a failed job")
    t.wait(1, t.id("f"), "--outputs", "again")
    t.check(os.path.exists(t.cwd + "/again/part"), "ray-wait --outputs")


@case(on=IRIS)
def children_belong_to_their_job(t):
    go = t.path("go")
    id = t.submit("par", f"echo parent; while [ ! -e {go} ]; do sleep 0.1; done")
    t.until_status(id, "RUNNING")
    t.place.node.launch(name_of(t, id) + "/kid", "echo of-the-kid; echo data >$IRIS_OUTPUT_DIR/k.txt")
    t.until(lambda: t.place.node.state(name_of(t, id) + "/kid") == "JOB_STATE_SUCCEEDED", "the child has ended")
    open(go, "w").close()
    got = t.wait(0, id, "--json", "--outputs", "kids").json
    t.equal([o["task"] for o in got["outputs"]], [name_of(t, id) + "/kid/0"], "outputs")
    t.check(any("k.txt" in files for _, _, files in os.walk(t.cwd + "/kids")), "its file did not come")
    t.check(b"of-the-kid\n" in t.run(0, "ray-logs", id).out, "its log")
    t.check(id + "/kid" not in str(t.run(0, "ray-list", "--json", "--limit", "500").json), "a child in the list")


@case(on=IRIS)
def odd_lines(t):
    t.target("printf 'trailing  \\n\\n'; sleep 0.3; printf 'a\\rb\\n'; sleep 0.3; printf 'nul\\000esc\\033[1m\\n'; sleep 0.3; head -c 5000000 /dev/zero | tr '\\0' z; echo; sleep 0.3; printf 'end €'")
    ran = t.run(0, "ray-test", "--submission-id", t.id("odd"))
    t.equal(ran.out.replace(b"z" * 5000000, b"Z"), b"trailing\n\na\nb\nnul\0esc\x1b[1m\nZ\nend \xe2\x82\xac\n", "followed")
    with open(t.log_of(t.id("odd")), "rb") as f:
        t.equal(ran.out, f.read(), "against the log")


@case(on=IRIS)
def bytes_that_are_not_utf8(t):
    t.target(r"echo first; printf 'bad \377 byte\n'; echo last; sleep 1")
    t.run(1, "ray-test")
    # The filter that docs/jobs.md names.
    t.target(r"(echo first; printf 'bad \377 byte\n'; echo last) | LC_ALL=C sed -u 's/[\x80-\xff]/?/g'")
    t.equal(t.run(0, "ray-test").out, b"first\nbad ? byte\nlast\n", "through the filter")


@case(on=IRIS)
def lines_are_seen_as_they_come(t):
    t.target("sleep 2; for i in $(seq 12); do date +at=%s.%N; sleep 0.53; done")
    running = t.start("ray-test")
    seen, delays = 0, []
    while running.process.poll() is None:
        with open(running.out, "rb") as f:
            lines = f.read().splitlines()
        delays += [time.time() - float(line[3:]) for line in lines[seen:] if line.startswith(b"at=")]
        seen = len(lines)
        time.sleep(0.02)
    t.last = running.finish()
    t.check(len(delays) >= 10, f"{len(delays)} lines while it ran")
    t.check(sorted(delays)[len(delays) // 2] < 3.5, f"seen after {delays}")


@case(on=IRIS, alone=True)
def flood_of_twelve_thousand_lines(t):
    t.target("seq -f 'line %.0f' 12000; sleep 1; echo the last line")
    ran = t.run(0, "ray-test", "--submission-id", t.id("flood"))
    lines = ran.out.decode().splitlines()
    t.equal(lines[-1], "the last line", "the end")
    t.check(8000 <= len(lines) <= 12001 and len(set(lines)) == len(lines), f"{len(lines)} lines, {len(set(lines))} different")
    with open(t.log_of(t.id("flood")), "rb") as f:
        t.equal(ran.out, f.read(), "against the log")
