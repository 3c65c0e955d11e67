"""The cases. Where one fails, it names what of the real program is no longer as the agent's code believes."""
import json
import os
import shutil
import signal
import subprocess
import time

from harness import CASES, Skipped, case, carriers, demand, equal

# --- what the program says of itself ------------------------------------------------------------------------------


@case
def preflight_finds_program_models_and_features(t):
    t.configure("message")
    got = t.run(check=True)
    equal("version", got["version"], "codex-cli 0.169.0")
    demand(got["program"].endswith("/bin/codex") and "vendor" in got["program"], f"npm's wrapper was not seen through: {got['program']}")
    demand(got["models"] >= 5 and got["features"] > 20, f"models, features: {got}")
    demand({"low", "medium", "high", "xhigh"} <= set(got["efforts"]), f"efforts: {got['efforts']}")
    equal("search flag", got["search_flag"], False)
    equal("requests", len(t.requests()), 0)


@case
def preflight_refuses_without_a_request(t):
    t.configure("message")
    for spec, code, text in (
            (dict(model="gpt-5.5", effort="ultra"), 2, "does not take the reasoning effort 'ultra'"),
            (dict(profile="gone"), 2, "codex has no profile 'gone'"),
            (dict(config=['model_provider="nope"']), 2, "Model provider `nope` not found"),
            (dict(config=['sandbox_mode="zzz"']), 2, "unknown variant `zzz`"),
            (dict(config=['profile="old"']), 2, "no longer supported")):
        got = t.run(check=True, **spec)
        equal(f"exit code of {spec}", got.get("exit_code"), code)
        demand(text in got["error"], f"{spec}: {got['error']}")
    equal("requests", len(t.requests()), 0)
    demand(not os.path.exists(os.path.join(t.home, "sessions")), "a session was written")


@case
def preflight_warns_of_models_that_are_not_in_the_catalogue(t):
    t.configure("message")
    got = t.run(check=True, model="gpt-5.3-codex")
    demand(len(got["warnings"]) == 1 and "gpt-5" in got["warnings"][0], got["warnings"])
    equal("a default of ours is left out", t.run(check=True, model="gpt-5.3-codex", model_given=False)["model"], "")
    got = t.run(model="gpt-5.3-codex")
    equal("class", got["class"], "ok")


@case
def any_effort_is_accepted_by_exec_itself(t):
    got = t.run("message", preflight=False, effort="junk")
    equal("class", got["class"], "ok")
    equal("effort that was sent", t.requests()[0]["reasoning"]["effort"], "junk")


# --- iterations ----------------------------------------------------------------------------------------------------


@case
def iteration_that_commits(t):
    got = t.run("commit")
    equal("class", got["class"], "ok")
    equal("commits", t.commits(), 1)
    equal("status", t.git("status", "--porcelain"), "")
    equal("requests at the server", len(t.requests()), 5)
    equal("requests in the rollout", got["requests"], 5)
    equal("tokens", got["tokens"], [6000, 5000, 170, 50])
    equal("message", got["message"], "Committed one optimization.")
    equal("model", got["model"], "gpt-5.5")
    equal("commands", got["commands"], 2)
    equal("unknown events", got["unknown_events"], 0)
    equal("lines that are no events", got["text_lines"], 0)
    with open(os.path.join(t.log, "message.txt")) as f:
        equal("message file", f.read().strip(), "Committed one optimization.")
    prompts = [i["content"][0]["text"] for i in t.requests()[0]["input"] if i.get("type") == "message" and i["role"] == "user"]
    equal("prompt", prompts[-1], "Improve the kernel.\n")
    demand(os.path.getsize(os.path.join(t.log, "rollout.jsonl")) > 0, "no copy of the rollout")
    with open(os.path.join(t.log, "events.jsonl")) as f:
        events = [json.loads(line)["event"]["type"] for line in f]
    equal("first and last event", (events[0], events[-1]), ("thread.started", "turn.completed"))


@case
def iteration_that_commits_in_human_mode(t):
    got = t.run("commit", json=False)
    equal("class", got["class"], "ok")
    equal("commits", t.commits(), 1)
    demand(got["thread"] and got["message"] == "Committed one optimization.", got)
    equal("tokens of the rollout", got["tokens"], [6000, 5000, 170, 50])


