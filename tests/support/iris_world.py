"""The world behind the scripted Iris controller (iris_controller.py): jobs that really run, their logs and archives, one
TPU host of four chips, logins and planned faults."""
import base64
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import threading
import time
import zipfile

ENDED = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_KILLED", "JOB_STATE_WORKER_FAILED", "JOB_STATE_UNSCHEDULABLE"}
BAD_NODE = ("No accelerator found", "Couldn't open iommu group", "open(/dev/vfio", "Failed to initialize TPU system",
            "TPU initialization failed")
MARKER = "IRIS_SCRIPTED_TASK"


def now_ms():
    return int(time.time() * 1000)


def epoch(ms):
    return {"epochMs": str(ms)}


class Refused(Exception):
    """An answer other than 200 in Connect's form."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.body = status, {"code": code, "message": message}


class Job:
    def __init__(self, name, request):
        self.name, self.request = name, request
        self.state, self.error, self.reason = "JOB_STATE_PENDING", "", "Waiting for the scheduler"
        self.submitted, self.started, self.finished = now_ms(), None, None
        self.cluster, self.peer = "local", "PEER_STATUS_NONE"
        self.attempts, self.task_state, self.highlights, self.process = [], "TASK_STATE_PENDING", [], None
        self.task_more = {}

    def status(self):
        shown = {"jobId": self.name, "state": self.state, "exitCode": 0, "error": self.error, "failureCount": 0,
                 "preemptionCount": 0, "name": self.name, "submittedAt": epoch(self.submitted),
                 "taskStateCounts": {self.task_state.removeprefix("TASK_STATE_").lower(): 1}, "taskCount": 1,
                 "completedCount": 0, "pendingReason": self.reason, "hasChildren": False, "parentJobId": "",
                 "backendId": "default", "cluster": self.cluster, "peerStatus": self.peer}
        if self.started:
            shown["startedAt"] = epoch(self.started)
        if self.finished:
            shown["finishedAt"] = epoch(self.finished)
        return shown

    def shown_request(self):
        """What GetJobStatus tells of the request: no bundle, and nothing that looks like a secret."""
        kept = {k: v for k, v in self.request.items() if k != "bundleBlob"}
        variables = (kept.get("environment") or {}).get("envVars") or {}
        shown = {k: "[REDACTED]" if looks_secret(k, v) else v for k, v in variables.items()}
        kept["environment"] = {"envVars": shown} if shown else {}
        return kept

    def task(self, address=""):
        last = self.attempts[-1] if self.attempts else {}
        shown = {"taskId": self.name + "/0", "state": self.task_state, "workerId": last.get("workerId", ""),
                 "workerAddress": address, "exitCode": last.get("exitCode", 0), "error": last.get("error", ""),
                 "currentAttemptId": last.get("attemptId", -1), "attempts": self.attempts, "backendId": "default",
                 "cluster": self.cluster, "submittedAt": epoch(self.submitted)}
        for key in ("startedAt", "finishedAt"):
            if key in last:
                shown[key] = last[key]
        if self.state == "JOB_STATE_UNSCHEDULABLE":
            shown["error"] = self.error
        shown.update(self.task_more)
        return shown


def looks_secret(name, value):
    return bool(re.search("TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", name, re.I) or re.fullmatch(r"[A-Za-z0-9+/_=-]{32,}", value))


class World:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.lock = threading.RLock()
        self.jobs, self.faults, self.entries, self.waiting, self.lag = {}, [], [], [], 0.0
        self.tpus, self.offered, self.rename, self.budgets, self.extra = 1, {"v5p-8": 4}, None, [], False
        self.archive, self.store = {}, {}
        self.iap, self.tokens, self.minted = False, set(), 0
        self.login = {"refresh_token": "1//refresh-good-0123456789", "client_id": "desk.apps", "client_secret": "desk-secret-0123"}
        self.token_life = 3600

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

    # --- logs ------------------------------------------------------------------------------------------------------
    def log(self, job, line, attempt=0, source="stdout"):
        """A line that the log server has `lag` seconds from now."""
        with self.lock:
            self.waiting.append((time.monotonic() + self.lag, job.cluster,
                                 {"timestamp": epoch(now_ms()), "source": source, "data": line, "attemptId": attempt,
                                  "level": "LOG_LEVEL_INFO", "key": f"{job.name}/0:{attempt}"}))

    def fetch_logs(self, request):
        source, prefix = request.get("source", ""), request.get("matchScope") == "MATCH_SCOPE_PREFIX"
        cursor, most = int(request.get("cursor", 0)), request.get("maxLines", 1000)
        with self.lock:
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, cluster, entry = self.waiting.pop(0)
                self.entries.append((cluster, dict(entry, seq=str(len(self.entries) + 41))))
            found = [e for cluster, e in self.entries if int(e["seq"]) > cursor and cluster == request.get("cluster", "local") and
                     (e["key"].startswith(source) if prefix else e["key"] == source)]
        found = found[-most:] if request.get("tail") else found[:most]
        answer = {"cursor": found[-1]["seq"] if found else str(cursor)}
        return {"entries": found, **answer} if found else answer

    # --- jobs ------------------------------------------------------------------------------------------------------
    def launch(self, request):
        name = request["name"]
        parts = name.split("/")
        if not name:
            raise Refused(400, "invalid_argument", "Job name is required")
        if len(parts) < 3 or parts[0]:
            raise Refused(500, "internal", f"RPC LaunchJob: Job name must use canonical '/<user>/<job>[...]' format: {name}")
        if not all(part.strip() for part in parts[1:]):
            raise Refused(500, "internal", f"RPC LaunchJob: Job name contains empty or whitespace-only component: {name}")
        if len(parts) > 3 and "/".join(parts[:-1]) not in self.jobs:
            raise Refused(400, "failed_precondition", f"Cannot submit job: parent job {'/'.join(parts[:-1])} is absent from the database")
        blob = base64.b64decode(request.get("bundleBlob", ""))
        if len(blob) > 26_214_400:
            raise Refused(400, "invalid_argument", f"Bundle size {len(blob)} exceeds the maximum of 26214400 bytes")
        tpu = ((request.get("resources") or {}).get("device") or {}).get("tpu")
        if tpu and tpu["variant"] not in self.offered:
            raise Refused(400, "failed_precondition", f"Job {name} is unschedulable: no scaling group provides device "
                          f"tpu:{tpu['variant']} (available: cpu, tpu_v5p_8) (constraints: [])")
        if tpu and tpu.get("count") != self.offered[tpu["variant"]]:
            raise Refused(400, "invalid_argument", f"TPU chip count mismatch: requested {tpu.get('count')} chips per replica, but "
                          f"candidate variants have chips_per_vm={self.offered}.")
        if self.rename:
            name = self.rename.replace("{}", parts[-1])
        with self.lock:
            if name in self.jobs:
                raise Refused(409, "already_exists", f"Job {name} already exists (state={self.jobs[name].state})")
            job = self.jobs[name] = Job(name, request)
        threading.Thread(target=self.live, args=(job, tpu, blob), daemon=True).start()
        return {"jobId": name}

    def live(self, job, tpu, blob):
        limit = int((job.request.get("schedulingTimeout") or {}).get("milliseconds", 10**9)) / 1000
        deadline = time.monotonic() + limit
        if tpu:
            while True:
                with self.lock:
                    if job.state in ENDED:
                        return
                    if self.tpus > 0:
                        self.tpus -= 1
                        break
                    job.reason = f"Insufficient TPUs (need {tpu['count']}, available 0)"
                    if time.monotonic() > deadline:
                        return self.end(job, "JOB_STATE_UNSCHEDULABLE", "TASK_STATE_UNSCHEDULABLE", f"Scheduling timeout exceeded (Duration({limit:.3f}s))")
                time.sleep(0.03)
        try:
            self.attempt(job, blob)
        finally:
            if tpu:
                with self.lock:
                    self.tpus += 1

    def attempt(self, job, blob):
        work = f"{self.folder}/work/{job.name.strip('/').replace('/', '_')}"
        for sub in ("app", "outputs", "cwd"):
            os.makedirs(f"{work}/{sub}", exist_ok=True)
        if blob:
            zipfile.ZipFile(io.BytesIO(blob)).extractall(work + "/app")  # the bits of programs are lost, as on the real one
        task = f"{job.name}/0:0"
        env = {**os.environ, **(job.request.get("environment") or {}).get("envVars", {}), "IRIS_TASK_ID": task,
               "IRIS_WORKDIR": work + "/app", "IRIS_OUTPUT_DIR": work + "/outputs", "IRIS_TASK_TOKEN": "task-token-0123456789",
               MARKER: f"{self.folder}{job.name}"}
        with self.lock:
            if job.state in ENDED:
                return
            job.state, job.reason, job.started, job.task_state = "JOB_STATE_RUNNING", "", now_ms(), "TASK_STATE_RUNNING"
            job.attempts = [{"attemptId": 0, "workerId": "worker-iris-1", "state": "TASK_STATE_RUNNING", "exitCode": 0, "error": "",
                             "startedAt": epoch(now_ms()), "isWorkerFailure": False, "terminalReason": ""}]
            try:
                process = job.process = subprocess.Popen(job.request["entrypoint"]["runCommand"]["argv"], cwd=work + "/cwd", env=env,
                                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                         start_new_session=True)
            except OSError as error:
                return self.end(job, "JOB_STATE_FAILED", "TASK_STATE_FAILED", f"Exit code: 1. stderr: FileNotFoundError: {error}", 1)
        said = []
        readers = [threading.Thread(target=self.read, args=(job, pipe, source, said), daemon=True)
                   for pipe, source in ((process.stdout, "stdout"), (process.stderr, "stderr"))]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        code = process.wait()
        with self.lock:
            if job.state in ENDED:  # stopped or completed: the processes are gone now
                job.attempts[-1]["finishedAt"] = epoch(now_ms())
                return
        archive = self.pack(job, work + "/outputs")
        if archive:
            job.attempts[-1]["outputArchive"] = archive
        broken = next((line for kind, line in said if kind == "not UTF-8"), None)
        if broken:
            return self.end(job, "JOB_STATE_FAILED", "TASK_STATE_FAILED", broken, 1)
        if code == 0:
            return self.end(job, "JOB_STATE_SUCCEEDED", "TASK_STATE_SUCCEEDED", "")
        errors = [line for kind, line in said if kind == "stderr"]
        text = f"Exit code: {code}" + (f". stderr: {errors[-1]}" if errors else "")
        every = [line for _, line in said]
        if "Traceback (most recent call last):" in every:
            job.highlights = every[every.index("Traceback (most recent call last):"):]
        bad = next((sign for line in errors for sign in BAD_NODE if sign in line), None)
        if bad:
            return self.end(job, "JOB_STATE_WORKER_FAILED", "TASK_STATE_WORKER_FAILED", f"TPU init failure ('{bad}'): {text}", code)
        self.end(job, "JOB_STATE_FAILED", "TASK_STATE_FAILED", text, code)

    def read(self, job, pipe, source, said):
        for raw in pipe:
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                said.append(("not UTF-8", str(error)))
                self.sweep(job)
                return
            for line in text.rstrip("\n").split("\r"):
                said.append((source, line.rstrip()))
                self.log(job, line.rstrip(), 0, source)

    def end(self, job, state, task_state, error, code=0):
        with self.lock:
            if job.state in ENDED:
                return
            job.state, job.task_state, job.finished = state, task_state, now_ms()
            before = "Cumulative failed task attempts exceeded max_task_failures: failures=1, limit=0; " if state == "JOB_STATE_FAILED" else ""
            job.error = before + error if error else ""
            job.reason = job.error
            if job.attempts:
                job.attempts[-1].update(state=task_state, error=error, exitCode=code, finishedAt=epoch(now_ms()),
                                        isWorkerFailure=state == "JOB_STATE_WORKER_FAILED")

    def stop(self, name, state, task_state, error):
        with self.lock:
            job = self.jobs.get(name)
            if job is None:
                raise Refused(404, "not_found", f"Job {name} not found")
            if job.state not in ENDED:
                # The state changes at once, and the processes go later.
                job.state, job.task_state, job.error, job.finished = state, task_state, error, now_ms()
                if job.attempts:
                    job.attempts[-1].update(state=task_state, error=error)
                threading.Timer(0.3, self.sweep, [job]).start()
        return {}

    def sweep(self, job=None):
        """Ends the processes of a job, or of all jobs: what carries the marker, as with the end of a container."""
        wanted = f"{MARKER}={self.folder}{job.name if job else ''}".encode()
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if any(item == wanted or (job is None and item.startswith(wanted)) for item in f.read().split(b"\0")):
                        os.kill(int(entry), signal.SIGKILL)
            except (OSError, ValueError):
                continue

    def pack(self, job, folder):
        if not os.listdir(folder):
            return dict({"state": "TASK_OUTPUT_ARCHIVE_STATE_EMPTY", "skippedCount": 0}, **self.archive)
        path = folder + ".tar.zst"
        subprocess.run(["tar", "--zstd", "-cf", path, "-C", folder, "."], check=True)
        with open(path, "rb") as f:
            content = f.read()
        return dict({"state": "TASK_OUTPUT_ARCHIVE_STATE_UPLOADED", "uri": "file://" + path, "sizeBytes": str(len(content)),
                     "sha256": hashlib.sha256(content).hexdigest(), "retention": "TASK_OUTPUT_ARCHIVE_RETENTION_LOCAL_CLUSTER",
                     "ttlDays": 0, "skippedCount": 0}, **self.archive)

    def job(self, name):
        job = self.jobs.get(name)
        if job is None:
            raise Refused(404, "not_found", f"Job {name} not found")
        return job

    def execute(self, request):
        """ExecInContainer. It sees neither the environment nor the folder of the task, as on the local runtime."""
        name, _, index = request["taskId"].rpartition("/")
        if index != "0":
            raise Refused(400, "invalid_argument", f"JobName is not a task: {request['taskId']}")
        job = self.jobs.get(name)
        if job is None:
            raise Refused(404, "not_found", f"Task {request['taskId']} not found")
        if not request.get("command"):
            raise Refused(400, "invalid_argument", "command is required")
        if job.state == "JOB_STATE_PENDING":
            raise Refused(400, "failed_precondition", f"Task {request['taskId']} not yet assigned to a worker")
        answer = {"exitCode": 0, "stdout": "", "stderr": "", "error": ""}
        if job.state != "JOB_STATE_RUNNING":
            return dict(answer, error=f"Task {request['taskId']} is not running (state={job.task_state})")
        limit = request.get("timeoutSeconds", 0) or 60
        try:
            ran = subprocess.run(request["command"], cwd="/", env={"PATH": os.environ["PATH"], MARKER: f"{self.folder}{job.name}"},
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=None if limit < 0 else limit)
            return dict(answer, exitCode=ran.returncode, stdout=ran.stdout.decode(), stderr=ran.stderr.decode())
        except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
            raise Refused(500, "internal", f"Error exec_in_container: {error}") from None

    def list_jobs(self, query):
        if query.get("offset", 0) > 5000:
            raise Refused(400, "invalid_argument", f"query.offset={query['offset']} exceeds MAX_LIST_JOBS_OFFSET=5000")
        scope, parent = query.get("scope", "JOB_QUERY_SCOPE_ALL"), query.get("parentJobId", "")

        def wanted(job):
            depth = job.name.count("/")
            return (job.name.startswith(query.get("jobIdPrefix", "")) and query.get("nameFilter", "").lower() in job.name.lower() and
                    (scope != "JOB_QUERY_SCOPE_ROOTS" or depth == 2) and
                    (scope != "JOB_QUERY_SCOPE_CHILDREN" or job.name.rpartition("/")[0] == parent) and
                    query.get("stateFilter", "").lower() in ("", job.state.removeprefix("JOB_STATE_").lower()))

        with self.lock:
            found = [job for job in self.jobs.values() if wanted(job)]
        found.sort(key=lambda job: job.submitted, reverse=True)
        first, most = query.get("offset", 0), min(query.get("limit", 500) or 500, 500)
        page = [job.status() for job in found[first:first + most]]
        answer = {"totalCount": len(found), "hasMore": first + most < len(found)}
        return {"jobs": page, **answer} if page else answer

    def call(self, method, request):
        if method == "LaunchJob":
            return self.launch(request)
        if method == "GetJobState":
            states = {name: self.jobs[name].state for name in request.get("jobIds", []) if name in self.jobs}
            return {"states": states} if states else {}
        if method == "GetJobStatus":
            job = self.job(request["jobId"])
            return {"job": job.status(), "request": job.shown_request()}
        if method == "ListTasks":
            job = self.jobs.get(request["jobId"])
            return {"tasks": [job.task()]} if job else {}
        if method == "GetTaskStatus":
            name, _, index = request["taskId"].rpartition("/")
            if name not in self.jobs or index != "0":
                raise Refused(404, "not_found", f"Task {request['taskId']} not found")
            job = self.jobs[name]
            return {"task": job.task("127.0.0.1:44187"), **({"rootCauseHighlights": job.highlights} if job.highlights else {})}
        if method == "TerminateJob":
            return self.stop(request["jobId"], "JOB_STATE_KILLED", "TASK_STATE_KILLED", "Terminated by user")
        if method == "CompleteJob":
            return self.stop(request["jobId"], "JOB_STATE_SUCCEEDED", "TASK_STATE_SUCCEEDED", "")
        if method == "ListJobs":
            return self.list_jobs(request.get("query", {}))
        if method == "ExecInContainer":
            return self.execute(request)
        if method == "ListBackends":
            running = sum(job.state == "JOB_STATE_RUNNING" for job in self.jobs.values())
            pending = sum(job.state == "JOB_STATE_PENDING" for job in self.jobs.values())
            return {"backends": [{"backendId": "default", "name": "worker", "kind": "worker-daemon", "scaleGroups": ["cpu", "tpu_v5p_8"],
                                  "workerCount": 2, "pendingTaskCount": pending, "runningTaskCount": running, "hasAutoscaler": True}]}
        if method == "GetCurrentUser":
            return {"userId": "alice@example.org" if self.iap else "anonymous", "role": "admin"}
        if method == "GetSchedulerState":
            return {**({"userBudgets": self.budgets} if self.budgets else {}), "totalPending": 0, "totalRunning": len(self.budgets)}
        if method == "GetUserBudget":
            return {"userId": request["userId"], "budgetLimit": "1000", "maxBand": "PRIORITY_BAND_INTERACTIVE"}
        return self.fetch_logs(request)

    # --- orders of the tests ---------------------------------------------------------------------------------------
    def control(self, order):
        with self.lock:
            if "fault" in order:
                self.faults.append(order["fault"])
            if "job" in order:
                self.put(order["job"], order.get("log", []))
            if "append" in order:
                name, lines, *attempt = order["append"]
                for line in lines:
                    self.log(self.jobs[name], line, *attempt)
            if "set" in order:
                self.change(self.jobs[order["set"][0]], order["set"][1])
            if "kick" in order:
                job = self.jobs[order["kick"]]
                self.end(job, "JOB_STATE_WORKER_FAILED", "TASK_STATE_PREEMPTED", order.get("reason", "test"))
                self.sweep(job)
            if order.get("forget"):
                self.jobs, self.entries, self.waiting = {}, [], []
            if order.get("expire"):
                self.tokens = set()
            if "login" in order:
                self.login.update(order["login"])
            if "lose" in order:  # the oldest lines of the store, as a worker that was flooded loses them
                self.fetch_logs({"source": "/", "matchScope": "MATCH_SCOPE_PREFIX"})
                self.entries = self.entries[:0] + [(c if i >= order["lose"] else "lost", e) for i, (c, e) in enumerate(self.entries)]
            if "object" in order:
                self.store[order["object"][0]] = base64.b64decode(order["object"][1])
            for name in ("tpus", "offered", "rename", "budgets", "extra", "archive", "iap", "lag", "token_life"):
                if name in order:
                    setattr(self, name, order[name])

    def put(self, given, lines):
        job = self.jobs[given["name"]] = Job(given["name"], {"name": given["name"], "environment": {"envVars": given.get("env", {})}})
        job.started = now_ms()
        job.attempts = [{"attemptId": 0, "workerId": "worker-iris-1", "state": "TASK_STATE_RUNNING", "exitCode": 0, "error": "",
                         "startedAt": epoch(now_ms()), "isWorkerFailure": False, "terminalReason": ""}]
        self.change(job, {"state": "JOB_STATE_SUCCEEDED", "reason": "", **{k: v for k, v in given.items() if k not in ("name", "env")}})
        for line in lines:
            self.log(job, line)

    def change(self, job, keys):
        """Sets attributes of a job. `exit` and `task_error` are those of its last attempt, `task` more keys of its task."""
        for key, value in keys.items():
            if key in ("exit", "task_error", "archive", "attempt"):
                last = job.attempts[-1]
                if key == "attempt":
                    job.attempts.append(dict(last, **value))
                else:
                    last[{"exit": "exitCode", "task_error": "error", "archive": "outputArchive"}[key]] = value
            elif key == "task":
                job.task_more = value
            else:
                setattr(job, key, value)
        if job.state == "JOB_STATE_RUNNING" and "state" in keys:
            job.task_state = keys.get("task_state", "TASK_STATE_RUNNING")
        if job.state in ENDED and "state" in keys:
            job.finished = job.finished or now_ms()
            job.task_state = keys.get("task_state", "TASK_STATE_" + job.state.removeprefix("JOB_STATE_"))
            job.attempts[-1].update(state=job.task_state, finishedAt=epoch(job.finished))


def id_token(number, life):
    """Shaped as Google's: three parts, the second with the time at which it expires."""
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
    return f"{part({'alg': 'RS256'})}.{part({'sub': number, 'exp': int(time.time()) + life})}.c2lnbmF0dXJl{number:04d}"
