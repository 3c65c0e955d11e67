"""Logs: every byte once, however much, whatever the bytes."""
import os
import subprocess

from harness import case, sha256, without_ray_lines
from cases_ends import ALL, BUT_OPEN

LIMIT_KIB = 64 * 1024
HUNDRED_MB = 1_000_000  # lines of 100 bytes


@case(on=("local", "ray", "old"))
def hundred_megabytes_followed(t):
    id = t.id("big")
    padding = "x" * 89
    t.target(f"for part in 0 1 2 3 4; do seq -f '%09.0f {padding}' $((part * {HUNDRED_MB // 5} + 1)) $(((part + 1) * {HUNDRED_MB // 5})); sleep 0.3; done")
    ran = t.run(0, "ray-test", "--submission-id", id, seconds=200)
    t.check(os.path.getsize(ran.out_path) >= 100 * HUNDRED_MB, f"{os.path.getsize(ran.out_path)} bytes")
    whole = sha256(t.log_of(id))
    t.equal(sha256(ran.out_path), whole, "SHA-256 of what was followed")
    t.check(0 < ran.maxrss_kib < LIMIT_KIB, f"ray-test took {ran.maxrss_kib} KiB")
    ran = t.run(0, "ray-logs", id, "--follow", "--tail", "2000000", seconds=200)
    t.equal(sha256(ran.out_path), whole, "SHA-256 of the whole log by ray-logs")
    t.check(0 < ran.maxrss_kib < LIMIT_KIB, f"ray-logs --follow took {ran.maxrss_kib} KiB")
    ran = t.run(0, "ray-logs", id, "--tail", "3")
    t.equal([line[:9] for line in ran.out.splitlines()], [b"%09d" % n for n in range(HUNDRED_MB - 2, HUNDRED_MB + 1)], "the last lines")
    ran = t.run(0, "ray-logs", id, "--grep", "^0004999[0-9]9|^0000000(01|02) ", "--tail", "4", seconds=200)
    t.equal([line[:9] for line in ran.out.splitlines()], [b"000499969", b"000499979", b"000499989", b"000499999"], "the lines that match")
    t.check(0 < ran.maxrss_kib < LIMIT_KIB, f"ray-logs --grep took {ran.maxrss_kib} KiB")


@case(on=BUT_OPEN)
def tail_and_grep(t):
    id = t.submit("l", "sleep 1; for i in 1 2 3 4 5; do echo a $i; echo b $i; done; echo ERROR here; printf last")
    t.wait(0, id)
    t.equal(t.run(0, "ray-logs", id, "--tail", "2").out, t.stored(b"ERROR here\nlast"), "--tail 2")
    t.equal(t.run(0, "ray-logs", id, "--grep", "^a|ERROR", "--tail", "3").out, b"a 4\na 5\nERROR here\n", "--grep before --tail")
    t.equal(t.run(0, "ray-logs", id, "--grep", "nothing-like-it").out, b"", "no match")
    t.equal(t.wait(0, id, "--show-logs", "--grep", "^b [12]$").out, b"b 1\nb 2\n", "ray-wait --grep")
    t.equal(t.run(0, "ray-logs", id, "--tail", "0").out, b"", "--tail 0")
    t.run(2, "ray-logs", id, "--grep", "a(")
    got = t.run(0, "ray-logs", id, "--tail", "1", "--json").json
    t.equal((got["schema"], got["logs"]), ("gdnctl.ray-logs/1", t.stored(b"last").decode()), "the JSON")


@case(on=("local", "ray", "open", "old"))
def log_that_is_not_utf8(t):
    t.target(r"sleep 1; echo first; printf 'bad \377\300 byte\n'; echo last")
    ran = t.run(0, "ray-test", "--submission-id", t.id("bytes"))
    t.equal(without_ray_lines(ran.out), b"first\nbad \xff\xc0 byte\nlast\n", "followed")
    ran = t.run(0, "ray-logs", t.id("bytes"), "--tail", "2")
    t.equal(ran.out, b"bad \xff\xc0 byte\nlast\n", "the tail")
    ran = t.run(0, "ray-logs", t.id("bytes"), "--tail", "2", "--json")
    t.equal(ran.json["logs"], "bad \ufffd\ufffd byte\nlast\n", "in JSON")
    t.equal(t.run(0, "ray-logs", t.id("bytes"), "--grep", "^bad").out, b"bad \xff\xc0 byte\n", "--grep")


