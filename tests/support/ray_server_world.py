"""The world behind the scripted dashboard (ray_server.py): jobs that really run, packages, planned faults."""
import base64, json, os, re, signal, subprocess, threading, time, zipfile

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
            # The node expands $NAME and ${NAME} with the variables set so far, and drops any ${UPPER} that is left.
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
