"""bench.py GDNCTL [--threads N] [--gradient]: levanter's compiled chunk function beside gdnctl's kernels.

In turns: a round of `oracle bench`, then levanter's function, of which the least of RUNS runs counts. Printed are least
and median over the rounds and the median of the ratios within a round. levanter's results are judged before: a wrong
one would have no time. With --torch installed before (run.py --torch), transformers' function takes its turns too.
"""
import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("gdnctl")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--gradient", action="store_true")
words = parser.parse_args()
# Before jax starts its threads: they take what the process may use.
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:words.threads]))
os.environ["OMP_NUM_THREADS"] = str(words.threads)

import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import levanter_gdn as levanter
import transformers_gdn as transformers
from harness import GRADIENTS, Gdnctl, draw

SHAPE = (1, 4, 8, 4096, 128, 128)  # B, Hk, Hv, T, dk, dv: that of oracle bench
ROUNDS, RUNS = 8, 2
GRADIENT_ROUNDS = 3


def levanter_subject(inputs, gradient):
    forward = levanter.forward_of("chunk", inputs)
    p = levanter.arguments(inputs)
    if not gradient:
        function = jax.jit(forward)
        return lambda: jax.block_until_ready(function(*p))
    cotangents = tuple(jnp.asarray(inputs[n]) for n in ("d_out", "d_final_state"))

    @jax.jit
    def both(p, cotangents):
        results, back = jax.vjp(forward, *p)
        return *results, *back(cotangents)

    return lambda: jax.block_until_ready(both(p, cotangents))


def transformers_subject(inputs, gradient):
    import torch

    torch.set_num_threads(words.threads)
    return lambda: transformers.run("chunk", inputs, gradients=gradient)


def seconds(subject, runs):
    least = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        subject()
        least = min(least, time.perf_counter() - started)
    return least


def gdnctl_seconds(gdnctl, gradient):
    """Of one round: the fused forward; or the forward that saves and the backward pass."""
    kernels = ["--kernel", "builtin:saving", "--peer", "builtin:backward"] if gradient else ["--kernel", "builtin:fused"]
    got = gdnctl.run("oracle", "bench", "gdn", "--shape", ",".join(map(str, SHAPE)), "--rounds", "1", "--runs", "4",
                     "--threads", str(words.threads), "--json", *kernels)
    report = json.loads(got.stdout)
    return 1e-3 * (report["forward"]["min_ms"] + (report["peers"][0]["backward"]["min_ms"] if gradient else 0))


def measure(gdnctl, gradient):
    B, Hk, Hv, T, dk, dv = SHAPE
    inputs = draw(seed=81, B=B, T=T, Hk=Hk, Hv=Hv, dk=dk, dv=dv, l2norm=False, cotangents=gradient)
    subjects = {"levanter": levanter_subject(inputs, gradient)}
    if transformers.missing() is None:
        subjects["transformers"] = transformers_subject(inputs, gradient)
    report = gdnctl.compare(inputs, dict(zip(("out", "final_state") + GRADIENTS, map(np.asarray, subjects["levanter"]()))))
    assert report["verdict"] == "OK", report["verdict"]
    times = {name: [] for name in ("gdnctl", *subjects)}
    for _ in range(GRADIENT_ROUNDS if gradient else ROUNDS):
        times["gdnctl"].append(gdnctl_seconds(gdnctl, gradient))
        for name, subject in subjects.items():
            times[name].append(seconds(subject, 1 if gradient else RUNS))
    print("forward and gradients" if gradient else "forward", flush=True)
    for name, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(taken, times["gdnctl"]))
        print(f"  {name:<14}{1e3 * min(taken):>10.1f} ms least{1e3 * statistics.median(taken):>10.1f} ms median{ratio:>8.1f} times gdnctl", flush=True)


with tempfile.TemporaryDirectory() as folder:
    gdnctl = Gdnctl(words.gdnctl, folder)
    with open("/proc/cpuinfo") as f:
        cpu = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    print(f"{cpu}, {words.threads} threads, load {os.getloadavg()[0]:.1f}; B,Hk,Hv,T,dk,dv = {','.join(map(str, SHAPE))}, f32")
    print(levanter.VERSION + (", " + transformers.version() if transformers.missing() is None else f"; {transformers.missing()}"), flush=True)
    for gradient in (False, True) if words.gradient else (False,):
        measure(gdnctl, gradient)