@case
def iteration_that_commits_with_a_model_in_code_mode(t):
    model = next(m for m in catalogue(t) if m.get("tool_mode") == "code_mode_only" and m["visibility"] == "list")["slug"]
    got = t.run("commit-code", config_model=model)
    equal("class", got["class"], "ok")
    equal("commits", t.commits(), 1)
    equal("commands", got["commands"], 1)


def catalogue(t):
    program = t.run(check=True)["program"] if os.path.exists(os.path.join(t.home, "config.toml")) else None
    if not program:
        t.configure("message")
        program = t.run(check=True)["program"]
    listed = subprocess.run([program, "debug", "models", "--bundled"], env=t.environment(), capture_output=True, text=True)
    return json.loads(listed.stdout)["models"]


@case
def iteration_that_does_not_commit(t):
    got = t.run("message")
    equal("class", got["class"], "ok")
    equal("commits", t.commits(), 0)
    equal("message", got["message"], "Nothing to do.")


@case
def iteration_that_leaves_the_tree_dirty(t):
    equal("class", t.run("dirty")["class"], "ok")
    equal("status", t.git("status", "--porcelain"), "?? hello.txt")


@case
def failed_turn_leaves_a_commit_or_a_dirty_tree(t):
    got = t.run("commit-then-500")
    equal("class", got["class"], "server-error")
    equal("commits", t.commits(), 1)
    got = t.run("dirty-then-prompt")
    equal("class", got["class"], "invalid-prompt")
    equal("status", t.git("status", "--porcelain"), "?? hello.txt")


@case
def tool_calls_side_by_side_and_failing(t):
    got = t.run("two-calls")
    equal("class and commands", (got["class"], got["commands"], got["left_open"]), ("ok", 2, 0))
    got = t.run("exit7")
    equal("class and message", (got["class"], got["message"]), ("ok", "it failed"))


@case
def search_is_live_or_disabled(t):
    for search in (False, True):
        equal("class", t.run("message", search=search)["class"], "ok")
        tools = [tool for tool in t.requests()[0].get("tools", []) if tool.get("type") == "web_search"]
        equal(f"web search tools with search={search}", [x.get("external_web_access") for x in tools], [True] if search else [])


@case
def output_schema_is_sent_and_not_enforced(t):
    schema = os.path.join(t.folder, "schema.json")
    with open(schema, "w") as f:
        json.dump({"type": "object", "required": ["outcome"], "properties": {"outcome": {"type": "string"}}, "additionalProperties": False}, f)
    got = t.run("message", schema=schema)
    equal("class", got["class"], "ok")
    equal("format", t.requests()[0]["text"]["format"]["type"], "json_schema")
    equal("message", got["message"], "Nothing to do.")


@case
def message_file_of_an_earlier_attempt_is_never_used(t):
    with open(os.path.join(t.log, "message.txt"), "w") as f:
        f.write("what I did last time")
    got = t.run("400")
    equal("class and message", (got["class"], got["message"]), ("config", ""))
    demand(not os.path.exists(os.path.join(t.log, "message.txt")), "the stale file is still there")


@case
def environment_is_the_allow_list(t):
    equal("class", t.run("environment")["class"], "ok")
    with open(os.path.join(t.tree, "environment.txt")) as f:
        names = dict(line.rstrip("\n").partition("=")[::2] for line in f)
    equal("marker", names.get("GDNCTL_LOOP_ID"), t.loop_id)
    demand("GDNCTL_PROCESS_MARK" in names, "the mark of the run is missing")
    demand("HF_TOKEN" not in names, "HF_TOKEN reached a tool command")
    demand(not [n for n in names if n.startswith("RUST_BACKTRACE")], "RUST_BACKTRACE is set")


# --- causes of failure ---------------------------------------------------------------------------------------------


