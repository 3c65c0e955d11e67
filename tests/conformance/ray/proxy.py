"""A reverse proxy between gdnctl and a real Ray: it records what was asked, and breaks what it is told to break."""
import http.client
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"}


class Asked:
    def __init__(self, method, path, headers):
        self.method, self.path, self.headers = method, path, headers

    def __repr__(self):
        return f"{self.method} {self.path}"


class Proxy:
    """`rule(asked, n)` is called for the n-th request and says what happens to it: None (it passes), "drop" (the
    connection closes unanswered), "swallow" (Ray gets it, the answer is lost), ("cut", bytes) (the answer stops there),
    ("answer", status, headers, body). `rewrite(asked, json)` may change JSON answers; `add` are more headers of each request."""

    def __init__(self, upstream, rule=None, rewrite=None, prefix="", add=()):
        target = urlsplit(upstream)
        self.asked, self.lock = [], threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def all_methods(self):
                asked = Asked(self.command, self.path, dict(self.headers))
                with proxy.lock:
                    proxy.asked.append(asked)
                    n = len(proxy.asked)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                what = rule(asked, n) if rule else None
                if what == "drop":
                    return self.hang_up()
                if isinstance(what, tuple) and what[0] == "answer":
                    return self.answer(what[1], what[2], what[3])
                path = self.path[len(prefix):] if self.path.startswith(prefix) else "/no-such-prefix"
                upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=100)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")} | dict(add)
                try:
                    upstream.request(self.command, path, body or None, headers)
                    got = upstream.getresponse()
                    content = got.read()
                except (OSError, http.client.HTTPException):
                    return self.hang_up()
                finally:
                    upstream.close()
                if what == "swallow":
                    return self.hang_up()
                if rewrite and "json" in got.headers.get("Content-Type", ""):
                    content = json.dumps(rewrite(asked, json.loads(content))).encode()
                headers = [(k, v) for k, v in got.getheaders() if k.lower() not in HOP]
                self.answer(got.status, headers, content, what[1] if isinstance(what, tuple) else None)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = all_methods

            def answer(self, status, headers, content, cut=None):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                try:
                    self.wfile.write(content if cut is None else content[:cut])
                except OSError:
                    pass
                if cut is not None and cut < len(content):
                    self.hang_up()

            def hang_up(self):
                self.close_connection = True
                try:
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{prefix}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def paths(self, method=None):
        with self.lock:
            return [a.path for a in self.asked if method in (None, a.method)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
