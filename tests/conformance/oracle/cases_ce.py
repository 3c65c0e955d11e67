"""levanter's fused cross-entropy, live: our verdict on what each implementation returns, its tests' shapes with their
tolerances, and the block sizes that it infers beside ours. pallas_tpu runs in Pallas' interpreter."""
import json
import os
import subprocess
import warnings

import numpy as np
import safetensors.numpy

import levanter_ce as levanter
from harness import Skipped, add_case, case, demand, demand_close

LARGE = os.environ.get("GDNCTL_TEST_LARGE")  # the large shapes, and the problems that the others nearly repeat
CPU = ("reference", "xla", "xla_fast_bwd")
EVERYWHERE = CPU + ("pallas_tpu",)

# name -> implementations, blocks (b, h, v), arguments of draw, whether only with LARGE. Pallas wants whole blocks of 128 in B and H.
PROBLEMS = {
    "plain": (CPU, (64, 32, 128), dict(seed=1, B=64, H=32, V=259), True),
    "tail_small_logits": (CPU, (40, 64, 128), dict(seed=2, B=40, H=64, V=645, w_scale=0.02), False),
    "cap_penalty_weights": (CPU, (64, 32, 64), dict(seed=3, B=64, H=32, V=130, cap=1.5, penalty=0.2, weights=True), False),
    "sum_penalty": (CPU, (48, 16, 64), dict(seed=4, B=48, H=16, V=100, penalty=0.1, reduction="sum", w_scale=0.3), True),
    "huge_logits": (CPU, (32, 32, 128), dict(seed=5, B=32, H=32, V=300, w_scale=30), True),
    "bf16": (CPU, (64, 64, 128), dict(seed=6, B=64, H=64, V=645, w_scale=0.1, bf16=True), False),
    "bf16_cap_penalty": (CPU, (64, 32, 128), dict(seed=7, B=64, H=32, V=257, cap=1.5, penalty=0.2, bf16=True), True),
    "interpreted": (EVERYWHERE, (128, 128, 128), dict(seed=8, B=128, H=128, V=256), True),
    "interpreted_tail_small_logits": (EVERYWHERE, (128, 128, 128), dict(seed=9, B=128, H=128, V=130, w_scale=0.02), False),
    "interpreted_cap_penalty_weights": (EVERYWHERE, (128, 128, 128), dict(seed=10, B=128, H=256, V=300, cap=1.5, penalty=0.2, weights=True), False),
    "interpreted_bf16": (EVERYWHERE, (128, 128, 256), dict(seed=11, B=256, H=128, V=600, w_scale=0.1, bf16=True), True),
}


def skip_if(large):
    if large and not LARGE:
        raise Skipped("set GDNCTL_TEST_LARGE=1")


def exact(gdnctl, inputs):
    """The fp64 result, in the inputs' names."""
    path = gdnctl.path(".safetensors")
    gdnctl.run("oracle", "run", "linear-ce", "--inputs", gdnctl.save(inputs, inputs.metadata()), "--out", path)
    return safetensors.numpy.load_file(path)


def add_verdicts(name, implementations, blocks, arguments, large):
    def verdicts(gdnctl):
        skip_if(large)
        inputs = levanter.draw(**arguments)
        for implementation in implementations:
            outputs = levanter.run(implementation, inputs, blocks)
            for level in ("exact", "sampled"):
                levanter.demand_ok(gdnctl, inputs, outputs, f"{implementation}, {level}, {levanter.VERSION}", "--level", level)

    add_case(f"ce_{name}", verdicts)


# What levanter's tests ask of its kernels: name -> (implementations, blocks, tolerance, arguments of draw, large).
# A tolerance is NumPy's rtol and atol; "5 %": of the largest gradient.
THEIR_TESTS = {
    "small": (("reference", "xla"), (6, 4, 5), 1e-5, dict(seed=21, B=6, H=4, V=5), False),
    "blocks": (("xla",), (64, 32, 32), 1e-5, dict(seed=22, B=256, H=32, V=96), False),
    "cap_penalty": (CPU, (32, 64, 128), 1e-4, dict(seed=23, B=32, H=64, V=128, cap=2.0, penalty=0.2), False),
    "cap_gradients": (CPU, (16, 32, 64), 1e-4, dict(seed=24, B=16, H=32, V=64, cap=1.5), False),
    "smallest_of_a_tpu": (("pallas_tpu",), (128, 128, 256), 1e-4, dict(seed=25, B=128, H=128, V=256), False),
    "tail_b512": (("pallas_tpu",), (512, 128, 128), 1e-4, dict(seed=26, B=512, H=128, V=130), False),
    "tail_b128": (("pallas_tpu",), (128, 256, 128), 1e-4, dict(seed=27, B=128, H=256, V=130), False),
    "bf16_scale_1": (("xla", "xla_fast_bwd"), (64, 64, 128), "5 %", dict(seed=28, B=64, H=64, V=1024, bf16=True), False),
    "bf16_scale_30": (("xla", "xla_fast_bwd"), (64, 64, 128), "5 %", dict(seed=28, B=64, H=64, V=1024, w_scale=30, bf16=True), False),
    "bf16_scale_1000": (("xla", "xla_fast_bwd"), (64, 64, 128), "5 %", dict(seed=28, B=64, H=64, V=1024, w_scale=1000, bf16=True), False),
    "blocks_of_16": (("xla",), (6, 7, 9), 1e-5, dict(seed=29, B=6, H=7, V=9), False),
    "pallas_backward": (("pallas_tpu",), (1024, 128, 128), 1e-4, dict(seed=30, B=4096, H=128, V=256, cap=1.5, penalty=0.2), True),
    "b512": (("xla", "pallas_tpu"), (512, 128, 256), 1e-4, dict(seed=31, B=512, H=256, V=2048), True),
    "large_vocabulary_bf16": (("xla",), (1024, 32, 1024), 5e-3, dict(seed=32, B=1024, H=32, V=65537, bf16=True), True),
    "timed_shape": (("xla", "xla_fast_bwd"), (2048, 128, 1024), 1e-4, dict(seed=33, B=2048, H=128, V=4096), True),
}


