"""traces.py GDNCTL [ROUNDS [FOLDER]]: `gdnctl trace` beside Python and xprof on large profiles, and the digest of a real one.

Every round runs each program once, in turn; the table shows medians over the rounds (3). The profiles are generated in
FOLDER (build/bench) and deleted afterwards: a Chrome JSON of 336 MB and 430,528 events, and an xplane of 1.2 million
events. xprof is the one that tests/conformance/trace/run.py installs, without its caches; it is left out where missing.
The digest is of the v6e sample in GDNCTL_TEST_TRACES (../shared/data/traces beside the checkout).
"""
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLE = os.path.join(os.environ.get("GDNCTL_TEST_TRACES", os.path.join(ROOT, "../shared/data/traces")),
                      "openxla_xprof_tpu_inference_2_TPUv6e-4.xplane.pb")
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
XPROF = os.path.join(ROOT, "build/conformance/trace/venv/bin/xprof")
JSON_EVENTS, JSON_BYTES = 430_528, 336_000_000
XPLANE_EVENTS = 1_200_000
DEVICES, STEPS = 2, 8
# The peer of the Chrome JSON: the shortest program that answers where the time goes.
PEER = """
import gzip, json, sys
totals = {}
with gzip.open(sys.argv[1]) as f:
    for event in json.load(f)["traceEvents"]:
        if event.get("ph") == "X":
            totals[event["name"]] = totals.get(event["name"], 0.0) + event["dur"]
print(max(totals, key=totals.get))
"""


def operation(index):
    """Name, category, HLO text and framework name of one of the 344 ops of a step."""
    kind = ("fusion", "copy-done", "convolution", "all-reduce")[index % 4]
    category = ("loop fusion", "copy-done", "convolution", "all-reduce")[index % 4]
    operands = ", ".join(f"bf16[8,{128 + index},2048]{{2,1,0:T(8,128)(2,1)}} %parameter.{index + i}" for i in range(6))
    text = f"%{kind}.{index} = bf16[8,{128 + index},2048]{{2,1,0:T(8,128)(2,1)}} {kind}({operands}), metadata={{op_name=\"layer_{index}\"}}"
    return f"{kind}.{index}", category, text, f"jit(train_step)/layers_{index % 24}/block/{kind}"


def ops_of_a_line(events):
    """(op, start, duration) in ps: steps of back-to-back ops whose durations vary."""
    start = 5_000_000_000
    for i in range(events):
        duration = 1_000_000 + (i * 7919) % 900_007
        yield i % 344, start, duration
        start += duration + (i * 31) % 1_009


