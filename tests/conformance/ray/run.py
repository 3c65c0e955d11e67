#!/usr/bin/env python3
# rooms: src/services/ray src/services/local src/services/job src/services/cluster src/jobs src/target src/sweep
"""run.py GDNCTL [TALLY] [-k WORD] [-p PLACE,...]: every case on every place that it is for.

Places: local (this machine), ray (2.60.0, token), open (2.60.0, no authentication), old (2.52.1). With
GDNCTL_TEST_RAY=URL the Ray at that address serves instead of nodes started here; RAY_AUTH_TOKEN is its token.
Adds a line `passed failed skipped` per case to the file TALLY. A Ray that cannot be had is skipped, and says so.
"""
import argparse
import sys

sys.dont_write_bytecode = True  # the tree stays as it is

import os
import queue
import secrets
import shutil
import signal
import tempfile
import threading
import time
import traceback

import harness
import node as nodes
from harness import CASES, Failed, Place, Skipped, Try

import cases_ends  # noqa: F401  (each module adds its cases)
import cases_devtpu  # noqa: F401
import cases_inputs  # noqa: F401
import cases_logs  # noqa: F401
import cases_faults  # noqa: F401
import cases_lists  # noqa: F401
import cases_oracle  # noqa: F401
import cases_sweep  # noqa: F401
import cases_uv  # noqa: F401

RUN_MARKER = "GDNCTL_CONFORMANCE_RUN"
VERSIONS = {"ray": ("2.60.0", "token"), "open": ("2.60.0", "disabled"), "old": ("2.52.1", "token")}
WORKERS = 3  # of one place at a time; jobs mostly wait


class Secrets:
    """What must never be seen. While it runs, it looks at the command lines of all processes of the machine."""

    def __init__(self):
        self.values = {"HF_TOKEN": "hf_" + secrets.token_hex(17), "WANDB_API_KEY": secrets.token_hex(20)}
        self.tokens = []
        self.seen = set()
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def words(self):
        return [*self.values.values(), *self.tokens]

    def _look(self):
        while not self._stop.wait(0.03):
            words = self.words()
            for pid, line in harness.command_lines():
                if any(w in line for w in words) and not self._is_rays_doing(line):
                    self.seen.add(f"pid {pid}: {line[:60]}...")
            self.looks += 1

    def _is_rays_doing(self, line):
        """A node hands the variables of a job to its own workers on their command lines: docs/ray.md says so. The
        cluster's token it does not."""
        return line.startswith(os.path.realpath(nodes.VENVS) + "/") and not any(t in line for t in self.tokens)

    def close(self):
        self._stop.set()
        self._thread.join()

    def in_files(self, folder):
        words = [w.encode() for w in self.words()]
        found = []
        for at, _, files in os.walk(folder):
            for name in files:
                try:
                    with open(os.path.join(at, name), "rb") as f:
                        content = f.read()
                except OSError:
                    continue
                if any(w in content for w in words):
                    found.append(os.path.relpath(os.path.join(at, name), folder))
        return found


