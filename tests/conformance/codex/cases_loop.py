"""gdnctl codex-loop with the real codex: iterations, and what becomes of each cause of failure."""
import json
import os
import re
import subprocess
import time

from harness import CASES, KEY, LOGS, case, case_that_waits, demand, equal

BOTH = (("inplace", ()), ("worktree", ("--isolation", "worktree")))


# --- before the first request ----------------------------------------------------------------------------------------


@case
def preflight_sees_through_the_wrapper(t):
    done = t.begin("message", "--dry-run").end()
    equal("exit code", done.process.returncode, 0)
    demand("/vendor/" in done.err and "/bin/codex\n" in done.err, "npm's wrapper was not seen through")
    efforts = next(line for line in done.err.splitlines() if "supported model_reasoning_effort values: " in line)
    demand({"low", "medium", "high", "xhigh"} <= set(efforts.split("values: ")[1].split(", ")), efforts)
    equal("requests", len(t.requests()), 0)
    demand(not os.path.exists(os.path.join(t.tree, LOGS)), "a dry run wrote")


@case
def preflight_refuses_without_a_request(t):
    t.configure("message")
    config = os.path.join(t.codex_home, "config.toml")
    with open(config) as f:
        good = f.read()
    for change, words, reason, text in (
            ("", ("--model", "gpt-5.5", "--reasoning-effort", "ultra"), "usage", "does not support the reasoning effort 'ultra'"),
            ("", ("--reasoning-effort", "enormous"), "usage", "no codex supports the reasoning effort 'enormous'"),
            ("", ("--codex-profile", "gone"), "usage", "codex has no profile 'gone'"),
            ("", ("--model", "gpt-5.3-codex", "--strict-preflight"), "usage", "codex does not know the model 'gpt-5.3-codex'"),
            ('sandbox_mode = "zzz"\n', (), "config", "unknown variant `zzz`"),
            ('profile = "old"\n', (), "config", "no longer supported")):
        with open(config, "w") as f:
            f.write(change + good)
        t.begin(None, *words).demands(reason, 2, 0).says(text)
    for changed, text in ((good.replace('"mock"\n', '"nope"\n', 1), "Model provider `nope` not found"),
                          (good.replace('"responses"', '"chat"'), "`wire_api = \"chat\"` is no longer supported."),
                          (good.replace("[model_providers.mock]", "[model_providers.mock"), "config.toml: " + os.path.realpath(config))):
        demand(changed != good, "the configuration was not changed")
        with open(config, "w") as f:
            f.write(changed)
        t.begin(None).demands("config", 2, 0).says(text)
    equal("requests", len(t.requests()), 0)
    demand(not os.path.exists(os.path.join(t.codex_home, "sessions")), "a session was written")


@case
def preflight_reads_what_codex_itself_refuses(t):
    """Words that the loop never says: what codex answers to them must stay what the preflight understands."""
    t.configure("message")
    for words, code, text in ((("--nope",), 2, "error: unexpected argument '--nope' found"),
                              (("--search",), 2, "error: unexpected argument '--search' found"),
                              (("-s", "nowhere"), 2, "error: invalid value 'nowhere' for '--sandbox <SANDBOX_MODE>'"),
                              (("-C", "no-such-folder"), 1, "Error: No such file or directory (os error 2)"),
                              (("--strict-config", "-c", "nokey=1"), 1,
                               "Error loading config.toml: unknown configuration field `nokey` in -c/--config override"),
                              ((), 1, "No prompt provided via stdin.")):
        bypass = () if "-s" in words else ("--dangerously-bypass-approvals-and-sandbox",)
        asked = subprocess.run([t.codex, "exec", *bypass, *words, "-"], env=t.environment(), cwd=t.tree,
                               stdin=subprocess.DEVNULL, capture_output=True, text=True)
        equal(f"exit code of {words}", asked.returncode, code)
        equal(f"first line of {words}", asked.stderr.splitlines()[0], text)
    equal("requests", len(t.requests()), 0)


@case
def preflight_warns_of_a_model_that_is_not_in_the_catalogue(t):
    done = t.loop("improve", "--model", "gpt-5.3-codex")
    done.says("codex does not know the model 'gpt-5.3-codex'")
    demand("codex is using" not in done.err, "it was told which")
    equal("model that was asked", t.requests()[0]["model"], "gpt-5.3-codex")
    done = t.loop("improve")
    done.says("codex does not know the default model 'gpt-5.3-codex'; its own default is used")
    done.says("codex is using model gpt-5.5 with reasoning effort xhigh")
    equal("model that was asked", t.requests()[0]["model"], "gpt-5.5")


# --- iterations -------------------------------------------------------------------------------------------------------