def write_json(path):
    """A Chrome JSON as XLA writes it: one line, durations with up to 17 digits, every value in args a string."""
    ops = [operation(i) for i in range(344)]
    micro = lambda ps: f"{ps / 1e6:.17g}"
    per_line = JSON_EVENTS // DEVICES - STEPS
    bare = sum(len(text) for _, _, text, _ in ops) // len(ops) + 298
    pad = "x" * max(0, JSON_BYTES // JSON_EVENTS - bare)  # a source path, so that the file has its size
    with gzip.open(path, "wt", compresslevel=5, encoding="ascii") as f:
        f.write('{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[')
        for device in range(DEVICES):
            f.write(f'{{"ph":"M","pid":{device + 3},"name":"process_name","args":{{"name":"/device:TPU:{device}"}}}},')
            for tid, line in ((1, "Steps"), (2, "XLA Ops")):
                f.write(f'{{"ph":"M","pid":{device + 3},"tid":{tid},"name":"thread_name","args":{{"name":"{line}"}}}},')
            edges, last = [], 0
            for i, (op, start, duration) in enumerate(ops_of_a_line(per_line)):
                if i % (per_line // STEPS + 1) == 0:
                    edges.append(start)
                name, category, text, framework = ops[op]
                quoted = text.replace('"', '\\"')
                f.write(f'{{"ph":"X","pid":{device + 3},"tid":2,"ts":{micro(start)},"dur":{micro(duration)},"name":"{name}","args":'
                        f'{{"long_name":"{quoted}","hlo_category":"{category}","tf_op":"{framework}","bytes_accessed":"{op * 4096}",'
                        f'"model_flops":"{op * 65536}","source":"/workdir/{pad}/model.py:{op}","run_id":"{i // 344}"}}}},')
                last = start + duration
            for step, (begin, end) in enumerate(zip(edges, edges[1:] + [last])):
                f.write(f'{{"ph":"X","pid":{device + 3},"tid":1,"ts":{micro(begin)},"dur":{micro(end - begin)},"name":"{step}","args":'
                        f'{{"group_id":"{step}"}}}},')
        f.write("{}]}\n")


def write_xplane(path):
    """An xplane of TPUs: about 35 bytes an event, with the two stats that every op of libtpu carries."""
    from make_trace import Names, number, stat, text
    names = Names()
    offset, lasts = names.id("device_offset_ps"), names.id("device_duration_ps")
    metadata = number(1, 400) + text(2, "jit_train_step(7)")
    metadata = text(4, number(1, 400) + text(2, metadata))
    for i in range(344):
        name, category, hlo, framework = operation(i)
        stats = {"hlo_category": category, "program_id": 7, "symbol_id": i + 1, "flops": i * 65536, "model_flops": i * 65536,
                 "bytes_accessed": i * 4096, "tf_op": framework}
        op = number(1, i + 1) + text(2, hlo) + text(4, name) + b"".join(text(5, stat(names, *item)) for item in stats.items())
        metadata += text(4, number(1, i + 1) + text(2, op))
    chip = {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 918.0, "peak_hbm_bw_gigabytes_per_second": 1638.0}
    per_line = XPLANE_EVENTS // DEVICES
    with open(path, "wb") as f:
        for device in range(DEVICES):
            events, edges, last = [], [], 0
            for i, (op, start, duration) in enumerate(ops_of_a_line(per_line)):
                if i % (per_line // STEPS + 1) == 0:
                    edges.append(start)
                last = start + duration
                events.append(text(4, number(1, op + 1) + number(2, start) + number(3, duration)
                                   + text(4, number(1, offset) + number(3, start)) + text(4, number(1, lasts) + number(3, duration))))
            runs = b"".join(text(4, number(1, 400) + number(2, begin) + number(3, end - begin) + text(4, stat(names, "run_id", step + 1)))
                            for step, (begin, end) in enumerate(zip(edges, edges[1:] + [last])))
            lines = text(3, number(1, 1) + text(2, "XLA Modules") + runs) + text(3, number(1, 2) + text(2, "XLA Ops") + b"".join(events))
            about = b"".join(text(6, stat(names, *item)) for item in chip.items())
            f.write(text(1, number(1, device + 1) + text(2, f"/device:TPU:{device}") + lines + metadata + about + names.entries()))


def run(words, home, expected):
    """User CPU seconds, wall seconds, peak resident MB and bytes of output of a command, which must print `expected`."""
    env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "NO_COLOR": "1"}
    out = [os.path.join(home, name) for name in ("stdout", "stderr")]
    with open(out[0], "wb") as stdout, open(out[1], "wb") as stderr:
        start = time.perf_counter()
        child = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    printed, errors = (open(name, encoding="utf-8", errors="replace").read() for name in out)
    if child.returncode != 0 or expected not in printed:
        sys.exit(f"{' '.join(words)[:300]}: exit code {child.returncode}, no {expected!r} in its output\n{printed[-1000:]}{errors[-1000:]}")
    return usage.ru_utime, wall, usage.ru_maxrss / 1024, len(printed.encode())


def compare(title, subjects, rounds, goal):
    """subjects: {name: (command, text that it must print, prepare)}. Prints medians and shares of the second's user CPU."""
    print(title)
    taken = {name: [] for name in subjects}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            for name, (words, expected, prepare) in subjects.items():
                prepare()
                taken[name].append(run(words, home, expected))
    first, *others = subjects
    reference = statistics.median(row[0] for row in taken[others[0]]) if others else None
    for name, rows in taken.items():
        user, wall, peak, _ = (statistics.median(column) for column in zip(*rows))
        ratio = f"x {user / reference:6.3f} of {others[0]}" if reference else ""
        print(f"  {name:<22} user {user:7.3f} s  wall {wall:7.3f} s  peak {peak:7.1f} MB  {ratio}".rstrip())
    print(f"  goal: {goal}")
    return statistics.median(row[0] for row in taken[first])


def nothing():
    pass


def large_json(gdnctl, rounds, folder):
    path = os.path.join(folder, "large.trace.json.gz")
    with gzip.open(path) as f:
        size = f.seek(0, os.SEEK_END)
    subjects = {"gdnctl trace hotspots": ([gdnctl, "trace", "hotspots", path], "fusion.", nothing),
                "Python, gzip and json": ([sys.executable, "-c", PEER, path], "\n", nothing)}
    title = f"Chrome JSON, {size / 1e6:.0f} MB ({os.path.getsize(path) / 1e6:.0f} MB compressed), {JSON_EVENTS:,} events"
    compare(title, subjects, rounds, "0.12 of Python's user CPU, 64 MB")


def large_xplane(gdnctl, rounds, folder):
    log_dir = os.path.join(folder, "plugins/profile/s")
    path = os.path.join(log_dir, "h.xplane.pb")

    def forget():
        for name in os.listdir(log_dir):
            if name != "h.xplane.pb":
                os.remove(os.path.join(log_dir, name))

    subjects = {"gdnctl trace hotspots": ([gdnctl, "trace", "hotspots", path], "fusion.", nothing)}
    if os.path.exists(XPROF):
        subjects["xprof get_hlo_stats"] = ([XPROF, "get_hlo_stats", folder, "--bypass_cache"], '"rank": 1,', forget)
    else:
        print(f"xprof is left out: tests/conformance/trace/run.py installs it as {os.path.relpath(XPROF, ROOT)}")
    megabytes = os.path.getsize(path) / 1e6
    user = compare(f"xplane, {megabytes:.0f} MB, {XPLANE_EVENTS:,} events", subjects, rounds, "0.04 of xprof's user CPU")
    print(f"  {'whole command':<22} {XPLANE_EVENTS / max(user, 0.001) / 1e6:.1f} million events per second of user CPU")


def digest(gdnctl, rounds):
    if not os.path.exists(SAMPLE):
        print("digest: left out, no v6e sample (set GDNCTL_TEST_TRACES to the folder of the samples)")
        return
    with tempfile.TemporaryDirectory() as home:
        rows = [run([gdnctl, "trace", "report", "--digest", SAMPLE], home, "copy-done.2") for _ in range(max(rounds, 11))]
    user, wall, peak, size = (statistics.median(column) for column in zip(*rows))
    print("Digest of a real profile (v6e x 4, 0.9 MB)")
    print(f"  {'gdnctl trace report':<22} user {user:7.3f} s  wall {wall:7.3f} s  peak {peak:7.1f} MB  {size:,.0f} bytes")
    print("  goal: 0.050 s, 8,000 bytes")


def main():
    gdnctl = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    under = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else os.path.join(ROOT, "build/bench")
    os.makedirs(under, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="traces.", dir=under)
    try:
        # In a process of its own: a child's peak memory counts its parent's size at the start.
        subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--generate", folder], check=True)
        large_json(gdnctl, rounds, folder)
        large_xplane(gdnctl, rounds, folder)
        digest(gdnctl, rounds)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1] == "--generate":
        os.makedirs(os.path.join(sys.argv[2], "plugins/profile/s"))
        write_json(os.path.join(sys.argv[2], "large.trace.json.gz"))
        write_xplane(os.path.join(sys.argv[2], "plugins/profile/s/h.xplane.pb"))
    else:
        main()
