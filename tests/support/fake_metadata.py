"""A machine's metadata server on loopback. fake_metadata.py MODE: prints its base URL; `preempt` and `restore` on
standard input set /instance/preempted. Modes: good, no-outside (no external ip), missing (404 for all), forbidden, busy
(429), broken (500), away (503), silent (never answers), drip (a byte a second), html, newline, malformed (200, but no
value is one), garbage (no HTTP), huge (a value of 4 MB), redirect (to values that must not be believed), gone (nothing
listens). Proxy-like requests are refused as by the real one."""

import http.server
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
VALUES = {
    "/instance/network-interfaces/0/access-configs/0/external-ip": "203.0.113.7",
    "/instance/network-interfaces/0/ip": "10.0.0.7",
    "/instance/attributes/instance-id": "ray-marin-us-central1-worker-ed0b8cf7-tpu",
    "/instance/attributes/accelerator-type": "v5p-8",
    "/instance/attributes/agent-worker-number": "0",
    "/instance/zone": "projects/123456789/zones/us-central1-a",
    "/instance/hostname": "host.internal",
    "/instance/name": "host",
    "/project/project-id": "project",
    "/instance/preempted": "FALSE",
    "/instance/maintenance-event": "NONE",
}
if MODE == "no-outside":
    VALUES["/instance/network-interfaces/0/access-configs/0/external-ip"] = ""
for pair in sys.argv[2:]:  # PATH=VALUE
    path, _, value = pair.partition("=")
    VALUES[path] = value
STATUS = {"missing": 404, "forbidden": 403, "busy": 429, "broken": 500, "away": 503}
MALFORMED = {"/instance/zone": "zones", "/instance/preempted": "TRUE?"}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if MODE == "silent":
            time.sleep(3600)
        if MODE == "garbage":
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            return
        path = self.path.removeprefix("/computeMetadata/v1")
        if path.startswith("/elsewhere"):
            return self.answer(200, "198.51.100.66")
        if MODE == "redirect":
            return self.answer(302, "", location="/computeMetadata/v1/elsewhere")
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.answer(403, "Missing Metadata-Flavor:Google header.")
        if self.headers.get("X-Forwarded-For"):
            return self.answer(403, "forwarded")
        if MODE in STATUS:
            return self.answer(STATUS[MODE], "<html>no</html>", "text/html")
        if path not in VALUES:
            return self.answer(404, "<html>not found</html>", "text/html")
        if MODE == "html":
            return self.answer(200, "<html>welcome</html>", "text/html")
        if MODE == "malformed":
            return self.answer(200, MALFORMED.get(path, "one\x01\ntwo"))
        if MODE == "huge":
            return self.answer(200, "1" * 4_000_000)
        self.answer(200, VALUES[path] + ("\n" if MODE == "newline" else ""))

    def answer(self, status, text, kind="application/text", location=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if MODE == "drip":
            for i in range(len(body)):
                self.wfile.write(body[i : i + 1])
                self.wfile.flush()
                time.sleep(1)
            return
        try:
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked has read enough

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if MODE == "gone":
    server.server_close()
else:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_address[1]}/computeMetadata/v1", flush=True)
for line in sys.stdin:
    VALUES["/instance/preempted"] = {"preempt": "TRUE", "restore": "FALSE"}[line.strip()]
threading.Event().wait()
