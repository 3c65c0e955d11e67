#!/usr/bin/env python3
"""make_trace.py DESCRIPTION.json OUT.xplane.pb|OUT.trace.json[.gz]: write a profiler trace from a description of it.

The xplane.pb is an XSpace protobuf. The trace.json is what XLA's converter makes of it: times as 17-digit doubles in
microseconds, args as strings, no events of the line 'Async XLA Ops', some stats left out, an empty last event.
A name that ends in .gz is gzipped, in either format.

DESCRIPTION: {"host", "toolchain": {"jax", "jaxlib", "libtpu"}, "start_ns", "options_hex", "errors": [..],
"planes": [{"name", "stats": {..}, "ops": {KEY: {"name": HLO text, "display_name", "stats", "breakdown"}},
            "lines": [{"name", "timestamp_ns", "events": [{"op": KEY or name, "start_ps", "duration_ps", "stats",
                                                           "occurrences"}]}]}],
"schedules": {"jit_f(12)::kernel.1": {"mxu": [[slots used by bundle], slots], .., "spill": [..], "fill": [..]}}}
Everything is optional but names and times. A stat is an int, a float, a string, {"bytes": hex} or {"ref": text};
"breakdown" is [[operation, space, bytes], ..] (space 1: HBM). "occurrences" makes an aggregate event without a place.
pallas_matmul() and tpu_step_trace() return descriptions.
"""
import gzip
import json
import random
import struct
import sys

UNITS = ["mxu", "xlu", "valu", "eup", "vload", "vstore", "salu"]
TOOLCHAIN = {"jax": "jax_version", "jaxlib": "jaxlib_version", "libtpu": "tpu_version"}
# What the converter leaves out of args, beside names that begin with an underscore.
HIDDEN = {"flops", "program_id", "symbol_id", "flow"}


# ---- Protobuf ----

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed(field, values):
    return text(field, b"".join(map(varint, values)))


class Names:
    """Ids for the names of stats, from 1, in the order of their first use."""

    def __init__(self):
        self.ids = {}

    def id(self, name):
        return self.ids.setdefault(name, len(self.ids) + 1)

    def entries(self):
        return b"".join(text(5, number(1, i) + text(2, number(1, i) + text(2, name))) for name, i in self.ids.items())


