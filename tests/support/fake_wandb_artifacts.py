"""Artifacts of the fake W&B, for fake_wandb.py: answers to questions about them, and a bucket on a port of its own.

An artifact is a file of FOLDER/artifacts: {"id", "entity", "project", "run" (that put it out), "type", "collection",
"version", "aliases", "state", "updated", "refs": {path: url}}; its files lie in FOLDER/files/<id>/. FOLDER/setup.json may
hold page_size, loop (cursors repeat), expired (paths whose signed address gives 403), wrong_md5 (paths whose manifest
lies), errors (a complaint instead of any answer, with status 200), manifest_url (instead of the manifest's), no_urls (the service signs nothing), gone (paths that the fallback has not either). FOLDER/bucket has a JSON line a
request that came to the bucket or to the fallback: where, path, auth."""
import base64
import hashlib
import http.server
import json
import os
import threading
import urllib.parse


class Artifacts:
    def __init__(self, folder):
        self.folder = folder
        outer = self

        class Bucket(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise the body waits for the acknowledgement of the head

            def do_GET(self):
                outer.give(self, "bucket")

            def log_message(self, *_):
                pass

        self.bucket = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
        self.bucket.daemon_threads = True
        threading.Thread(target=self.bucket.serve_forever, daemon=True).start()

    def setup(self):
        try:
            with open(os.path.join(self.folder, "setup.json"), encoding="utf-8") as text:
                return json.load(text)
        except FileNotFoundError:
            return {}

    def all(self):
        where = os.path.join(self.folder, "artifacts")
        for name in sorted(os.listdir(where)) if os.path.isdir(where) else []:
            with open(os.path.join(where, name), encoding="utf-8") as text:
                yield json.load(text)

    def files(self, artifact):
        root = os.path.join(self.folder, "files", artifact["id"])
        for at, _, names in os.walk(root):
            for name in names:
                yield os.path.relpath(os.path.join(at, name), root), os.path.join(at, name)

    def signed(self, artifact, path):
        return f"http://127.0.0.1:{self.bucket.server_port}/{artifact['id']}/{urllib.parse.quote(path)}?X-Amz-Signature=abc"

    def manifest(self, artifact):
        contents = {path: {"digest": "x", "ref": url, "size": 1} for path, url in artifact.get("refs", {}).items()}
        for path, whole in sorted(self.files(artifact)):
            with open(whole, "rb") as data:
                content = data.read()
            seen = b"another" if path in self.setup().get("wrong_md5", []) else content
            contents[path] = {"digest": base64.b64encode(hashlib.md5(seen).digest()).decode(), "size": len(content), "birthArtifactID": artifact["id"]}
        return json.dumps({"version": 1, "storagePolicy": "wandb-storage-policy-v1", "storagePolicyConfig": {"storageLayout": "V2"}, "contents": contents}).encode()

    def give(self, handler, where):
        """A file, by its signed address or by the fallback's: /artifactsV2/REGION/E/P/COLLECTION/ID/MD5/NAME."""
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        with open(os.path.join(self.folder, "bucket"), "a", encoding="utf-8") as out:
            out.write(json.dumps({"where": where, "path": path, "auth": "Authorization" in handler.headers}) + "\n")
        parts = path.strip("/").split("/")
        status, body = 404, b"no such key"
        identity = parts[0] if where == "bucket" else parts[5] if len(parts) > 6 else ""
        for artifact in self.all():
            if artifact["id"] != identity:
                continue
            if parts[1:] == [".manifest"]:
                status, body = 200, self.manifest(artifact)
            for name, whole in self.files(artifact):
                if where == "bucket" and name != "/".join(parts[1:]):
                    continue
                with open(whole, "rb") as data:
                    content = data.read()
                if where != "bucket" and hashlib.md5(content).hexdigest() != parts[6]:
                    continue
                status, body = 200, content
                if where == "bucket" and name in self.setup().get("expired", []):
                    status, body = 403, b"Request has expired"
                if where != "bucket" and name in self.setup().get("gone", []):
                    status, body = 404, b"gone"
        if where == "bucket" and "Authorization" in handler.headers:
            status, body = 400, b"Only one auth mechanism allowed"
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def page(self, nodes, variables):
        size = min(self.setup().get("page_size", 1 << 30), variables.get("perPage") or 50)
        start = int(variables.get("cursor") or 0)
        end = start if self.setup().get("loop") else start + size
        return {"totalCount": len(nodes), "pageInfo": {"endCursor": str(end), "hasNextPage": start + size < len(nodes)},
                "edges": [{"node": node} for node in nodes[start:start + size]]}

    def collection(self, artifact, kind):
        entity, project = artifact["entity"], artifact["project"]
        return {"__typename": kind, "name": artifact["collection"],
                "project": {"id": "p", "internalId": "1", "name": project, "entity": {"name": entity}}}

    def node(self, artifact):
        """All that the official client asks of an artifact."""
        files = [whole for _, whole in self.files(artifact)]
        alias = [{"__typename": "ArtifactAlias", "id": f"alias-{name}", "alias": name, "artifactCollection": self.collection(artifact, "ArtifactSequence")}
                 for name in artifact.get("aliases", [])]
        return {"__typename": "Artifact", "id": artifact["id"], "state": artifact.get("state", "COMMITTED"), "versionIndex": artifact["version"],
                "createdAt": artifact["updated"], "updatedAt": artifact["updated"], "artifactType": {"name": artifact["type"]},
                "artifactSequence": self.collection(artifact, "ArtifactSequence"), "aliases": alias, "description": None, "metadata": None,
                "ttlDurationSeconds": -1, "ttlIsInherited": False, "tags": [], "historyStep": None, "digest": "0", "digestAlgorithm": None,
                "commitHash": "0", "fileCount": len(files), "size": sum(os.path.getsize(whole) for whole in files)}

    def file(self, artifact, path, whole):
        with open(whole, "rb") as data:
            content = data.read()
        digest = base64.b64encode(hashlib.md5(content).digest()).decode()
        url = self.signed(artifact, path)
        return {"__typename": "File", "id": path, "name": path, "url": url, "directUrl": url, "sizeBytes": len(content), "storagePath": None,
                "mimetype": None, "updatedAt": artifact["updated"], "digest": digest, "md5": digest}

    def answer(self, query, variables, run):
        """None: the question is about something else. `run`: the run that it names, if there is one."""
        here = [a for a in self.all() if (a["entity"], a["project"]) == (variables.get("entity"), variables.get("project"))]
        if "outputArtifacts" in query:
            if run is None:
                return {"project": {"run": None}}
            nodes = [self.node(a) for a in here if a["run"] == run["name"]]
            return {"project": {"run": {"artifacts": self.page(nodes, variables)}}}
        if "artifactCollectionMembership" in query:
            collection, _, alias = variables["name"].partition(":")
            for a in here:
                if a["collection"] == collection and alias in a.get("aliases", []) + [f"v{a['version']}"]:
                    node = self.node(a)
                    return {"project": {"artifactCollectionMembership": {
                        "__typename": "ArtifactCollectionMembership", "id": "m", "versionIndex": a["version"], "createdAt": a["updated"],
                        "aliases": node["aliases"], "artifactCollection": node["artifactSequence"], "artifact": node}}}
            return {"project": {"artifactCollectionMembership": None}}
        if "currentManifest" in query:
            for a in self.all():
                if a["id"] == variables["id"]:
                    return {"artifact": {"currentManifest": {"file": {"directUrl": self.setup().get("manifest_url", self.signed(a, ".manifest"))}}}}
            return {"artifact": None}
        if "artifactMembership(" in query:
            for a in here:
                if a["collection"] == variables["collection"] and variables["alias"] in a.get("aliases", []) + [f"v{a['version']}"]:
                    nodes = [] if self.setup().get("no_urls") else [self.file(a, *f) for f in sorted(self.files(a))]
                    return {"project": {"artifactCollection": {"__typename": "ArtifactSequence", "artifactMembership": {"files": self.page(nodes, variables)}}}}
        return None
