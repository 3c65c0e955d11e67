"""suite.py GDNCTL [TALLY] [-k WORD,...]: every case, in this process. run.py makes the environment that it needs."""
import argparse
import os
import sys
import tempfile
import time
import traceback

from harness import CASES, Failed, Gdnctl, Skipped

import cases_levanter  # noqa: F401  (each module adds its cases)
import cases_edits  # noqa: F401
import cases_their_tests  # noqa: F401
import cases_layer  # noqa: F401
import cases_layer_tests  # noqa: F401
import cases_transformers  # noqa: F401
import cases_files  # noqa: F401
import cases_ce  # noqa: F401
import cases_python  # noqa: F401


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gdnctl")
    parser.add_argument("tally", nargs="?")
    parser.add_argument("-k", dest="only", default="")
    words = parser.parse_args()
    counts = [0, 0, 0]

    def note(verdict, name, text):
        counts[verdict] += 1
        if words.tally:
            with open(words.tally, "a") as f:
                f.write(("1 0 0\n", "0 1 0\n", "0 0 1\n")[verdict])
        print(f"[conformance] oracle: {name}: " + ("ok", "FAILED", "skipped")[verdict] + text, flush=True)

    begun = time.monotonic()
    for name, function in CASES.items():
        if not any(word in name for word in words.only.split(",")):
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gdnctl-conformance.") as folder:
            try:
                function(Gdnctl(words.gdnctl, folder))
                note(0, name, f" ({time.monotonic() - started:.1f} s)")
            except Skipped as why:
                note(2, name, f": {why}")
            except Failed as why:
                note(1, name, f"\n{why}")
            except Exception:
                note(1, name, f"\n{traceback.format_exc()}")
    print(f"[conformance] oracle: {counts[0]} ok, {counts[1]} failed, {counts[2]} skipped, {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if counts[1] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(70)  # 1 is for failed cases, which are counted