def stat(names, name, value):
    out = number(1, names.id(name))
    if isinstance(value, float):
        return out + varint(2 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return out + number(3 if value >= 1 << 63 else 4, value)
    if isinstance(value, str):
        return out + text(5, value)
    if "ref" in value:
        return out + number(7, names.id(value["ref"]))
    return out + text(6, bytes.fromhex(value["bytes"]))


def breakdown(accesses):
    return b"".join(text(1, number(1, o) + number(2, s) + number(3, n)) for o, s, n in accesses)


def op_stats(op):
    stats = dict(op.get("stats", {}))
    if "breakdown" in op:
        stats["memory_access_breakdown"] = {"bytes": breakdown(op["breakdown"]).hex()}
    return stats


def xplane_plane(plane):
    names, ids, lines, metadata = Names(), {}, b"", b""
    ops = plane.get("ops", {})
    for n, line in enumerate(plane.get("lines", []), 1):
        body = number(1, n) + text(2, line["name"]) + number(3, line.get("timestamp_ns", 0))
        base = line.get("timestamp_ns", 0) * 1000
        for event in line["events"]:
            place = ids.setdefault(event["op"], len(ids) + 1)
            out = number(1, place)
            if "occurrences" in event:
                out += number(5, event["occurrences"])
            else:
                out += number(2, event["start_ps"] - base)
            out += number(3, event["duration_ps"])
            out += b"".join(text(4, stat(names, k, v)) for k, v in event.get("stats", {}).items())
            body += text(4, out)
        lines += text(3, body)
    for key in list(ids) + [k for k in ops if k not in ids]:
        i = ids.setdefault(key, len(ids) + 1)
        op = ops.get(key, {"name": key})
        out = number(1, i) + text(2, op["name"])
        if op.get("display_name"):
            out += text(4, op["display_name"])
        out += b"".join(text(5, stat(names, k, v)) for k, v in op_stats(op).items())
        metadata += text(4, number(1, i) + text(2, out))
    stats = b"".join(text(6, stat(names, k, v)) for k, v in plane.get("stats", {}).items())
    return text(2, plane["name"]) + lines + metadata + names.entries() + stats


def llo_proto(schedule):
    units = b""
    for i, unit in enumerate(UNITS, 1):
        if unit in schedule:
            used, slots = schedule[unit]
            units += text(i, packed(1, used) + number(2, slots))
    for field, key in ((8, "spill"), (9, "fill")):
        if key in schedule:
            units += packed(field, schedule[key])
    return text(6, units)


def all_planes(description):
    """The planes of the description, and those that its other members stand for."""
    planes = list(description.get("planes", []))
    stats = {TOOLCHAIN[k]: v for k, v in description.get("toolchain", {}).items()}
    schedules = {name: {"name": name, "stats": {"llo_proto": {"bytes": llo_proto(s).hex()}}}
                 for name, s in description.get("schedules", {}).items()}
    if stats or schedules:
        planes.append({"name": "/host:metadata", "stats": stats, "ops": schedules})
    environment = {}
    if "start_ns" in description:
        environment["profile_start_time"] = description["start_ns"]
    if "options_hex" in description:
        environment["profile_options"] = {"bytes": description["options_hex"]}
    if environment:
        planes.append({"name": "Task Environment", "stats": environment})
    return planes


def to_xplane(description):
    out = b"".join(text(1, xplane_plane(p)) for p in all_planes(description))
    out += b"".join(text(2, e) for e in description.get("errors", []))
    return out + (text(4, description["host"]) if description.get("host") else b"")


# ---- Chrome JSON ----

def microseconds(ps):
    return "%.17g" % (ps / 1e6)


def chrome_args(stats):
    args = {}
    for name, value in stats.items():
        if name in HIDDEN or name.startswith("_"):
            continue
        if isinstance(value, dict):
            value = value.get("ref", "<opaque bytes>")
        args[name] = str(value)
    return args


def to_json(description):
    out, events = [], []

    def meta(what, args, **place):
        out.append(json.dumps({"ph": "M", **place, "name": what, "args": args}, separators=(",", ":")))

    for index, plane in enumerate(p for p in description.get("planes", []) if p.get("lines")):
        pid = 701 if plane["name"] == "/host:CPU" else 3 + 8 * index
        meta("process_name", {"name": plane["name"]}, pid=pid)
        meta("process_sort_index", {"sort_index": pid}, pid=pid)
        for tid, line in enumerate(plane["lines"], 1):
            meta("thread_name", {"name": line["name"]}, pid=pid, tid=tid)
            meta("thread_sort_index", {"sort_index": tid}, pid=pid, tid=tid)
            if line["name"] == "Async XLA Ops":
                continue
            for event in line["events"]:
                if "occurrences" in event:
                    continue
                op = plane.get("ops", {}).get(event["op"], {"name": event["op"]})
                stats = {**op_stats(op), **event.get("stats", {})}
                name = op.get("display_name") or op["name"]
                args = chrome_args(stats)
                if name != op["name"]:
                    args["long_name"] = op["name"]
                name = stats.get("step_name", name)
                row = '{"ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"name":%s' % (
                    pid, tid, microseconds(event["start_ps"]), microseconds(event["duration_ps"] or 1),
                    json.dumps(name))
                if args:
                    row += ',"args":' + json.dumps(args, separators=(",", ":"), sort_keys=True)
                events.append(row + "}")
    return ('{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[' +
            ",".join(out + events + ["{}"]) + "]}")


def write(description, path):
    plain = path[:-3] if path.endswith(".gz") else path
    data = to_json(description).encode() if plain.endswith(".json") else to_xplane(description)
    with open(path, "wb") as file:
        file.write(gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


# ---- The Pallas matmul of vectors.json ----

def split(total, parts):
    """`parts` integers that sum up to `total` and differ by 1 at most."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def used_slots(total, slots, bundles):
    full, rest = divmod(total, slots)
    return [slots] * full + ([rest] if rest else []) + [0] * (bundles - full - (rest > 0))


def pallas_matmul():
    """A real v6e kernel's three runs: every figure of the row `pallas_matmul` in vectors.json comes out of it."""
    calls, runs, gap = [75566172, 75785000, 75911328], [75571172, 75789922, 75916250], 189874375
    stages = {"ep_initialize_0": (22890, 3), "ep_initialize_1": (16484, 3), "ep_copy_in": (1561172, 90),
              "ep_wait_in": (173374454, 96), "ep_copy_out": (313438, 24), "ep_wait_out": (161874, 21),
              "ep_finalize": (5594922, 3)}
    scopes = {"init": 21516876, "acc": 21885002}  # 24 each, one in each of the 48 ep_run_kernel
    padding = split(43579066 - sum(scopes.values()), 48)
    pieces = {name: split(total, n) for name, (total, n) in stages.items()}
    inner = {name: split(total, 24) for name, total in scopes.items()}
    modules, kernels, trace_me = [], [], []
    at = 5_000_000_000
    for call, (call_ps, run_ps) in enumerate(zip(calls, runs)):
        modules.append({"op": "module", "start_ps": at - 2500, "duration_ps": run_ps, "stats": {"run_id": 3 + call}})
        kernels.append({"op": "kernel", "start_ps": at, "duration_ps": call_ps})
        now = at
        for name, (_, n) in stages.items():
            for piece in pieces[name][call * n // 3:(call + 1) * n // 3]:
                trace_me.append({"op": name, "start_ps": now, "duration_ps": piece})
                now += piece
        for i in range(call * 16, call * 16 + 16):
            scope = ("init", "acc")[i % 2]
            duration = inner[scope][i // 2]
            trace_me.append({"op": "ep_run_kernel", "start_ps": now, "duration_ps": duration + padding[i]})
            trace_me.append({"op": scope, "start_ps": now + padding[i] // 2, "duration_ps": duration})
            now += duration + padding[i]
        at += call_ps + gap
    hlo = ("%matmul_optimized.1 = f32[2048,2048]{1,0:T(8,128)} custom-call(f32[2048,1024]{1,0:T(8,128)} %x.1, "
           'f32[1024,2048]{1,0:T(8,128)} %y.1), custom_call_target="tpu_custom_call"')
    bundles = 2843
    used = {"mxu": (4096, 2), "xlu": (0, 2), "valu": (1536, 4), "eup": (0, 1), "vload": (3627, 3), "vstore": (1024, 2),
            "salu": (250, 2)}
    schedule = {unit: [used_slots(total, slots, bundles), slots] for unit, (total, slots) in used.items()}
    program = 7012345678901234567
    return {
        "host": "host0", "toolchain": {"jax": "0.10.0", "jaxlib": "0.10.0", "libtpu": "Apr 13 2026"},
        "start_ns": 1776067200000000000, "options_hex": "08011002",
        "planes": [{
            "name": "/device:TPU:0",
            "stats": {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 946.7,
                      "peak_hbm_bw_gigabytes_per_second": 1637.993152512},
            "ops": {"module": {"name": f"jit_matmul_optimized({program})"},
                    "kernel": {"name": hlo, "display_name": "matmul_optimized.1",
                               "stats": {"hlo_category": "custom-call", "program_id": program, "flops": 1076887552,
                                         "model_flops": 1076887552, "bytes_accessed": 0,
                                         "tf_op": "jit(matmul_optimized)/pallas_call:"}}},
            "lines": [{"name": "XLA Modules", "events": modules}, {"name": "XLA Ops", "events": kernels},
                      {"name": "XLA TraceMe", "events": trace_me}]}],
        "schedules": {"jit_matmul_optimized(12)::matmul_optimized.1":
                      {**schedule, "spill": [0] * bundles, "fill": [0] * bundles}}}


# ---- A training step on several devices ----

LAYERS = 4  # iterations of the loop
T = "{1,0:T(8,128)(2,1)}"
X, H, W, F = f"bf16[2048,512]{T}", f"bf16[2048,2048]{T}", f"bf16[512,2048]{T}", f"f32[512,2048]{T}"
ON_CHIP, ROW = "bf16[512,2048]{1,0:T(8,128)(2,1)S(1)}", "f32[2048]{0:T(1024)}"
KERNEL = 'custom_call_target="tpu_custom_call"'
REDUCE = "channel_id=9, replica_groups={{0,1,2,3}}, to_apply=%add.1"
# key: (base name, number, category, us, result, operands, attributes, model GFLOP, MB accessed, MB of HBM)
STEP_OPS = {
    "embed": ("fusion", 3, "loop fusion", 40, X, f"bf16[8192,512]{T} %param.1", "kind=kLoop", .01, 10, 10),
    "gather": ("all-gather", 7, "all-gather", 55, W, f"bf16[128,2048]{T} %fusion.3", "channel_id=4", 0, 4, 4),
    "loop": ("while", 9, "while", 0, f"(s32[], {X})", f"(s32[], {X}) %tuple.8", "condition=%cond.1, body=%body.1",
             0, 0, None),
    "copy_start": ("copy-start", 11, "copy-start", .2, f"({ON_CHIP}, {W}, u32[])", f"{W} %param.12", "", 0, 4, 2),
    "up": ("fusion", 13, "convolution fusion", 90, H, f"{X} %param.14, {W} %param.15", "kind=kOutput", 42.9, 25, 20),
    "gate": ("fusion", 16, "convolution fusion", 80, H, f"{X} %param.14, {W} %param.17", "kind=kOutput", 38.6, 25, 20),
    "mul": ("fusion", 18, "loop fusion", 25, H, f"{H} %fusion.13, {H} %fusion.16", "kind=kLoop", .004, 25, 25),
    "copy_done": ("copy-done", 11, "copy-done", 12, ON_CHIP, f"({ON_CHIP}, {W}, u32[]) %copy-start.11", "", 0, 4, 2),
    "gdn": ("gdn_chunk_fwd", 1, "custom-call", 70, X, f"{X} %fusion.18, {X} %fusion.13", KERNEL, 4.3, 6.3, None),
    "mega": ("fusion", 21, "megacore fusion", 60, f"({X}, bf16[512,512]{T})", f"{X} %gdn_chunk_fwd.1", "kind=kCustom",
             8, 12, 12),
    "mega_dot": ("fusion", 22, "convolution fusion", 40, X, f"{X} %param.23", "kind=kOutput", 6, 8, 8),
    "mega_add": ("fusion", 24, "loop fusion", 18, f"bf16[512,512]{T}", f"bf16[512,512]{T} %param.25", "kind=kLoop",
                 2, 4, 4),
    "norm_a": ("fusion", 26, "loop fusion", 15, ROW, f"{X} %param.27", "kind=kLoop", .002, 2, 2),
    "norm_b": ("fusion", 28, "loop fusion", 15, ROW, f"{X} %param.27", "kind=kLoop", .002, 2, 2),
    "norm_c": ("fusion", 29, "loop fusion", 15, ROW, f"{X} %param.27", "kind=kLoop", .002, 2, 2),
    "grad": ("all-reduce", 31, "all-reduce", 130, F, f"{F} %fusion.21", REDUCE, .001, 8, 8),
    "update": ("fusion", 33, "loop fusion", 75, F, f"{F} %all-reduce.31", "kind=kLoop", .003, 60, 60),
    "out_a": ("fusion", 34, "loop fusion", 20, f"f32[512,512]{T}", f"{F} %fusion.33", "kind=kLoop", .001, 9, 9),
    "out_b": ("fusion", 35, "loop fusion", 22, f"f32[512,128]{T}", f"f32[512,512]{T} %fusion.34", "kind=kLoop",
              .001, 9, 9)}
BODY = ["copy_start", "up", "gate", "mul", "copy_done", "gdn", "mega", "norm_a", "norm_b", "norm_c"]
STEP = ["embed", "gather", "loop", "grad", "update", "out_a", "out_b"]
SAME = ["norm_a", "norm_b", "norm_c"]  # equal but for their numbers
STAGES = [("ep_wait_in", .34), ("ep_copy_in", .02), ("ep_run_kernel", .55), ("ep_wait_out", .04), ("ep_finalize", .03)]


def step_ops(renumber, program):
    """The operations' metadata by key. With `renumber`, every `.N` is another, as after a compilation."""
    def renamed(s):
        if not renumber:
            return s
        words = s.split("%")
        for i in range(1, len(words)):
            name, dot, rest = words[i].partition(".")
            digits = rest[:len(rest) - len(rest.lstrip("0123456789"))]
            if dot and digits and "gdn" not in name:
                words[i] = f"{name}.{int(digits) * 7 % 101 + 200}{rest[len(digits):]}"
        return "%".join(words)

    ops = {"module": {"name": f"jit_train_step({program})"}}
    for key, (base, n, category, _, result, operands, attributes, gflop, accessed, hbm) in STEP_OPS.items():
        opcode = "fusion" if category.endswith("fusion") else category
        name = renamed(f"%{base}.{n}")
        hlo = f"{name} = {result} {opcode}({renamed(operands)})" + (f", {renamed(attributes)}" if attributes else "")
        if renumber:
            hlo = hlo.replace("channel_id=", "channel_id=5")
        stats = {"hlo_category": category, "program_id": program, "flops": int(gflop * 1e9),
                 "model_flops": int(gflop * 1e9), "bytes_accessed": int(accessed * 1e6)}
        if category not in ("while", "copy-start", "copy-done"):
            kind = {"norm": "rms_norm/rsqrt:", "mega": "attention/dot_general:"}.get(key[:4], f"{key}/op:")
            stats.update(tf_op=f"jit(train_step)/layer/{kind}", source=f"model.py:{20 + len(kind)}")
        ops[key] = {"name": hlo, "display_name": name[1:], "stats": stats}
        if hbm is not None:
            ops[key]["breakdown"] = [[1, 1, int(hbm * 1e6)], [2, 3, int((accessed - hbm) * 1e6)]]
    return ops


class Device:
    """The events of one device, written in the order in which its clock goes forward."""

    def __init__(self, rng, start_ps, slow, jitter):
        self.rng, self.now, self.slow, self.jitter = rng, start_ps, slow, jitter
        self.ops, self.asynchronous, self.stages = [], [], []

    def emit(self, op, start, duration):
        self.ops.append({"op": op, "start_ps": start, "duration_ps": duration,
                         "stats": {"device_offset_ps": start - 7, "device_duration_ps": duration + 3}})

    def take(self, op, factor=1.0):
        us = STEP_OPS[op][3] * self.slow.get(op, 1.0) * factor
        return max(1, round(us * 1e6 * (1 + self.jitter * self.rng.gauss(0, 1))))

    def run(self, op, order, factor=1.0, name=None):
        start = self.now
        if op == "loop":
            place = len(self.ops)
            for _ in range(LAYERS):
                for inner in order:
                    self.run(*inner)
            self.emit("loop", start, self.now - start)
            self.ops.insert(place, self.ops.pop())  # files have a parent before its children
            return
        duration = self.take(op, factor)
        self.emit(name or op, start, duration)
        if op == "mega":
            first = duration * 2 // 3
            self.emit("mega_dot", start, first)
            self.emit("mega_add", start + first, duration - first)
        if op == "copy_start":
            self.copied_from = start
        if op == "copy_done":
            self.asynchronous.append({"op": "async", "start_ps": self.copied_from,
                                      "duration_ps": start + duration - self.copied_from})
        if op == "gdn":
            self.run_stages(start, duration)
        self.now += duration + self.rng.randint(0, 20000)

    def run_stages(self, start, duration):
        for name, share in STAGES:
            length = int(duration * share)
            self.stages.append({"op": name, "start_ps": start, "duration_ps": length})
            if name == "ep_run_kernel":
                self.stages.append({"op": "acc", "start_ps": start + length // 4, "duration_ps": length // 2})
            start += length


def tpu_step_trace(devices=2, steps=8, seed=1, *, renumber=False, shuffle_equal=False, split=False, merge=False,
                   cut_last_step=False, slow=None, jitter=0.003, gap_us=150, host_steps=True):
    """`steps` runs of one training step on `devices` v6e chips.

    renumber: other instruction and operand numbers; shuffle_equal: equal operations in another order; split: the
    fusion `up` becomes two; merge: `out_a` and `out_b` become one; cut_last_step: the last step ends after its first
    operations; slow: {key of STEP_OPS: factor on its time}; jitter: relative standard deviation of each duration.
    """
    program = 2041036616644817336 + renumber
    ops = step_ops(renumber, program)
    order = [(key, []) for key in BODY]
    if shuffle_equal:
        places = [i for i, (key, _) in enumerate(order) if key in SAME]
        for i, key in zip(places, random.Random(seed).sample(SAME, len(SAME))):
            order[i] = (key, [])
    if split:
        half = {k: ops["up"]["stats"][k] // 2 for k in ("flops", "model_flops", "bytes_accessed")}
        ops["up"] = {**ops["up"], "stats": {**ops["up"]["stats"], **half},
                     "breakdown": [[1, 1, half["bytes_accessed"]]]}
        ops["up_2"] = {**ops["up"], "name": ops["up"]["name"].replace("%fusion.", "%fusion.9", 1),
                       "display_name": ops["up"]["display_name"].replace("fusion.", "fusion.9")}
        order[BODY.index("up"):BODY.index("up") + 1] = [("up", [], .5), ("up", [], .5, "up_2")]
    outer = [key for key in STEP if not (merge and key == "out_b")]
    ops["async"] = {**ops["copy_start"], "display_name": "async-copy"}
    planes, host = [], []
    for device in range(devices):
        d = Device(random.Random(seed * 1000 + device), 3_000_000_000 + device * 1_234_567, slow or {}, jitter)
        step_line, modules = [], []
        for step in range(steps):
            begin = d.now
            for key in outer[:2] if cut_last_step and step == steps - 1 else outer:
                d.run(key, order, 2.1 if merge and key == "out_a" else 1.0)
            length = d.now - begin
            step_line.append({"op": str(step + 2), "start_ps": begin, "duration_ps": length})
            modules.append({"op": "module", "start_ps": begin, "duration_ps": length, "stats": {"run_id": -7 - step}})
            if device == 0:
                host.append({"op": "train", "start_ps": begin - 90_000_000, "duration_ps": 60_000_000,
                             "stats": {"step_num": step + 2}})
            d.now += round(gap_us * 1e6 * (1 + jitter * d.rng.gauss(0, 1)))
        planes.append({
            "name": f"/device:TPU:{device}", "ops": ops,
            "stats": {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 918.0,
                      "peak_hbm_bw_gigabytes_per_second": 1637.993152512,
                      "peak_vmem_rd_bw_gigabytes_per_second": 23296.0099876864},
            "lines": [{"name": "Steps", "events": step_line}, {"name": "XLA Modules", "events": modules},
                      {"name": "XLA Ops", "events": d.ops}, {"name": "Async XLA Ops", "events": d.asynchronous},
                      {"name": "XLA TraceMe", "events": d.stages}]})
    if host_steps:
        planes.append({"name": "/host:CPU", "lines": [{"name": "python", "events": host}]})
    bundles = 400
    return {"host": "host0", "toolchain": {"jax": "0.12.0", "jaxlib": "0.12.0", "libtpu": "0.0.44"},
            "start_ns": 1776067200000000000, "options_hex": "08011002", "planes": planes,
            "schedules": {f"jit_train_step({program % 1000})::gdn_chunk_fwd.1":
                          {"mxu": [used_slots(300, 2, bundles), 2], "salu": [used_slots(120, 2, bundles), 2],
                           "spill": [0] * bundles, "fill": [0] * bundles}}}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as source:
        write(json.load(source), sys.argv[2])
