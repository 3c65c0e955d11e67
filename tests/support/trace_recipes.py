"""Bytes of trace files from recipes, as the cases in ../fixtures/trace/cases have them (see trace_cases.py).

A RECIPE is a description for make_trace.py, in which planes and lines may be members by name and an event may be
[op, start, duration, stats]; or has one of the keys
  call: a function of make_trace.py or trace_shapes.py, with its parameters; file: a fixture; sample: a file of the
  project's samples; text; hex; json: a value; proto: [[field, value], ..], see protobuf();
  like: the recipe of another file of the case, which may be there for this alone ("abstract": true).
"set" {pointer: value} changes members (null removes one); "then" [[what, value..], ..] damages the bytes.
"""
import copy
import gzip
import json
import os
import pathlib

import make_trace
import trace_shapes

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "trace"
SAMPLES = pathlib.Path(os.environ.get("GDNCTL_TEST_TRACES") or FIXTURES.parents[3] / "shared" / "data" / "traces")
OWN = ("call", "then", "host", "start_ns", "abstract")  # members of a recipe with "call" that are no parameters


class NoSample(Exception):
    """A file that only some machines have."""


def expanded(description):
    """A description in the short form: planes and lines by name, an event as [op, start, duration, stats]."""
    def event(e):
        return dict(zip(("op", "start_ps", "duration_ps", "stats"), e)) if isinstance(e, list) else e

    def listed(named, key):
        if isinstance(named, list):
            return named
        return [{"name": k, **(v if key in v else {key: v})} for k, v in named.items()]

    planes = listed(copy.deepcopy(description.get("planes", [])), "lines")
    for plane in planes:
        plane["lines"] = [{**line, "events": [event(e) for e in line["events"]]}
                          for line in listed(plane.get("lines", []), "events")]
        plane["ops"] = {k: {"name": k, **op} for k, op in plane.get("ops", {}).items()}
    return {**description, "planes": planes}


def resolved(recipe, files):
    """The recipe without "like" and "set"."""
    if "like" in recipe:
        base = copy.deepcopy(resolved(files[recipe["like"]], files))
        base.pop("then", None)
        recipe = {**base, **{k: v for k, v in recipe.items() if k != "like"}}
    for pointer, value in recipe.get("set", {}).items():
        *path, last = [part.replace("~1", "/") for part in pointer.split("/")[1:]]
        place = recipe
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        if value is None:
            del place[int(last) if isinstance(place, list) else last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return {k: v for k, v in recipe.items() if k != "set"}


def protobuf(fields):
    """A value is an integer (varint), a text, a list (a message) or {"hex"} (bytes). Field 0: bytes without a tag."""
    out = b""
    for field, value in fields:
        if isinstance(value, dict):
            value = bytes.fromhex(value["hex"])
        elif isinstance(value, list):
            value = protobuf(value)
        out += value if field == 0 else (make_trace.number if isinstance(value, int) else make_trace.text)(field, value)
    return out


def damaged(data, steps):
    for what, *values in steps:
        if what == "cut_at":
            data = data[:values[0]]
        elif what == "append":
            data += bytes.fromhex(values[0])
        elif what == "replace":
            old, new = (v.encode() for v in values)
            assert old in data, f"the file lacks {old}"
            data = data.replace(old, new)
        elif what == "overwrite":  # at an offset, negative: from the end
            at, new = values[0] % len(data), bytes.fromhex(values[1])
            data = data[:at] + new + data[at + len(new):]
        elif what == "gzip":
            data = gzip.compress(data, mtime=0)
        elif what == "members":  # of one gzip file
            size = -(-len(data) // values[0])
            data = b"".join(gzip.compress(data[i:i + size], mtime=0) for i in range(0, len(data), size))
        else:
            raise ValueError(what)
    return data


def contents(recipe, form, varied):
    if "file" in recipe:
        data = (FIXTURES / recipe["file"]).read_bytes()
    elif "sample" in recipe:
        if not (SAMPLES / recipe["sample"]).exists():
            raise NoSample(SAMPLES / recipe["sample"])
        data = (SAMPLES / recipe["sample"]).read_bytes()
    elif "text" in recipe:
        data = recipe["text"].encode("utf-8", "surrogatepass")
    elif "hex" in recipe:
        data = bytes.fromhex(recipe["hex"])
    elif "proto" in recipe:
        data = protobuf(recipe["proto"])
    elif "json" in recipe:
        data = json.dumps(recipe["json"]).encode()
    else:
        if "call" in recipe:
            parameters = {k: v for k, v in recipe.items() if k not in OWN}
            maker = getattr(make_trace, recipe["call"], None) or getattr(trace_shapes, recipe["call"])
            made = maker(**{**parameters, **varied})
            if isinstance(made, bytes):
                return damaged(made, recipe.get("then", []))
            recipe = {**made, **{k: v for k, v in recipe.items() if k in ("host", "start_ns", "then")}}
        recipe = expanded(recipe)
        data = make_trace.to_json(recipe).encode() if ".json" in form else make_trace.to_xplane(recipe)
        data = gzip.compress(data, mtime=0) if form.endswith(".gz") else data
    return damaged(data, recipe.get("then", []))
