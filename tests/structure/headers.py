#!/usr/bin/env python3
"""headers.py ROOT: a header is for what at least two other files use (its own source is not another; tests are), or a file
of another room. Prints those of ROOT/src that are not; 1 when there are any."""
import os
import re
import sys

# Embedded as text by CMake, or compiled once per instruction set.
ALLOWED = {"src/harness/child/solution_abi.h"}


def main(root: str) -> int:
    users: dict[str, set[str]] = {}
    for top in ("src", "tests"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if not name.endswith((".h", ".cpp")):
                    continue
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read(), re.M):
                        users.setdefault(header, set()).add(os.path.relpath(path, root))
    found = 0
    for folder, _, names in os.walk(os.path.join(root, "src")):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith(".h") or path in ALLOWED:
                continue
            others = users.get(path[len("src/"):], set()) - {path[:-2] + ".cpp"}
            elsewhere = [user for user in others if user.split("/")[:2] != path.split("/")[:2]]
            if len(others) < 2 and not elsewhere:
                print(f"{path}: used by {', '.join(sorted(others)) or 'nobody'} alone")
                found = 1
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
