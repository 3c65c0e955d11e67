"""A real Ray behind a bad road, and a real Ray that loses parts of itself. Only Ray has these."""
import os
import re
import shutil
import time

from harness import case, sha256, without_ray_lines
from node import call
from proxy import Proxy

RAY = ("ray",)
TICKS = "for i in $(seq 400); do echo tick $i; sleep 0.01; done; echo end"


def through(proxy):
    return ["--ray-address", proxy.url]


def followed_exactly(t, proxy, word, script=TICKS):
    t.target(script)
    ran = t.run(0, "ray-test", "--submission-id", t.id(word), args=through(proxy))
    t.equal(sha256(ran.out_path), sha256(t.log_of(t.id(word))), "SHA-256 of what was followed")
    t.check(not [p for p in proxy.paths() if "stream" in p or p.endswith("/logs/tail")], "an endpoint that is not to be used")
    return ran


def no_agent(asked, answer):
    for details in answer if isinstance(answer, list) else [answer]:
        if isinstance(details, dict) and details.get("driver_agent_http_address"):
            details["driver_agent_http_address"] = "http://127.0.0.1:9"
    return answer


def is_log_file(path):
    return "/api/v0/logs/file" in path or "/logs/job-driver-" in path


@case(on=("ray", "old"), own_node=True)
def requests_are_as_they_must_be(t):
    with Proxy(t.place.url) as proxy:
        t.target("echo hello")
        t.run(0, "ray-test", "--submission-id", t.id("req"), args=through(proxy))
        for asked in proxy.asked:
            names = {k.lower() for k in asked.headers}
            t.check(re.fullmatch(r"gdnctl/\S+", asked.headers.get("User-Agent", "")), f"{asked}: User-Agent {asked.headers.get('User-Agent')}")
            t.equal(asked.headers.get("Authorization"), f"Bearer {t.place.token}", f"Authorization of {asked}")
            t.check(not names & {"origin", "referer", "expect"} and not any(n.startswith("sec-fetch") for n in names), f"{asked}: {names}")
        order = [str(a) for a in proxy.asked if "/api/packages" in a.path or a.method == "POST"]
        t.check(re.fullmatch(r"(GET|HEAD) /api/packages/gcs/(_ray_pkg_[0-9a-f]{40}_[0-9a-f]{8}\.zip)\nPUT /api/packages/gcs/\2\nPOST /api/jobs/", "\n".join(order)),
                f"probe, upload, submit: {order}")
    with Proxy(t.place.url) as proxy:
        t.wait(0, t.id("req"), args=through(proxy))
        t.equal(proxy.paths(), [f"/api/jobs/{t.id('req')}"], "the requests of ray-wait on a job that has ended")


@case(on=("ray", "old"), own_node=True)
def follow_without_a_way_to_the_agent(t):
    with Proxy(t.place.url, rewrite=no_agent) as proxy:
        followed_exactly(t, proxy, "noagent")
        t.check([p for p in proxy.paths() if "/api/v0/logs/file" in p], "the polled tail was not used")
        # Equal lines, among which the end of what was printed cannot be told by its text.
        followed_exactly(t, proxy, "equal", "i=0; while [ $i -lt 30000 ]; do echo same; i=$((i+1)); done; sleep 1; for i in $(seq 300); do echo same; sleep 0.01; done")


@case(on=RAY, own_node=True)
def follow_by_the_whole_log_only(t):
    def rule(asked, n):
        if "/api/v0/" in asked.path:
            return "answer", 500, [("Content-Type", "application/json")], b'{"result": false, "msg": "A file is not found at: x", "data": {}}'

    with Proxy(t.place.url, rule=rule, rewrite=no_agent) as proxy:
        t.target(TICKS)
        ran = t.run(0, "ray-test", "--submission-id", t.id("whole"), args=through(proxy))
        t.equal(sha256(ran.out_path), sha256(t.log_of(t.id("whole"))), "SHA-256 of what was followed")


@case(on=RAY, own_node=True)
def follow_through_cut_connections(t):
    count = {"log": 0, "status": 0}

    def rule(asked, n):
        if is_log_file(asked.path):
            count["log"] += 1
            return ("cut", 700) if count["log"] % 3 == 0 else "drop" if count["log"] % 7 == 0 else None
        if asked.method == "GET" and "/api/jobs/" in asked.path:
            count["status"] += 1
            return "drop" if count["status"] % 4 == 2 else None

    with Proxy(t.place.url, rule=rule, rewrite=no_agent) as proxy:
        followed_exactly(t, proxy, "cut")
        t.check(count["log"] > 3 and count["status"] > 2, f"nothing was cut: {count}")


