#!/usr/bin/env python3
# rooms: src/services/iris src/services/local src/services/job src/services/cluster src/services/devtpu src/jobs src/target
"""run.py GDNCTL [TALLY] [-k WORD]: the cases of the job contract (../ray) and those of Iris on a real local controller.

Adds a line `passed failed skipped` per case to the file TALLY. Where there is no Python 3.12 for the controller, or its
package cannot be had, every case is skipped, and says so.
"""
import os
import sys
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
    label = "iris"

    def run(self):
        try:
            controller = controllers.Controller()
        except controllers.Unavailable as why:
            return self.skip_all(why)
        self.nodes.append(controller)
        try:
            started = time.monotonic()
            controller.start().warm()
            print(f"[conformance] iris: ready after {time.monotonic() - started:.0f} s", flush=True)
        except controllers.Unavailable as why:
            return self.skip_all(why)
        self.on_place(Place("iris", "iris", ["--iris-url", controller.url], "", controller, controller.url), "iris")
        controller.close()
        self.look_back()

    def skip_all(self, why):
        for function in self.chosen("iris"):
            self.note(2, function.__name__, f": {why}")


if __name__ == "__main__":
    sys.exit(contract.main(Suite, __doc__, "iris"))
