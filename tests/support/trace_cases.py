#!/usr/bin/env python3
"""trace_cases.py GDNCTL CASES_DIR [NAME..]: run the cases CASES_DIR/NAME.json (default: all) of `gdnctl trace`.

A case: {"about", "files": {NAME: RECIPE}, "as": [format, ..], "vary": {parameter: [value, ..]}, "runs": [RUN, ..]}.
Each file is made in every format of "as" ("xplane.pb" and "trace.json.gz" by default); a NAME with a dot is a path that
is made as it stands. RECIPE: see trace_recipes.py. "vary" repeats the case with another parameter of its "call"s.
A run: {"args": ["steps", "{NAME}"], "exit": 0, "json": {pointer: value}, "out", "err": text or list of texts, "lacks",
"env": {..}, "only": format, "vectors": {pointer: pointer into vectors.json}, "but": [members that are not compared]}.
A pointer is "/steps/n"; of a list, "key=value" selects an element, "#" is the length, and "name=>self_ps" makes an
object. {in} is the folder of the files, {out} an empty one.
Every run prints for people and, once more, as JSON. The outputs must also fit ../fixtures/trace/schema.json and obey
trace_rules.py, the formats must agree, `diff` with its inputs exchanged must say the opposite, and the files must stay
as they are. Exit code: 0, 1 (a failure), 77 (nothing ran: there are no samples).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import trace_rules
from trace_recipes import FIXTURES, NoSample, contents, resolved

SCHEMA = json.loads((FIXTURES / "schema.json").read_text())
VECTORS = {**json.loads((FIXTURES / "vectors.json").read_text()),
           "rules": json.loads((FIXTURES / "rules-marin-hybrid.json").read_text())}


# ---- Files ----

def make(case, form, varied, root):
    """Writes the case's files, and returns their paths by name."""
    paths = {}
    for name in case["files"]:
        recipe = resolved(case["files"][name], case["files"])
        if recipe.get("abstract"):  # only for others to be like it
            continue
        path = root / (name if "." in name else f"{name}.{form}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents(recipe, path.name, varied))
        paths[name] = str(path)
    return paths


# ---- Runs ----

def run(gdnctl, args, root, env):
    for made in (root / "out").iterdir():
        made.unlink()
    home = {"HOME": root / "home", "XDG_STATE_HOME": root / "state", "LC_ALL": "C.UTF-8", "COLUMNS": 100}
    done = subprocess.run([gdnctl, "trace", *args], capture_output=True, cwd=root / "in", timeout=60,
                          env={k: str(v) for k, v in {**home, **env}.items()})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def at(value, pointer):
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/")
        if part == "#":
            value = len(value)
        elif isinstance(value, list) and "=>" in part:
            key, member = part.split("=>")
            value = {row[key][:90]: row[member] for row in value}  # vectors.json has so much of the names
        elif isinstance(value, list) and "=" in part:
            key, wanted = part.split("=", 1)
            value = next((v for v in value if str(v[key]) == wanted), "<no such element>")
        else:
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, TypeError):
                return "<missing>"
    return value


def placed(arg, names):
    for name, path in names.items():
        arg = arg.replace("{%s}" % name, path)
    return arg


def texts(value):
    return [value] if isinstance(value, str) else value or []


def subset(wanted, got, but):
    """Both, without members of objects that `wanted` does not have or that are in `but`."""
    if not isinstance(wanted, dict) or not isinstance(got, dict):
        return wanted, got
    pairs = {k: subset(v, got.get(k, "<missing>"), but) for k, v in wanted.items() if k not in but}
    return {k: v[0] for k, v in pairs.items()}, {k: v[1] for k, v in pairs.items()}


def check_run(gdnctl, root, one, names, faults):
    """Runs it for text and for JSON. Returns the JSON, None where it failed."""
    args = [placed(arg, names) for arg in one["args"]]
    code, out, err = run(gdnctl, args, root, one.get("env", {}))
    if code != one.get("exit", 0):
        faults.append(("exit", one.get("exit", 0), f"{code}: {err[:300]}"))
    for key, text in (("out", out), ("err", err)):
        faults += [(key, part, text[:1500]) for part in texts(one.get(key)) if placed(part, names) not in text]
    faults += [("lacks", part, "") for part in texts(one.get("lacks")) if part in out + err]
    faults += trace_rules.text(out)
    json_code, out, err = run(gdnctl, [*args, "--json"], root, one.get("env", {}))
    if json_code != code:
        faults.append(("exit with --json", code, f"{json_code}: {err[:300]}"))
    if json_code not in (0, 1):
        faults += [("stdout", "", out)] if out else []
        return None
    got = json.loads(out)
    faults += trace_rules.schema(got, SCHEMA) + trace_rules.rules(got)
    for pointer, wanted in one.get("json", {}).items():
        wanted = placed(wanted, names) if isinstance(wanted, str) else wanted
        if not trace_rules.equal(wanted, at(got, pointer)):
            faults.append((pointer, wanted, at(got, pointer)))
    for pointer, source in one.get("vectors", {}).items():
        wanted, found = subset(at(VECTORS, source), at(got, pointer), one.get("but", []))
        if not trace_rules.equal(wanted, found):
            faults.append((pointer, wanted, found))
    return got


def snapshot(root):
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None) for p in sorted(root.rglob("*"))}


def check_case(gdnctl, case, form, varied, others, report):
    root = pathlib.Path(tempfile.mkdtemp(prefix="trace-case."))
    try:
        paths = make(case, form, varied, root / "in")
        before = snapshot(root / "in")
        (root / "out").mkdir()
        names = {**paths, "in": str(root / "in"), "out": str(root / "out")}
        for number, one in enumerate(case["runs"]):
            if form not in one.get("only", form):
                continue
            faults = []
            got = check_run(gdnctl, root, one, names, faults)
            if got:
                faults += trace_rules.agree(got, others.setdefault(number, got))
            args = [placed(arg, names) for arg in one["args"]]
            if got and args[0] == "diff" and got["diff"]["stats"]["floor_ps"] is None:  # which is that of the first
                swapped = run(gdnctl, ["diff", args[2], args[1], *args[3:], "--exit-zero", "--json"], root, {})
                faults += trace_rules.mirrored(got["diff"], json.loads(swapped[1])["diff"])
            for what, wanted, found in faults:
                report(f"{form} {varied or ''} run {number}: {' '.join(one['args'])}", what, wanted, found)
        if snapshot(root / "in") != before:
            report(form, "the inputs", "unchanged", "changed")
    finally:
        shutil.rmtree(root)


def variants(case):
    for parameter, values in case.get("vary", {"": [None]}).items():
        for value in values:
            yield {parameter: value} if parameter else {}


def main(gdnctl, folder, *names):
    gdnctl = os.path.abspath(gdnctl)
    failed = ran = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        if names and path.stem not in names:
            continue
        case = json.loads(path.read_text())
        wrong = []
        try:
            for varied in variants(case):
                others = {}
                for form in case.get("as", ["xplane.pb", "trace.json.gz"]):
                    check_case(gdnctl, case, form, varied, others, lambda place, what, wanted, got: wrong.append(
                        f"{place}: {what}: wanted {wanted!r}, got {got!r}"))
            ran += 1
        except NoSample as missing:
            print(f"{path.stem}: skipped, there is no {missing}")
        for one in wrong:
            print(f"{path.stem}: {one}")
        failed += bool(wrong)
    print(f"{ran} cases, {failed} failed")
    return 1 if failed else 0 if ran else 77


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
