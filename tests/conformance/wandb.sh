# The official client of Weights & Biases at our scripted server: it reads the same numbers there as the loop does, so the
# server speaks as the client expects it to.
# rooms: src/services/hub/wandb
client() { # leaves in $python one that has the pinned client; skips where it is not to be had
  local venv=$REPO/build/conformance/wandb/venv
  python=$venv/bin/python
  "$python" -c 'import wandb; assert wandb.__version__ == "0.31.0"' 2>/dev/null && return
  rm -rf "$venv" && mkdir -p "${venv%/*}" && python3 -m venv "$venv" &&
    HOME=${venv%/*} "$venv/bin/pip" install -q --disable-pip-version-check wandb==0.31.0 >"$WORK/pip" 2>&1 ||
    skip "pip cannot install wandb 0.31.0: $(tail -n 1 "$WORK/pip")"
}

test_the_official_client_reads_the_same_numbers() {
  . "$REPO/tests/cli/codex_loop_wandb.sh"
  client
  world && serve && agent 'rm -f prints_url'
  loop 0 --perf-pairs 1  # finds the run by its name
  "$python" - "$PWD/$logs/iteration-001-measurement.json" >"$WORK/client" 2>&1 <<'PY' || fail "$(cat "$WORK/client")"
import json, statistics, sys
import wandb
ours = json.load(open(sys.argv[1]))
api = wandb.Api()
name = "gdn_loopgate_iter001_"
(run,) = api.runs("marin-community/marin", filters={"display_name": {"$regex": name}}, order="-created_at", per_page=80)
assert ours["run_url"].endswith("/marin-community/marin/runs/" + run.id), (ours["run_url"], run.id)
run = api.run("marin-community/marin/" + run.id)
assert run.state == "failed" and run.summary["throughput/mfu"] == 0.939, (run.state, dict(run.summary))
for key, value in {**ours["metrics"], "throughput/mfu": ours["metric_value"]}.items():
    rows = list(run.scan_history(keys=["_step", key], min_step=10, max_step=19))
    assert [row["_step"] for row in rows] == list(range(10, 19)), rows
    assert statistics.median(row[key] for row in rows) == value, (key, value, rows)
assert ours["metric_points"] == 9 and len(list(run.scan_history(min_step=10, max_step=19))) == 9
PY
  [ ! -e "$W/complaints" ] || fail "$(cat "$W/complaints")"
}
