"""What the command cannot show, through the driver: threads that are resumed, human mode, what exec itself accepts."""
import json
import os
import signal

from harness import case, demand, equal


@case
def program_models_and_features(t):
    t.configure("message")
    got = t.run(check=True)
    equal("version", got["version"], "codex-cli 0.169.0")
    demand(got["models"] >= 5 and got["features"] > 20, f"models, features: {got}")
    equal("search flag", got["search_flag"], False)
    equal("a default of ours is left out", t.run(check=True, model="gpt-5.3-codex", model_given=False)["model"], "")
    equal("requests", len(t.requests()), 0)


@case
def any_effort_is_accepted_by_exec_itself(t):
    got = t.run("message", preflight=False, effort="junk")
    equal("class", got["class"], "ok")
    equal("effort that was sent", t.requests()[0]["reasoning"]["effort"], "junk")


@case
def human_mode_of_old_programs(t):
    got = t.run("commit", json=False)
    equal("class", got["class"], "ok")
    equal("commits", t.commits(), 1)
    demand(got["thread"] and got["message"] == "Committed one optimization.", got)
    equal("tokens of the rollout", got["tokens"], [6000, 5000, 170, 50])


@case
def every_event_is_understood(t):
    got = t.run("commit")
    equal("commands", got["commands"], 2)
    equal("unknown events", got["unknown_events"], 0)
    equal("lines that are no events", got["text_lines"], 0)
    got = t.run("two-calls")
    equal("class and commands", (got["class"], got["commands"], got["left_open"]), ("ok", 2, 0))


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