def iteration_that_commits(t, words):
    done = t.loop("commit", *words)
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["ok"], ["accepted"]))
    done.says("tokens=6000/5000/170")
    equal("commits", t.commits(), 1)
    equal("status", t.status(), "")
    equal("tree", open(os.path.join(t.tree, "hello.txt")).read(), "hello, world\n")
    equal("requests", len(t.requests()), 5)
    equal("effort that was sent", t.requests()[0]["reasoning"]["effort"], "xhigh")
    equal("message", t.log_file("iteration-001-last-message.txt").strip(), "Committed one optimization.")
    prompts = [i["content"][0]["text"] for i in t.requests()[0]["input"] if i.get("type") == "message" and i["role"] == "user"]
    equal("prompt", prompts[-1], t.log_file("iteration-001-prompt.txt"))
    demand(prompts[-1].startswith(f"Improve the kernel, iteration 1/1 from {t.head}."), prompts[-1])
    equal("directives", "Session directives" in prompts[-1], False)
    demand('"token_usage_record"' in t.log_file("iteration-001-attempt-1-rollout.jsonl"), "no copy of the rollout")
    events = [json.loads(line)["event"]["type"] for line in t.log_file("iteration-001-attempt-1-events.jsonl").splitlines()]
    equal("first and last event", (events[0], events[-1]), ("thread.started", "turn.completed"))
    demand("Committed one optimization." in t.log_file("iteration-001-transcript.log"), "no transcript")
    state = json.loads(t.log_file("state.json"))
    equal("tokens of the run", state["tokens"], 6170)
    demand(not os.path.exists(os.path.join(t.codex_home, "sessions")), "the user's own codex home has the thread")
    loops = os.path.join(t.home, ".local/state/gdnctl/loops")
    equal("what is left of the run's codex home", os.listdir(loops), [])


@case
def evolve_attempt_whose_work_the_loop_commits(t):
    t.write("gdnctl.toml", """target = "mine"
[targets.mine]
kernel = ["hello.txt"]
test = ["true"]
profile = ["sh", "-c", "if [ -e hello.txt ]; then echo '{\\"ms\\": 9}'; else echo '{\\"ms\\": 10}'; fi"]
metric = { name = "mine/ms", better = "lower", unit = "ms", from = "json:/ms" }
""")
    t.commit_all("target")
    head = t.git("rev-parse", "HEAD")
    t.configure("commit")
    log = os.path.join(t.folder, "evolve")
    done = t.spawn([t.gdnctl, "codex-loop", "--mode", "evolve", "--agent", "codex", "--max-attempts", "1", "--perf-pairs", "3",
                    "--sleep-seconds", "0", "--log-dir", log]).end()
    equal("last line", done.err.strip().splitlines()[-1], "[gdnctl] codex-loop stopped: reason=max-attempts attempt=1 rc=0")
    with open(os.path.join(log, "journal.jsonl")) as f:
        journal = [json.loads(line) for line in f]
    proposal = next(r for r in journal if r["type"] == "proposal")
    equal("class and tokens", (proposal["class"], proposal["tokens"]), ("ok", {"in": 6000, "cached": 5000, "out": 170, "reasoning": 50}))
    equal("verdicts", [r["verdict"] for r in journal if r["type"] == "verdict"], ["kept"])
    run = journal[0]["run"]
    equal("candidate", t.git("show", f"refs/gdnctl/evolve/{run}/best:hello.txt"), "hello, world")
    demand("Gdnctl-Attempt: 1" in t.git("log", "-1", "--format=%B", f"refs/gdnctl/evolve/{run}/best"), "not the loop's commit")
    equal("the user's branch", (t.git("rev-parse", "HEAD"), t.status()), (head, ""))
    prompts = [i["content"][0]["text"] for i in t.requests()[0]["input"] if i.get("type") == "message" and i["role"] == "user"]
    demand(prompts[-1].startswith(f"# Attempt 1 of run {run}: "), prompts[-1])
    demand("GDNCTL_EVAL" not in json.dumps(t.requests()), "the agent was told of an evaluation")


for name, words in BOTH:
    def commits_there(t, words=words):
        iteration_that_commits(t, words)
    commits_there.__name__ = "iteration_that_commits_" + name
    CASES.append(commits_there)


@case
def iteration_with_a_log_in_in_a_keyring(t):
    t.configure("improve")
    t.edit_config(lambda text: 'cli_auth_credentials_store = "keyring"\n' + text)
    t.loop(None).says("codex keeps its log-in in a keyring, so it uses " + t.codex_home)
    demand(os.path.isdir(os.path.join(t.codex_home, "sessions")), "codex worked elsewhere")
    equal("outcomes", t.outcomes(), ["accepted"])


