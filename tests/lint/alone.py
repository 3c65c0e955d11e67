"""alone.py JOBS FILE KEY...: each source and header is compiled by itself (-fsyntax-only); a KEY is a file that is made
when its file compiles. A header takes the flags of a source in its folder, or in the nearest folder above it."""
import concurrent.futures
import os
import subprocess
import sys

sys.dont_write_bytecode = True
from tidy import flags_by_source


def flags_of_header(header, by_folder):
    folder = os.path.dirname(header)
    while folder:
        if folder in by_folder:
            return by_folder[folder]
        below = sorted(f for f in by_folder if f.startswith(folder + "/"))
        if below:
            return by_folder[below[0]]
        folder = os.path.dirname(folder)
    return next(iter(by_folder.values()))  # include/: what is installed needs no flags but the standard's


def check(file, key, words):
    words = [w for w in words if not w.endswith((".cpp", ".c"))]
    language = "c++-header" if file.endswith(".h") else "c++"
    command = ["clang++-19", *words, "-fsyntax-only", "-Werror", "-Wno-pragma-once-outside-header", "-x", language, file]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if ran.returncode == 0:
        open(key, "w").close()
        return ""
    return ran.stderr or f"{file}: clang++-19 ended with {ran.returncode}\n"


def main():
    jobs, pairs = int(sys.argv[1]), list(zip(sys.argv[2::2], sys.argv[3::2]))
    flags, by_folder, failed = flags_by_source(), {}, False
    for source, words in flags.items():
        by_folder.setdefault(os.path.dirname(source), words)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        work = []
        for file, key in pairs:
            words = flags.get(file) or flags_of_header(file, by_folder)
            work.append(pool.submit(check, file, key, words))
        for done in concurrent.futures.as_completed(work):
            said = done.result()
            if said:
                failed = True
                print(said, end="", flush=True)
    return 1 if failed else 0


sys.exit(main())
