#!/usr/bin/env python3
"""fake_wandb.py FOLDER [key=K] [port=N]: as much of W&B's GraphQL API as reading a run needs.

A run is a file of FOLDER/runs: {"entity", "project", "name" (its id), "displayName", "state", "createdAt", "summary":
{key: number}, "history": [{"_step": n, key: number}]}, read anew for each request. FOLDER/faults holds statuses, one a
line, which the next requests are answered with (0: as usual). Writes FOLDER/port when it listens, appends each request to
FOLDER/requests (a JSON line: path, authorization, operation, variables) and what no client should do to
FOLDER/complaints.

A query is told by the fields that it names. What the service is known for is kept: a null for what is not there, strings
for NaN, rows only where all keys of a spec are, the upper bound of the steps included, rows thinned out as soon as there
are more than asked for."""
import base64
import http.server
import json
import math
import os
import re
import sys
import threading

import fake_wandb_artifacts

folder = sys.argv[1]
options = dict(word.split("=", 1) for word in sys.argv[2:])
lock = threading.Lock()
artifacts = fake_wandb_artifacts.Artifacts(folder)


def note(name, text):
    with lock, open(os.path.join(folder, name), "a", encoding="utf-8") as out:
        out.write(text + "\n")


def next_fault():
    path = os.path.join(folder, "faults")
    with lock:
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as lines:
            statuses = lines.read().split()
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n".join(statuses[1:]))
        return int(statuses[0]) if statuses else None


def runs_of(entity, project):
    """None: there is no such project."""
    found = []
    for name in sorted(os.listdir(os.path.join(folder, "runs"))):
        with open(os.path.join(folder, "runs", name), encoding="utf-8") as text:
            run = json.load(text)
        if (run["entity"], run["project"]) == (entity, project):
            found.append(run)
    return found or None


def as_sent(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def sampled(run, spec):
    spec = json.loads(spec) if isinstance(spec, str) else spec
    first, last = spec.get("minStep", 0), spec.get("maxStep", 1 << 60)
    rows = [row for row in run["history"] if first <= row["_step"] <= last and all(key in row for key in spec["keys"])]
    samples = spec.get("samples", 500)
    if len(rows) > samples:
        rows = [rows[i * len(rows) // samples] for i in range(samples)]
    return [{key: as_sent(row[key]) for key in spec["keys"]} for row in rows]


def full(run, variables):
    first, last = variables.get("minStep", 0), variables.get("maxStep", 1 << 60)
    return [json.dumps({key: as_sent(value) for key, value in row.items()}) for row in run["history"] if first <= row["_step"] < last]


def node_of(run, variables):
    steps = [row["_step"] for row in run["history"]]
    keys = {key: {"typeCounts": [{"type": "number", "count": len(steps)}], "monotonic": False} for row in run["history"] for key in row}
    summary = {key: as_sent(value) for key, value in run["summary"].items()}
    node = {
        "id": "UnVuOnYx", "name": run["name"], "displayName": run.get("displayName", run["name"]), "state": run["state"],
        "createdAt": run["createdAt"], "heartbeatAt": run["createdAt"], "summaryMetrics": json.dumps(summary), "config": json.dumps(run.get("config", {})),
        "systemMetrics": "{}", "tags": [], "group": None, "jobType": None, "sweepName": None, "commit": None, "readOnly": False,
        "description": None, "notes": None, "historyLineCount": len(steps), "user": {"name": "n", "username": "u"}, "projectId": "1",
        "historyKeys": {"sets": [], "keys": keys, "lastStep": max(steps, default=-1)},
    }
    if "specs" in variables:
        node["sampledHistory"] = [sampled(run, spec) for spec in variables["specs"]]
    elif "spec" in variables:
        node["sampledHistory"] = [sampled(run, variables["spec"])]
    node["history"] = full(run, variables)
    return node


def matching(runs, variables):
    filters = json.loads(variables.get("filters") or "{}")
    pattern = filters.pop("display_name", {}).get("$regex", "")
    if filters:
        note("complaints", f"filters that nobody asked for: {filters}")
    runs = [run for run in runs if re.search(pattern, run.get("displayName", run["name"]))]
    order = variables.get("order") or "+created_at"
    runs.sort(key=lambda run: run["createdAt"], reverse=order.startswith("-"))
    count = variables.get("count") or variables.get("perPage") or 50
    return runs[:count]


def answer_to(query, variables):
    if "__type(" in query:  # query for the server's fields
        known = {"Project": ["internalId"], "Run": ["projectId"]}
        return {f"{name}Type": {"fields": [{"name": field} for field in fields]} for name, fields in known.items()}
    if "viewer" in query:
        return {"viewer": {"id": "u", "entity": "me", "username": "u", "email": "u@example.org", "admin": False, "flags": "{}",
                           "teams": {"edges": []}}}
    if "serverInfo" in query:
        return {"serverInfo": {"features": [], "cliVersionInfo": {"max_cli_version": "99.0.0"}, "latestLocalVersionInfo": None}}
    if "currentManifest" in query:
        return artifacts.answer(query, variables, None)
    runs = runs_of(variables.get("entity") or variables.get("entityName"), variables.get("project") or variables.get("projectName"))
    if runs is None:
        return {"project": None}
    if re.search(r"\bruns\s*\(", query):
        picked = matching(runs, variables)
        edges = [{"node": node_of(run, variables), "cursor": run["name"]} for run in picked]
        return {"project": {"internalId": "1", "runCount": len(picked), "readOnly": False,
                            "runs": {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}}}
    wanted = variables.get("run") or variables.get("name") or variables.get("runName") or variables.get("runId")
    one = next((run for run in runs if run["name"] == wanted), None)
    about_artifacts = artifacts.answer(query, variables, one)
    if about_artifacts is not None:
        return about_artifacts
    return {"project": {"internalId": "1", "run": one and node_of(one, variables)}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = json.loads(body) if body and self.path == "/graphql" else {}
        query, variables = request.get("query", ""), request.get("variables") or {}
        operation = (re.search(r"\b(?:query|mutation)\s+(\w+)", query) or [None, ""])[1]
        given = self.headers.get("Authorization") or ""
        note("requests", json.dumps({"path": self.path, "authorization": given, "operation": operation, "variables": variables}))
        wanted = "Basic " + base64.b64encode(b"api:" + options.get("key", "").encode()).decode()
        status, answer = 200, None
        fault = next_fault()
        if fault:
            status, answer = fault, {"errors": [{"message": f"planned: {fault}"}]}
        elif "key" in options and given != wanted:
            status, answer = 401, {"errors": [{"message": "user is not logged in"}]}
        elif self.path.startswith("/artifactsV2/"):
            return artifacts.give(self, "fallback")
        elif self.path != "/graphql" or self.command != "POST":
            if not self.path.startswith("/sdk/"):  # telemetry of the official client
                note("complaints", f"{self.command} {self.path}")
            status, answer = 404, {"error": "not found"}
        else:
            complaint = artifacts.setup().get("errors")
            answer = {"data": None, "errors": [{"message": complaint}]} if complaint else {"data": answer_to(query, variables)}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(options.get("port", "0"))), Handler)
server.daemon_threads = True
os.makedirs(os.path.join(folder, "runs"), exist_ok=True)
with open(os.path.join(folder, "port.new"), "w", encoding="utf-8") as out:
    out.write(str(server.server_port))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.serve_forever()
