#!/usr/bin/env python3
# rooms: src/services/iris src/services/local src/services/job src/services/cluster src/services/devtpu src/jobs src/target
"""run.py GDNCTL [TALLY] [-k WORD]: the cases of the job contract (../ray) and those of Iris on a real local controller.

Adds a line `passed failed skipped` per case to the file TALLY. Where there is no Python 3.12 for the controller, or its
package cannot be had, every case is skipped, and says so.
"""
import glob
import os
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True  # the tree stays as it is

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
sys.path.insert(0, os.path.join(HERE, "../ray"))

import run as contract
from harness import Place

import controller as controllers
import cases_iris  # noqa: F401  (each module adds its cases)
import cases_iris_faults  # noqa: F401
import cases_iris_hold  # noqa: F401


class Suite(contract.Suite):
    """Two controllers at once, as each has one TPU host: one for the contract, one for what only Iris has, whose cases also
    end processes of it."""
    label = "iris"
    workers = 4

    def chosen(self, kind):
        return [c for c in super().chosen("iris") if c.__module__.startswith("cases_iris") == (kind == "own")]

    def run(self):
        try:
            started = time.monotonic()
            places = {kind: controllers.Controller() for kind in ("contract", "own") if self.chosen(kind)}
            self.nodes += places.values()
            for controller in places.values():
                controller.start().warm()
            print(f"[conformance] iris: ready after {time.monotonic() - started:.0f} s", flush=True)
        except controllers.Unavailable as why:
            return self.skip_all(why)
        threads = [threading.Thread(target=self.on_place, daemon=True,
                                    args=(Place("iris", "iris", ["--iris-url", c.url], "", c, c.url), kind)) for kind, c in places.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
        for controller in places.values():
            controller.close()
        self.look_back()

    def close(self):
        super().close()
        # Without containers, what a holder keeps in its /tmp stays in this one when the holder is killed.
        for folder in ("run", "hold"):
            for path in glob.glob(f"/tmp/gdnctl-{folder}/gdnctl-hold-alice-*-{os.getpid()}-*"):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

    def skip_all(self, why):
        for function in self.chosen("contract") + self.chosen("own"):
            self.note(2, function.__name__, f": {why}")


if __name__ == "__main__":
    sys.exit(contract.main(Suite, __doc__, "iris"))
