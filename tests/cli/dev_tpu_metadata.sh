# The metadata server of a TPU's host, with every fault: the hold lives on, fields are empty, and the error is named.
. "$REPO/tests/support/dev_tpu_host.sh"
modes='good no-outside newline missing forbidden busy broken away silent drip html malformed garbage huge redirect gone'

judge() { # reads "MODE HOST_INFO" lines
  python3 -c '
import json, sys
seen = {line.split(" ", 1)[0]: json.loads(line.split(" ", 1)[1]) for line in sys.stdin}
good = {"ip_address": "203.0.113.7", "gcloud_tpu_name": "ray-marin-us-central1-worker-ed0b8cf7-tpu",
        "gcloud_zone": "us-central1-a", "gcloud_region": "us-central1"}
nothing = dict.fromkeys(good, "")
want = {"good": good, "newline": good, "no-outside": {**good, "ip_address": "10.0.0.7"}}
words = {"missing": "404", "forbidden": "403", "busy": "429", "broken": "500", "away": "503", "redirect": "302"}
assert sorted(seen) == sorted(sys.argv[1:]), sorted(seen)
for mode, info in seen.items():
    got = {key: info[key] for key in good}
    assert got == want.get(mode, nothing), (mode, info)
    assert bool(info["error"]) == (mode not in want), (mode, info)
    assert words.get(mode, "") in info["error"], (mode, info)
    assert info["hostname"] and info["pid"] > 1 and info["accel_count"] >= 0, (mode, info)
' $modes
}
servers() { # starts one a mode, with its URL in $WORK/base.MODE
  pids=()
  for mode in $modes; do
    mkfifo "$WORK/in.$mode"
    python3 -B "$REPO/tests/support/fake_metadata.py" "$mode" <>"$WORK/in.$mode" >"$WORK/base.$mode" &
    pids+=($!)
  done
  for mode in $modes; do for _ in $(seq 400); do [ -s "$WORK/base.$mode" ] && break; sleep 0.05; done; done
  trap 'kill ${pids[*]} ${server:-} 2>/dev/null; cleanup' EXIT
}

test_of_a_hold_on_this_machine() {
  servers
  waits=()
  for mode in $modes; do
    GDNCTL_METADATA_BASE=$(cat "$WORK/base.$mode") "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name "$mode" --no-sync \
      --detach --json >"$WORK/told.$mode" 2>"$WORK/err.$mode" &
    waits+=($!)
  done
  wait "${waits[@]}"
  for mode in $modes; do printf '%s %s\n' "$mode" "$(cat "$WORK/told.$mode")"; done |
    python3 -c 'import json, sys
for line in sys.stdin:
    mode, text = line.split(" ", 1)
    print(mode, json.dumps(json.loads(text)["host_info"]))' | judge || fail 'host_info'
  expect 0 "$GDNCTL" dev-tpu-list --cluster local --json
  [ "$(grep -o '"status":"RUNNING"' "$WORK/out" | wc -l)" = "$(echo "$modes" | wc -w)" ] || fail 'a hold has not lived on'
  expect 0 "$GDNCTL" dev-tpu-release --all-mine
}

test_of_a_clusters_holder() {
  host
  allocate --no-sync
  release
  servers
  python3 - "$SRV/posted" "$WORK" $modes >"$WORK/seen" <<'P' || fail 'a holder'
import json, os, subprocess, sys, time
job = json.loads(open(sys.argv[1]).readline())
work, modes = sys.argv[2], sys.argv[3:]
env = {**os.environ, **job["runtime_env"]["env_vars"], "GDNCTL_HOLD_GRACE_S": "7", "GDNCTL_HOLD_LEASE_S": "4"}
holders, began = {}, time.monotonic()
for mode in modes:
    base = open(f"{work}/base.{mode}").read().strip()
    own = {**env, "GDNCTL_METADATA_BASE": base, "GDNCTL_HOLD_ID": f"{job['submission_id']}-{mode}"}
    holders[mode] = subprocess.Popen(["sh", "-c", job["entrypoint"]], env=own, stdout=subprocess.PIPE, text=True)
for mode, holder in holders.items():
    out, _ = holder.communicate(timeout=60)
    lines = dict(line.split(" ", 1) for line in out.splitlines() if line.startswith("GDNCTL_"))
    print(mode, lines["GDNCTL_HOST_INFO"])
    # Never renewed: it ends with its grace, whatever its metadata server does.
    assert json.loads(lines["GDNCTL_RELEASED"]) == {"reason": "lease"} and holder.returncode == 0, (mode, out)
took = time.monotonic() - began
assert 6.5 < took < 25, took
P
  judge <"$WORK/seen" || fail 'host_info'
}

test_preempted_in_the_middle() {
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo on; sleep 64311"]\n' >gdnctl.toml && git init -q . && git add -A && git commit -qm tree
  metadata good
  trap 'kill $metadata 2>/dev/null; cleanup' EXIT
  "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a 2>"$WORK/held" >/dev/null &
  holder=$!
  for _ in $(seq 200); do grep -q 'is active' "$WORK/held" && break; sleep 0.05; done
  launch "$GDNCTL" dev-tpu-test --tpu-name a --cluster local --json
  until_said on
  echo preempt >"$WORK/metadata.in"
  wait "$pid"
  [ $? = 4 ] || fail 'exit code of the test'
  err_has 'was preempted: its machine was taken away'
  out_has '"failure_class":"infra"'
  wait "$holder"
  [ $? = 4 ] || fail 'exit code of the allocation'
  grep -q 'was preempted' "$WORK/held" || fail 'the allocation does not say so'
  for _ in $(seq 60); do pgrep -f 'sleep 64311' >/dev/null || break; sleep 0.1; done
  ! pgrep -f 'sleep 64311' >/dev/null || fail 'it still runs'
}

# The lease is a file's time, and clocks are set: see LeaseWatch.
test_clock_jumps_of_a_clusters_holder() {
  host
  allocate --no-sync
  release
  python3 - "$SRV/posted" <<'P' || fail 'a clock that is set'
import json, os, subprocess, sys, time
job = json.loads(open(sys.argv[1]).readline())
env = {**os.environ, **job["runtime_env"]["env_vars"], "GDNCTL_HOLD_GRACE_S": "30", "GDNCTL_HOLD_LEASE_S": "3"}
def holder(word):
    own = {**env, "GDNCTL_HOLD_ID": f"{job['submission_id']}-{word}"}
    return subprocess.Popen(["sh", "-c", job["entrypoint"]], env=own, stdout=subprocess.PIPE, text=True), \
        "/tmp/gdnctl-hold/" + own["GDNCTL_HOLD_ID"]
ahead, ahead_file = holder("ahead")
kept, kept_file = holder("kept")
time.sleep(2)
os.utime(ahead_file, None), os.utime(kept_file, None)
for i in range(6):  # an hour ahead renews nothing; a minute ahead, and then a clock that was set back, do
    time.sleep(1)
    if ahead.poll() is None and os.path.exists(ahead_file):
        os.utime(ahead_file, (time.time() + 3600 + i,) * 2)
    os.utime(kept_file, (time.time() + (60 if i % 2 else 0),) * 2)
assert ahead.wait(10) == 0 and '"lease"' in ahead.stdout.read()
assert kept.poll() is None
kept.terminate()
assert '"stop"' in kept.communicate(timeout=10)[0]
P
}
