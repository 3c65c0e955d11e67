"""What a job is given: the working tree, the environment, nothing else."""
import hashlib
import json
import os
import subprocess

from harness import case, without_ray_lines
from cases_ends import ALL, BUT_OPEN


def git(t, *words):
    subprocess.run(["git", *words], cwd=t.cwd, env=t.env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def write(t, name, content="", mode=0o644):
    path = os.path.join(t.cwd, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(content)
    os.chmod(path, mode)


@case(on=ALL)
def working_tree(t):
    git(t, "init", "-q")
    write(t, "tracked", "one\n")
    write(t, "run.sh", "#!/bin/sh\necho ran\n", 0o755)
    write(t, "deleted", "x")
    write(t, "deep/er/with space and ümläut", "spaced\n")
    write(t, "docs/left-out", "x")
    write(t, ".gitignore", "ignored\n")
    write(t, "ignored", "secret\n")
    git(t, "add", "-A")
    git(t, "commit", "-qm", "init")
    os.remove(os.path.join(t.cwd, "deleted"))
    write(t, "tracked", "changed on disk\n")
    write(t, "untracked", "new\n")
    os.symlink("tracked", os.path.join(t.cwd, "link"))
    t.target("cat tracked untracked link 'deep/er/with space and ümläut'; ls -A | sort | tr '\\n' ' '; echo; "
             "./run.sh || sh ./run.sh; echo touched >tracked; echo left >mark-of-a-job")
    ran = t.run(0, "ray-test")
    log = without_ray_lines(ran.out).decode()
    t.check(log.startswith("changed on disk\nnew\nchanged on disk\nspaced\n"), "the contents")
    names = log.splitlines()[4].split()
    t.equal([n for n in names if n not in ("gdnctl.toml",)], [".gitignore", "deep", "link", "run.sh", "tracked", "untracked"], "the names")
    # Ray 2.52 and Iris unpack without the bits that make a file a program.
    t.equal("denied" in log.lower(), t.place.kind in ("old", "iris"), "run.sh could not be run by itself")
    t.check("ran\n" in log, "run.sh did not run")
    with open(os.path.join(t.cwd, "tracked")) as f:
        t.equal(f.read(), "changed on disk\n", "the repository's file after the job")
    # The next job of the same tree gets a folder of its own.
    t.target("cat tracked; ls mark-of-a-job")
    ran = t.run(1, "ray-test")
    t.check(b"changed on disk" in ran.out, "the second job sees the first one's change")
    # An empty folder here, whatever folder the node runs in there.
    t.target("[ ! -e tracked ] && [ ! -e gdnctl.toml ]" if t.place.kind != "local" else '[ -z "$(ls -A)" ]')
    t.run(0, "ray-test", "--working-dir", "none")


@case()
def links_out_of_the_tree_are_refused(t):
    git(t, "init", "-q")
    os.symlink("/etc/hostname", os.path.join(t.cwd, "escape"))
    t.target("true")
    t.run(8, "ray-test")
    t.check("escape" in t.last.err, "the link is not named")
    t.equal(t.run(0, "ray-list", "--json", "--mine").json["jobs"] if t.place.kind == "local" else [], [], "jobs")


@case()
def package_over_the_limit(t):
    with open(os.path.join(t.cwd, "big.bin"), "wb") as f:
        for _ in range(102):
            f.write(os.urandom(1 << 20))
    t.target("true")
    ran = t.run(2, "ray-test", "--submission-id", t.id("large"))
    t.check("big.bin" in ran.err, "the largest files are not named")
    t.wait(6, t.id("large"))


VALUES = ["$HOME", "${x}", "${x:-y} $x", "100%d %s %%", "$", "$$", "a$", "`id` $(id)", "a'b\"c\\d", " spaces  and\ttab ", "two\nlines\n",
          "ümläut €", "", "=", "~/x", "#", "!", "*", "${a0_dollar}", "$1 $@ $?"]


@case(on=BUT_OPEN)
def values_arrive_byte_for_byte(t):
    words = []
    for i, value in enumerate(VALUES):
        words += ["-e", f"V{i}={value}"]
    t.target("".join(f'printf %s "$V{i}" | od -An -v -tx1 | tr -d " \\n"; echo .; ' for i in range(len(VALUES))))
    ran = t.run(0, "ray-test", *words)
    got = [line for line in without_ray_lines(ran.out).decode().splitlines() if line.endswith(".")]
    for value, hexed in zip(VALUES, got, strict=True):
        t.equal(bytes.fromhex(hexed[:-1]), value.encode(), f"the value {value!r}")


@case(on=BUT_OPEN)
def values_that_cannot_pass(t):
    """What the node would expand and nothing can protect is refused; anything that is not refused arrives."""
    for i, value in enumerate(["${HOME}", "${NO_SUCH_NAME}", "${A0_DOLLAR}", "x${PATH}y"]):
        t.target('printf %s "$V" | od -An -v -tx1 | tr -d " \\n"; echo .')
        ran = t.run(None, "ray-test", "-e", f"V={value}")
        if ran.code == 2 and t.place.ray:
            t.check("V" in ran.err, "the variable is not named")
            continue
        t.equal(ran.code, 0, f"the exit code for {value!r}")
        hexed = next(line for line in without_ray_lines(ran.out).decode().splitlines() if line.endswith("."))
        t.equal(bytes.fromhex(hexed[:-1]), value.encode(), f"the value {value!r}")


@case(on=ALL)
def environment_of_a_job(t):
    t.target('echo "[$A] [$B] [$HF_TOKEN] [$PYTHONUNBUFFERED]" | sha256sum; echo "[$RAY_ADDRESS]"')
    ran = t.run(0, "ray-test", "-e", "A=x=y", "-e", "B=", "-e", " ")
    want = hashlib.sha256(f"[x=y] [] [{t.env['HF_TOKEN']}] [1]\n".encode()).hexdigest()
    t.check(want.encode() in ran.out, "the environment")
    t.equal(b"[]\n" in ran.out, not t.place.ray, "RAY_ADDRESS is empty")
    t.check("environment of the job:" in ran.err and "A" in ran.err, "the names are not printed")
    for bad in ("MISSING_EQUALS", "1BAD=v", "=v"):
        t.run(2, "ray-test", "-e", bad)


@case()
def values_stay_out_of_what_we_write(t):
    digest = hashlib.sha256(f"hunter2hunter2 {t.env['WANDB_API_KEY']}\n".encode()).hexdigest()
    t.target(f'echo "$KEY $WANDB_API_KEY" | sha256sum | grep -q {digest} && echo same')
    ran = t.run(0, "ray-test", "-e", "KEY=hunter2hunter2", "--submission-id", t.id("kept"))
    t.check(without_ray_lines(ran.out) == b"same\n", "the job's environment")
    t.check("KEY" in ran.err and "hunter2" not in ran.err, "names, not values, are printed")
    for at, _, files in os.walk(t.path("state")):
        for name in files:
            with open(os.path.join(at, name), "rb") as f:
                t.check(b"hunter2" not in f.read(), f"{at}/{name} has the value")
    with open(t.path("state/gdnctl/jobs.jsonl")) as f:
        t.check(t.id("kept") in f.read(), "the submission is not remembered")


@case()
def quoting_of_the_command(t):
    words = ["sh", "-c", 'printf "<%s>" "$@"; echo', "sh", "a b", "'", '"', "$HOME", "`x`", "\\", "*", "", "ü", "-n", "{}", ";", "&"]
    with open(os.path.join(t.cwd, "gdnctl.toml"), "w") as f:
        f.write('target = "t"\n[targets.t]\ntest = ' + json.dumps(words, ensure_ascii=False) + "\n")
    ran = t.run(0, "ray-test")
    t.equal(without_ray_lines(ran.out).decode(), "".join(f"<{w}>" for w in words[4:]) + "\n", "the words")