class Suite:
    label = "ray"

    def __init__(self, binary, tally, only, places):
        self.binary, self.tally, self.only, self.wanted = os.path.abspath(binary), tally, only, places
        self.folder = tempfile.mkdtemp(prefix="gdnctl-conformance.")
        self.marker = f"{RUN_MARKER}={os.getpid()}-{secrets.token_hex(6)}"
        self.secrets = Secrets()
        self.nodes, self.counts, self.lock, self.said = [], [0, 0, 0], threading.Lock(), 0
        self.installing = threading.Lock()

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "SSL_CERT_FILE", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
        name, value = self.marker.split("=")
        return {**kept, **self.secrets.values, name: value}

    def note(self, verdict, name, text=""):
        with self.lock:
            self.counts[verdict] += 1
            if self.tally:
                with open(self.tally, "a") as f:
                    f.write(["1 0 0", "0 1 0", "0 0 1"][verdict] + "\n")
            print(f"[conformance] {self.label}: {name}: " + ["ok", "FAILED", "skipped"][verdict] + text, flush=True)

    def chosen(self, kind):
        return [c for c in CASES if kind in c.on and any(w in c.__name__ for w in self.only.split(","))]

    def one(self, function, place):
        name = f"{function.__name__} ({place.name})"
        if function.own_node and place.ray and not place.node:
            return self.note(2, name, ": it ends processes of the node, which is somebody else's")
        with self.lock:
            self.said += 1
            folder = os.path.join(self.folder, f"t{self.said}")
        started = time.monotonic()
        os.makedirs(folder)
        trial = Try(self.binary, place, folder, self.environment())
        try:
            function(trial)
            found = self.secrets.in_files(folder)
            if found and not getattr(function, "writes_secrets", False):
                raise Failed(f"secrets in files: {found}")
            self.note(0, name, f" ({time.monotonic() - started:.1f} s)")
        except Skipped as why:
            self.note(2, name, f": {why}")
        except Failed as why:
            self.note(1, name, f"\n{why}")
        except Exception:
            self.note(1, name, f"\n{traceback.format_exc()}\n{trial.last or ''}")
        finally:
            trial.end()
            shutil.rmtree(folder, ignore_errors=True)

    def on_place(self, place, kind):
        cases = self.chosen(kind)
        together = queue.Queue()
        # The ones that take turns first: they are the long ones.
        for function in sorted((c for c in cases if not c.alone), key=lambda c: not c.tpu):
            together.put(function)

        def work():
            while True:
                try:
                    function = together.get_nowait()
                except queue.Empty:
                    return
                if function.tpu:
                    with place.tpu_turn:
                        self.one(function, place)
                else:
                    self.one(function, place)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
        for function in (c for c in cases if c.alone):
            self.one(function, place)

    def install(self):
        """Fetches the Rays while the cases on this machine run. What goes wrong is said when they are wanted."""
        versions = dict.fromkeys(VERSIONS[kind][0] for kind in VERSIONS if kind in self.wanted and self.chosen(kind))
        with self.installing:
            for version in versions:
                try:
                    nodes.venv(version)
                except nodes.Unavailable:
                    pass

    def ray(self, kind):
        version, auth = VERSIONS[kind]
        if not self.chosen(kind):
            return
        try:
            with self.installing:
                node = nodes.Node(version, auth)
        except nodes.Unavailable as why:
            for function in self.chosen(kind):
                self.note(2, f"{function.__name__} (ray {version})", f": {why}")
            return
        self.nodes.append(node)
        if node.token:
            self.secrets.tokens.append(node.token)
        try:
            started = time.monotonic()
            node.start()
            print(f"[conformance] ray: {version}, authentication {auth}, ready after {time.monotonic() - started:.0f} s", flush=True)
            name = f"ray {version}" + ("" if auth == "token" else ", open")
            self.on_place(Place(kind, name, ["--ray-address", node.url], node.token, node, node.url), kind)
        except nodes.Unavailable as why:
            # Starting Ray needs nothing of ours: a machine on which it does not start cannot judge.
            for function in self.chosen(kind):
                self.note(2, f"{function.__name__} (ray {version})", f": {why}")
        finally:
            node.close()

    def run(self):
        url = os.environ.get("GDNCTL_TEST_RAY")
        if not url:
            threading.Thread(target=self.install, daemon=True).start()
            time.sleep(0.1)  # it has the lock by now
        if "local" in self.wanted:
            self.on_place(Place("local", "local", ["--cluster", "local"]), "local")
        if url:
            token = os.environ.get("RAY_AUTH_TOKEN", "")
            if token:
                self.secrets.tokens.append(token)
            self.on_place(Place("ray", "ray at " + url, ["--ray-address", url], token, None, url.rstrip("/")), "ray")
        else:
            if "ray" in self.wanted:
                self.ray("ray")
            # The two small ones at once: their nodes take longer to start than their cases to run.
            small = [threading.Thread(target=self.ray, args=(kind,), daemon=True) for kind in ("open", "old") if kind in self.wanted]
            for thread in small:
                thread.start()
            for thread in small:
                while thread.is_alive():
                    thread.join(0.5)
        self.look_back()

    def look_back(self):
        """What must hold of all cases together."""
        self.secrets.close()
        seen = sorted(self.secrets.seen)
        self.note(1 if seen or not self.secrets.looks else 0, f"no secret in any command line ({self.secrets.looks} looks)", "".join("\n" + s for s in seen))
        left = nodes.carrying(self.marker, whole_sessions=False)
        self.note(1 if left else 0, "no process is left", "".join(f"\n{p} {line[:100]}" for p, line in left.items()))

    def close(self):
        for node in self.nodes:
            node.close()
        nodes.end_all(self.marker, whole_sessions=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def main(suite_type=Suite, documentation=__doc__, places="local,ray,open,old"):
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gdnctl")
    parser.add_argument("tally", nargs="?")
    parser.add_argument("-k", dest="only", default="", help="only cases with one of these words, separated by commas, in their name")
    parser.add_argument("-p", dest="places", default=places)
    words = parser.parse_args()

    def leave(number, _):
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    suite = suite_type(words.gdnctl, words.tally, words.only, words.places.split(","))
    try:
        suite.run()
    finally:
        suite.close()
    print(f"[conformance] {suite.label}: {suite.counts[0]} ok, {suite.counts[1]} failed, {suite.counts[2]} skipped", flush=True)
    return 1 if suite.counts[1] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(70)  # 1 is for failed cases, which are counted
