"""Command lines as people have them: docs/codex-loop.md, and those of the first version in a Marin checkout, through its shim."""
import json
import os
import re
import shutil
import subprocess

from harness import Skipped, case, case_that_waits, demand, equal

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs")
LOG = "lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md"
# As `uv run` does, in the environment of the project; dev TPUs are played.
UV = """#!/bin/bash
[ "$1" = run ] || exit 64
shift
case "$*" in 'python scripts/gdn/gdnctl.py dev-tpu-test '*) echo "$*" >>"$HOME/dev-tpu-test"; exit ;; esac
exec "$@"
"""
ALLOCATOR = """#!/bin/bash
echo "$*" >>"$HOME/allocated"
[ "$2" = us-east5-a ] || { echo 'no capacity'; exit 3; }
trap 'echo released >>"$HOME/allocated"; exit 0' INT
echo 'TPU allocation is active. Press Ctrl-C to release...'
while :; do sleep 0.1; done
"""


def program(t, name, text):
    path = os.path.join(t.folder, "bin", name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return path


def typed(t, line):
    """A command line as it stands in a page, typed at a shell. The log directory is that of the recipe."""
    return t.spawn(["bash", "-c", line], {"USER": "me"})


def gdnctl(t, *words):
    done = t.spawn([t.gdnctl, *words]).end()
    equal(f"exit code of {words}", done.process.returncode, 0)


def marin(t):
    """A checkout with nothing of Marin but what gdnctl looks for, and `gdnctl init marin`."""
    os.symlink(t.gdnctl, os.path.join(t.folder, "bin", "gdnctl"))
    program(t, "uv", UV)
    allocator = program(t, "allocator", ALLOCATOR)
    if not shutil.which("python"):
        os.symlink(shutil.which("python3"), os.path.join(t.folder, "bin", "python"))
    os.makedirs(os.path.join(t.home, ".config/gdnctl"))
    with open(os.path.join(t.home, ".config/gdnctl/config.toml"), "w") as f:
        f.write(f'dev_tpu_allocator = "{allocator}"\n')
    t.git("rm", "-q", "-r", "scripts")
    t.write("lib/levanter/src/levanter/layers/gated_deltanet.py", "speed = 1\n")
    gdnctl(t, "init", "marin")
    gdnctl(t, "log", "init", "--log-file", LOG)
    t.commit_all("a checkout")
    t.head = t.git("rev-parse", "HEAD")


def prompts(t):
    return [[i["content"][0]["text"] for i in requests[0]["input"] if i.get("type") == "message" and i["role"] == "user"][-1]
            for requests in t.threads()]


@case_that_waits
def quick_start_of_the_docs(t):
    marin(t)
    t.configure("improve")
    with open(os.path.join(DOCS, "codex-loop.md")) as f:
        line = re.search(r"## Quick start\n\n```\n[^`]*?(gdnctl codex-loop .*?)```", f.read(), re.S)[1]
    demand("--iterations 5 --resilient" in line, line)
    typed(t, line).demands("completed", 0, 5)
    equal("outcomes", t.outcomes(), ["accepted"] * 5)
    equal("post-checks", [r["verdict"] for r in t.records("stage")], ["pass"] * 5)
    demand("Session directives" in prompts(t)[0], "the preset is not in the prompt")


@case_that_waits
def first_version_resilient_run_of_the_readme(t):
    marin(t)
    t.configure("improve+message+500+improve")
    done = typed(t, """uv run python scripts/gdn/gdnctl.py codex-loop \\
  --iterations 5 \\
  --model gpt-5.3-codex \\
  --reasoning-effort xhigh \\
  --resilient \\
  --directive-preset triangular-inversion \\
  --dirty-policy stash \\
  --no-commit-policy count-failure
""").demands("completed", 0, 5)
    equal("outcomes", t.outcomes(), ["accepted", "no-op", "accepted", "accepted", "accepted"])
    done.says("codex iteration command failed (attempt 1/3, rc=1); retrying.")
    done.says("codex does not know the model 'gpt-5.3-codex'")
    equal("isolation", t.records("run")[0]["isolation"], "inplace")
    equal("commits", t.commits(), 4)
    equal("author", set(t.git("log", "--format=%an", t.head + "..").split()), {"t"})
    request = t.requests()[0]
    equal("model and effort", (request["model"], request["reasoning"]["effort"]), ("gpt-5.3-codex", "xhigh"))


@case_that_waits
def first_version_held_tpu_run_of_the_readme(t):
    marin(t)
    t.configure("improve")
    typed(t, """uv run python scripts/gdn/gdnctl.py codex-loop \\
  --iterations 5 \\
  --model gpt-5.3-codex \\
  --reasoning-effort xhigh \\
  --resilient \\
  --hold-dev-tpu \\
  --dev-tpu-cluster us-central1 \\
  --dev-tpu-fallback-cluster us-east5-a \\
  --dev-tpu-name "$USER-gdn" \\
  --dev-tpu-type v5p-8 \\
  --dev-tpu-allocate-attempts 2 \\
  --dev-tpu-allocate-retry-sleep 20 \\
  --post-check "uv run python scripts/gdn/gdnctl.py dev-tpu-test --cluster us-central1 --tpu-name $USER-gdn --tests both"
""").demands("completed", 0, 5).says("does not target --cluster us-east5-a --tpu-name me-gdn.")
    held_to_the_end(t, 5)
    equal("outcomes", t.outcomes(), ["accepted"] * 5)


@case_that_waits
def first_version_run_of_the_recipe(t):
    marin(t)
    t.configure("improve+improve+message")
    t.write("README.md", "a tree\nmine, not committed\n")
    typed(t, """uv run python scripts/gdn/gdnctl.py codex-loop \\
  --iterations 10 \\
  --model gpt-5.3-codex \\
  --reasoning-effort xhigh \\
  --directive-preset triangular-inversion \\
  --dirty-policy stash \\
  --no-commit-policy count-failure \\
  --hold-dev-tpu \\
  --dev-tpu-cluster us-central1 \\
  --dev-tpu-fallback-cluster us-east5-a \\
  --dev-tpu-name "$USER-gdn" \\
  --dev-tpu-type v5p-8 \\
  --dev-tpu-allocate-attempts 2 \\
  --dev-tpu-allocate-retry-sleep 20 \\
  --prompt-file scripts/gdn/codex_iteration_prompt.md \\
  --post-check "uv run python scripts/gdn/gdnctl.py dev-tpu-test --cluster us-central1 --tpu-name $USER-gdn --tests both" \\
  --post-check "uv run python scripts/gdn/gdnctl.py lint-log"
""").demands("no-commit", 3, 3)  # counted, and none is allowed
    equal("outcomes", t.outcomes(), ["accepted", "accepted", "no-op"])
    held_to_the_end(t, 3)
    equal("status", t.status(), "M README.md")
    equal("stashes", t.git("stash", "list"), "")


def held_to_the_end(t, iterations):
    with open(os.path.join(t.home, "allocated")) as f:
        calls = f.read().splitlines()
    tail = "--tpu-name me-gdn allocate --sync-path . --tpu-type v5p-8"
    equal("allocator", calls, ["--cluster us-central1 " + tail, "--cluster us-east5-a " + tail, "released"])
    for text in prompts(t):
        demand("Managed dev TPU mode is active for this run." in text and "--cluster us-east5-a" in text, text[-2000:])
    equal("prompts", len(prompts(t)), iterations)
    with open(os.path.join(t.home, "dev-tpu-test")) as f:
        equal("dev-tpu-test", set(f.read().splitlines()),
              {"python scripts/gdn/gdnctl.py dev-tpu-test --cluster us-central1 --tpu-name me-gdn --tests both"})


@case
def shim_passes_words_exit_codes_and_signals(t):
    marin(t)
    under_way = t.begin("long", argv=["python3", "scripts/gdn/gdnctl.py"])
    t.until("the tool call", lambda: t.left_of("sleep 300"))
    under_way.process.terminate()
    under_way.demands("terminated", 143, 1)
    equal("left", t.left(), {})
    done = t.begin("message", argv=["python3", "scripts/gdn/gdnctl.py"]).demands("no-commit", 3, 1)
    demand("Gated DeltaNet" in prompts(t)[-1], "that is not the recipe's prompt")
    equal("json", json.loads(t.spawn(["python3", "scripts/gdn/gdnctl.py", "loop-status", "--json"]).end().out)["stop_reason"], "no-commit")
    done.says("Iteration did not produce a new commit.")


def python_with_numpy():
    for python in ("/usr/bin/python3", shutil.which("python3")):
        if python and subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    raise Skipped("no python3 with numpy")


ADAPTER = """framework = "numpy"
function = "levanter.layers.gated_deltanet.chunk_gated_delta_rule"
contract = "marin"
fields = {"head_map": "interleaved"}


def supports(case):
    return case["T"] <= 65 and case["dk"] <= 64 and case["dv"] <= 64 or "long"


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    return fn(q, k, v, g, beta, initial_state, contract["eps"])
"""
KERNEL = """# The recurrence, step by step.
import numpy as np


def chunk_gated_delta_rule(q, k, v, g, beta, state, eps):
    q, k = (np.repeat(x.astype(np.float64), v.shape[2] // q.shape[2], axis=2) for x in (q, k))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + eps) for x in (q, k))
    out, S = np.zeros(v.shape), np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]))
    S = S if state is None else S + state
    for t in range(v.shape[1]):
        S = S * np.exp(g[:, t].astype(np.float64))[..., None, None]
        d = beta[:, t, :, None] * (v[:, t] - np.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + np.einsum("bhk,bhv->bhkv", k[:, t], d)
        out[:, t] = np.einsum("bhkv,bhk->bhv", S, q[:, t]) * q.shape[3] ** -0.5
    return out.astype(np.float32), S.astype(np.float32)
"""
TARGET = """target = "marin"
[targets.marin]
log = "log.md"
test = ["sh", "-c", "echo tested >>\\"$HOME/tested\\""]
profile = ["echo", '{"ms": 10}']
metric = { name = "mine/ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.marin.oracle]
kernel = "py:scripts/gdn/adapter.py"
python = ["INTERPRETER"]
env = { PYTHONPATH = "lib/levanter/src" }
"""


@case
def what_the_oracle_found_wrong_is_in_the_next_prompt(t):
    python = python_with_numpy()
    for folder in ("lib/levanter/src/levanter", "lib/levanter/src/levanter/layers"):
        t.write(folder + "/__init__.py", "")
    t.write("lib/levanter/src/levanter/layers/gated_deltanet.py", KERNEL)
    t.write("scripts/gdn/adapter.py", ADAPTER)
    t.write("gdnctl.toml", TARGET.replace("INTERPRETER", python))
    t.write(".gitignore", "__pycache__/\n")
    t.commit_all("a checkout")
    t.head = t.git("rev-parse", "HEAD")
    t.loop("break+mend", "--validation-mode", "required", "--validation-policy", "count-failure", "--max-failures", "-1",
           "--validation-ray-cluster", "local", "--perf-pairs", "1", iterations=2)
    equal("outcomes", t.outcomes(), ["test-fail", "accepted"])
    stages = {(r["iteration"], r["name"]): r["verdict"] for r in t.records("stage")}
    equal("stages of the oracle", (stages[1, "oracle"], stages[2, "oracle"]), ("fail", "pass"))
    with open(os.path.join(t.home, "tested")) as f:
        equal("tests that were run", f.read().splitlines(), ["tested"])
    second = prompts(t)[1]
    demand("What the oracle found wrong in the last candidate" in second, second)
    demand("the inverse is that of I - M" in second, second)
    demand("gdnctl oracle verify gdn --kernel py:scripts/gdn/adapter.py --env PYTHONPATH=lib/levanter/src --case device_" in second, second)
