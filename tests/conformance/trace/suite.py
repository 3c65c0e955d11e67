"""suite.py GDNCTL [--tally FILE] [-k WORD,...] [--without WHY]: every case. run.py makes the environment that it needs.

--without WHY: xprof and jax could not be installed, so the cases that use them are skipped.
"""
import argparse
import collections
import glob
import gzip
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from decimal import Decimal

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
SAMPLES = os.environ.get("GDNCTL_TEST_TRACES", os.path.join(ROOT, "../shared/data/traces"))
V6E = "openxla_xprof_tpu_inference_2_TPUv6e-4.xplane.pb"
GIB = 1 << 30
# xprof's names for the units of the schedule.
UNITS = {"mxu": "mxu", "xlu": "xlu", "vector_alu": "valu", "vector_eup": "eup", "vector_load": "vload", "vector_store": "vstore",
         "scalar_alu": "salu"}
CASES = {}


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(function):
    """A case is a function of a World, whose folder is empty and is deleted afterwards."""
    CASES[function.__name__] = function
    return function


def same(ours, theirs, what):
    if ours != theirs:
        raise Failed(f"{what}: gdnctl says {str(ours)[:400]}, expected {str(theirs)[:400]}")


def near(ours, theirs, tolerance, what):
    if ours is None or abs(ours - theirs) > tolerance:
        raise Failed(f"{what}: gdnctl says {ours}, expected {theirs} within {tolerance}")


def same_rows(ours, theirs, what):
    """Compares two dicts key by key, so that a failure names the row."""
    same(sorted(ours), sorted(theirs), f"{what}, names")
    for name, value in theirs.items():
        same(ours[name], value, f"{what}, {name}")


