"""A sweep of block sizes as jobs: a configuration that fails, a client that is killed, and the same command again."""
import json
import os
import signal

from harness import case

BENCH = """echo "$1" >>ran
[ "$1" != 130 ] || { echo 'failed JaxRuntimeError Used 20.19M of 16.00M'; exit 1; }
[ ! -e hold ] || { touch held; sleep 3013; }
echo "config b1024_h512_v$1 BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=$1)"
echo loss 11.9; echo steady_time_s 0.25; echo tokens_per_s 4096
"""


@case(own_node=True)
def sweep_is_killed_and_resumed(t):
    with open(t.path("run/bench.sh"), "w") as f:
        f.write("cd " + t.path("run") + "\n" + BENCH)
    with open(os.path.join(t.cwd, "plan.toml"), "w") as f:
        f.write('shapes = [{ batch = 1024, hidden = 512, vocab = 128256 }]\nv = [128, 130]\nrepeats = 1\nsource_revision = "r1"\n'
                f'command = ["sh", "{t.path("run/bench.sh")}", "{{v}}"]\n')
    words = ("sweep", "run", "plan.toml", *t.place.args, "--json")

    def ran():
        with open(t.path("run/ran")) as f:
            return f.read().split()

    open(t.path("run/hold"), "w").close()
    killed = t.start(*words, place=False)
    t.until(lambda: os.path.exists(t.path("run/held")), "the first run")
    killed.signal(signal.SIGKILL)
    killed.finish()
    os.remove(t.path("run/hold"))
    got = t.run(0, *words, place=False)
    t.check("was still running" in got.err, "the run of the killed sweep is not ended")
    t.equal(t.left("sleep 3013"), [], "processes of that run")
    report = json.loads(got.out)
    t.equal((report["counts"], report["failures"]), ({"configs": 2, "ok": 1, "failed": 1}, {"vmem_oom": 1}), "counts")
    t.equal(report["best"][0]["label"], "b1024_h512_v128", "the best")
    t.equal(ran(), ["128", "128", "130", "128"], "the runs")
    t.equal(json.loads(t.run(0, *words, place=False).out), report, "the report of a finished sweep")
    t.equal(len(ran()), 4, "runs of a finished sweep")
