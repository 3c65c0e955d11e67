"""What is true of every output of `gdnctl trace --json`: its members and types, sums, and how two outputs compare.

Each function returns faults as (what, wanted, got).
"""
import hashlib

KINDS = {"s": str, "i": int, "n": (int, float), "b": bool}


def equal(wanted, got):
    """Floating-point numbers to 1e-9, everything else exactly."""
    if isinstance(wanted, dict):
        same = isinstance(got, dict) and wanted.keys() == got.keys()
        return same and all(equal(v, got[k]) for k, v in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(wanted) == len(got) and all(map(equal, wanted, got))
    if isinstance(wanted, float) and isinstance(got, (int, float)):
        return abs(wanted - got) <= 1e-9 * abs(wanted)
    return isinstance(wanted, bool) == isinstance(got, bool) and wanted == got


# ---- Members and types ----

def fit(value, shape, path):
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [(path, "an object", value)]
        if "*" in shape:
            return [fault for k, v in value.items() for fault in fit(v, shape["*"], f"{path}/{k}")]
        names = [name.rstrip("?") for name in shape]
        if list(value) != names:
            return [(path or "/", names, list(value))]
        return [fault for (name, inner), v in zip(shape.items(), value.values())
                if not (v is None and name.endswith("?")) for fault in fit(v, inner, f"{path}/{name.rstrip('?')}")]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [(path, "a list", value)]
        return [fault for i, v in enumerate(value) for fault in fit(v, shape[0], f"{path}/{i}")]
    kind = KINDS.get(shape)
    fits = value in shape.split("|") if kind is None else \
        isinstance(value, kind) and (shape == "b" or not isinstance(value, bool))
    return [] if fits else [(path, shape, value)]


def schema(got, shapes):
    """`shapes`: ../fixtures/trace/schema.json. "@steps" is the member of the same name of that command."""
    own = {name: shapes[shape[1:]][name.rstrip("?")] if isinstance(shape, str) and shape.startswith("@") else shape
           for name, shape in shapes[got["command"]].items()}
    faults = fit(got, {**shapes["all"], **own}, "")
    if got["schema"] != "gdnctl.trace/1":
        faults.append(("/schema", "gdnctl.trace/1", got["schema"]))
    return faults


# ---- Sums ----

def hotspot_rules(got):
    spots, time = got["hotspots"], got["time"]
    rest = spots["remainder"] or {"rows": 0, "self_ps": 0}
    key = "self_ps" if spots["rank"] == "self" else "total_ps"
    order = [(-row[key], row["name"].encode("utf-8", "surrogatepass")) for row in spots["rows"]]
    yield "self of all rows", time["self_ps"], sum(r["self_ps"] for r in spots["rows"]) + rest["self_ps"]
    yield "rows", spots["matched"], len(spots["rows"]) + rest["rows"]
    yield "order of the rows", sorted(order), order
    yield "self of a row within its total", [], [r for r in spots["rows"] if not 0 <= r["self_ps"] <= r["total_ps"]]


def time_rules(got):
    time, idle = got["time"], got["time"]["idle_ps"]
    yield "busy and idle", time["span_ps"], time["busy_ps"] + idle["total"]
    yield "busy within self", True, 0 <= time["busy_ps"] <= time["self_ps"]
    yield "classes", time["self_ps"], sum(time["by_class"].values())
    yield "wait, collective", (time["by_class"]["wait"], time["by_class"]["collective"]), \
        (time["wait_ps"], time["sync_collective_ps"])
    if idle["in_module"] is not None:
        yield "parts of idle", idle["total"], idle["between_modules"] + idle["in_module"]
        yield "named idle", True, max([0, *time["in_module_named"].values()]) <= idle["in_module"]
    if time["async_ps"] is not None:
        yield "hidden within async", True, 0 <= time["hidden_ps"] <= time["async_ps"]


def step_rules(got):
    steps = got["steps"]
    each = steps["per_step_ps"]
    yield "steps", steps["n"], len(each)
    yield "extremes", (min(each, default=None), max(each, default=None)), (steps["min_ps"], steps["max_ps"])
    if each:
        quantiles = [steps[name] for name in ("min_ps", "p10_ps", "median_ps", "p90_ps", "max_ps")]
        yield "quantiles", sorted(quantiles), quantiles
        yield "mean", True, abs(steps["mean_ps"] * len(each) - sum(each)) <= 2 * len(each)


def kernel_rules(got):
    for row in got["kernels"]:
        yield "median", True, row["min_ps"] <= row["median_ps"] <= row["max_ps"]
        for stages in ([row["stages"]] if row["stages"] is not None else []):
            yield f"stages of {row['name']}", row["total_ps"], sum(stage["ps"] for stage in stages)
        if row["bound"] == "unknown" and got["device"]["kind"] == "tpu" and row["true_flops"] is None:
            yield f"flag of {row['name']}", True, bool(row["why"] and row["flag"])


def diff_rules(got):
    diff = got["diff"]
    yield "waterfall", diff["total_delta_ps"], sum(row["delta_ps"] for row in diff["waterfall"])
    yield "rows", [], [r for r in diff["waterfall"] if r["after_ps"] - r["before_ps"] != r["delta_ps"]]
    yield "interval", True, diff["stats"]["ci_low_ps"] <= diff["stats"]["shift_ps"] <= diff["stats"]["ci_high_ps"]


def report_rules(got):
    yield "bytes of the digest", True, len(got["digest"].encode()) <= 8000
    yield "text of the digest", [], text(got["digest"])
    yield "rows", True, len(got["hotspots"]["rows"]) <= 8
    yield "tries", True, len(got["tries"]) <= 3
    yield "log lines", [], [l for l in got["log_lines"] if l.count("`") % 2 or "\n" in l or not l.startswith("- ")]


def rules(got):
    found = []
    checks = {"hotspots": hotspot_rules, "kernels": kernel_rules, "diff": diff_rules, "digest": report_rules}
    for name, check in checks.items():
        if got.get(name) is not None:
            found += check(got)
    if "per_step_ps" in got.get("steps", {}):
        found += [*step_rules(got), *time_rules(got)]
    if "check" in got:
        found.append(("passed", all(r["passed"] for r in got["check"]["rules"]), got["check"]["passed"]))
    questions = "self_time steps overlap hbm_bytes flops kernel_stages kernel_static peaks toolchain".split()
    found.append(("questions", questions, [answer["question"] for answer in got["answers"]]))
    return [one for one in found if one[1] != one[2]]


def text(out):
    """Of the output for people: no control characters; tables of Markdown have as many cells in every row; and the last
    line of a report has the sha256 of all bytes above it."""
    control = sorted({c for c in out if ord(c) < 32 or ord(c) == 127} - {"\n"})
    faults = [("control characters", [], control)] if control else []
    cells = 0
    for line in out.split("\n"):
        count = line.replace("\\|", "").count("|") if line.startswith("|") else 0
        if count and cells and count != cells:
            faults.append(("cells", cells - 1, line))
        cells = count
    if out.endswith(" -->\n"):
        above, last = out[:-1].rsplit("\n", 1)
        wanted = "<!-- gdnctl.trace/1 sha256:%s -->" % hashlib.sha256((above + "\n").encode()).hexdigest()
        faults += [("the last line", wanted, last)] if last != wanted else []
    return faults


# ---- Two outputs ----

def comparable(got):
    """What does not depend on the format."""
    out = {"steps": got.get("steps"), "window": got.get("window"), "names": got["device"]["names"]}
    out["time"] = {k: v for k, v in got.get("time", {}).items() if k not in ("async_ps", "hidden_ps", "overlap")}
    rows = (got.get("hotspots") or {}).get("rows", [])
    out["rows"] = [[row[k] for k in ("name", "class", "category", "self_ps", "total_ps", "calls")] for row in rows]
    out["kernels"] = [[row[k] for k in ("name", "program", "calls", "median_ps", "gap_before_ps", "io_bytes", "stages")]
                      for row in got.get("kernels", []) if "calls" in row]
    if got.get("diff"):
        out["diff"] = {k: got["diff"][k] for k in ("verdict", "labels", "match_levels", "stats", "waterfall")}
    return out


def agree(got, other):
    """Of one run on two formats."""
    a, b = comparable(other), comparable(got)
    return [(f"{key} as in the first format", a[key], b[key]) for key in a if a[key] != b[key]]


def mirrored(diff, swapped):
    """Of diff A B and diff B A."""
    opposite = {"improved": "regressed", "regressed": "improved"}
    a, b, levels, there = diff["stats"], swapped["stats"], diff["match_levels"], swapped["match_levels"]
    found = [
        ("verdict", opposite.get(diff["verdict"], diff["verdict"]), swapped["verdict"]),
        ("total", -diff["total_delta_ps"], swapped["total_delta_ps"]),
        ("shift", -a["shift_ps"], b["shift_ps"]),
        ("interval", (-a["ci_high_ps"], -a["ci_low_ps"]), (b["ci_low_ps"], b["ci_high_ps"])),
        ("p", a["p"], b["p"]),
        ("levels", {**levels, "added": levels["removed"], "removed": levels["added"]}, there),
        ("deltas", sorted(-row["delta_ps"] for row in diff["waterfall"] if row["kind"] != "rest"),
         sorted(row["delta_ps"] for row in swapped["waterfall"] if row["kind"] != "rest"))]
    return [(f"swapped: {what}", wanted, got) for what, wanted, got in found if wanted != got]