class World:
    def __init__(self, binary, folder, without):
        self.binary, self.folder, self.without = binary, folder, without

    def path(self, *names):
        """A path in the case's folder; its parent exists."""
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def sample(self, name, *copy):
        """The path of a copy of a sample: tools write beside their input."""
        source = os.path.join(SAMPLES, name)
        if not os.path.exists(source):
            raise Skipped(f"no {name} (set GDNCTL_TEST_TRACES to the folder of the samples)")
        to = self.path(*(copy or (os.path.basename(name),)))
        shutil.copyfile(source, to)
        return to

    def need_installed(self):
        if self.without:
            raise Skipped(self.without)

    def run(self, *words, code=0):
        environment = dict(os.environ, HOME=self.folder, LC_ALL="C.UTF-8")
        got = subprocess.run([self.binary, "trace", *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=300)
        if got.returncode != code:
            raise Failed(f"exit code {got.returncode} instead of {code}: gdnctl trace {' '.join(words)}\n"
                         f"{got.stdout[-2000:]}{got.stderr[-2000:]}")
        return got.stdout

    def json(self, *words):
        return json.loads(self.run(*words, "--json"))

    def rows(self, *words):
        """The rows of `hotspots` by name."""
        got = self.json("hotspots", *words, "--top", "-1")["hotspots"]
        same(got["remainder"], None, "remainder with --top -1")
        return {row["name"]: row for row in got["rows"]}

    def xprof(self, *words):
        """What one of xprof's commands prints, without its cache."""
        self.need_installed()
        program = os.path.join(os.path.dirname(sys.executable), "xprof")
        got = subprocess.run([program, *words], env=dict(os.environ, HOME=self.folder, TMPDIR=self.folder), stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=300)
        if got.returncode != 0:
            raise Failed(f"xprof {' '.join(words)}: exit code {got.returncode}\n{got.stderr[-2000:]}")
        return json.loads(got.stdout)


# ---- xprof

def xprof_truth(world):
    """xprof's figures of the v6e sample: busy (us), async (ns), (us, calls) by op, idle (ps), category by op, and peaks."""
    world.sample(V6E, "v6e/plugins/profile/s/h.xplane.pb")
    log_dir = world.path("v6e")
    ops = world.xprof("get_kernel_stats", log_dir, "--limit", "1000", "--bypass_cache")
    lines = world.xprof("get_device_time_attribution", log_dir, "--bypass_cache")["by_line_duration_ns"]
    world.xprof("get_overview", log_dir, "--bypass_cache")  # writes the op_stats file
    from xprof.protobuf import op_stats_pb2
    stats = op_stats_pb2.OpStats()
    with open(world.path("v6e/plugins/profile/s/ALL_HOSTS.op_stats_v2.pb"), "rb") as f:
        stats.ParseFromString(f.read())
    device = world.xprof("get_device_information", log_dir)
    metrics = stats.device_op_metrics_db
    return {"busy_us": sum(op["total_duration_us"] for op in ops), "async_ns": lines["Async XLA Ops"],
            "ops": {op["short_name"].lstrip("%"): (op["total_duration_us"], op["execution_count"]) for op in ops},
            "idle_ps": metrics.idle_time_ps, "categories": {m.name: m.category for m in metrics.metrics_db if m.category != "IDLE"},
            "tflops": device["peak_flop_rate"] / 1000, "hbm_gbps": device["peak_hbm_bw_gibs"] * GIB / 1e9}


@case
def xprof_busy_idle_and_async(world):
    truth = xprof_truth(world)
    got = world.json("steps", world.sample(V6E))["time"]
    near(got["busy_ps"], truth["busy_us"] * 1e6, 100 * len(truth["ops"]), "busy of four devices")  # xprof prints 0.1 ns
    same(got["idle_ps"]["total"], truth["idle_ps"], "idle of four devices")
    # xprof cuts both ends of each of the 600 intervals to whole nanoseconds.
    near(got["async_ps"], truth["async_ns"] * 1000, 600 * 1000, "union of the asynchronous ops")


@case
def xprof_every_op(world):
    truth = xprof_truth(world)
    rows = world.rows(world.sample(V6E))
    same_rows({n: r["calls"] for n, r in rows.items()}, {n: calls for n, (_, calls) in truth["ops"].items()}, "calls")
    for name, (us, _) in truth["ops"].items():
        near(rows[name]["total_ps"], us * 1e6, 100, f"total of {name}")
    same_rows({n: r["category"] for n, r in rows.items()}, truth["categories"], "category")


@case
def xprof_peaks(world):
    truth = xprof_truth(world)
    got = world.json("info", world.sample(V6E))["device"]
    same(got["peaks"]["source"], "plane", "source of the peaks")
    near(got["peaks"]["tflops"], truth["tflops"], 1e-3, "peak TFLOP/s")
    near(got["peaks"]["hbm_gbps"], truth["hbm_gbps"], 0.1, "HBM GB/s")


def made_trace(world, schedule, name):
    """The xplane of make_trace.py's Pallas kernel, with another schedule if one is given."""
    script = os.path.join(ROOT, "tests/support/make_trace.py")
    spec = importlib.util.spec_from_file_location("make_trace", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    description = module.pallas_matmul()
    if schedule:
        description["schedules"] = {key: schedule for key in description["schedules"]}
    with open(world.path(name, "description.json"), "w") as f:
        json.dump(description, f)
    made = world.path(name, "host.xplane.pb")
    subprocess.run([sys.executable, script, world.path(name, "description.json"), made], check=True)
    return made


def xprof_schedule(world, trace):
    """xprof's bundles (the first 30), their number, and its sums of spills and fills."""
    bundles = world.xprof("get_llo_static_analysis", trace, "--mode", "bundle_util")
    spills = world.xprof("get_llo_static_analysis", trace, "--mode", "spills")
    same((bundles["status"], spills["status"]), ("OK", "OK"), "xprof's status")
    return bundles["data"], spills["data"]["summary"]


@case
def xprof_schedule_of_a_kernel(world):
    trace = made_trace(world, None, "matmul")
    bundles, summary = xprof_schedule(world, trace)
    (kernel,) = world.json("kernels", trace)["kernels"]
    got = kernel["static"]
    same(got["bundles"], bundles["total_bundles"], "bundles")
    same((got["spill"], got["fill"]), (summary["static_spill_bundles"], summary["static_fill_bundles"]), "spills and fills")
    for theirs, ours in UNITS.items():
        same(got["slots"][ours]["available"], bundles["bundles"][0][theirs + "_avail"] * bundles["total_bundles"], f"slots of {ours}")


@case
def xprof_schedule_of_thirty_bundles(world):
    """xprof prints 30 bundles at most, so only a short schedule can be compared slot by slot."""
    draw = random.Random(7)
    slots = dict(zip(UNITS.values(), (2, 2, 4, 1, 3, 2, 2)))
    schedule = {unit: [[draw.randint(0, n) for _ in range(30)], n] for unit, n in slots.items()}
    schedule |= {"spill": [draw.randint(0, 2) for _ in range(30)], "fill": [draw.randint(0, 1) for _ in range(30)]}
    trace = made_trace(world, schedule, "short")
    bundles, summary = xprof_schedule(world, trace)
    same((bundles["total_bundles"], bundles["truncated"]), (30, False), "xprof's bundles")
    (kernel,) = world.json("kernels", trace)["kernels"]
    got = kernel["static"]
    same(got["bundles"], 30, "bundles")
    same((got["spill"], got["fill"]), (summary["static_spill_bundles"], summary["static_fill_bundles"]), "spills and fills")
    for theirs, ours in UNITS.items():
        used, available = (sum(b[theirs + end] for b in bundles["bundles"]) for end in ("_used", "_avail"))
        same((got["slots"][ours]["used"], got["slots"][ours]["available"]), (used, available), f"slots of {ours}")


# ---- jax

def take_profile(world, session):
    """Profiles eight steps of a jitted training step with a scan; the session's folder in the log directory `log`."""
    world.need_installed()
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train_step(state, x):
        def chunk(s, part):
            return 0.99 * s + part @ jnp.tanh(s), jnp.sum(s * part)

        state, losses = jax.lax.scan(chunk, state, x)
        return state / (1 + jnp.max(jnp.abs(state))), jnp.mean(losses)

    state, x = jnp.eye(64), jnp.full((16, 64, 64), 1 / 64)
    jax.block_until_ready(train_step(state, x))  # compiles
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level, options.enable_hlo_proto = 1, 0, False
    options.session_id = session
    with jax.profiler.trace(world.path("log"), create_perfetto_trace=False, profiler_options=options):
        for step in range(8):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, loss = train_step(state, x)
                loss.block_until_ready()
    return world.path("log/plugins/profile", session)


def files(folder):
    """The xplane and the Chrome JSON of a session."""
    (xplane,), (trace,) = (glob.glob(os.path.join(folder, pattern)) for pattern in ("*.xplane.pb", "*.trace.json.gz"))
    return xplane, trace


def picoseconds(microseconds):
    return int((Decimal(microseconds) * 1_000_000).to_integral_value())


def read_json(path):
    """A Chrome trace as strict JSON; numbers keep their text."""
    def refuse(word):
        raise Failed(f"{path}: {word} is not JSON")

    with open(path, "rb") as f:
        data = f.read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return json.loads(data.decode("utf-8"), parse_constant=refuse, parse_float=Decimal)


def with_args(path, *keys):
    """The X events of a Chrome trace that have all these args."""
    return [e for e in read_json(path)["traceEvents"] if e.get("ph") == "X" and all(k in e.get("args", {}) for k in keys)]


def span(event):
    start = picoseconds(event["ts"])
    return start, start + picoseconds(event["dur"])


def profile_data_totals(path):
    """{op: [ps, calls]} of jax's own reader. CPU profiles count in whole nanoseconds, so nothing is rounded."""
    import jax
    totals = collections.defaultdict(lambda: [0, 0])
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            for event in line.events:
                op = next((value for key, value in event.stats if key == "hlo_op"), None)
                if op is not None:
                    totals[op][0] += round(event.duration_ns * 1000)
                    totals[op][1] += 1
    return dict(totals)


def run_durations(path):
    """Duration of each run of each program in order of start, from the Chrome JSON: first start to last end of its ops."""
    runs = {}
    for event in with_args(path, "hlo_op", "hlo_module", "run_id"):
        start, end = span(event)
        key = event["args"]["hlo_module"], event["args"]["run_id"]
        first, last = runs.get(key, (start, end))
        runs[key] = min(first, start), max(last, end)
    return [end - start for start, end in sorted(runs.values())]


@case
def jax_step_profile(world):
    xplane, trace = files(take_profile(world, "climb-7"))
    got = world.json("steps", xplane, "--device", "cpu")
    same(got["steps"]["source"], "runs:jit_train_step", "source of the steps")
    same(got["steps"]["n"] + len(got["steps"]["excluded"]), 8, "steps")
    durations = run_durations(trace)
    left_out = {row["index"] for row in got["steps"]["excluded"]}
    same(got["steps"]["per_step_ps"], [ps for i, ps in enumerate(durations) if i not in left_out], "duration of each step")
    totals = profile_data_totals(xplane)
    rows = world.rows(xplane, "--device", "cpu")
    same_rows({n: [r["total_ps"], r["calls"]] for n, r in rows.items()}, totals, "ProfileData")
    same(sum(r["total_ps"] for r in rows.values()), sum(ps for ps, _ in totals.values()), "sum of all ops")
    same(sum(r["self_ps"] for r in rows.values()), got["time"]["self_ps"], "sum of self times")


@case
def jax_xplane_equals_json(world):
    both = [[world.json(command, path, "--device", "cpu", *more) for path in files(take_profile(world, "both"))]
            for command, *more in (("info",), ("hotspots", "--top", "-1"), ("steps",))]
    (info, info_json), (hot, hot_json), (steps, steps_json) = both
    same(info_json["programs"], info["programs"], "programs")
    same(info_json["device"], info["device"], "device")
    for key in ("steps", "time", "hotspots"):
        same(hot_json[key], hot[key], f"hotspots, {key}")
    for key in ("steps", "time", "mfu"):
        same(steps_json[key], steps[key], f"steps, {key}")


@case
def jax_sessions(world):
    """The newest session by its profile's start, not by name and not by the files' times."""
    older, newer = take_profile(world, "z-first"), take_profile(world, "a-second")
    for name in os.listdir(older):
        os.utime(os.path.join(older, name), (4e9, 4e9))
    got = world.json("info", world.path("log"), "--device", "cpu")["inputs"]
    same([(i["session"], i["kind"], os.path.dirname(os.path.realpath(i["path"]))) for i in got],
         [("a-second", "xplane", os.path.realpath(newer))], "chosen input")
    skipped = {os.path.realpath(os.path.join(world.path("log"), row["path"])) for row in got[0]["skipped"]}
    for path in glob.glob(older + "/*") + glob.glob(newer + "/*.json.gz"):
        if os.path.realpath(path) not in skipped:
            raise Failed(f"{path} is not in inputs[].skipped: {skipped}")


@case
def jaxlib_json_of_the_v6e_sample(world):
    world.need_installed()
    import jax
    xplane = world.sample(V6E)
    jax.profiler.export_profile_data(jax.profiler.ProfileData.from_file(xplane), world.path("v6e"), session_id="again")
    written, trace = files(world.path("v6e/plugins/profile/again"))
    rows, again, rows_json = world.rows(xplane), world.rows(written), world.rows(trace)
    same_rows(again, rows, "the xplane that jaxlib wrote")
    keys = ("self_ps", "total_ps", "calls", "class", "category", "self_ps_per_step", "calls_per_step", "share")
    same_rows({n: [r[k] for k in keys] for n, r in rows_json.items()}, {n: [r[k] for k in keys] for n, r in rows.items()}, "JSON")
    steps, steps_json = (world.json("steps", path) for path in (xplane, trace))
    same(steps_json["steps"], steps["steps"], "steps")
    known = [key for key in steps["time"] if key not in ("async_ps", "hidden_ps", "overlap")]
    same([steps_json["time"][k] for k in known], [steps["time"][k] for k in known], f"times {known}")
    same(steps_json["time"]["overlap"], None, "overlap from JSON")


@case
def jax_profile_data_of_the_v6e_sample(world):
    """Each device alone. ProfileData cuts every duration to whole nanoseconds."""
    world.need_installed()
    import jax
    xplane = world.sample(V6E)
    for number in range(4):
        plane = jax.profiler.ProfileData.from_file(xplane).find_plane_with_name(f"/device:TPU:{number}")
        (line,) = [line for line in plane.lines if line.name == "XLA Ops"]
        totals = collections.defaultdict(lambda: [0, 0])
        for event in line.events:
            row = totals[event.name.split(" ")[0].lstrip("%")]
            row[0] += round(event.duration_ns * 1000)
            row[1] += 1
        rows = world.rows(xplane, "--devices", str(number))
        same_rows({n: r["calls"] for n, r in rows.items()}, {n: calls for n, (_, calls) in totals.items()}, f"calls on device {number}")
        for name, (ps, calls) in totals.items():
            near(rows[name]["total_ps"], ps + 500 * calls, 500 * calls, f"total of {name} on device {number}")


# ---- kineto

@case
def kineto_sums(world):
    path = world.sample("gpu/torch2.11_h200_fla_chunk.trace.json.gz")
    events = [e for e in read_json(path)["traceEvents"] if e.get("ph") == "X"]
    ops = collections.defaultdict(lambda: [0, 0])
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            ops[event["name"]][0] += picoseconds(event["dur"])
            ops[event["name"]][1] += 1
    rows = world.rows(path)
    same_rows({n: [r["total_ps"], r["calls"]] for n, r in rows.items()}, dict(ops), "totals")
    same_rows({n: r["self_ps"] for n, r in rows.items()}, {n: ps for n, (ps, _) in ops.items()}, "self times on one stream")
    copies = sum(ps for name, (ps, _) in ops.items() if name.startswith(("Memcpy", "Memset")))
    got = world.json("steps", path)
    same(got["time"]["by_class"]["copy"], copies, "copies")
    same(got["time"]["busy_ps"], sum(ps for ps, _ in ops.values()), "busy")
    steps = sorted(span(e) for e in events if e.get("cat") == "gpu_user_annotation")
    same(got["steps"]["per_step_ps"], [end - start for start, end in steps], "steps")


@case
def kineto_vectors(world):
    path = world.sample("gpu/torch2.11_h200_fla_chunk.trace.json.gz")
    with open(world.sample("vectors.json")) as f:
        expected = json.load(f)["gpu_torch_fla"]
    got, rows = world.json("steps", path), world.rows(path)
    same_rows(got["steps"], expected["steps"], "steps")
    same({k: v for k, v in got["time"]["by_class"].items() if v}, {k: v for k, v in expected["by_class"].items() if v}, "classes")
    cut = max(map(len, expected["self_by_op_ps"]))  # long names are cut there
    same_rows({name[:cut]: row["self_ps"] for name, row in rows.items()}, expected["self_by_op_ps"], "self times")


# ---- export

def lanes(events):
    """{(process name, thread name): [(start, end)]} of the X events; checks that each (pid, tid) nests."""
    names, spans = {}, collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "M" and event["name"] in ("process_name", "thread_name"):
            names[event["pid"], event.get("tid") if event["name"] == "thread_name" else None] = event["args"]["name"]
        elif event.get("ph") == "X":
            spans[event["pid"], event["tid"]].append(span(event))
    for key, lane in spans.items():
        open_ends = []
        for start, end in sorted(lane, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                raise Failed(f"pid and tid {key}: an event from {start} to {end} ps overlaps one that ends at {open_ends[-1]} ps")
            open_ends.append(end)
    named = collections.defaultdict(list)
    for (pid, tid), lane in spans.items():
        named[names.get((pid, None)), names.get((pid, tid))] += lane
    return named


def exported(world, path, *options):
    out = world.path(f"{len(os.listdir(world.path('.')))}.json")
    report = world.json("export", "--perfetto", "--output", out, path, *options)["export"]
    events = read_json(out)["traceEvents"]
    if not all(events):
        raise Failed("the export has an empty event {}")
    same(report["events"], sum(event.get("ph") == "X" for event in events), "export.events")
    return lanes(events)


def device_lane(named, device, line):
    """All spans of the lanes of a line: overlapping events may lie on further lanes with the same beginning."""
    return sorted(s for (process, thread), lane in named.items() if device in str(process) and str(thread).startswith(line) for s in lane)


@case
def export_of_the_v6e_sample(world):
    world.need_installed()
    import jax
    path = world.sample(V6E)
    named = exported(world, path)
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            theirs = [event.duration_ns for event in line.events]
            if not plane.name.startswith("/device:TPU:") or line.name not in ("XLA Modules", "XLA Ops", "Async XLA Ops") or not theirs:
                continue
            ours = device_lane(named, plane.name, line.name)
            same(len(ours), len(theirs), f"events of {plane.name}, {line.name}")
            total = sum(end - start for start, end in ours)  # ProfileData cuts durations to whole nanoseconds
            near(total, sum(theirs) * 1000 + 500 * len(theirs), 501 * len(theirs), f"total of {plane.name}, {line.name}")


@case
def export_of_a_jax_profile(world):
    xplane, trace = files(take_profile(world, "exported"))
    theirs = sorted(end - start for start, end in map(span, with_args(trace, "hlo_op")))
    for path in (xplane, trace):
        ours = sorted(end - start for lane in exported(world, path, "--device", "cpu").values() for start, end in lane)
        missing = collections.Counter(theirs) - collections.Counter(ours)
        same(sum(missing.values()), 0, f"ops of {path} that the export lacks")


@case
def export_of_kineto(world):
    path = world.sample("gpu/torch2.11_h200_fla_chunk.trace.json.gz")
    ops = [e for e in read_json(path)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    durations = collections.Counter(end - start for lane in exported(world, path).values() for start, end in lane)
    missing = collections.Counter(picoseconds(e["dur"]) for e in ops) - durations
    same(sum(missing.values()), 0, "device ops that the export lacks")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gdnctl")
    parser.add_argument("--tally")
    parser.add_argument("-k", dest="only", default="")
    parser.add_argument("--without", default="")
    words = parser.parse_args()
    counts = [0, 0, 0]

    def note(verdict, name, text):
        counts[verdict] += 1
        if words.tally:
            with open(words.tally, "a") as f:
                f.write(("1 0 0\n", "0 1 0\n", "0 0 1\n")[verdict])
        print(f"[conformance] trace: {name}: " + ("ok", "FAILED", "skipped")[verdict] + text, flush=True)

    begun = time.monotonic()
    for name, function in CASES.items():
        if not any(word in name for word in words.only.split(",")):
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gdnctl-conformance.") as folder:
            try:
                function(World(words.gdnctl, folder, words.without))
                note(0, name, f" ({time.monotonic() - started:.1f} s)")
            except Skipped as why:
                note(2, name, f": {why}")
            except Failed as why:
                note(1, name, f": {why}")
            except Exception:
                note(1, name, f"\n{traceback.format_exc()}")
    print(f"[conformance] trace: {counts[0]} ok, {counts[1]} failed, {counts[2]} skipped, {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if counts[1] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(70)  # 1 is for failed cases, which are already counted
