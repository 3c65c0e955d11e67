"""Tensor files: what jax and safetensors write is read bit for bit, and what gdnctl writes they read bit for bit."""
import os

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors.flax
import safetensors.numpy

import transformers_gdn as transformers
from harness import Skipped, add_case, bytes_of, case, demand, draw

NAMES = ("q", "k", "v", "g", "beta", "initial_state")


def arrays(bf16):
    x = draw(71, 2, 9, 3, 3, 8, 4, bf16=bf16, cotangents=False)
    return {n: jnp.asarray(x[n]) for n in NAMES}


def typed(x):
    """bfloat16, where NumPy's format has lost the type of it."""
    return x.view(ml_dtypes.bfloat16) if x.dtype.kind == "V" else x


def demand_same(got, want, what):
    for n in NAMES:
        x, y = typed(np.asarray(got[n])), np.asarray(want[n])
        demand(x.dtype == y.dtype and x.shape == y.shape, f"{what}: {n} is {x.dtype} {x.shape} instead of {y.dtype} {y.shape}")
        demand(bytes_of(x) == bytes_of(y), f"{what}: the bits of {n} differ")


def write_npy(folder, x):
    for n, value in x.items():
        jnp.save(os.path.join(folder, n + ".npy"), value)
    return [os.path.join(folder, n + ".npy") for n in x]


def write_npz(folder, x):
    path = os.path.join(folder, "written.npz")
    jnp.savez(path, **x)
    return [path]


def write_flax(folder, x):
    path = os.path.join(folder, "written.safetensors")
    safetensors.flax.save_file(x, path, {"op": "gdn"})
    return [path]


def write_bytes(folder, x):
    path = os.path.join(folder, "written.safetensors")
    with open(path, "wb") as f:
        f.write(safetensors.numpy.save({n: np.asarray(value) for n, value in x.items()}))
    return [path]


def write_torch(folder, x):
    import safetensors.torch
    import torch

    path = os.path.join(folder, "written.safetensors")
    wide = {n: torch.tensor(np.asarray(value, np.float32)) for n, value in x.items()}
    safetensors.torch.save_file({n: t.to(torch.bfloat16) if x[n].dtype == jnp.bfloat16 else t for n, t in wide.items()}, path)
    return [path]


READERS = {
    ".npz": (("jax.numpy", jnp.load), ("numpy", np.load)),
    ".safetensors": (("safetensors.flax", safetensors.flax.load_file), ("safetensors.numpy", safetensors.numpy.load_file)),
}


def loaded(read, path, bf16):
    """jax refuses bfloat16 in an .npz, whose type is lost there: that is read by numpy alone."""
    if read is jnp.load and bf16:
        return None
    got = read(path)
    return {n: got[n] for n in NAMES}


def add(name, write, needs=lambda: None):
    def both_ways(gdnctl):
        if why := needs():
            raise Skipped(why)
        for bf16 in (False, True):
            x = arrays(bf16)
            words = [word for path in write(gdnctl.folder, x) for word in ("--inputs", path)]
            for suffix, readers in READERS.items():
                path = gdnctl.path(suffix)
                gdnctl.run("oracle", "run", "gdn", *words, "--out", path)
                for reader, read in readers:
                    got = loaded(read, path, bf16)
                    if got is not None:
                        demand_same(got, x, f"{name}, written again as {suffix}, read by {reader}")

    add_case(f"files_of_{name}", both_ways)


add("jax_save", write_npy)
add("jax_savez", write_npz)
add("safetensors_flax", write_flax)
add("safetensors_bytes", write_bytes)
add("safetensors_torch", write_torch, transformers.missing)


@case
def dumping_as_the_documentation_says(gdnctl):
    """The five lines of docs/oracle.md, run as they are."""
    import levanter_gdn as levanter
    from harness import Inputs

    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/oracle.md")).read()
    lines = page.split("```python\n")[1].split("```")[0]
    demand("save_file" in lines and len(lines.strip().splitlines()) <= 6, "docs/oracle.md has other lines")
    x = draw(72, 1, 70, 2, 2, 16, 16, bf16=True, cotangents=False)
    results = levanter.run("chunk", Inputs(x))
    names = {n: jnp.asarray(x[n]) for n in NAMES} | {"S0": jnp.asarray(x["initial_state"])}
    names |= {"out": jnp.asarray(results["out"]), "state": jnp.asarray(results["final_state"])}
    before = os.getcwd()
    os.chdir(gdnctl.folder)
    try:
        exec(lines, names)
    finally:
        os.chdir(before)
    got = gdnctl.run("oracle", "compare", "gdn", "--inputs", "in.safetensors", "--outputs", "out.safetensors")
    demand(got.stdout.endswith("verdict: OK\n"), got.stdout)
