"""first_request.py GDNCTL [RUNS]: what a command costs a dashboard, and how soon it asks.

Printed are the time from a program's start to the first byte of its first request as a dashboard on this machine gets it
(minimum, median), and the requests that `ray-wait` makes for a job that has ended. A connection of nothing but a TCP
handshake by a program that does nothing else is the floor.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

JOB = {
    "type": "SUBMISSION", "submission_id": "done-1", "job_id": None, "driver_info": None, "status": "SUCCEEDED",
    "entrypoint": "true", "message": "Job finished successfully.", "error_type": None, "start_time": 1760000000000,
    "end_time": 1760000001000, "metadata": {}, "runtime_env": {}, "driver_agent_http_address": "http://127.0.0.1:1",
    "driver_node_id": "n", "driver_exit_code": 0,
}


class Dashboard:
    """Answers every request with the same job and remembers when and for what it was asked."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.seen = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        body = json.dumps(JOB).encode()
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except ConnectionResetError:  # whoever is in a hurry does not say good-bye
                    return
                at = time.perf_counter()
                if not data:
                    return
                self.seen.append((at, data.split(b"\r\n", 1)[0].decode()))
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def measure(dashboard, words, environment, runs):
    times, requests = [], []
    for _ in range(runs + 3):
        dashboard.seen.clear()
        start = time.perf_counter()
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for _ in range(100):  # the program may be gone before its bytes are read
            if dashboard.seen:
                break
            time.sleep(0.01)
        else:
            sys.exit("no request came of: " + " ".join(words))
        times.append((dashboard.seen[0][0] - start) * 1000)
        requests.append([line for _, line in dashboard.seen])
    return times[3:], requests[-1]


def main():
    program, runs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    dashboard = Dashboard()
    address = f"http://127.0.0.1:{dashboard.port}"
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "RAY_AUTH_TOKEN": "token-of-the-benchmark"}
        floor = ["/bin/bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{dashboard.port}; echo GET >&3"]
        rows = {"floor: bash, one connection": floor}
        for words in (["ray-wait", "done-1"], ["ray-logs", "done-1"], ["ray-list"], ["ray-stop", "done-1"]):
            rows[words[0]] = [program, *words, "--ray-address", address]
        for name, words in rows.items():
            times, requests = measure(dashboard, words, environment, runs)
            print(f"first request, {name:<28} min {min(times):6.2f} ms  median {statistics.median(times):6.2f} ms")
            if name == "ray-wait":
                print(f"requests of ray-wait on an ended job: {len(requests)} ({', '.join(requests)})")


main()