@case(on=ALL)
def follow_a_running_job_with_equal_lines(t):
    id = t.submit("eq", "i=0; while [ $i -lt 60 ]; do echo same; printf x; echo; i=$((i+1)); sleep 0.03; done; printf end")
    ran = t.run(0, "ray-logs", id, "-f", "--tail", "100000")
    t.equal(without_ray_lines(ran.out), b"same\nx\n" * 60 + t.stored(b"end"), "followed")
    with open(t.log_of(id), "rb") as f:
        t.equal(ran.out, f.read(), "against the log file")


@case(on=("local", "ray"))
def one_long_line_and_nul_bytes(t):
    # Ray flushes its own first line when the command runs already: a quick command would stand before it.
    t.target("sleep 0.5; head -c 5000000 /dev/zero | tr '\\0' z; printf 'a\\000b\\r\\n'; printf 'after'")
    ran = t.run(0, "ray-test", "--submission-id", t.id("long"))
    t.equal(without_ray_lines(ran.out), b"z" * 5000000 + b"a\0b\r\nafter", "followed")
    t.equal(t.run(0, "ray-logs", t.id("long"), "--tail", "1").out, b"after", "the tail")


@case()
def no_output_at_all(t):
    t.target("true")
    t.equal(without_ray_lines(t.run(0, "ray-test", "--submission-id", t.id("none")).out), b"", "followed")
    t.equal(without_ray_lines(t.run(0, "ray-logs", t.id("none")).out), b"", "ray-logs")


@case()
def two_jobs_at_once(t):
    runs = []
    for word in ("one", "two"):
        t.target(f"for i in $(seq 200); do echo {word} $i; sleep 0.01; done")
        runs.append((word, t.start("ray-test", "--submission-id", t.id(word))))
        runs[-1][1].until("Job submitted", where="err")
    for word, running in runs:
        t.last = ran = running.finish()
        t.equal(ran.code, 0, "the exit code")
        t.equal(without_ray_lines(ran.out), b"".join(b"%s %d\n" % (word.encode(), i) for i in range(1, 201)), f"the log of {word}")


@case(on=("local", "ray"))
def logs_to_a_closed_pipe(t):
    id = t.submit("pipe", "seq 200000")
    t.wait(0, id)
    read, write = os.pipe()
    argv = [t.binary, "ray-logs", *t.place.args, id, "--tail", "200000"]
    with open(t.path("run/pipe.err"), "wb") as err:
        process = subprocess.Popen(argv, env=t.env, cwd=t.cwd, stdin=subprocess.DEVNULL, stdout=write, stderr=err)
    os.close(write)
    t.check(os.read(read, 2) != b"", "no output")
    os.close(read)
    t.check(process.wait(60) in (0, 141, -13), f"exit {process.returncode}")
    with open(t.path("run/pipe.err")) as err:
        t.equal(err.read(), "", "stderr")


@case(on=("local", "ray"))
def full_disk_under_the_log_file(t):
    id = t.submit("full", "seq 100000")
    t.wait(0, id)
    if not os.path.exists("/dev/full"):
        t.skip("no /dev/full")
    argv = [t.binary, "ray-logs", *t.place.args, id, "--tail", "100000"]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(argv, env=t.env, cwd=t.cwd, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=60)
    t.equal(ran.returncode, 8, "the exit code")


@case()
def signs_of_a_bad_node(t):
    t.target("echo No accelerator found; exit 1")
    got = t.run(1, "ray-test", "--json").json
    t.equal((got["status"], got["failure_class"]), ("FAILED", "infra-suspect"), "the end")


@case()
def metrics_of_a_profile(t):
    t.target("true")
    with open(t.cwd + "/gdnctl.toml", "a") as f:
        f.write('[targets.t.profile]\nargv = ["sh", "-c", "echo throughput/mfu: 12.5; echo $X"]\nenv = { X = "from-table" }\n')
    ran = t.run(0, "ray-profile", "--json", *(["--tpu", "v5p-8"] if t.place.kind != "local" else []))
    t.equal((ran.json["schema"], ran.json["profile"]["mfu"]), ("gdnctl.ray-profile/1", 12.5), "the report")
    t.check("from-table" in ran.err, "the environment of the table")
