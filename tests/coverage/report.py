#!/usr/bin/env python3
"""report.py [BUILD]: line coverage of src/{core,services,oracle} and their headers, from the counters that a test run
left in BUILD (default: build/coverage). Prints the lines that no test reached, file by file, the worst first, then one
line a folder. Exit code 1: a folder is below 90 %; 2: nothing to count.

A line counts as reached when any instance of it was: templates and headers are merged over all objects."""
import collections
import json
import pathlib
import subprocess
import sys

FOLDERS = ("core", "services", "oracle")
LEAST = 0.90


def folder_of(name):
    parts = name.removeprefix("src/").split("/")
    return parts[0] if name.startswith("src/") and parts[0] in FOLDERS else None


def counts_of(root, build):
    lines = collections.defaultdict(dict)  # file -> line -> times reached
    # By library: what is compiled several sources at a time leaves one note for all of them.
    notes = [n for f in FOLDERS for n in sorted(build.glob(f"CMakeFiles/gdnctl_{f}*.dir/**/*.gcno"))]
    for note in notes:
        run = subprocess.run(["gcov", "--json-format", "--stdout", note], cwd=build, capture_output=True, check=True)
        for text in filter(str.strip, run.stdout.decode().splitlines()):
            for source in json.loads(text)["files"]:
                path = (build / source["file"]).resolve()  # relative where the compiler cache made it so
                if not path.is_relative_to(root) or folder_of(str(path.relative_to(root))) is None:
                    continue
                known = lines[str(path.relative_to(root))]
                for line in source["lines"]:
                    number = line["line_number"]
                    known[number] = max(known.get(number, 0), line["count"])
    return lines


def ranges(numbers):
    out = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    build = (root / (sys.argv[1] if len(sys.argv) > 1 else "build/coverage")).resolve()
    lines = counts_of(root, build)
    if not lines:
        print(f"no counters in {build}: ./dev coverage builds and runs the tests first", file=sys.stderr)
        return 2
    missed = {name: sorted(n for n, count in known.items() if count == 0) for name, known in lines.items()}
    for name in sorted((n for n in missed if missed[n]), key=lambda n: -len(missed[n])):
        print(f"{name}: {len(missed[name])} of {len(lines[name])} lines: {ranges(missed[name])}")
    status = 0
    for folder in FOLDERS:
        names = [n for n in lines if folder_of(n) == folder]
        total = sum(len(lines[n]) for n in names)
        reached = total - sum(len(missed[n]) for n in names)
        below = total == 0 or reached < LEAST * total
        print(f"{folder}: {reached} of {total} lines, {100 * reached / max(total, 1):.1f} %"
              f"{f', below {100 * LEAST:.0f} %' if below else ''}")
        status |= below
    return status


if __name__ == "__main__":
    sys.exit(main())
