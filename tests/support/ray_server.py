#!/usr/bin/env python3
"""A Ray dashboard of one node for the tests: Jobs API, packages, logs and the node's agent, as tests/fixtures/ray shows
them. Entrypoints are really run. Strict: what a real server would refuse, or a client must never do, is refused and
written to COMPLAINTS.

  ray_server.py FOLDER [--token T] [--version 2.60.0] [--no-agent] [--port N]

FOLDER gets: port, requests (a JSON line each, in order), posted (the submissions), complaints, logs/, and jobs' working directories.
POST /__control {"fault": {...}} plans a fault for matching requests:
  match: "GET /api/jobs/x" (start of method and path), times (1; -1: always), skip (0), and one of
  status+body+headers | reset | cut (served, but not answered) | cut_body N | drip SECONDS | hang SECONDS | short N
  (announces N bytes more than come) | half (half-closed in the middle) | garbage
Others: {"job": {...}, "log": TEXT} puts a job there as it is, {"append": [id, TEXT]}, {"set": [id, {...}]},
{"forget": true} (head restart), {"capacity": {...}}, {"agent": false}, {"too_large": BYTES}.
"""
import argparse, base64, json, os, re, signal, socket, struct, subprocess, sys, threading, time, traceback, zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

FIELDS = {"entrypoint", "submission_id", "runtime_env", "metadata", "entrypoint_num_cpus", "entrypoint_num_gpus",
          "entrypoint_memory", "entrypoint_resources"}
NODE = "62af69ab37e61a1a782f15f12f0280a37e93c9e2b5f4b42bcb83efc2"
TROUBLE = "500 Internal Server Error\n\nServer got itself in trouble"
WAITS_RESOURCES = " It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available."
WAITS_ENV = " It may be waiting for the runtime environment to be set up."