@case
def iterations_in_a_row_each_with_a_thread_of_its_own(t):
    t.loop("improve+message+improve", "--no-commit-policy", "continue", iterations=3)
    equal("outcomes", t.outcomes(), ["accepted", "no-op", "accepted"])
    equal("threads", len(t.threads()), 3)
    equal("commits", t.commits(), 2)
    equal("status", t.status(), "")


@case
def iteration_that_commits_with_a_model_in_code_mode(t):
    t.configure("message")
    model = next(m for m in catalogue(t) if m.get("tool_mode") == "code_mode_only" and m["visibility"] == "list")["slug"]
    t.loop("commit-code", "--model", model)
    equal("commits", t.commits(), 1)


def catalogue(t):
    listed = subprocess.run([t.codex, "debug", "models", "--bundled"], env=t.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return json.loads(listed.stdout)["models"]


@case
def iteration_that_does_not_commit(t):
    t.loop("message", reason="no-commit", code=3).says("Iteration did not produce a new commit.")
    equal("outcomes", t.outcomes(), ["no-op"])
    equal("commits", t.commits(), 0)
    equal("message", t.log_file("iteration-001-last-message.txt").strip(), "Nothing to do.")
    t.loop("message", "--allow-no-commit")


@case
def iteration_that_leaves_the_tree_dirty(t):
    for _, words in BOTH:
        t.loop("dirty", *words, reason="no-commit", code=3)
        equal("status", t.status(), "")
        demand("+hello" in t.log_file("iteration-001-leftovers.patch"), "the leftovers are not in the patch")
        equal("leftovers on their ref", t.git("show", t.ref(1, "leftovers") + ":hello.txt"), "hello")


@case
def failed_turn_that_committed_is_judged_and_not_repeated(t):
    done = t.loop("commit-shell-then-500+improve", "--codex-retries", "2")
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["server-error"], ["accepted"]))
    equal("commits", t.commits(), 1)


@case
def failed_turn_that_left_half_an_edit_is_put_away(t):
    done = t.loop("dirty-then-500+improve", "--codex-retries", "1")
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["server-error", "ok"], ["accepted"]))
    equal("files of the commit", t.git("show", "--name-only", "--format=", "HEAD"), "kernel.c")
    equal("half an edit on its ref", t.git("show", t.ref(1, "attempt-1/leftovers") + ":hello.txt"), "hello")
    done = t.loop("dirty-then-failed-prompt", "--codex-retries", "1", reason="agent-error", code=1)
    equal("classes", done.classes(), ["invalid-prompt"])
    equal("status", t.status(), "")
    demand("+hello" in t.log_file("iteration-001-leftovers.patch"), "the leftovers are not in the patch")


@case
def tool_calls_side_by_side_and_failing(t):
    t.loop("two-calls", "--allow-no-commit")
    done = t.log_file("iteration-001-attempt-1-events.jsonl").splitlines()
    ended = [i for i in (json.loads(line)["event"] for line in done) if i["type"] == "item.completed" and i["item"]["type"] == "command_execution"]
    equal("output of both", sorted(i["item"]["aggregated_output"] for i in ended), ["one\n", "two\n"])
    t.loop("exit7", "--allow-no-commit")
    equal("message", t.log_file("iteration-001-last-message.txt").strip(), "it failed")


@case
def search_is_live_or_disabled(t):
    for words, wanted in (((), []), (("--search",), [True])):
        t.loop("message", "--allow-no-commit", *words)
        tools = [tool for tool in t.requests()[0].get("tools", []) if tool.get("type") == "web_search"]
        equal(f"web search tools with {words}", [x.get("external_web_access") for x in tools], wanted)


@case
def message_of_an_earlier_run_is_never_used(t):
    logs = os.path.join(t.tree, LOGS)
    os.makedirs(logs)
    with open(os.path.join(logs, "iteration-001-last-message.txt"), "w") as f:
        f.write("what I did last time")
    t.git("config", "core.excludesFile", t.write("../ignored", ".agents\n"))
    t.loop("400", reason="codex-config", code=1)
    demand(not os.path.exists(os.path.join(logs, "iteration-001-last-message.txt")), "the stale file is still there")


# --- causes of failure ------------------------------------------------------------------------------------------------


STOP, AGAIN, COUNT, WAIT = "stop", "again", "count", "wait"
FAILURES = (  # scenario, class, what the loop does, reason where it stops, requests at the server
    ("400", "config", STOP, "codex-config", 1), ("401", "auth", STOP, "codex-auth", 2), ("403", "auth", STOP, "codex-auth", 2),
    ("404", "config", STOP, "codex-config", 1), ("429", "rate-limit", WAIT, "", 1), ("quota", "quota", STOP, "codex-quota", 1),
    ("500", "server-error", AGAIN, "", 4), ("503", "server-error", AGAIN, "", 4), ("cut", "stream", AGAIN, "", 2),
    ("eof", "stream", AGAIN, "", 2), ("failed-quota", "quota", STOP, "codex-quota", 1), ("failed-plan", "quota", STOP, "codex-quota", 1),
    ("failed-server", "stream", AGAIN, "", 2), ("failed-rate", "rate-limit", WAIT, "", 2), ("failed-overloaded", "overloaded", WAIT, "", 1),
    ("failed-context", "context", AGAIN, "", 1), ("failed-prompt", "invalid-prompt", COUNT, "", 1), ("incomplete", "incomplete", AGAIN, "", 1))


