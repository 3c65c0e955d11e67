#!/usr/bin/env python3
"""fake_dashboard.py FOLDER [token=T] [version=V]: as much of a Ray dashboard as finding one needs.

Writes FOLDER/port when it listens, and appends every request with its headers to FOLDER/requests."""
import http.server
import json
import os
import sys

folder = sys.argv[1]
options = dict(word.split("=", 1) for word in sys.argv[2:])
token = options.get("token")

ANSWERS = {
    "/api/version": {"version": "4", "ray_version": options.get("version", "2.60.0"), "ray_commit": "0", "session_name": "session_1"},
    "/api/authentication_mode": {"authentication_mode": "token" if token else "disabled"},
    "/api/cluster_status": {
        "result": True,
        "data": {"clusterStatus": {"loadMetricsReport": {"usage": {"TPU": [4.0, 8.0]}, "resourceDemand": [[{"TPU": 4.0, "TPU-v5p-8-head": 1.0}, 2]]}}},
    },
    "/api/jobs/": [],
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open(os.path.join(folder, "requests"), "a", encoding="utf-8") as out:
            out.write(f"{self.command} {self.path}\n{self.headers}")
        path = self.path.removeprefix("/prefix")
        status, body = 200, json.dumps(ANSWERS.get(path))
        if token and path != "/api/authentication_mode":
            given = self.headers.get("Authorization")
            if given is None:
                status, body = 401, "Unauthorized: Missing authentication token"
            elif given != "Bearer " + token:
                status, body = 403, "Forbidden: Invalid authentication token"
        if status == 200 and path not in ANSWERS:
            status, body = 404, "404: Not Found"
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(os.path.join(folder, "port.new"), "w", encoding="utf-8") as out:
    out.write(str(server.server_port))
os.rename(os.path.join(folder, "port.new"), os.path.join(folder, "port"))
server.serve_forever()
