"""levanter's Gated DeltaNet functions, as installed or with lines changed."""
import dataclasses
import functools
import importlib.metadata
import os
import sys
import sysconfig
import types

import jax
import jax.numpy as jnp
import numpy as np

from harness import FORWARD, GRADIENTS

jax.config.update("jax_default_matmul_precision", "float32")  # as in levanter's tests
# Compiled functions are kept, so that a second run is short.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

import haliax as hax

VERSION = f"marin-levanter {importlib.metadata.version('marin-levanter')}, jax {jax.__version__}"
_SOURCE = os.path.join(sysconfig.get_paths()["purelib"], "levanter/layers/gated_deltanet.py")
_FUNCTIONS = {"chunk": "chunk_gated_delta_rule", "recurrent": "recurrent_gated_delta_rule", "norm": "_l2norm"}
_AXES = ("batch", "position", "heads")
_modules = {}


@dataclasses.dataclass(frozen=True)
class Edit:
    """One line of one function, and what it is replaced by. The line must be there exactly once."""

    within: str  # a key of _FUNCTIONS
    line: str
    by: str

    def applied_to(self, source):
        start = source.index(f"def {_FUNCTIONS[self.within]}(")
        end = min(at for word in ("\ndef ", "\nclass ", "\n# ----") if (at := source.find(word, start)) > 0)
        body = source[start:end]
        count = body.count(self.line)
        if count != 1:
            raise LookupError(f"{self.line!r} is there {count} times in {_FUNCTIONS[self.within]} of {VERSION}")
        return source[:start] + body.replace(self.line, self.by) + source[end:]


def module(edit=None):
    """The module, made from a copy of its source that is changed in memory."""
    if edit not in _modules:
        with open(_SOURCE) as f:
            source = f.read()
        if edit:
            source = edit.applied_to(source)
        made = types.ModuleType(f"levanter_gated_deltanet_{len(_modules)}")
        sys.modules[made.__name__] = made  # dataclasses look it up
        exec(compile(source, _SOURCE, "exec"), made.__dict__)
        _modules[edit] = made
    return _modules[edit]


def forward_of(form, inputs, edit=None):
    """A function of q, k, v, g, beta, initial_state (or None) that returns out and final_state."""
    function = getattr(module(edit), _FUNCTIONS[form])
    shared = inputs["v"].shape[2] // inputs["q"].shape[2]
    options = {"chunk_size": inputs.chunk} if form == "chunk" else {}

    def forward(q, k, v, g, beta, state):
        # What the layer does before it calls: neighbouring value heads share a key head.
        q, k = jnp.repeat(q, shared, 2), jnp.repeat(k, shared, 2)
        named = [hax.named(x, (*_AXES, last)) for x, last in ((q, "k_head_dim"), (k, "k_head_dim"), (v, "v_head_dim"))]
        named += [hax.named(x, _AXES) for x in (g, beta)]
        out, final = function(*named, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=inputs.l2norm, **options)
        return out.array, final

    return forward


def arguments(inputs):
    return tuple(None if (x := inputs.get(n)) is None else jnp.asarray(x) for n in ("q", "k", "v", "g", "beta", "initial_state"))


def run(form, inputs, edit=None, gradients=True):
    """What the function returns, with its gradients where the inputs hold cotangents; a dict of arrays."""
    forward = forward_of(form, inputs, edit)
    p = arguments(inputs)
    # An edited function is compiled for one call: quickly, rather than well.
    compiled = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": "0"} if edit else None)
    if not gradients or "d_out" not in inputs:
        return {n: np.asarray(x) for n, x in zip(FORWARD, compiled(forward)(*p))}

    @compiled
    def both(p, d_out, d_state):
        results, back = jax.vjp(forward, *p)
        return *results, *back((d_out.astype(results[0].dtype), d_state))

    results = both(p, jnp.asarray(inputs["d_out"]), jnp.asarray(inputs["d_final_state"]))
    return {n: np.asarray(x) for n, x in zip(FORWARD + GRADIENTS, results) if x is not None}