@case(on=RAY, own_node=True)
def agent_file_through_cut_connections(t):
    count = {"log": 0}

    def cut(asked, n):
        count["log"] += 1
        return ("cut", 150) if count["log"] % 2 == 0 else None

    agent = f"http://127.0.0.1:{t.place.node.base + 2}"
    with Proxy(agent, rule=cut) as agent_proxy:
        def by_proxy(asked, answer):
            for details in answer if isinstance(answer, list) else [answer]:
                if isinstance(details, dict) and details.get("driver_agent_http_address"):
                    details["driver_agent_http_address"] = agent_proxy.url
            return answer

        with Proxy(t.place.url, rewrite=by_proxy) as proxy:
            followed_exactly(t, proxy, "agent")
        ranges = [a.headers.get("Range") for a in agent_proxy.asked]
        t.check(len(ranges) > 2 and any(r and not r.startswith("bytes=0-") for r in ranges), f"Range headers: {ranges[:20]}")


@case(on=RAY)
def lost_answers_make_no_second_job(t):
    for word, first in (("swallowed", "swallow"), ("dropped", "drop")):
        seen = []

        def rule(asked, n):
            if asked.method == "POST" and asked.path == "/api/jobs/":
                seen.append(asked)
                return first if len(seen) == 1 else None

        with Proxy(t.place.url, rule=rule) as proxy:
            t.target("echo once")
            ran = t.run(0, "ray-test", "--submission-id", t.id(word), args=through(proxy))
            t.equal(without_ray_lines(ran.out), b"once\n", "the log")
            jobs = [j for j in t.api("GET", "/api/jobs/") if j["submission_id"] and j["submission_id"].startswith(t.id(word))]
            t.equal(len(jobs), 1, "jobs")


@case(on=RAY)
def no_agent_at_first(t):
    """The server's own words while it has no agent to give the job to; tried again, with the same id."""
    posts = []

    def rule(asked, n):
        if asked.method == "POST":
            posts.append(asked)
            if len(posts) <= 2:
                return "answer", 500, [("Content-Type", "text/plain; charset=utf-8")], b"No available agent to submit job, please try again later."

    with Proxy(t.place.url, rule=rule) as proxy:
        t.target("echo once")
        t.run(0, "ray-test", "--submission-id", t.id("agentless"), args=through(proxy))
        t.equal(len(posts), 3, "POST requests")


@case(on=RAY)
def wrong_and_missing_token(t):
    t.check(t.place.token, "this place has no token")
    t.target("echo never")
    wrong = "wrong-0123456789abcdef"
    commands = (["ray-test", "--no-wait", "--submission-id", t.id("auth")], ["ray-wait", "x", "--show-logs"], ["ray-logs", "x"],
                ["ray-logs", "x", "-f"], ["ray-stop", "x"], ["ray-list"])
    with Proxy(t.place.url) as proxy:
        for words in commands:
            before = len(proxy.asked)
            ran = t.run(5, *words, env={"RAY_AUTH_TOKEN": wrong}, args=through(proxy))
            t.equal(len(proxy.asked) - before, 1, f"requests of {words[0]} with a token that is refused")
            t.check(wrong not in ran.err and "Invalid authentication token" in ran.err, "the text")
            ran = t.run(5, *words, env={"RAY_AUTH_TOKEN": None}, args=through(proxy))
            t.check("RAY_AUTH_TOKEN" in ran.err, "the ways to get a token are not named")
        t.run(5, "ray-list", env={"RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": t.path("no-such-file")}, args=through(proxy))


@case(on=RAY)
def token_from_a_file(t):
    t.check(t.place.token, "this place has no token")
    path = t.path("token")
    with open(path, "w") as f:
        f.write(f"\n {t.place.token} \r\n")
    t.run(0, "ray-list", env={"RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": path})
    os.makedirs(t.path("home/.ray"))
    shutil.copy(path, t.path("home/.ray/auth_token"))
    t.run(0, "ray-list", env={"RAY_AUTH_TOKEN": None})
    with open(path, "w") as f:
        f.write("\n")
    t.run(5, "ray-list", env={"RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": path})
    shutil.rmtree(t.path("home/.ray"))  # ours: the token is not to be found in the folder afterwards


@case(on=RAY)
def token_goes_nowhere_else(t):
    with Proxy("http://127.0.0.1:9", rule=lambda asked, n: ("answer", 200, [], b"[]")) as elsewhere:
        for status in (301, 302, 307, 308):
            def rule(asked, n):
                return "answer", status, [("Location", elsewhere.url + asked.path)], b""

            with Proxy(t.place.url, rule=rule) as proxy:
                t.run(4, "ray-list", args=through(proxy))
        t.equal(elsewhere.paths(), [], "requests that followed the redirect")


