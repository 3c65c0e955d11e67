"""The tests of levanter's kernels, with their shapes and tolerances, asked of gdnctl's kernels.

Inputs as there: q, k, v ~ N(0,1), g = -0.1 N(0,1) (half of the gates grow), beta ~ U(0,1), l2norm on. Where their test
compares with transformers, ours compares with levanter's function, and with transformers' where torch is there.
"""
import numpy as np

import levanter_gdn as levanter
import transformers_gdn as transformers
from harness import GRADIENTS, case, demand, demand_close, draw

TOLERANCE = dict(rtol=1e-4, atol=1e-4)
METHODS = {"recurrent": ("--method", "recurrent32"), "chunk": ("--method", "chunk"), "fused": ("--method", "fused")}


def inputs_of(seed, B, H, L, dk, dv, **options):
    options = {"gate": "signs", "state": 0, "cotangents": False, **options}
    return draw(seed, B, L, H, H, dk, dv, **options)


def agree(ours, theirs, what, tolerance=TOLERANCE, names=("out", "final_state")):
    for name in names:
        demand_close(ours[name], theirs[name], what=f"{what}: {name}", **tolerance)


def counterparts(inputs, form):
    yield "levanter", levanter.run(form, inputs)
    if transformers.missing() is None:
        yield "transformers", transformers.run(form, inputs)


def against_counterparts(gdnctl, form, *all_inputs, tolerance=TOLERANCE):
    for inputs in all_inputs:
        for method in (("recurrent", "fused") if form == "recurrent" else ("chunk",)):
            ours = gdnctl.compute(inputs, *METHODS[method])
            for name, theirs in counterparts(inputs, form):
                agree(ours, theirs, f"{method} and {name}, L={inputs['q'].shape[1]}", tolerance)


@case
def their_test_no_writes_no_output(gdnctl):
    inputs = inputs_of(101, 2, 3, 17, 8, 8, beta=0)
    for words in METHODS.values():
        demand_close(gdnctl.compute(inputs, *words)["out"], np.zeros((2, 17, 3, 8)), 1e-6, 1e-6, words[1])


@case
def their_test_perfect_fit(gdnctl):
    inputs = inputs_of(102, 1, 2, 11, 8, 8, beta=1, gate=0)
    k = inputs["k"][:, -1].astype(np.float64)
    k /= np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
    for words in METHODS.values():
        state = gdnctl.compute(inputs, *words)["final_state"]
        demand_close(np.einsum("bhkv,bhk->bhv", state, k), inputs["v"][:, -1], what=words[1], **TOLERANCE)


@case
def their_test_chunk_equals_recurrent(gdnctl):
    inputs = inputs_of(103, 2, 3, 57, 8, 8)
    recurrent = gdnctl.compute(inputs, *METHODS["recurrent"])
    agree(recurrent, levanter.run("recurrent", inputs), "recurrent and levanter")
    agree(gdnctl.compute(inputs, *METHODS["fused"]), recurrent, "fused and recurrent")
    for chunk in (1, 2, 7, 16, 32, 64):
        agree(gdnctl.compute(inputs.changed(chunk=chunk), *METHODS["chunk"]), recurrent, f"chunk {chunk} and recurrent")


@case
def their_test_length_that_chunks_do_not_divide(gdnctl):
    inputs = inputs_of(104, 2, 4, 61, 8, 16, chunk=32)
    agree(gdnctl.compute(inputs, *METHODS["chunk"]), gdnctl.compute(inputs, *METHODS["recurrent"]), "chunk and recurrent")


@case
def their_test_continuation(gdnctl):
    inputs = inputs_of(105, 1, 3, 47, 8, 8, chunk=16)
    for words in METHODS.values():
        whole = gdnctl.compute(inputs, *words)
        first = gdnctl.compute(inputs.changed(**{n: x[:, :21] for n, x in inputs.items()}), *words)
        rest = inputs.changed(initial_state=first["final_state"].astype(np.float32), **{n: x[:, 21:] for n, x in inputs.items()})
        second = gdnctl.compute(rest, *words)
        demand_close(np.concatenate([first["out"], second["out"]], 1), whole["out"], what=f"{words[1]}: out", **TOLERANCE)
        demand_close(second["final_state"], whole["final_state"], what=f"{words[1]}: final_state", **TOLERANCE)


@case
def their_test_chunk_of_one_without_l2norm(gdnctl):
    inputs = inputs_of(106, 2, 2, 29, 8, 8, chunk=1).changed(l2norm=False)
    agree(gdnctl.compute(inputs, *METHODS["chunk"]), gdnctl.compute(inputs, *METHODS["recurrent"]), "chunk and recurrent", dict(rtol=3e-4, atol=1e-4))


@case
def their_test_extreme_gates(gdnctl):
    for beta in (1e-4, 1 - 1e-6):
        inputs = inputs_of(107, 1, 2, 37, 16, 8, gate="strong", beta=beta)
        for form in ("recurrent", "chunk"):
            against_counterparts(gdnctl, form, inputs)
            for name, x in gdnctl.compute(inputs, *METHODS[form]).items():
                demand(np.isfinite(x.astype(np.float64)).all(), f"{form}: {name} is not finite")


@case
def their_test_finite_gradients(gdnctl):
    inputs = inputs_of(108, 1, 1, 7, 4, 4, chunk=4, cotangents=True)
    for method in ("recurrent64", "chunk"):
        ours = gdnctl.compute(inputs, "--method", method, "--backward")
        for name in GRADIENTS[:-1]:
            demand(np.isfinite(ours[name]).all(), f"{method}: {name} is not finite")


@case
def their_test_recurrent_and_its_counterparts(gdnctl):
    against_counterparts(gdnctl, "recurrent", inputs_of(109, 1, 2, 17, 8, 8))


@case
def their_test_chunk_and_its_counterparts(gdnctl):
    against_counterparts(gdnctl, "chunk", inputs_of(110, 2, 4, 64, 8, 16, chunk=32), inputs_of(111, 2, 3, 61, 8, 16, chunk=32))


@case
def their_test_initial_state(gdnctl):
    inputs = inputs_of(112, 1, 3, 47, 8, 8, chunk=16, state=0.1)
    against_counterparts(gdnctl, "chunk", inputs)
    against_counterparts(gdnctl, "recurrent", inputs)


@case
def their_test_short_sequences(gdnctl):
    for L in (1, 2, 3, 5, 7):
        inputs = inputs_of(113 + L, 2, 2, L, 8, 8)
        theirs = [levanter.run("recurrent", inputs)]  # compiled in a fifth of the time of the chunk function
        if L in (1, 7):
            theirs += [x for _, x in counterparts(inputs, "chunk")]
        for method in METHODS:
            ours = gdnctl.compute(inputs, *METHODS[method])
            for x in theirs:
                agree(ours, x, f"{method}, L={L}")


@case
def their_test_gradients(gdnctl):
    inputs = inputs_of(130, 1, 2, 16, 8, 8, chunk=8, state=0.1, cotangents=True)
    # The loss there is the sum of out.
    inputs = inputs.changed(d_out=np.ones_like(inputs["d_out"]), d_final_state=np.zeros_like(inputs["d_final_state"]))
    for method in ("recurrent64", "chunk"):
        ours = gdnctl.compute(inputs, "--method", method, "--backward")
        for name, theirs in counterparts(inputs, "chunk"):
            agree(ours, theirs, f"{method} and {name}", dict(rtol=1e-4, atol=5e-6), GRADIENTS)