FAILURES = (  # scenario, class, action, requests at the server
    ("400", "config", "stop", 1), ("401", "auth", "stop", 2), ("403", "auth", "stop", 2), ("404", "config", "stop", 1),
    ("429", "rate-limit", "back-off", 1), ("quota", "quota", "stop", 1), ("500", "server-error", "retry", 4),
    ("503", "server-error", "retry", 4), ("cut", "stream", "retry", 2), ("eof", "stream", "retry", 2),
    ("failed-quota", "quota", "stop", 1), ("failed-plan", "quota", "stop", 1), ("failed-server", "stream", "retry", 2),
    ("failed-rate", "rate-limit", "back-off", 2), ("failed-overloaded", "overloaded", "back-off", 1),
    ("failed-context", "context", "fresh-thread", 1), ("failed-prompt", "invalid-prompt", "count", 1),
    ("incomplete", "incomplete", "retry-once", 1))


def failure(scenario, kind, action, requests):
    def look(t):
        for ephemeral in (False, True):  # with the rollout, and by the message alone
            got = t.run(scenario, ephemeral=ephemeral)
            equal(f"class (ephemeral={ephemeral}, {got['reason']})", got["class"], kind)
            equal("action", got["action"], action)
            equal("rc", got["rc"], 1)
            equal("requests", len(t.requests()), requests)
    look.__name__ = "failure_" + scenario.replace("-", "_")
    return look


for row in FAILURES:
    CASES.append(failure(*row))


