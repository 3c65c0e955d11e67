"""A model that plays a scenario: what codex asks of it over HTTP, on loopback, and nothing more.

A scenario is the path segment after /s/, or several joined by +: what the first thread plays, the second, …, the last one
being repeated; `A-then-B` is the first step of A, then B. codex sends the whole history with every request, so the step
is read from it: the number of tool outputs after the last message of the user. Only `flaky` scenarios count requests.
"""
import fcntl
import json
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler

USAGE = (1200, 1000, 34, 10)
COMMIT = "git add -A && git -c user.name=t -c user.email=t@example.com commit -q -m 'one change' && git rev-parse HEAD"


def message(text):
    return {"type": "message", "role": "assistant", "id": "msg_" + uuid.uuid4().hex[:8], "content": [{"type": "output_text", "text": text}]}


def reasoning(text):
    return {"type": "reasoning", "id": "rs_" + uuid.uuid4().hex[:8], "summary": [{"type": "summary_text", "text": text}],
            "content": None, "encrypted_content": None}


def shell(command, **more):
    return {"type": "function_call", "id": "fc_" + uuid.uuid4().hex[:8], "name": "exec_command", "call_id": "call_" + uuid.uuid4().hex[:8],
            "arguments": json.dumps({"cmd": command, **more})}


def code(script):
    return {"type": "custom_tool_call", "id": "ct_" + uuid.uuid4().hex[:8], "call_id": "call_" + uuid.uuid4().hex[:8],
            "status": "completed", "name": "exec", "input": script}