def add_their_test(name, implementations, blocks, tolerance, arguments, large):
    def theirs_and_exact(gdnctl):
        skip_if(large)
        inputs = levanter.draw(**arguments)
        want = exact(gdnctl, inputs)
        for implementation in implementations:
            got = levanter.run(implementation, inputs, blocks)
            for n in ("loss", "lse", "gx", "gw"):
                what = f"{implementation}: {n}"
                if tolerance != "5 %":
                    demand_close(got[n], want[n], rtol=tolerance, atol=tolerance, what=what)
                elif n in ("gx", "gw"):
                    demand_close(got[n], want[n], rtol=0, atol=0.05 * np.abs(want[n]).max(), what=what)
            levanter.demand_ok(gdnctl, inputs, got, implementation)

    add_case(f"ce_their_test_{name}", theirs_and_exact)


for _name, _problem in PROBLEMS.items():
    add_verdicts(_name, *_problem)
for _name, _test in THEIR_TESTS.items():
    add_their_test(_name, *_test)


@case
def ce_labels_out_of_range_are_refused(gdnctl):
    """Theirs return numbers for such labels: the last column, or infinity beside finite gradients."""
    inputs = levanter.draw(41, 16, 8, 40)
    inputs["labels"][5] = -1
    for implementation in ("reference", "xla"):
        outputs = levanter.run(implementation, inputs, (16, 8, 16))
        demand(np.isfinite(outputs["gw"]).all(), f"{implementation}: gradients that are not finite")
        got = gdnctl.run("oracle", "compare", "linear-ce", "--inputs", gdnctl.save(inputs, inputs.metadata()), "--outputs", gdnctl.save(outputs), code=9)
        demand("labels[5] = -1 is outside [0, 40)" in got.stderr, got.stderr)


@case
def ce_infer_picks_the_same_blocks(gdnctl):
    import jax.numpy as jnp

    random = np.random.default_rng(42)
    dtypes = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
    kinds = ("TPU v4", "TPU v5", "TPU v5p", "TPU v5 lite", "TPU v6e", "TPU7x", "NVIDIA H100 80GB HBM3", "NVIDIA GB10", "NVIDIA A100", "cpu")
    sizes = {"batch": (96, 512, 1024, 1536, 2048, 8192, 12288, 16384, 32767, 32768, 65536, 131072, 262144),
             "hidden": (64, 128, 256, 512, 640, 768, 1024, 1536, 2048, 4096, 8192), "vocab": (4096, 8192, 16384, 32000, 50257, 120000, 128256, 131072, 151936)}
    os.environ.pop("LIBTPU_INIT_ARGS", None)
    warnings.simplefilter("ignore")  # levanter says in one that an entry is the safer one
    for _ in range(120):
        kind = kinds[random.integers(len(kinds))]
        B, H, V = (int(random.choice(sizes[n])) for n in ("batch", "hidden", "vocab"))
        named = [str(random.choice(list(dtypes))) for _ in range(3)]
        theirs = levanter.inferred(kind, B, H, V, *(dtypes[n] for n in named))
        words = ["--device", kind, "--batch", str(B), "--hidden", str(H), "--vocab", str(V), "--dtype", named[0], "--x-dtype", named[1], "--w-dtype", named[2]]
        ours = infer(gdnctl, words)
        for key, value in (("sizes", ours["sizes"]), ("tuned", ours["tuned"]), ("xla_v", ours["xla"]["v_block_size"])):
            demand(value == theirs[key], f"{' '.join(words)}: {key} is {value}, levanter has {theirs[key]}")
        if not ours["remapped"]:
            demand(ours["bucket"] == theirs["bucket"], f"{' '.join(words)}: bucket {ours['bucket']}, levanter has {theirs['bucket']}")


def infer(gdnctl, words):
    """The report of ce-infer, which ends with 1 where the kernel does not run with what is inferred."""
    got = subprocess.run([gdnctl.binary, "ce-infer", *words, "--json"], capture_output=True, text=True, timeout=60)
    demand(got.returncode in (0, 1), got.stderr)
    report = json.loads(got.stdout)
    demand(report["runnable"] == (got.returncode == 0), f"{' '.join(words)}: exit code {got.returncode}")
    return report
