"""tidy.py JOBS FILE KEY...: clang-tidy over the sources; a KEY is a file that is made when its source is clean.

Most of the time of one source goes into the standard headers, so neighbours with the same flags are checked as one
translation unit. A batch that says anything (two files may define the same name) is checked again in halves, and what a
single file says counts.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
import tempfile

BUILD = "build/lint"
BATCH = 24


def flags_by_source():
    with open(BUILD + "/compile_commands.json") as f:
        commands = json.load(f)
    found = {}
    for entry in commands:
        words = shlex.split(entry["command"])[1:]
        kept = [w for i, w in enumerate(words) if w not in ("-c", "-o") and words[i - 1] not in ("-c", "-o")]
        found[os.path.relpath(entry["file"])] = tuple(kept)
    return found


def batches(pairs, flags):
    groups = {}
    for source, key in pairs:
        groups.setdefault((os.path.dirname(source), flags.get(source)), []).append((source, key))
    for (_, words), group in groups.items():
        size = BATCH if words else 1  # one without a command of its own is checked alone
        for at in range(0, len(group), size):
            yield group[at:at + size], words


def check(batch, words, folder):
    """What the sources of the batch have to say, as text; empty when they are clean."""
    if len(batch) == 1:
        command = ["clang-tidy-19", "-p", BUILD, "--quiet", batch[0][0]]
    else:
        handle, unit = tempfile.mkstemp(suffix=".cpp", dir=folder)
        with os.fdopen(handle, "w") as f:
            f.writelines(f'#include "{os.path.abspath(source)}"  // NOLINT(bugprone-suspicious-include)\n' for source, _ in batch)
        command = ["clang-tidy-19", "--config-file=.clang-tidy", "--quiet", unit, "--", *words]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", check=False)
    if ran.returncode == 0:
        for _, key in batch:
            open(key, "w").close()
        return ""
    if len(batch) == 1:
        return ran.stdout or f"{batch[0][0]}: clang-tidy-19 ended with {ran.returncode}\n"
    middle = len(batch) // 2
    return check(batch[:middle], words, folder) + check(batch[middle:], words, folder)


def main():
    jobs, pairs = int(sys.argv[1]), list(zip(sys.argv[2::2], sys.argv[3::2]))
    flags, failed = flags_by_source(), False
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        longest_first = sorted(batches(pairs, flags), key=lambda b: -len(b[0]))
        work = [pool.submit(check, batch, words, folder) for batch, words in longest_first]
        for done in concurrent.futures.as_completed(work):
            said = done.result()
            if said:
                failed = True
                print(said, end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
