#!/usr/bin/env python3
"""A Ray dashboard of one node for the tests: Jobs API, packages, logs and the node's agent, as tests/fixtures/ray shows
them. Entrypoints are really run. Strict: what a real server would refuse, or a client must never do, is refused and
written to COMPLAINTS.

  ray_server.py FOLDER [--token T] [--version 2.60.0] [--no-agent] [--port N]

FOLDER gets: port, requests (a JSON line each, in order), posted (the submissions), complaints, logs/, and
jobs' working directories.
POST /__control {"fault": {...}} plans a fault for matching requests:
  match: "GET /api/jobs/x" (start of method and path), times (1; -1: always), skip (0), and one of
  status+body+headers | reset | cut (served, but not answered) | cut_body N | drip SECONDS | hang SECONDS | short N
  (announces N bytes more than come) | half (half-closed in the middle) | garbage
Others: {"job": {...}, "log": TEXT} puts a job there as it is, {"append": [id, TEXT]}, {"set": [id, {...}]},
{"forget": true} (head restart), {"capacity": {...}}, {"agent": false}, {"too_large": BYTES}.
"""
import argparse, json, os, re, signal, socket, struct, sys, threading, time, traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from ray_server_world import NODE, TROUBLE, World


class Base(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Python/3.11 aiohttp/3.14.5", ""
    world = None

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", content_type="text/plain; charset=utf-8", headers=None, chunked=False):
        body = body.encode() if isinstance(body, str) else body
        fault = self.fault or {}
        if "cut" in fault or "reset" in fault:
            return self.cut("reset" in fault)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + fault.get("short", 0)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if "drip" in fault:
            for i in range(len(body)):
                self.wfile.write(body[i:i + 1])
                self.wfile.flush()
                time.sleep(fault["drip"])
            return
        whole = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 65536]), body[i:i + 65536])
                         for i in range(0, len(body), 65536)) + b"0\r\n\r\n" if chunked else body
        if "cut_body" in fault or "half" in fault or "short" in fault:
            self.wfile.write(whole[:fault.get("cut_body", len(whole) // 2 if "half" in fault else len(whole))])
            self.wfile.flush()
            if "half" in fault:
                self.connection.shutdown(socket.SHUT_WR)
                time.sleep(0.2)
            return self.cut(False)
        self.wfile.write(whole)

    def cut(self, hard):
        if hard:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR) if not hard else self.connection.close()
        except OSError:
            pass

    def allowed(self):
        token, given = self.world.options.token, self.headers.get("Authorization")
        if not token:
            return True
        if given is None:
            self.answer(401, "Unauthorized: Missing authentication token")
        elif given != "Bearer " + token:
            self.answer(403, "Forbidden: Invalid authentication token")
        return given == "Bearer " + token

    def prologue(self, name):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.fault = None
        if self.path == "/__control":
            self.world.control(json.loads(self.body))
            self.answer(200)
            return False
        self.world.note("requests", json.dumps({"to": name, "method": self.command, "path": self.path, "time": time.time(),
                                                "headers": dict(self.headers), "bytes": length}))
        if not re.fullmatch(r"gdnctl/[0-9.]+", self.headers.get("User-Agent", "")):
            self.world.complain("User-Agent " + self.headers.get("User-Agent", "none"))
        for header in ("Origin", "Referer", "Sec-Fetch-Mode", "Access-Control-Request-Method", "Expect", "Cookie"):
            if self.headers.get(header):
                self.world.complain("header " + header)
        if "/logs/stream" in self.path or "/logs/tail" in self.path:
            self.world.complain("stream endpoint: " + self.path)
        self.fault = self.world.fault_for(f"{self.command} {self.path}") if name == "dashboard" else \
            self.world.fault_for(f"AGENT {self.path}")
        fault = self.fault or {}
        if "hang" in fault:
            time.sleep(fault["hang"])
            self.cut(False)
            return False
        if "reset" in fault:
            self.cut(True)
            return False
        if "garbage" in fault:
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.cut(False)
            return False
        if "status" in fault:
            self.answer(fault["status"], fault.get("body", ""), fault.get("type", "text/plain; charset=utf-8"),
                        fault.get("headers"))
            return False
        return self.allowed()

    def handle_any(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception:
            self.world.complain("server: " + traceback.format_exc())
            self.answer(500, TROUBLE)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any


class Dashboard(Base):
    def json(self, value):
        self.answer(200, json.dumps(value), "application/json; charset=utf-8")

    def serve(self):
        if not self.prologue("dashboard"):
            return
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.split("/")[1:]]
        world = self.world
        if parts == ["api", "version"]:
            return self.json({"version": "4", "ray_version": world.options.version, "ray_commit": "b7f4",
                              "session_name": f"session_{world.session}"})
        if parts[:3] == ["api", "packages", "gcs"]:
            return self.package(parts[3])
        if parts == ["api", "v0", "logs", "file"]:
            return self.log_file({k: v[0] for k, v in parse_qs(url.query).items()})
        if parts[:2] == ["api", "jobs"]:
            return self.jobs(parts[2:])
        self.answer(404, "404: Not Found")

    def package(self, name):
        path = f"{self.world.folder}/package-{name}"
        if self.command == "GET":
            if name in self.world.packages:
                return self.answer(200)
            return self.answer(404, f"Package gcs://{name} does not exist")
        if len(self.body) > self.world.too_large:
            return self.answer(413, f"Maximum request body size {self.world.too_large} exceeded.")
        with open(path, "wb") as out:
            out.write(self.body)
        self.world.packages[name] = path
        self.answer(200)

    def jobs(self, rest):
        world = self.world
        if rest == [] and self.command == "POST":
            self.world.complain("POST without the slash")
            return self.answer(404, "404: Not Found")
        if rest == [""] and self.command == "POST":
            if not (self.headers.get("Content-Type") or "").startswith("application/json"):
                world.complain("POST without Content-Type")
            return self.answer(*world.submit(self.body))
        if rest == [""]:
            return self.json([self.shown(job) for job in list(world.jobs.values())])
        job = world.jobs.get(rest[0])
        if job is None:
            return self.answer(404, f"Job {rest[0]} does not exist")
        if rest[1:] == ["stop"]:
            return self.json({"stopped": world.stop(job)})
        if rest[1:] == ["logs"]:
            try:
                with open(world.log_path(rest[0]), encoding="utf-8") as log:
                    return self.json({"logs": log.read()})
            except FileNotFoundError:
                return self.json({"logs": ""})
            except UnicodeDecodeError:
                return self.answer(500, "Traceback\nUnicodeDecodeError: 'utf-8' codec can't decode byte 0xff")
        if self.command == "DELETE":
            if job["status"] in ("PENDING", "RUNNING"):
                return self.answer(500, f"Traceback\nRuntimeError: Attempted to delete job '{rest[0]}', but it is in a "
                                        f"non-terminal state {job['status']}.\n.")
            del world.jobs[rest[0]]
            return self.json({"deleted": True})
        self.json(self.shown(job))

    def shown(self, job):
        return {key: value for key, value in job.items() if not key.startswith("_")}

    def log_file(self, query):
        if query.get("node_id") != NODE:
            return self.answer(500, f"Agent for node id: {query.get('node_id')} doesn't exist.")
        path = f"{self.world.folder}/logs/{query['filename']}"
        if not os.path.exists(path):
            return self.answer(500, f"A file is not found at: {path}")
        with open(path, "rb") as log:
            data = log.read()
        lines = int(query.get("lines", 1000)) or 1000
        if lines > 0:
            data = tail(data, lines)
        elif lines != -1:
            data = b""
        self.answer(200, data, "text/plain", {"Content-Disposition": 'attachment; filename="file.txt"'}, chunked=True)


def tail(data, lines):
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1:]


class Agent(Base):
    def serve(self):
        if not self.prologue("agent"):
            return
        path = self.world.folder + unquote(self.path)
        if not self.world.agent or not self.path.startswith("/logs/") or not os.path.exists(path):
            return self.answer(404, "404: Not Found")
        with open(path, "rb") as log:
            data = log.read()
        given = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if not given:
            return self.answer(200, data, "application/octet-stream", {"Accept-Ranges": "bytes"})
        first, last = given.groups()
        if first == "":
            first, last = max(0, len(data) - int(last)), len(data) - 1
        else:
            first, last = int(first), min(int(last or len(data) - 1), len(data) - 1)
        if first >= len(data):
            return self.answer(416, b"", "application/octet-stream", {"Content-Range": f"bytes */{len(data)}"}, chunked=True)
        self.answer(206, data[first:last + 1], "application/octet-stream",
                    {"Content-Range": f"bytes {first}-{last}/{len(data)}", "Accept-Ranges": "bytes"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--token", default=os.environ.get("RAY_SERVER_TOKEN", ""))
    parser.add_argument("--version", default="2.60.0")
    parser.add_argument("--no-agent", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    world = Base.world = World(parser.parse_args())
    ThreadingHTTPServer.daemon_threads = True
    agent = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    world.agent_url = f"http://127.0.0.1:{agent.server_port}"
    threading.Thread(target=agent.serve_forever, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", world.options.port), Dashboard)
    with open(world.folder + "/port.new", "w") as out:
        out.write(str(server.server_port))
    os.rename(world.folder + "/port.new", world.folder + "/port")
    threading.Thread(target=end_with_test, args=(os.getppid(), world), daemon=True).start()
    server.serve_forever()


def end_with_test(parent, world):
    while os.getppid() == parent and os.path.exists(world.folder + "/port"):
        time.sleep(0.5)
    for process in world.processes.values():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
