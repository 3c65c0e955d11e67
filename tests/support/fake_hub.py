#!/usr/bin/env python3
"""A Hugging Face Hub and its CDN on two ports of loopback, which misbehave as they are told.

fake_hub.py WORLD [--tls CERT KEY]: serves WORLD/repos/{datasets,models,spaces}/NAMESPACE/NAME/..., and writes WORLD/port,
WORLD/cdn_port and one JSON line a request to WORLD/requests.jsonl: server (hub or cdn), method, path, query, range, auth
(whether Authorization came), status. WORLD/setup.json, read for each request, may hold
  commit (40 digits), token (that is asked for), page_size, link ("absolute", as the Hub, "relative", "default", "foreign", "loop"),
  link_style ("unquoted", "several", "lines"), renamed {old: new}, direct (no CDN for LFS), relative (non-LFS over a 307),
  lfs (suffixes), cdn (the address of another CDN), redirect_host ("default": the Hub's own name, "same": ours, absolute), warning
  (X-HF-Warning of every answer of the API), no_head_length, many (so many more entries in a listing), entries (more entries of a listing), sizes
  {path: size claimed}, digests {path: hash claimed}, once (a CDN address works once), odd_etag, xet (LFS entries have xetHash),
  gzip_api (answers of the API are compressed for who accepts that),
and rules: a list of faults {on: revision|tree|paths-info|resolve|cache|cdn, path: part of the path, range: part of the range, times: how often, after: how many
go well before, do: {status, headers, body | cut | stall | flip | extra | ignore_range | range_start | range_total | to_the_end |
gzip | chunked | pointer | no_length | redirect | bomb (MiB of blanks, compressed)}}. It is a proxy, too: for whoever asks it for http://any.host/..., it is that host.
"""
import email.utils, gzip, hashlib, http.server, json, os, ssl, sys, threading, time, urllib.parse

WORLD = sys.argv[1]
COMMIT = "c0ffee" + "0" * 34
LOCK = threading.Lock()
USED, SIGNED = {}, {}

