"""levanter's fused cross-entropy, as installed: its implementations on a CPU, and the sizes that it infers."""
import contextlib
import functools
import importlib
import importlib.metadata
import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np

from harness import BF16, Failed

jax.config.update("jax_default_matmul_precision", "float32")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

VERSION = f"marin-levanter {importlib.metadata.version('marin-levanter')}, jax {jax.__version__}"
PACKAGE = "levanter.kernels.pallas.fused_cross_entropy_loss"
OUTPUTS = ("loss", "lse", "reduced", "gx", "gw")


class _Forgetful:
    """In place of the cache of tuned sizes, which lives in a package that is not installed: it has nothing."""

    @classmethod
    def for_prefix(cls, *_, **__):
        return cls()

    def load(self, _):
        return None

    def store(self, *_):
        pass


def _pretend(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules.setdefault(name, module)


@functools.cache
def package():
    # What the kernels never call on one machine: caches, hashes of source trees, and word from other hosts.
    _pretend("finestore")
    _pretend("finestore.cache", PersistentKvCache=_Forgetful)
    _pretend("rigging")
    hashes = ("combined_content_hash", "directory_content_hash", "file_content_hash", "workspace_lock_hash")
    _pretend("rigging.cache", **{name: lambda *_, **__: "" for name in hashes})
    _pretend("levanter.utils")
    _pretend("levanter.utils.jax_utils", multihost_allgather_sync=None)
    return importlib.import_module(PACKAGE)


@functools.cache
def _pallas():
    package()
    module = importlib.import_module(PACKAGE + ".pallas_tpu")

    class OnATpu:  # what this one module takes for jax
        def __getattr__(self, name):
            return (lambda: "tpu") if name == "default_backend" else getattr(jax, name)

    module.jax = OnATpu()
    return module.linear_softmax_cross_entropy_loss_pallas


class Inputs(dict):
    """Tensors of one call, and what the call means by them."""

    def __init__(self, tensors, cap=None, penalty=0.0, reduction="mean"):
        super().__init__(tensors)
        self.cap, self.penalty, self.reduction = cap, penalty, reduction

    def metadata(self):
        told = {"op": "linear-ce", "layout": "hv", "logsumexp_weight": str(self.penalty), "reduction": self.reduction}
        return {**told, "soft_cap": str(self.cap)} if self.cap else told


def draw(seed, B, H, V, *, cap=None, penalty=0.0, reduction="mean", weights=False, w_scale=1.0, bf16=False):
    """x ~ N(0,1), w ~ N(0, w_scale); labels at both ends of the vocabulary first, then random; weights 0, 1, 2, 3."""
    random = np.random.default_rng(seed)
    x, w = random.standard_normal((B, H)), w_scale * random.standard_normal((H, V))
    labels = random.integers(0, V, B)
    ends = (V - 1, 0, max(V - 2, 0))[:B]
    labels[:len(ends)] = ends
    stored = BF16 if bf16 else np.float32
    tensors = {"x": x.astype(stored), "w": w.astype(stored), "labels": labels.astype(np.int32)}
    if weights:
        tensors["weight"] = (np.arange(B) % 4).astype(np.float32)
    return Inputs(tensors, cap, penalty, reduction)


def run(implementation, inputs, blocks):
    """loss and lse by the implementation's own function; reduced, gx and gw through the public one; a dict of arrays."""
    ce = package()
    own = _pallas() if implementation == "pallas_tpu" else ce.IMPLEMENTATIONS[implementation]
    sizes = {"block_sizes": ce.BlockSizes(*blocks)}
    x, w, labels = (jnp.asarray(inputs[n]) for n in ("x", "w", "labels"))
    weight = jnp.asarray(inputs["weight"]) if "weight" in inputs else None

    def reduced(x, w):
        return ce.fused_cross_entropy_loss_and_logsumexp_penalty(
            x, labels, w, reduction=inputs.reduction, weight=weight, logsumexp_weight=inputs.penalty,
            logit_soft_cap=inputs.cap, implementation=[lambda *arguments, **words: own(*arguments, **{**words, **sizes})], **sizes)

    @jax.jit
    def everything(x, w):
        ranked = implementation in ("reference", "xla")
        rows = own(x, labels, w, logit_soft_cap=inputs.cap, **sizes, **({"return_argmax": True} if ranked else {}))
        scalar, (gx, gw) = jax.value_and_grad(reduced, (0, 1))(x, w)
        return dict(zip(OUTPUTS, (*rows[:2], scalar, gx, gw))) | ({"argmax": rows[2]} if ranked else {})

    interpreted = contextlib.nullcontext()
    if implementation == "pallas_tpu":
        from jax.experimental.pallas import tpu

        interpreted = tpu.force_tpu_interpret_mode()
    with interpreted:
        return {n: np.asarray(value) for n, value in everything(x, w).items()}


def inferred(kind, B, H, V, dtype, x_dtype, w_dtype):
    """Sizes, whether they are tuned, and the XLA blocks, by levanter's own functions."""
    package()
    tables = importlib.import_module(PACKAGE + ".tuned_block_sizes")
    sizes, tuned = tables.infer_block_sizes_with_tuned_match(B, H, V, dtype=dtype, x_dtype=x_dtype, w_dtype=w_dtype, device_kind=kind)
    v = tables.infer_xla_v_block_size(B, H, V, dtype=dtype, device_kind=kind)
    return {"sizes": {n: getattr(sizes, n) for n in ("b_block_size", "h_block_size", "v_block_size")}, "tuned": tuned,
            "bucket": tables.shape_bucket_name(B, H, V, device_kind=kind), "xla_v": v, "xla_b": tables.infer_xla_b_block_size(B, v)}


def compare(gdnctl, inputs, outputs, *words, code=0):
    """Our report on `outputs`, a dict of arrays, as an object."""
    got = gdnctl.run("oracle", "compare", "linear-ce", "--json", "--inputs", gdnctl.save(inputs, inputs.metadata()), "--outputs",
                     gdnctl.save(outputs), *words, code=code)
    return json.loads(got.stdout)


def demand_ok(gdnctl, inputs, outputs, what, *words):
    report = compare(gdnctl, inputs, outputs, *words)
    judged = {t["meaning"] if "meaning" in t else t["name"] for t in report["tensors"]}
    if report["verdict"] != "OK" or not set(outputs) <= judged | {"reduced"}:
        raise Failed(f"{what}: {report['verdict']}, {report['reason']}; judged were {sorted(judged)}")
    return report
