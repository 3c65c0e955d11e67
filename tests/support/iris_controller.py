#!/usr/bin/env python3
"""An Iris controller for the tests: the API as tests/fixtures/iris shows it, with Google's token endpoint, metadata server
and storage on a second port. Jobs really run. Strict: a request field that gdnctl has no business to send is refused as
the real one refuses unknown fields, and written to COMPLAINTS.

  iris_controller.py FOLDER [--iap] [--port N]

FOLDER gets: port, google (the second port), requests (a JSON line each, in order), launched (the jobs asked for),
complaints, work/ (the folders of the jobs).
POST /__control {"fault": {...}} plans a fault for matching requests:
  match: start of a method's name ("LaunchJob") or of "GET /path"; for the second port "google POST /token";
  times (1; -1: always), skip (0), and one of status+body+headers | reset | cut (served, but not answered) | cut_body N |
  drip SECONDS | hang SECONDS | short N | half | garbage (as in ray_server.py) | answer (JSON, with 200)
Others: {"job": {"name", "state", ...}, "log": [lines]}, {"append": [name, [lines], attempt]}, {"set": [name, {...}]},
{"kick": name, "reason": text}, {"forget": true} (restarted empty), {"expire": true} (all id tokens), {"login": {...}},
{"lose": N} (the first lines of the log store), {"object": [path, base64]} (in the storage), and one of tpus, offered,
rename, budgets, extra (fields of a newer build), archive, iap, lag, token_life with its value.
"""
import argparse
import gzip
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from iris_world import Refused, World, id_token
from ray_server import Base

INT64 = "int64"
TEXTS = [str]
REQUESTS = {  # reference, section 5: what may be sent
    "LaunchJob": {"name": str, "entrypoint": {"runCommand": {"argv": TEXTS}, "setupCommands": TEXTS},
                  "resources": {"cpuMillicores": int, "memoryBytes": INT64, "diskBytes": INT64, "device": {"tpu": {"variant": str, "count": int}}},
                  "environment": {"envVars": {...: str}}, "bundleBlob": str, "replicas": int, "maxRetriesPreemption": int,
                  "schedulingTimeout": {"milliseconds": INT64}, "existingJobPolicy": ("EXISTING_JOB_POLICY_ERROR",)},
    "GetJobState": {"jobIds": TEXTS}, "GetJobStatus": {"jobId": str}, "ListTasks": {"jobId": str}, "GetTaskStatus": {"taskId": str},
    "TerminateJob": {"jobId": str}, "CompleteJob": {"jobId": str},
    "ListJobs": {"query": {"scope": ("JOB_QUERY_SCOPE_ROOTS", "JOB_QUERY_SCOPE_CHILDREN"), "parentJobId": str, "jobIdPrefix": str,
                           "nameFilter": str, "stateFilter": str, "sortField": ("JOB_SORT_FIELD_DATE",),
                           "sortDirection": ("SORT_DIRECTION_DESC",), "limit": int, "offset": int}},
    "ExecInContainer": {"taskId": str, "command": TEXTS, "timeoutSeconds": int},
    "ListBackends": {}, "GetCurrentUser": {}, "GetSchedulerState": {}, "GetUserBudget": {"userId": str},
    "FetchLogs": {"source": str, "matchScope": ("MATCH_SCOPE_PREFIX", "MATCH_SCOPE_EXACT"), "cursor": INT64, "maxLines": int, "tail": bool,
                  "cluster": str},
}
CONTROLLER, LOGS = "/iris.cluster.ControllerService/", "/proxy/system.log-server/finelog.logging.LogService/"