def failure(scenario, kind, then, reason, requests):
    def look(t):
        # With the rollout, and by the message alone; in place, and in a worktree.
        for words in ((), ("--codex-ephemeral", "--isolation", "worktree")):
            done = t.begin(scenario + "+improve", "--codex-retries", "1", "--codex-max-wait", "0", *words)
            if then == AGAIN:
                done.demands("completed", 0).says("codex iteration command failed (attempt 1/2, rc=1); retrying.")
                equal("classes", done.classes(), [kind, "ok"])
                t.git("reset", "-q", "--hard", t.head)
            else:
                done.demands(reason or "agent-error", 1, 1)
                equal("classes", done.classes(), [kind])
                if then == WAIT:
                    done.says(f"{kind} for longer than --codex-max-wait")
            equal("requests of the first thread", len(t.threads()[0]), requests)
            equal("status", t.status(), "")
    look.__name__ = "failure_" + scenario.replace("-", "_")
    return look


for row in FAILURES:
    CASES.append(failure(*row))


@case_that_waits
def failure_rate_limit_then_success(t):
    started = time.monotonic()
    done = t.loop("429+improve")  # not a retry: none is allowed
    equal("classes and outcomes", (done.classes(), t.outcomes()), (["rate-limit", "ok"], ["accepted"]))
    demand(time.monotonic() - started >= 24, "there was no pause")


@case
def failure_usage_limit_is_waited_for_and_resumed(t):
    under_way = t.begin("usage-limit")
    under_way.until_says("usage-limit: ")
    line = next(line for line in under_way.err.splitlines() if "usage-limit: " in line)
    demand("hit your usage limit" in line and re.search("; waiting (2 h 0|1 h 59)", line), line)
    under_way.process.terminate()
    under_way.demands("terminated", 143, 1)
    done = t.loop("improve", "--resume")
    equal("outcomes", t.outcomes(), ["accepted"])
    equal("the prompt's iteration", "iteration 1/1" in json.dumps(t.requests()[0]["input"]), True)
    done = t.loop("usage-limit", "--codex-max-wait", "3600", reason="agent-error", code=1)
    done.says("usage-limit for longer than --codex-max-wait")


@case
def failure_window_that_is_used_up_is_waited_for_before_the_next_iteration(t):
    done = t.loop("spent+improve", "--no-commit-policy", "continue", iterations=2)
    done.says("the provider's usage limit is reached; waiting until ")
    equal("outcomes", t.outcomes(), ["no-op", "accepted"])


@case
def failure_stream_that_says_nothing(t):
    equal("classes", t.loop("silent+improve", "--codex-retries", "1", idle_ms=700).classes(), ["stream", "ok"])


@case
def failure_nobody_there(t):
    t.configure("message")
    t.edit_config(lambda text: text.replace(f"127.0.0.1:{t.server.port}", "127.0.0.1:9"))
    started = time.monotonic()
    done = t.loop(None, "--codex-max-wait", "0", reason="agent-error", code=1)
    equal("classes", done.classes(), ["unreachable"])
    demand(time.monotonic() - started < 30, "retries had no bound")


@case
def failure_key_missing(t):
    done = t.loop("message", "--codex-retries", "3", environment={"OPENAI_API_KEY": None}, reason="codex-config", code=1)
    equal("classes", done.classes(), ["config"])
    demand(KEY not in done.err, "the key is in the output")


@case
def failure_twice_unavailable_then_success(t):
    equal("classes", t.loop("flaky-503", "--allow-no-commit").classes(), ["ok"])
    equal("requests", len(t.requests()), 3)


@case
def failures_in_a_row_under_resilient(t):
    done = t.loop("500+cut+improve+failed-prompt+improve", "--resilient", iterations=3)
    equal("classes", done.classes(), ["server-error", "stream", "ok", "invalid-prompt", "ok"])
    equal("outcomes", t.outcomes(), ["accepted", "agent-error", "accepted"])


@case
def the_same_words_at_the_end_of_three_iterations(t):
    done = t.loop("500+500+cut+500+500+500+improve", "--max-failures", "-1", iterations=9, reason="circuit-breaker", code=4)
    equal("classes", done.classes(), ["server-error"] * 2 + ["stream"] + ["server-error"] * 3)
    done.says("further iterations cannot fix this: server-error: ")