def setup():
    try:
        with open(os.path.join(WORLD, "setup.json"), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return {}

def blob_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

HASHES = {}

def sha256(path):
    key = (path, os.path.getmtime(path), os.path.getsize(path))
    if key not in HASHES:
        h = hashlib.sha256()
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                h.update(block)
        HASHES[key] = h.hexdigest()
    return HASHES[key]

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def note(self, status):
        split = urllib.parse.urlsplit(self.path)
        line = {"server": self.server.kind, "method": self.command, "path": split.path, "query": split.query,
                "range": self.headers.get("Range"), "auth": "Authorization" in self.headers, "status": status,
                "agent": self.headers.get("User-Agent", ""), "accepted": self.headers.get("Accept-Encoding"), "asked": self.asked}
        with LOCK, open(os.path.join(WORLD, "requests.jsonl"), "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    def reply(self, status, body=b"", headers=()):
        if isinstance(body, str):
            body = body.encode()
        self.note(status)
        self.send_response(status)
        warned = {"X-HF-Warning": setup()["warning"]} if "warning" in setup() and self.path.startswith("/api/") else {}
        given = dict(headers, **warned)
        if setup().get("gzip_api") and self.path.startswith("/api/") and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body)
            given["Content-Encoding"] = "gzip"
        for name, value in given.items():
            self.send_header(name, value)
        if "Content-Length" not in given:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fault(self, on):
        for i, rule in enumerate(setup().get("rules", [])):
            if rule["on"] != on or rule.get("path", "") not in urllib.parse.unquote(self.path):
                continue
            if rule.get("range", "") not in self.headers.get("Range", ""):
                continue
            with LOCK:
                # A later setup.json may get the inode of an earlier one.
                written = os.stat(os.path.join(WORLD, "setup.json"))
                key = (i, json.dumps(rule), written.st_ino, written.st_mtime_ns)
                USED[key] = USED.get(key, 0) + 1
                n = USED[key] - rule.get("after", 0)
            if n < 1 or n > rule.get("times", 1 << 30):
                continue
            return rule["do"]
        return {}

    def plain_fault(self, do):
        """Answers by itself. True: it did."""
        if "redirect" in do:
            self.reply(do.get("status", 302), b"", {"Location": do["redirect"].replace("{self}", self.path)})
            return True
        if "stall_head" in do:
            self.note(0)
            time.sleep(600)
        if "drop" in do:
            self.note(0)
            self.connection.shutdown(2)
            return True
        if "bomb" in do:
            self.reply(200, gzip.compress(b" " * (do["bomb"] << 20)), {"Content-Encoding": "gzip", "Content-Type": "application/json"})
            return True
        if "status" in do:
            headers = {k: v.replace("{date}", email.utils.formatdate(time.time() + 1, usegmt=True)) for k, v in do.get("headers", {}).items()}
            self.reply(do["status"], do.get("body", "") * do.get("repeat", 1), headers)
            return True
        return False

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        self.given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def do_GET(self):
        self.asked = self.path
        self.path = "/" + self.path.split("/", 3)[3] if self.path.startswith("http://") else self.path
        path = urllib.parse.urlsplit(self.path).path
        if self.server.kind == "cdn":
            return self.cdn()
        if path.startswith("/api/resolve-cache/"):
            return self.cache()
        if path == "/api/agent-harnesses":  # the first request of huggingface_hub, without a token
            return self.reply(200, '{"standardEnvVars": [], "harnesses": {}}', {"Content-Type": "application/json"})
        if path.startswith("/api/"):
            return self.api(path)
        if "/resolve/" in path:
            return self.resolve(path)
        self.reply(404, "<html>not here</html>", {"Content-Type": "text/html"})

    # --- the API
    def repo_of(self, plural, name):
        folder = os.path.join(WORLD, "repos", plural, name)
        return folder if os.path.isdir(folder) else None

    def allowed(self):
        token = setup().get("token")
        if token is None or self.headers.get("Authorization") == "Bearer " + token:
            return True
        if "Authorization" in self.headers:
            self.reply(401, json.dumps({"error": "Invalid credentials in Authorization header"}),
                       {"X-Error-Message": "Invalid credentials in Authorization header", "Content-Type": "application/json"})
        else:
            self.reply(401, json.dumps({"error": "Invalid username or password."}),
                       {"X-Error-Message": "Invalid username or password.", "www-authenticate": 'Bearer realm="Authentication required"'})
        return False

    def missing(self, code, text):
        self.reply(404, json.dumps({"error": text}), {"X-Error-Code": code, "X-Error-Message": text, "Content-Type": "application/json"})

    def api(self, path):
        parts = path.split("/")  # "", api, datasets, ns, name, revision|tree|paths-info, rev, prefix
        parts += ["revision", "main"] if len(parts) == 5 else []
        if len(parts) < 7:
            return self.reply(404, "{}")
        plural, name, what = parts[2], "/".join(parts[3:5]), parts[5]
        now = setup()
        if self.plain_fault(self.fault(what)):
            return
        if not self.allowed():
            return
        if name in now.get("renamed", {}):
            return self.reply(307, "Temporary Redirect", {"Location": self.path.replace(name, now["renamed"][name], 1)})
        folder = self.repo_of(plural, name)
        if folder is None:
            return self.missing("RepoNotFound", "Repository not found")
        commit = now.get("commit", COMMIT)
        revision = urllib.parse.unquote(parts[6])
        if revision not in ("main", "refs/pr/1", "v1", "feature/foo", commit):
            return self.missing("RevisionNotFound", "Invalid rev id: " + revision.split("/")[0])
        if what == "revision":
            names = [f["path"] for f in self.entries(folder) if f.get("type") != "directory"]
            body = {"id": name, "sha": commit, "private": False, "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [],
                    "lastModified": "2026-03-10T12:00:00.000Z", "siblings": [{"rfilename": n} for n in names]}
            return self.reply(200, json.dumps(body), {"Content-Type": "application/json"})
        if what == "paths-info":
            return self.paths_info(folder)
        self.tree(folder, urllib.parse.unquote("/".join(parts[7:])))

    def entries(self, folder):
        now = setup()
        lfs = tuple(now.get("lfs", [".gz", ".pb"]))
        found = []
        for at, folders, names in os.walk(folder):
            for name in folders:
                path = os.path.relpath(os.path.join(at, name), folder)
                found.append({"type": "directory", "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0, "path": path})
            for name in names:
                whole = os.path.join(at, name)
                path = os.path.relpath(whole, folder)
                if path.endswith(lfs):
                    digest = now.get("digests", {}).get(path) or sha256(whole)
                    size = now.get("sizes", {}).get(path, os.path.getsize(whole))
                    found.append({"type": "file", "oid": hashlib.sha1(digest.encode()).hexdigest(), "size": size, "path": path,
                                  "lfs": {"oid": digest, "size": size, "pointerSize": 134}})
                    if now.get("xet"):
                        found[-1]["xetHash"] = hashlib.sha256(digest.encode()).hexdigest()
                else:
                    with open(whole, "rb") as f:
                        data = f.read()
                    found.append({"type": "file", "oid": blob_sha1(data), "size": len(data), "path": path})
        found += [{"type": "file", "oid": blob_sha1(b""), "size": 0, "path": f"many/{i:06}.txt"} for i in range(now.get("many", 0))]
        return sorted(found + now.get("entries", []), key=lambda e: e.get("path", ""))

    def paths_info(self, folder):
        """Entries by name, asked for as a form (Python) or as JSON (JavaScript). What is not there is left out."""
        if self.command != "POST":
            return self.reply(405, "{}")
        if self.headers.get("Content-Type", "").startswith("application/json"):
            wanted = json.loads(self.given)["paths"]
        else:
            wanted = urllib.parse.parse_qs(self.given.decode()).get("paths", [])
        found = [e for e in self.entries(folder) if e.get("path") in wanted]
        self.reply(200, json.dumps(found), {"Content-Type": "application/json"})

    def tree(self, folder, prefix):
        now = setup()
        found = self.entries(folder)
        if prefix:
            found = [e for e in found if e.get("path", "").startswith(prefix + "/")]
            if not found:
                return self.missing("EntryNotFound", "Entry not found")
        split = urllib.parse.urlsplit(self.path)
        cursor = int(urllib.parse.parse_qs(split.query).get("cursor", ["0"])[0])
        size = now.get("page_size", 1000)
        headers = {"Content-Type": "application/json"}
        if cursor + size < len(found):
            base = {"absolute": "http://" + self.headers["Host"], "default": "https://huggingface.co", "foreign": "http://127.0.0.1:1"}
            following = cursor if now.get("link") == "loop" else cursor + size
            where = f"{base.get(now.get('link', 'absolute'), '')}{split.path}?recursive=true&expand=false&cursor={following}"
            link = {"unquoted": f"<{where}>; rel=next", "several": f'<http://x/a,b>; rel="prev", <{where}>; title="a, b"; rel="next"'}
            link["lines"] = f'<http://x/>; rel="prev"\r\nLink: <{where}>; rel="next"'
            headers["Link"] = link.get(now.get("link_style"), f'<{where}>; rel="next"')
        self.reply(200, json.dumps(found[cursor:cursor + size]), headers)

    # --- files
    def file_of(self, path):
        plain = urllib.parse.unquote(path)
        head, tail = plain.split("/resolve/", 1)
        parts = head.strip("/").split("/")
        plural = parts.pop(0) if parts[0] in ("datasets", "spaces") else "models"
        revision, _, name = tail.partition("/")
        folder = self.repo_of(plural, "/".join(parts))
        return (os.path.join(folder, name) if folder else None), name, plural, "/".join(parts), revision

    def resolve(self, path):
        now = setup()
        do = self.fault("resolve")
        if self.plain_fault(do) or not self.allowed():
            return
        whole, name, plural, repo, revision = self.file_of(path)
        if whole is None:
            return self.missing("RepoNotFound", "Repository not found")
        if not os.path.isfile(whole):
            return self.missing("EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": now.get("commit", COMMIT)}
        if name.endswith(tuple(now.get("lfs", [".gz", ".pb"]))):
            digest = now.get("digests", {}).get(name) or sha256(whole)
            headers.update({"X-Linked-Size": str(now.get("sizes", {}).get(name, os.path.getsize(whole))), "X-Linked-Etag": f'"{digest}"'})
            if not now.get("direct"):
                with LOCK:
                    signature = f"sig{len(SIGNED)}"
                    SIGNED[signature] = 0
                cdn = now.get("cdn") or f"http{'s' if TLS else ''}://127.0.0.1:{CDN.server_address[1]}"
                where = f"{cdn}/{plural}/{repo}/{urllib.parse.quote(name)}?X-Amz-Signature={signature}"
                return self.reply(302, "", dict(headers, Location=now.get("location", where)))
            return self.send_file(whole, headers, do)
        with open(whole, "rb") as f:
            etag = blob_sha1(f.read())
        headers["ETag"] = {"weak": f'W/"{etag}"', "bare": etag}.get(now.get("odd_etag"), f'"{etag}"')
        if now.get("relative"):
            where = f"/api/resolve-cache/{plural}/{repo}/{revision}/{urllib.parse.quote(name)}?etag=%22{etag}%22"
            if now.get("redirect_host") == "default":
                where = "https://huggingface.co" + where
            if now.get("redirect_host") == "same":
                where = "http://" + self.headers["Host"] + where
            return self.reply(307, b"x" * 278, dict(headers, Location=where))
        self.send_file(whole, headers, do)

    def cache(self):
        split = urllib.parse.urlsplit(self.path)
        do = self.fault("cache")
        if self.plain_fault(do) or not self.allowed():
            return
        parts = urllib.parse.unquote(split.path).split("/")  # "", api, resolve-cache, datasets, ns, name, commit, ...
        whole = os.path.join(self.repo_of(parts[3], "/".join(parts[4:6])), *parts[7:])
        with open(whole, "rb") as f:
            self.send_file(whole, {"ETag": f'"{blob_sha1(f.read())}"', "X-Repo-Commit": setup().get("commit", COMMIT)}, do)

    def cdn(self):
        do = self.fault("cdn")
        if "Authorization" in self.headers:
            return self.reply(400, "Only one auth mechanism allowed")
        signature = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("X-Amz-Signature", [""])[0]
        with LOCK:
            SIGNED[signature] = SIGNED.get(signature, 0) + 1
            again = SIGNED[signature] > 1
        if setup().get("once") and again:
            return self.reply(403, "Request has expired")
        if self.plain_fault(do):
            return
        parts = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).split("/")
        self.send_file(os.path.join(WORLD, "repos", *parts[1:]), {"ETag": '"' + "e" * 64 + '"'}, do)

    def send_file(self, whole, headers, do):
        size = os.path.getsize(whole)
        start, end, status = 0, size, 200
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes=") and not do.get("ignore_range"):
            first, _, last = wanted[6:].partition("-")
            start, end = int(first), min(size, int(last) + 1) if last and not do.get("to_the_end") else size
            if start >= size:
                return self.reply(416, "", dict(headers, **{"Content-Range": f"bytes */{size}"}))
            status = 206
            headers["Content-Range"] = f"bytes {start + do.get('range_start', 0)}-{end - 1}/{size + do.get('range_total', 0)}"
        if do.get("pointer"):
            body = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(whole)}\nsize {size}\n"
            return self.reply(200, body, headers)
        if do.get("gzip"):
            headers["Content-Encoding"] = "gzip"
        self.note(status)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        length = end - start + (do.get("extra", 0))
        if do.get("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        elif not do.get("no_length") and not (self.command == "HEAD" and setup().get("no_head_length")):
            self.send_header("Content-Length", str(length))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        self.send_bytes(whole, start, end, do)

    def send_bytes(self, whole, start, end, do):
        sent = 0
        with open(whole, "rb") as f:
            f.seek(start)
            while start + sent < end:
                block = f.read(min(1 << 18, end - start - sent))
                if "flip" in do and sent == 0:
                    block = bytes([block[0] ^ 1]) + block[1:]
                for limit in ("cut", "stall"):
                    if limit in do and sent + len(block) > do[limit]:
                        self.wfile.write(block[:do[limit] - sent])
                        self.wfile.flush()
                        if limit == "stall":
                            time.sleep(do.get("for", 600))
                        self.close_connection = True
                        self.connection.shutdown(2)
                        return
                if "slow" in do:
                    time.sleep(do["slow"])
                if do.get("chunked"):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                else:
                    self.wfile.write(block)
                sent += len(block)
        if do.get("chunked"):
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.write(b"x" * do.get("extra", 0))

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass

TLS = sys.argv[3:5] if sys.argv[2:3] == ["--tls"] else None

def serve(kind, port_file):
    server = Server(("127.0.0.1", 0), Handler)
    server.kind = kind
    if TLS:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*TLS)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(os.path.join(WORLD, port_file + ".new"), "w", encoding="utf-8") as f:
        f.write(str(server.server_address[1]))
    os.rename(os.path.join(WORLD, port_file + ".new"), os.path.join(WORLD, port_file))
    return server

CDN = serve("cdn", "cdn_port")
HUB = serve("hub", "port")
threading.Event().wait()