def patch(*lines):
    return {"type": "custom_tool_call", "id": "ct_" + uuid.uuid4().hex[:8], "call_id": "call_" + uuid.uuid4().hex[:8],
            "status": "completed", "name": "apply_patch", "input": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


ADD = patch("*** Add File: hello.txt", "+hello")
CHANGE = patch("*** Update File: hello.txt", "@@", "-hello", "+hello, world")
# scenario -> the items of each step; the last one is repeated
WORK = {
    "commit": [[reasoning("**Planning**"), shell("ls")], [ADD], [CHANGE], [shell(COMMIT)], [message("Committed one optimization.")]],
    "commit-shell": [[shell("echo new >new.txt && " + COMMIT)], [message("done")]],
    "improve": [[shell("n=$(($(git rev-list --count HEAD) + 1)); echo \"int speed = $n;\" >kernel.c; git commit -qam \"step $n\"")],
                [message("made it faster")]],
    "break": [[shell("sed -i 's/v\\[:, t\\] - np/v[:, t] + np/' lib/levanter/src/levanter/layers/gated_deltanet.py; " + COMMIT)], [message("done")]],
    "mend": [[shell("sed -i 's/v\\[:, t\\] + np/v[:, t] - np/; s/^# .*/# mended/' lib/levanter/src/levanter/layers/gated_deltanet.py; " + COMMIT)], [message("done")]],
    "commit-code": [[code("const r = await tools.exec_command({cmd:" + json.dumps("echo new >new.txt && " + COMMIT) + "}); text(r.output);")],
                    [message("done in code mode")]],
    "message": [[message("Nothing to do.")]],
    "dirty": [[ADD], [message("left it open")]],
    "two-calls": [[shell("sleep 0.3; echo one"), shell("echo two")], [message("done")]],
    "exit7": [[shell("echo no; exit 7")], [message("it failed")]],
    "long": [[shell("echo $$ >pid.txt; sleep 300; echo late >late.txt", yield_time_ms=30000)], [message("waited")]],
    "slow": [[shell("sleep 1; echo a line", yield_time_ms=250)]],
    "stubborn": [[shell("trap '' INT TERM; setsid bash -c \"trap '' INT TERM; sleep 300; sleep 300\"; sleep 300", yield_time_ms=30000)], [message("waited")]],
    "background": [[shell("sleep 300 & sleep 300", yield_time_ms=30000)], [message("waited")]],
    "reach": [[shell("cat ~/.ssh/id; touch /etc/gdnctl-was-here; setsid sleep 306 >/dev/null 2>&1 & cat ~/.ssh/id")], [ADD], [CHANGE], [shell(COMMIT)], [message("done")]],
    "survivor": [[shell("setsid sleep 303 >/dev/null 2>&1 & echo started")], [message("done")]],
    "bare": [[shell("env -i setsid sleep 304 >/dev/null 2>&1 & echo started; sleep 0.5")], [message("done")]],
    "holds": [[shell("setsid sleep 305 & sleep 0.3")], [message("done")]],
    "environment": [[shell("env | tee environment.txt; tr '\\0' '\\n' </proc/$PPID/environ >above.txt; " + COMMIT)], [message("done")]],
    "spent": [[message("the window is used up")]],
    "endless": [[shell("true")]],
    "unmetered": [[shell("true")]],
    "json-message": [[message('{"outcome":"kept"}')]],
    "reasoning-only": [[message("")]],
}


def error(code, text, kind="invalid_request_error", **more):
    return {"error": {"message": text, "type": kind, "code": code, **more}}


# scenario -> status, body
HTTP = {
    "400": (400, error("unsupported_value", "Unsupported value: 'ultra'", param="reasoning.effort")),
    "401": (401, error("invalid_api_key", "Incorrect API key provided")),
    "403": (403, error("forbidden", "no")),
    "404": (404, error("model_not_found", "The model `m` does not exist or you do not have access to it.")),
    "429": (429, error("rate_limit_exceeded", "slow down", "tokens")),
    "usage-limit": (429, {"error": {"type": "usage_limit_reached", "message": "limit", "plan_type": "pro", "resets_at": 7200}}),
    "quota": (429, error("insufficient_quota", "no money", "insufficient_quota")),
    "500": (500, error("internal", "boom", "server_error")),
    "503": (503, error("unavailable", "busy", "server_error")),
}
# scenario -> error of a response.failed
FAILED = {
    "failed-quota": ("insufficient_quota", "no money"),
    "failed-plan": ("usage_not_included", "not in your plan"),
    "failed-server": ("server_error", "something broke"),
    "failed-rate": ("rate_limit_exceeded", "Rate limit reached. Please try again in 1.5s."),
    "failed-overloaded": ("server_is_overloaded", "busy"),
    "failed-context": ("context_length_exceeded", "too long"),
    "failed-prompt": ("invalid_prompt", "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), "x-request-id": "req_1", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path.split("?")[0].endswith("/models"):
            self.answer(200, {"object": "list", "data": [], "models": []})
        else:
            self.answer(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = self.path.strip("/").split("/")
        if len(parts) != 5 or parts[0] != "s" or parts[4] != "responses":  # /s/SCENARIO/RUN/v1/responses
            return self.answer(404, {})
        request = json.loads(body)
        number, thread = self.server.note(parts[2], request)
        plan = parts[1].split("+")
        try:
            self.play(plan[min(thread, len(plan) - 1)], request, number)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def step(self, request):
        step = 0
        for item in request["input"]:
            if item.get("type") == "message" and item.get("role") == "user":
                step = 0
            elif item.get("type", "").endswith("_output"):
                step += 1
        return step

    def play(self, scenario, request, number):
        first, _, second = scenario.partition("-then-")
        before = 0
        if second:  # what the first step of one scenario did goes on with another
            before = 1 if self.step(request) > 0 else 0
            scenario = second if before else first
        if scenario == "flaky-503":
            scenario = "message" if number % 3 == 0 else "503"
        if scenario in HTTP:
            status, body = HTTP[scenario]
            after = body["error"].get("resets_at")
            return self.answer(status, {"error": {**body["error"], **({"resets_at": int(time.time()) + after} if after else {})}})
        if scenario == "no-headers":
            return self.server.ended.wait(600)
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "transfer-encoding": "chunked",
                            "x-codex-primary-used-percent": "97" if scenario == "spent" else "42",
                            "x-codex-primary-window-minutes": "300",
                            "x-codex-primary-reset-at": str(int(time.time()) + (5 if scenario == "spent" else 3600))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.frame("response.created", response={"id": "resp_1"})
        if scenario in FAILED:
            code_, text = FAILED[scenario]
            self.frame("response.failed", response={"id": "resp_1", "status": "failed", "error": {"code": code_, "message": text}})
        elif scenario == "incomplete":
            self.frame("response.incomplete", response={"id": "resp_1", "incomplete_details": {"reason": "max_output_tokens"}})
        elif scenario == "silent":
            return self.server.ended.wait(600)
        elif scenario == "cut":
            self.frame("response.output_item.added", output_index=0, item={**message("half"), "content": []})
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        elif scenario != "eof":
            self.work(scenario, request, before)
        self.wfile.write(b"0\r\n\r\n")
        return None

    def work(self, scenario, request, before):
        usage = USAGE
        if scenario in ("compaction", "endless"):
            usage = (255_000 if scenario == "compaction" else 240_000, 0, 34, 10)
            steps = [[shell("true")]] if request.get("tools") else [[message("summary so far")]]
        elif scenario == "two-calls":  # two outputs at once
            steps = WORK[scenario][:1] * 2 + WORK[scenario][1:]
        else:
            steps = WORK[scenario]
        items = steps[min(max(self.step(request) - before, 0), len(steps) - 1)]
        for index, item in enumerate(items):
            if item["type"] == "message":
                text = item["content"][0]["text"]
                self.frame("response.output_item.added", output_index=index, item={**item, "content": []})
                self.frame("response.output_text.delta", item_id=item["id"], output_index=index, content_index=0, delta=text)
            # One call must not come twice with one id.
            fresh = {**item, "call_id": "call_" + uuid.uuid4().hex[:12]} if "call_id" in item else item
            self.frame("response.output_item.done", output_index=index, item=fresh)
        if scenario == "unmetered":
            return self.frame("response.completed", response={"id": "resp_1"})
        used, cached, out, thought = usage
        self.frame("response.completed", response={"id": "resp_1", "usage": {
            "input_tokens": used, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": thought}, "total_tokens": used + out}})
        return None

    def frame(self, kind, **fields):
        data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class ModelServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        self.ended = threading.Event()
        self._lock, self._requests = threading.Lock(), {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def note(self, run, request):
        with self._lock:
            seen = self._requests.setdefault(run, [])
            seen.append(request)
            threads = list(dict.fromkeys(r.get("prompt_cache_key") for r in seen))
            return len(seen), threads.index(request.get("prompt_cache_key"))

    def requests(self, run):
        with self._lock:
            return list(self._requests.get(run, []))

    def url(self, scenario, run):
        return f"http://127.0.0.1:{self.port}/s/{scenario}/{run}/v1"

    def handle_error(self, *_):
        pass  # a client that was killed

    def close(self):
        self.ended.set()
        self.shutdown()
        self.server_close()


def serve_and_run(config, command):
    """In a network namespace with nothing in it but loopback: a server of its own, which `config` is to name."""
    interface = struct.pack("16sH14s", b"lo", 1, b"")  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, interface)  # SIOCSIFFLAGS
    server = ModelServer()
    with open(config) as f:
        text = f.read()
    with open(config, "w") as f:
        f.write(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{server.port}", text))
    status = subprocess.run(command).returncode
    server.close()
    return status


if __name__ == "__main__":
    sys.exit(serve_and_run(sys.argv[1], sys.argv[2:]))