def wrong(value, shape, at):
    """What is wrong with a request, in the words of the real one; None: nothing."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"Failed to parse {at} field: expected an object"
        for key, item in value.items():
            known = shape.get(key, shape.get(...))
            if known is None:
                return f'Message type "iris.cluster.{at}" has no field named "{key}" at "{at}".'
            found = wrong(item, known, f"{at}.{key}")
            if found:
                return found
    elif isinstance(shape, list):
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            return f"Failed to parse {at} field: repeated field must be in []"
    elif isinstance(shape, tuple):
        if value not in shape:
            return f"Failed to parse {at} field: Invalid enum value {value}"
    elif shape == INT64:
        if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
            return f"Failed to parse {at} field: Couldn't parse integer: {value}"
    elif type(value) is not shape:
        return f"Failed to parse {at} field: expected {shape.__name__}"
    return None


class Handler(Base):
    name = "controller"

    def json(self, value, status=200):
        if self.world.extra:
            value = newer(value)
        body = json.dumps(value, ensure_ascii=False).encode()
        zipped = "gzip" in self.headers.get("Accept-Encoding", "") and len(body) > 1000
        self.answer(status, gzip.compress(body) if zipped else body, "application/json", {"Content-Encoding": "gzip"} if zipped else None)

    def heard(self):
        """Reads and notes the request, and does what a planned fault says; False: it is answered."""
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.fault = None
        if self.path == "/__control":
            self.world.control(json.loads(self.body))
            self.answer(200)
            return False
        method = self.path.rpartition("/")[2] if self.path.startswith((CONTROLLER, LOGS)) else ""
        try:
            said = json.loads(self.body or b"null")
            if isinstance(said, dict) and "bundleBlob" in said:
                said["bundleBlob"] = len(said["bundleBlob"])
        except ValueError:
            said = self.body.decode(errors="replace")
        self.world.note("requests", json.dumps({"to": self.name, "method": method or self.command, "path": self.path, "time": time.time(),
                                                "headers": {k.lower(): v for k, v in self.headers.items()}, "body": said}))
        if not re.fullmatch(r"gdnctl/[0-9.]+", self.headers.get("User-Agent", "")):
            self.world.complain("User-Agent " + self.headers.get("User-Agent", "none"))
        for header in ("Origin", "Referer", "Expect", "Cookie"):
            if self.headers.get(header):
                self.world.complain("header " + header)
        fault = self.fault = self.world.fault_for(("google " if self.name == "google" else "") + (method or f"{self.command} {self.path}"))
        if not fault:
            return True
        if "hang" in fault:
            time.sleep(fault["hang"])
        if "hang" in fault or "reset" in fault or "garbage" in fault:
            if "garbage" in fault:
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.cut("reset" in fault)
            return False
        if "status" in fault or "answer" in fault:
            body = json.dumps(fault["answer"]) if "answer" in fault else fault.get("body", "")
            self.answer(fault.get("status", 200), body, fault.get("type", "application/json" if body[:1] == "{" else "text/html"), fault.get("headers"))
            return False
        return True

    def serve(self):
        if not self.heard():
            return
        if not self.let_in():
            return
        if self.command == "GET" and self.path == "/health":
            return self.json({"status": "ok", "database": "ok", "checkpoint_epoch_ms": None})
        if self.command == "GET" and self.path == "/auth/config":
            return self.json({"auth_enabled": self.world.iap, "provider": "iap" if self.world.iap else None, "authenticated": True,
                              "capabilities": ["workers", "autoscaler"], "optional": not self.world.iap})
        service, _, method = self.path.rpartition("/")
        if (service + "/") not in (CONTROLLER, LOGS) or method not in REQUESTS or (method == "FetchLogs") != (service + "/" == LOGS):
            return self.answer(404, "" if service + "/" == CONTROLLER else "Not Found")
        if self.command != "POST":
            return self.answer(405, "", headers={"Allow": "POST"})
        if not (self.headers.get("Content-Type") or "").startswith("application/json"):
            self.world.complain(f"{method} without content-type")
            return self.answer(415)
        try:
            self.json(self.world.call(method, self.checked(method)))
        except Refused as refused:
            self.json(refused.body, refused.status)

    def checked(self, method):
        try:
            request = json.loads(self.body)
        except ValueError as error:
            self.world.complain(f"{method}: not JSON")
            raise Refused(500, "unknown", f"Failed to load JSON: {error}.") from None
        found = wrong(request, REQUESTS[method], method + "Request")
        if not found and method == "FetchLogs" and not request.get("source", "").endswith("/") and not re.search(r"/\d+:\d+$", request.get("source", "")):
            found = f"FetchLogs of {request.get('source')!r}: other people's lines are in its answer"
        if not found and method == "LaunchJob" and request.get("existingJobPolicy") is None:
            found = "LaunchJob without existingJobPolicy: it replaces an ended job"
        if found:
            self.world.complain(found)
            raise Refused(500, "unknown", found)
        if method == "LaunchJob":
            self.world.note("launched", json.dumps({k: v for k, v in request.items() if k != "bundleBlob"}))
        return request

    def let_in(self):
        """Behind IAP only with an id token that was minted here and has not expired."""
        if not self.world.iap:
            if self.headers.get("Proxy-Authorization"):
                self.world.complain("an id token to a controller that asks for none")
            return True
        given = self.headers.get("Proxy-Authorization")
        if given and given.removeprefix("Bearer ") in self.world.tokens:
            return True
        self.answer(401, json.dumps({"error": "authentication failed" if given else "authentication required"}), "application/json")
        return False

    def handle_any(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception:
            self.world.complain("server: " + traceback.format_exc())
            self.answer(500, json.dumps({"code": "internal", "message": "scripted controller failed"}), "application/json")

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any


def newer(value):
    """The same answer by a later build: every object has keys that nobody knows yet."""
    if isinstance(value, list):
        return [newer(item) for item in value]
    if isinstance(value, dict):
        return {"aNewField": {"deep": [1, None]}, **{k: newer(v) if k not in ("states", "envVars") else v for k, v in value.items()}, "zNewText": "x"}
    return value


class Google(Handler):
    """oauth2.googleapis.com/token, the identity of the metadata server, and objects of the storage."""
    name = "google"

    def mint(self):
        with self.world.lock:
            self.world.minted += 1
            token = id_token(self.world.minted, self.world.token_life)
            self.world.tokens.add(token)
        return token

    def serve(self):
        if not self.heard():
            return
        if self.headers.get("Proxy-Authorization"):
            self.world.complain("an id token of the cluster to Google")
        url = urlsplit(self.path)
        if self.command == "POST" and url.path == "/token":
            form = {k: v[0] for k, v in parse_qs(self.body.decode()).items()}
            if form.get("grant_type") != "refresh_token" or form.get("client_id") != self.world.login["client_id"] or \
                    form.get("client_secret") != self.world.login["client_secret"]:
                return self.json({"error": "invalid_client", "error_description": "The OAuth client was not found."}, 401)
            if form.get("refresh_token") != self.world.login["refresh_token"]:
                return self.json({"error": "invalid_grant", "error_description": "Token has been expired or revoked."}, 400)
            return self.json({"access_token": "ya29.access-0123456789", "expires_in": 3599, "scope": "openid", "token_type": "Bearer",
                              "id_token": self.mint()})
        if url.path.endswith("/instance/service-accounts/default/identity"):
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.answer(403, "Missing Metadata-Flavor:Google header.")
            query = parse_qs(url.query)
            if query.get("format") != ["full"] or not query.get("audience"):
                return self.answer(400, "non-empty audience parameter required")
            return self.answer(200, self.mint(), "text/html", {"Metadata-Flavor": "Google"})
        match = re.fullmatch(r"/storage/v1/b/([^/]+)/o/([^/]+)", url.path)
        if match:
            found = self.world.store.get(f"{match[1]}/{unquote(match[2])}")
            if self.headers.get("Authorization") != "Bearer ya29.gcloud-0123456789":
                return self.json({"error": {"code": 401, "message": "Invalid Credentials"}}, 401)
            if found is None or url.query != "alt=media":
                return self.json({"error": {"code": 404, "message": f"No such object: {match[1]}/{unquote(match[2])}"}}, 404)
            return self.answer(200, found, "application/octet-stream")
        self.answer(404, "Not Found")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--iap", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    world = Base.world = World(options.folder)
    world.iap = options.iap
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 64
    google = ThreadingHTTPServer(("127.0.0.1", 0), Google)
    threading.Thread(target=google.serve_forever, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    for name, port in (("google", google.server_port), ("port", server.server_port)):
        with open(f"{world.folder}/{name}.new", "w") as out:
            out.write(str(port))
        os.rename(f"{world.folder}/{name}.new", f"{world.folder}/{name}")
    threading.Thread(target=end_with_test, args=(os.getppid(), world), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: leave(world))
    server.serve_forever()


def leave(world):
    world.sweep()
    os._exit(0)


def end_with_test(parent, world):
    while os.getppid() == parent and os.path.exists(world.folder + "/port"):
        time.sleep(0.3)
    leave(world)


if __name__ == "__main__":
    sys.exit(main())
