"""Traces that are more than a case can spell out: random ones, and hostile ones of any size."""
import json
import pathlib
import random

DEVICE = [{"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:TPU:0"}},
          {"ph": "M", "pid": 3, "tid": 1, "name": "thread_name", "args": {"name": "XLA Ops"}},
          {"ph": "M", "pid": 3, "tid": 2, "name": "thread_name", "args": {"name": "XLA Modules"}}]
CATEGORIES = ["loop fusion", "convolution fusion", "copy-start", "copy-done", "all-reduce", "while", "custom-call"]


def random_trace(seed, devices=2, kind="TPU", events=60):
    """Events that nest, overlap in part, start or end together, or have no length. A GPU gets two streams a device."""
    rng = random.Random(seed)
    lines = ["XLA Ops", "Async XLA Ops", "XLA Modules"]
    if kind == "GPU":
        lines = ["Stream #7(Kernel)", "Stream #9(Compute)"]
    ops = {f"op.{i}": {"stats": {"hlo_category": rng.choice(CATEGORIES)} if kind == "TPU" else {}} for i in range(9)}
    planes = []
    for device in range(devices):
        named, base = {}, rng.randrange(10**9)
        for line in lines:
            at, rows = base + rng.randrange(30000), []
            for _ in range(events if line != "XLA Modules" else 6):
                length = rng.choice([0, 2, 50, 1000, 40000])
                name = f"op.{rng.randrange(9)}" if line != "XLA Modules" else f"jit_{rng.choice('ab')}(77)"
                rows.append([name, at, length + 90000 * (line == "XLA Modules")])
                at += rng.choice([0, 1, 2, length, length // 2, 3 * length, 70000]) + 100000 * (line == "XLA Modules")
            if line != "XLA Ops" or rng.random() < 0.5:
                rng.shuffle(rows)  # also lines that are not in order
            named[line] = rows
        planes.append({"name": f"/device:{kind}:{device}", "ops": ops, "lines": named})
    return {"planes": planes}


def chrome_json(events, tail="]}"):
    return ('{"traceEvents":[' + ",".join(map(json.dumps, DEVICE + events)) + tail).encode()


def equal_starts(n, growing=False):
    """JSON: n operations that start at once, each longer (or each shorter) than the one before."""
    rows = ('{"ph":"X","pid":3,"tid":1,"ts":5,"dur":%d,"name":"a"}' % (i + 1 if growing else n - i) for i in range(n))
    return chrome_json([])[:-2] + b"," + ",".join(rows).encode() + b"]}"


def staircase(n):
    """JSON: n operations, each of which starts before all earlier ones end, and ends after them."""
    rows = ('{"ph":"X","pid":3,"tid":1,"ts":%d,"dur":%d,"name":"a%d"}' % (i, n, i % 7) for i in range(n))
    return chrome_json([])[:-2] + b"," + ",".join(rows).encode() + b"]}"


def many_names(n, names):
    """JSON: a step a thousand operations, of so many names."""
    rows = ('{"ph":"X","pid":3,"tid":1,"ts":%d,"dur":1.5,"name":"fusion.%d","args":{"hlo_category":"loop fusion",'
            '"long_name":"%%fusion.%d = bf16[128,128]{1,0} fusion(bf16[128,128]{1,0} %%p.%d)"}}'
            % (2 * i, i % names, i % names, i % names) for i in range(n))
    runs = ('{"ph":"X","pid":3,"tid":2,"ts":%d,"dur":1999,"name":"jit_f(1)"}' % (2000 * i) for i in range(n // 1000))
    return chrome_json([])[:-2] + b"," + ",".join([*rows, *runs]).encode() + b"]}"


def many_runs(n):
    """JSON: n runs of a program of one operation."""
    rows = ('{"ph":"X","pid":3,"tid":1,"ts":%d,"dur":0.5,"name":"a"},{"ph":"X","pid":3,"tid":2,"ts":%d,"dur":0.%d,'
            '"name":"jit_f(1)"}' % (i, i, 6 + i % 3) for i in range(n))
    return chrome_json([])[:-2] + b"," + ",".join(rows).encode() + b"]}"


def overlapping(n):
    """JSON: n programs' runs, calls of a kernel and stages of it, each as long as all of them."""
    names = (2, "jit_f(1)"), (1, "kernel.1"), (4, "ep_run")
    rows = ('{"ph":"X","pid":3,"tid":%d,"ts":%d,"dur":%d,"name":"%s","args":{"hlo_category":"custom-call"}}' % (tid, i, n, name)
            for i in range(n) for tid, name in names)
    spans = {"ph": "M", "pid": 3, "tid": 4, "name": "thread_name", "args": {"name": "XLA TraceMe"}}
    return chrome_json([spans])[:-2] + b"," + ",".join(rows).encode() + b"]}"


def deep_args(depth):
    """JSON: an operation with lists nested so deep in its args."""
    row = '{"ph":"X","pid":3,"tid":1,"ts":5,"dur":7,"name":"a","args":{"x":%s1%s}}' % ("[" * depth, "]" * depth)
    return chrome_json([])[:-2] + b"," + row.encode() + b"]}"


def long_text(size):
    """JSON: names and arguments of so many bytes."""
    row = {"ph": "X", "pid": 3, "tid": 1, "ts": 5, "dur": 7, "name": "n" * size, "args": {"tf_op": "t" * size}}
    return chrome_json([row])


def budget_trace(rules, vector, side=1):
    """Four steps of 100 ms in which operations take what a vector of the rules file says; `side`: 0 before, 1 after."""
    file = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "trace" / rules
    case = json.loads(file.read_text())["vectors"][vector]
    times = case.get("ops_ms") or {label: both[side] for label, both in case["labels_before_after_ms"].items()}
    ops, events, steps = {}, [], []
    for n, (label, _) in enumerate(times.items()):
        category = label.removeprefix("category ") if label.startswith("category ") else "loop fusion"
        ops[f"op.{n}"] = {"stats": {"hlo_category": category}}
        if category == "loop fusion":
            ops[f"op.{n}"]["stats"]["tf_op"] = label
    for step in range(4):
        at = step * 10**11
        steps.append([str(step), at, 10**11])
        for n, ms in enumerate(times.values()):
            events.append([f"op.{n}", at, round(ms * 10**9)])
            at += round(ms * 10**9)
    return {"planes": {"/device:TPU:0": {"ops": ops, "lines": {"Steps": steps, "XLA Ops": events}}}}
