"""transformers' Gated DeltaNet functions for Qwen3-Next, as installed or with lines changed. Only where torch is."""
import importlib
import importlib.metadata
import inspect

import numpy as np

from harness import BF16, FORWARD, GRADIENTS

_MODULE = "transformers.models.qwen3_next.modular_qwen3_next"
_FUNCTIONS = {"chunk": "torch_chunk_gated_delta_rule", "recurrent": "torch_recurrent_gated_delta_rule"}


def missing():
    """Why they cannot be run; None when they can."""
    for name in ("torch", "transformers"):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed (run.py --torch installs it)"
    return None


def version():
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("transformers", "torch"))


def function(form, line=None, by=None):
    module = importlib.import_module(_MODULE)
    original = getattr(module, _FUNCTIONS[form])
    if line is None:
        return original
    source = inspect.getsource(original)
    source = source[source.index("def "):]  # without decorators
    if source.count(line) != 1:
        raise LookupError(f"{line!r} is there {source.count(line)} times in {_FUNCTIONS[form]} of {version()}")
    names = dict(vars(module))
    exec(source.replace(line, by), names)
    return names[_FUNCTIONS[form]]


def tensors(inputs):
    import torch

    def tensor(x):
        narrow = x.dtype == BF16
        t = torch.tensor(np.asarray(x, np.float32))
        return t.to(torch.bfloat16) if narrow else t

    return [None if (x := inputs.get(n)) is None else tensor(x) for n in ("q", "k", "v", "g", "beta", "initial_state")]


def run(form, inputs, line=None, by=None, gradients=True):
    """What the function returns, with its gradients where the inputs hold cotangents; a dict of arrays."""
    import torch

    p = tensors(inputs)
    wanted = gradients and "d_out" in inputs
    if wanted:
        p = [None if x is None else x.requires_grad_() for x in p]
    options = {"chunk_size": inputs.chunk} if form == "chunk" else {}
    with torch.set_grad_enabled(wanted):
        out, state = function(form, line, by)(*p[:3], g=p[3], beta=p[4], initial_state=p[5], output_final_state=True,
                                              use_qk_l2norm_in_kernel=inputs.l2norm, **options)
    results = dict(zip(FORWARD, (out, state)))
    if wanted:
        torch.autograd.backward([out, state], [torch.tensor(inputs["d_out"]).to(out.dtype), torch.tensor(inputs["d_final_state"])])
        results |= {n: x.grad for n, x in zip(GRADIENTS, p) if x is not None}
    plain = lambda x: x.detach().float().numpy().astype(BF16) if x.dtype == torch.bfloat16 else x.detach().numpy()
    return {n: plain(x) for n, x in results.items()}