class World:
    def __init__(self, options):
        self.options = options
        self.folder = os.path.abspath(options.folder)
        self.lock = threading.RLock()
        self.jobs, self.packages, self.faults, self.processes = {}, {}, [], {}
        self.capacity = {"CPU": 2, "TPU": 4, "TPU-v5p-8-head": 1}
        self.session = 1
        self.agent, self.agent_url, self.too_large = not options.no_agent, None, 104857600
        os.makedirs(self.folder + "/logs", exist_ok=True)

    def note(self, name, text):
        with self.lock, open(f"{self.folder}/{name}", "a") as out:
            out.write(text + "\n")

    def complain(self, text):
        self.note("complaints", text)

    def fault_for(self, request):
        with self.lock:
            for fault in self.faults:
                if not request.startswith(fault["match"]) or fault.get("times", 1) == 0:
                    continue
                if fault.get("skip", 0) > 0:
                    fault["skip"] -= 1
                    continue
                fault["times"] = fault.get("times", 1) - 1
                return fault
        return None

    def log_path(self, job_id):
        return f"{self.folder}/logs/job-driver-{job_id}.log"

    def new_job(self, request):
        env = request.get("runtime_env") or {}
        asked = bool(request.get("entrypoint_resources") or request.get("entrypoint_num_cpus"))
        return {"type": "SUBMISSION", "job_id": None, "submission_id": request["submission_id"], "driver_info": None,
                "status": "PENDING", "entrypoint": request["entrypoint"],
                "message": "Job has not started yet." + (WAITS_RESOURCES if asked else "") + (WAITS_ENV if env else ""),
                "error_type": None, "start_time": int(time.time() * 1000), "end_time": None,
                "metadata": request.get("metadata"), "runtime_env": request.get("runtime_env"),
                "driver_agent_http_address": None, "driver_node_id": None, "driver_exit_code": None,
                "retry_policy": None, "attempt_number": 1}

    def needs(self, request):
        needs = dict(request.get("entrypoint_resources") or {})
        if request.get("entrypoint_num_cpus"):
            needs["CPU"] = request["entrypoint_num_cpus"]
        return needs

    def run(self, job, request):
        """The job's life, in a thread of its own."""
        job_id, needs = job["submission_id"], self.needs(request)
        while True:
            with self.lock:
                if all(self.capacity.get(name, 0) >= amount for name, amount in needs.items()):
                    for name, amount in needs.items():
                        self.capacity[name] -= amount
                    break
            time.sleep(0.05)
        try:
            self.run_now(job, request, job_id)
        finally:
            with self.lock:
                for name, amount in needs.items():
                    self.capacity[name] += amount

    def run_now(self, job, request, job_id):
        work = f"{self.folder}/work-{job_id}"
        os.makedirs(work, exist_ok=True)
        runtime_env = request.get("runtime_env") or {}
        with open(self.log_path(job_id), "a") as log:
            log.write("2026-11-21 15:06:37,865\tINFO job_manager.py:581 -- Runtime env is setting up.\n")
        uri = runtime_env.get("working_dir")
        if uri:
            package = self.packages.get(uri.removeprefix("gcs://"))
            if package is None:
                return self.end(job, "FAILED", "RUNTIME_ENV_SETUP_FAILURE", "runtime_env setup failed: no " + uri)
            with zipfile.ZipFile(package) as archive:
                for member in archive.infolist():
                    path = archive.extract(member, work)
                    os.chmod(path, (member.external_attr >> 16) & 0o777 or 0o644)
        env = dict(os.environ, PYTHONUNBUFFERED="1")
        for name, value in sorted((runtime_env.get("env_vars") or {}).items()):
            # The node expands $NAME and ${NAME} with what is set so far, and drops what is left of ${UPPER}.
            known = lambda m: env.get(m.group(1) or m.group(2), m.group(0))
            value = re.sub(r"\$(\w+)|\$\{([^}]*)\}", known, value)
            env[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", value)
        with open(self.log_path(job_id), "ab", buffering=0) as log:
            process = subprocess.Popen(["/bin/sh", "-c", request["entrypoint"]], cwd=work, env=env, stdout=log,
                                       stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        with self.lock:
            self.processes[job_id] = process
            job.update(status="RUNNING", message="Job is currently running.", driver_node_id=NODE,
                       driver_agent_http_address=self.agent_url)
            if job.get("_stop"):
                os.killpg(process.pid, signal.SIGTERM)
        code = process.wait()
        if job.get("_stop"):
            return self.end(job, "STOPPED", None, "Job was intentionally stopped.")
        job["driver_exit_code"] = code
        if code == 0:
            return self.end(job, "SUCCEEDED", None, "Job finished successfully.")
        with open(self.log_path(job_id), "rb") as log:
            last = "\n".join(log.read().decode("utf-8", "replace").splitlines()[-10:])
        self.end(job, "FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR", f"Job entrypoint command failed with exit code {code}, "
                 f"last available logs (truncated to 20,000 chars):\n{last}")

    def end(self, job, status, error_type, message):
        with self.lock:
            job.update(status=status, error_type=error_type, message=message, end_time=int(time.time() * 1000))

    def submit(self, body):
        request = json.loads(body)
        if not isinstance(request, dict):
            return 500, TROUBLE
        self.note("posted", json.dumps(request))
        allowed = FIELDS | ({"entrypoint_label_selector"} if self.version() >= (2, 54) else set())
        for key in request:
            if key not in allowed:
                self.complain(f"unknown field {key}")
                return 400, f"Traceback\nTypeError: JobSubmitRequest.__init__() got an unexpected keyword argument '{key}'"
        wrong = [k for k, v in (request.get("metadata") or {}).items() if not isinstance(v, str)]
        wrong += [k for k, v in (request.get("entrypoint_resources") or {}).items() if isinstance(v, (str, bool))]
        wrong += [k for k, v in ((request.get("runtime_env") or {}).get("env_vars") or {}).items() if not isinstance(v, str)]
        wrong += [k for k in ("entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory")
                  if not isinstance(request.get(k, 0), (int, float))]
        if wrong:
            self.complain(f"wrong type of {wrong}")
            return 400, f"Traceback\nTypeError: {wrong[0]} has the wrong type"
        job_id = request["submission_id"]
        with self.lock:
            if job_id in self.jobs:
                return 500, ("Traceback (most recent call last):\nRuntimeError: Request failed with status code 400: "
                             f"Traceback (most recent call last):\nValueError: Job with submission_id {job_id} already "
                             "exists. Please use a different submission_id.\n.\n")
            job = self.jobs[job_id] = self.new_job(request)
        threading.Thread(target=self.run, args=(job, request), daemon=True).start()
        return 200, json.dumps({"job_id": job_id, "submission_id": job_id})

    def stop(self, job):
        with self.lock:
            if job["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return False
            job["_stop"] = True
            process = self.processes.get(job["submission_id"])
            if process:
                os.killpg(process.pid, signal.SIGTERM)
            elif job["status"] == "RUNNING":
                self.end(job, "STOPPED", None, "Job was intentionally stopped.")
            return True

    def version(self):
        return tuple(int(part) for part in self.options.version.split(".")[:2])

    def control(self, order):
        with self.lock:
            if "fault" in order:
                self.faults.append(order["fault"])
            if "job" in order:
                job = self.new_job({"submission_id": order["job"]["submission_id"], "entrypoint": "true"})
                job.update({"status": "SUCCEEDED", "message": "Job finished successfully.", "driver_node_id": NODE,
                            "driver_agent_http_address": self.agent_url, "end_time": job["start_time"] + 5})
                job.update(order["job"])
                self.jobs[job["submission_id"]] = job
                if "log" in order:
                    self.write_log(job["submission_id"], order["log"], "wb")
            if "append" in order:
                self.write_log(order["append"][0], order["append"][1], "ab")
            if "set" in order:
                self.jobs[order["set"][0]].update(order["set"][1])
            if order.get("forget"):
                self.jobs, self.session = {}, self.session + 1
            for name in ("capacity", "agent", "too_large"):
                if name in order:
                    setattr(self, name, order[name])

    def write_log(self, job_id, text, mode):
        data = base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()
        with open(self.log_path(job_id), mode) as log:
            log.write(data)


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
    parser.add_argument("--token", default="")
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
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
