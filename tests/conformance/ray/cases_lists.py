"""Listing, matching, completing."""
from harness import case, without_ray_lines


@case(on=("local", "ray", "open"))
def list_filters(t):
    good = t.submit("a", "true", env={"USER": "list-alice"})
    t.wait(0, good)
    bad = t.submit("b", "exit 1", env={"USER": "list-bob"})
    t.wait(1, bad)
    mine = t.run(0, "ray-list", "--mine", "--json", env={"USER": "list-alice"}).json
    t.equal((mine["schema"], [j["submission_id"] for j in mine["jobs"]]), ("gdnctl.ray-list/1", [good]), "--mine")
    failed = [j["submission_id"] for j in t.run(0, "ray-list", "--status", "FAILED", "--json", "--limit", "1000").json["jobs"]]
    t.check(bad in failed and good not in failed, f"--status FAILED: {failed}")
    every = [j["submission_id"] for j in t.run(0, "ray-list", "--json", "--limit", "1000").json["jobs"]]
    t.check(every.index(bad) < every.index(good), "not newest first")
    t.equal(len(t.run(0, "ray-list", "--limit", "1", "--json").json["jobs"]), 1, "jobs of --limit 1")
    human = t.run(0, "ray-list", "--limit", "1000").out.decode()
    t.check(bad in human, "the table lacks a job")
    # The id comes last and is never cut; what goes before it leaves it 40 of the 100 columns, after jobs of many minutes too.
    t.equal([line for line in human.splitlines() if len(line) - len(line.split()[-1]) > 60], [], "lines with no room for an id")


@case()
def match_takes_the_newest(t):
    t.wait(0, t.submit("m-old", "echo old"))
    new = t.submit("m-new", "echo new")
    t.wait(0, new)
    ran = t.run(0, "ray-wait", "--match", f"^{t.prefix}-m-", "--poll", "0.2", "--show-logs")
    t.check(f"submission_id={new}" in ran.err and without_ray_lines(ran.out) == b"new\n", "not the newest")
    t.run(6, "ray-wait", "--match", "^zzz-nothing")
    t.run(2, "ray-wait", "--match", "a(")