@case
def failure_usage_limit_says_when_it_resets(t):
    got = t.run("usage-limit")
    equal("class and action", (got["class"], got["action"]), ("usage-limit", "wait"))
    demand("hit your usage limit" in got["reason"], got["reason"])
    demand("not_before" in got, f"no time in {got['reason']!r}")
    at = time.mktime(time.strptime(got["not_before"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    demand(abs(at - (time.time() + 7200)) < 180, f"it is to wait until {got['not_before']}")


@case
def failure_stream_that_says_nothing(t):
    got = t.run("silent", idle_ms_stream=700)
    equal("class", got["class"], "stream")


@case
def failure_nobody_there(t):
    t.configure("message")
    path = os.path.join(t.home, "config.toml")
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace(f"127.0.0.1:{t.server.port}", "127.0.0.1:9"))
    got = t.run()
    equal("class and action", (got["class"], got["action"]), ("unreachable", "back-off"))
    demand(got["secs"] < 30, f"retries had no bound: {got['secs']} s")


@case
def failure_key_missing(t):
    got = t.run("message", also=[])
    equal("class and stop", (got["class"], got["stop_reason"]), ("config", "codex-config"))


@case
def rate_limit_then_success(t):
    t.configure("429-then-ok")
    equal("first", t.run()["class"], "rate-limit")
    equal("second", t.run()["class"], "ok")


@case
def unavailable_twice_then_success(t):
    got = t.run("flaky-503")
    equal("class", got["class"], "ok")
    equal("requests", len(t.requests()), 3)


# --- limits and ends -----------------------------------------------------------------------------------------------


@case
def no_headers_is_ended_by_the_idle_limit(t):
    got = t.run("no-headers", idle_ms=1500)
    equal("class and rc", (got["class"], got["rc"]), ("hang", 124))
    demand(got["secs"] < 20, got["secs"])


@case
def hanging_tool_call_is_ended_by_its_own_limit(t):
    got = t.run("long", idle_ms=500, busy_ms=2500)
    equal("class and rc", (got["class"], got["rc"]), ("hang", 124))
    demand("command" in got["reason"], got["reason"])
    demand(got["secs"] > 2, "the shorter limit fired")
    equal("open commands", got["left_open"], 1)


@case
def endless_tool_calls_meet_the_token_limit(t):
    got = t.run("endless", tokens=400_000)
    equal("class and rc", (got["class"], got["rc"]), ("token-limit", 124))
    demand(got["tokens"][0] >= 400_000, got["tokens"])


@case
def context_that_is_summarised_again_and_again_meets_its_limit(t):
    got = t.run("compaction", compactions=10)
    equal("class", got["class"], "compaction-limit")
    demand(10 < got["compactions"] < 200, got["compactions"])


@case
def survivors_of_a_good_turn_are_ended_and_named(t):
    for scenario, command in (("survivor", "sleep 303"), ("bare", "sleep 304"), ("holds", "sleep 305")):
        got = t.run(scenario)
        equal("class", got["class"], "ok")
        equal("survivors", got["survivors"], [command])


@case
def stop_request_in_the_middle_of_a_tool_call(t):
    for scenario in ("long", "background"):
        t.configure(scenario)
        process = t.start()
        t.until("the tool call", lambda: any("sleep 300" in line for line in t.left().values()))
        process.send_signal(signal.SIGTERM)
        got = t.finish(process)
        equal("class", got["class"], "stopped")
        equal("left", t.left(), {})


@case
def codex_killed_from_outside_leaves_nothing(t):
    t.configure("background")
    process = t.start()
    t.until("the tool call", lambda: any(line.startswith("sleep 300") for line in t.left().values()))
    program = next(pid for pid, line in t.left().items() if " exec " in line and "/bin/codex" in line.split(" ")[0])
    os.kill(program, signal.SIGKILL)
    got = t.finish(process)
    equal("class and rc", (got["class"], got["rc"]), ("crashed", 137))
    demand(got["survivors"], "the tool's children were said to be gone by themselves")


@case
def killed_loop_is_swept_by_the_marker(t):
    t.configure("background")
    process = t.start()
    t.until("the tool call", lambda: any(line.startswith("sleep 300") for line in t.left().values()))
    process.kill()
    process.communicate()
    t.until("codex's end", lambda: not any("/bin/codex" in line for line in t.left().values()))
    demand(t.left(), "nothing was left to sweep")
    got = t.run(sweep=True)
    demand(got["swept"], "nothing was swept")
    equal("left", t.left(), {})


# --- resume --------------------------------------------------------------------------------------------------------


@case
def resume_by_thread(t):
    first = t.run("message")
    second = t.run("commit-shell", resume=first["thread"], prompt="Go on.\n")
    equal("class", second["class"], "ok")
    equal("thread", second["thread"], first["thread"])
    equal("tokens of the second attempt alone", second["tokens"], [2400, 2000, 68, 20])
    equal("commits", t.commits(), 1)
    texts = json.dumps(t.requests()[0]["input"])
    demand("Improve the kernel." in texts and "Go on." in texts, "the earlier prompt was not sent again")


@case
def resume_after_a_kill_in_the_middle_of_a_tool_call(t):
    t.configure("long")
    process = t.start()
    t.until("the tool call", lambda: os.path.exists(os.path.join(t.tree, "pid.txt")))
    program = next(pid for pid, line in t.left().items() if " exec " in line and "/bin/codex" in line.split(" ")[0])
    os.kill(program, signal.SIGKILL)
    first = t.finish(process)
    equal("class", first["class"], "crashed")
    demand(first["thread"], "the thread is unknown")
    second = t.run("message", resume=first["thread"], prompt="Go on.\n")
    equal("class and thread", (second["class"], second["thread"]), ("ok", first["thread"]))
    demand("aborted" in json.dumps(t.requests()[0]["input"]), "the open call was not said to be aborted")


@case
def resume_of_a_thread_that_is_not_there(t):
    got = t.run("message", resume="01999999-aaaa-7bbb-8ccc-dddddddddddd")
    equal("class and action", (got["class"], got["action"]), ("no-thread", "fresh-thread"))
    equal("requests", len(t.requests()), 0)


# --- silence -------------------------------------------------------------------------------------------------------


@case
def nothing_outside_this_machine_is_looked_up(t):
    if not shutil.which("strace"):
        raise Skipped("strace is not installed (apt-get install strace)")
    trace = os.path.join(t.folder, "trace")
    probe = subprocess.run(["strace", "-o", trace, "-e", "trace=connect", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        raise Skipped(f"tracing is not allowed here: {probe.stderr.strip()[:100]}")
    got = t.run("commit", prefix=("strace", "-f", "-qq", "-o", trace, "-e", "trace=connect,sendto,sendmsg,sendmmsg"))
    equal("class", got["class"], "ok")
    with open(trace) as f:
        lines = f.readlines()
    inet = [line for line in lines if "sa_family=AF_INET" in line]
    ours = [line for line in inet if f"sin_port=htons({t.server.port})" in line and 'inet_addr("127.0.0.1")' in line]
    demand(ours, "the trace does not even show the scripted model")
    equal("addresses outside", [line.strip() for line in inet if line not in ours], [])
