#!/usr/bin/env python3
"""Hands the command line to the program gdnctl: the one that $GDNCTL names, else the first on PATH."""
import os
import shutil
import sys

named = os.environ.get("GDNCTL") or "gdnctl"
program = shutil.which(named)
if program is None or os.path.samefile(program, __file__):
    print(f"[gdnctl] no program `{named}`: put gdnctl on PATH, or its path into GDNCTL", file=sys.stderr)
    sys.exit(2)
os.execv(program, [program, *sys.argv[1:]])