@case(on=RAY)
def addresses_and_prefixes(t):
    t.run(0, "ray-list", args=[], env={"RAY_API_SERVER_ADDRESS": t.place.url + "/"})
    t.run(0, "ray-list", args=[], env={"RAY_ADDRESS": t.place.url})
    t.run(0, "ray-list", args=["--ray-address", t.place.url.removeprefix("http://")])
    with Proxy(t.place.url, prefix="/some/cluster") as proxy:
        t.target("echo through a prefix")
        ran = t.run(0, "ray-test", "--submission-id", t.id("prefix"), args=through(proxy))
        t.equal(without_ray_lines(ran.out), b"through a prefix\n", "the log")
        t.check(all(p.startswith("/some/cluster/") for p in proxy.paths()), "a request beside the prefix")


@case(on=RAY)
def nobody_there(t):
    t.run(4, "ray-list", args=["--ray-address", "http://127.0.0.1:9"], seconds=60)
    page = b"<html><body><h1>Sign in</h1></body></html>"
    with Proxy(t.place.url, rule=lambda asked, n: ("answer", 200, [("Content-Type", "text/html")], page)) as portal:
        t.run(4, "ray-list", args=through(portal), seconds=60)


@case(on=RAY)
def runtime_environment_that_cannot_be_set_up(t):
    t.target("echo never")
    got = t.run(1, "ray-test", "--working-dir", f"gcs://_ray_pkg_{'0' * 40}_{t.prefix[-1] * 8}.zip", "--json").json
    t.equal((got["error_type"], got["failure_class"]), ("RUNTIME_ENV_SETUP_FAILURE", "user"), "the end")


@case(on=RAY, tpu=True)
def request_that_no_node_can_serve(t):
    """Accepted with 200, then FAILED at once: our request was wrong, and that is a usage error."""
    t.target("echo never", resources={"TPU": 3})
    ran = t.run(2, "ray-test", "--json")
    t.equal((ran.json["status"], ran.json["error_type"]), ("FAILED", "JOB_SUPERVISOR_ACTOR_START_FAILURE"), "the end")


@case(on=RAY)
def record_deleted_behind_our_back(t):
    id = t.submit("gone", "true")
    t.wait(0, id)
    time.sleep(5.5)  # before that the server would make a ghost of it
    t.api("DELETE", f"/api/jobs/{id}")
    t.wait(6, id)


@case(on=RAY, own_node=True, alone=True)
def dashboard_restarts_in_mid_job(t):
    go = t.path("go")
    id = t.id("dash")
    t.target(f"i=0; while [ ! -e {go} ]; do i=$((i+1)); echo tick $i; sleep 0.02; done; echo end")
    running = t.start("ray-test", "--submission-id", id)
    waiting = None
    try:
        running.until("tick 50\n")
        waiting = t.start("ray-wait", id, "--poll", "0.5")
        waiting.until("status=RUNNING", where="err")  # a dashboard that has never answered is not waited for
        t.place.node.restart_dashboard()
        t.until(lambda: answers(t), "the dashboard is back", 60)
        time.sleep(2)
    finally:
        open(go, "w").close()
    t.last = ran = running.finish(90)
    t.equal(ran.code, 0, "the exit code")
    t.equal(sha256(ran.out_path), sha256(t.log_of(id)), "SHA-256 of what was followed")
    t.check("trying again" in ran.err, "nothing was said about the silence")
    t.last = waiting.finish(90)
    t.equal(t.last.code, 0, "the exit code of ray-wait")


@case(on=RAY, own_node=True, alone=True)
def job_head_crashes_in_mid_job(t):
    go = t.path("go")
    id = t.id("jobhead")
    t.target(f"echo up; while [ ! -e {go} ]; do sleep 0.1; done; echo end")
    running = t.start("ray-test", "--submission-id", id)
    try:
        running.until("up\n")
        for pid in t.place.node.processes("ray-dashboard-JobHead"):
            os.kill(pid, 9)
        time.sleep(2)
        t.until(lambda: answers(t), "the Jobs API is back", 60)
    finally:
        open(go, "w").close()
    t.last = ran = running.finish(90)
    t.equal(ran.code, 0, "the exit code")
    t.equal(sha256(ran.out_path), sha256(t.log_of(id)), "SHA-256 of what was followed")


@case(on=RAY, own_node=True, alone=True)
def zz_head_dies_in_mid_job(t):
    """A new head at the same address knows nothing of the job: its record is gone, and that is not `no such job`."""
    id = t.submit("headless", "echo up; sleep 600")
    t.until_status(id, "RUNNING")
    waiting = t.start("ray-wait", id, "--poll", "0.5")
    following = t.start("ray-logs", id, "-f")
    following.until("up\n")
    t.place.node.restart_head()
    for running in (waiting, following):
        t.last = running.finish(120)
        t.equal(t.last.code, 4, "the exit code")
        t.check("vanished" in t.last.err, "the text")


def answers(t):
    try:
        return call(t.place.url, t.place.token, "GET", "/api/jobs/", timeout=3) is not None
    except OSError:
        return False
