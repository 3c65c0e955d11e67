"""bench_ce.py GDNCTL [--threads N] [--rounds N] [--bf16]: gdnctl's fused cross-entropy beside torch's and levanter's.

Each subject is a process of its own that keeps its arrays, and all take their turns: a forward each, then a forward with
both gradients each, round after round. Printed are least and median over the rounds, the median of gdnctl's time over a
subject's within a round, and the peak of its memory beyond inputs and gradients. gdnctl's is a round of `oracle bench`,
whose results are judged; torch's and levanter's losses are compared with one another's. Subjects whose package is missing
are left out (run.py --torch installs torch).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

BATCH, HIDDEN, VOCAB = 512, 512, 128256  # those of oracle bench linear-ce
SUBJECTS = ("torch logits", "torch chunks of 128", "levanter xla", "levanter xla_fast_bwd", "levanter weighted_sum")
BF16_SUBJECTS = ("torch logits", "levanter xla", "levanter weighted_sum")


def arrays(bf16):
    """x, w [H,V] and labels as NumPy has them; w is 0.05 N(0,1), as in oracle bench."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(1)
    x = random.standard_normal((BATCH, HIDDEN), np.float32)
    w = random.standard_normal((HIDDEN, VOCAB), np.float32)
    w *= 0.05
    stored = ml_dtypes.bfloat16 if bf16 else np.float32
    return x.astype(stored, copy=False), w.astype(stored, copy=False), random.integers(0, VOCAB, BATCH)


def torch_subject(way, bf16, threads):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if bf16 else torch.float32
    x, w, labels = arrays(False)
    # torch keeps its weights as [V,H].
    x, w = torch.tensor(x).to(dtype), torch.from_numpy(w).T.contiguous().to(dtype)
    labels = torch.tensor(labels)
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=128) if way == "chunks of 128" else None

    def loss():
        if options is None:
            return F.cross_entropy(F.linear(x, w), labels)
        return F.linear_cross_entropy(x, w, labels, options=options)

    def run(gradients):
        if not gradients:
            with torch.no_grad():
                return float(loss())
        x.grad = w.grad = None
        value = loss()
        value.backward()
        return float(value)

    def prepare(gradients):
        x.requires_grad_(gradients)
        w.requires_grad_(gradients)

    return run, prepare


def levanter_subject(way, bf16):
    import jax
    import jax.numpy as jnp

    import levanter_ce as levanter

    ce = levanter.package()
    x, w, labels = (jnp.asarray(a) for a in arrays(bf16))
    ones = jnp.full((BATCH,), 1 / BATCH, jnp.float32)

    def loss(x, w):
        if way == "weighted_sum":
            return ce.linear_softmax_cross_entropy_weighted_sum(x, labels, w, ones, logsumexp_weight=None, token_block_size=128)
        return ce.fused_cross_entropy_loss_and_logsumexp_penalty(x, labels, w, implementation=way)

    passes = {False: jax.jit(loss), True: jax.jit(jax.value_and_grad(loss, (0, 1)))}

    def run(gradients):
        results = jax.block_until_ready(passes[gradients](x, w))
        return float(results[0] if gradients else results)

    return run, lambda gradients: None


def status(field):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


def work(name, bf16, threads):
    """A subject: reads `forward` or `gradients` on each line, and answers with seconds, loss and its peak memory."""
    package, way = name.split(" ", 1)
    run, prepare = torch_subject(way, bf16, threads) if package == "torch" else levanter_subject(way, bf16)
    warm = set()
    for line in sys.stdin:
        gradients = line.strip() == "gradients"
        prepare(gradients)
        if gradients not in warm:  # compiled, and its memory taken, before it is timed
            warm.add(gradients)
            run(gradients)
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        started = time.perf_counter()
        loss = run(gradients)
        print(json.dumps({"seconds": time.perf_counter() - started, "loss": loss, "peak": status("VmHWM")}), flush=True)


def start(name, words, environment):
    command = [sys.executable, __file__, words.gdnctl, "--worker", name, "--threads", str(words.threads), *["--bf16"] * words.bf16]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def ask(worker, what):
    try:
        worker.stdin.write(what + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    return json.loads(line) if line else None


def gdnctl_round(words):
    got = subprocess.run([words.gdnctl, "oracle", "bench", "linear-ce", "--rounds", "1", "--runs", "2", "--threads", str(words.threads), "--dtype",
                          "bf16" if words.bf16 else "f32", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    report = json.loads(got.stdout)
    assert report["forward"]["verified"] and report["gradients"]["verified"], got.stdout
    return report


def measure(words):
    environment = dict(os.environ, OMP_NUM_THREADS=str(words.threads))
    workers = {name: start(name, words, environment) for name in (BF16_SUBJECTS if words.bf16 else SUBJECTS)}
    taken = {(name, what): [] for name in ("gdnctl", *workers) for what in ("forward", "gradients")}
    peaks, losses, reports = {}, {}, []
    for _ in range(words.rounds):
        reports.append(gdnctl_round(words))
        for what in ("forward", "gradients"):
            taken["gdnctl", what].append(1e-3 * reports[-1][what]["min_ms"])
            for name, worker in list(workers.items()):
                answer = ask(worker, what)
                if answer is None:
                    print(f"{name}: left out, it ended", flush=True)
                    del workers[name]
                    continue
                taken[name, what].append(answer["seconds"])
                peaks[name, what], losses[name] = answer["peak"], answer["loss"]
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return taken, peaks, losses, reports


def show(words, taken, peaks, losses, reports):
    both = reports[-1]["input_bytes"], reports[-1]["gradient_bytes"]
    peaks["gdnctl", "gradients"] = max(r["peak_rss_bytes"] or 0 for r in reports)
    for what in ("forward", "gradients"):
        print("forward and gradients" if what == "gradients" else what)
        for (name, of), seconds in taken.items():
            if of != what or len(seconds) < words.rounds:
                continue
            ratio = statistics.median(a / b for a, b in zip(taken["gdnctl", what], seconds))
            beyond = (peaks.get((name, what), 0) - sum(both)) / 2**20
            memory = f", {beyond:.0f} MiB beyond inputs and gradients" if what == "gradients" else ""
            print(f"  {name:<24}{1e3 * min(seconds):>9.0f} ms least{1e3 * statistics.median(seconds):>9.0f} ms median   gdnctl takes {ratio:.2f} of it{memory}")
        fractions = [r[what]["sgemm_fraction"] for r in reports if r[what].get("sgemm_fraction")]
        if fractions:
            print(f"  gdnctl reaches {statistics.median(fractions):.2f} of this machine's sgemm")
    print("losses: " + ", ".join(f"{name} {loss:.5f}" for name, loss in losses.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gdnctl")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    words = parser.parse_args()
    # Before anything starts threads: they take what the process may use.
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:words.threads]))
    if words.worker:
        work(words.worker, words.bf16, words.threads)
        return
    with open("/proc/cpuinfo") as f:
        cpu = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    print(f"{cpu}, {words.threads} threads, load {os.getloadavg()[0]:.1f}; B {BATCH}, H {HIDDEN}, V {VOCAB}, {'bf16' if words.bf16 else 'f32'}", flush=True)
    show(words, *measure(words))


if __name__ == "__main__":
    main()
