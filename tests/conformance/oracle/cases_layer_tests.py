"""The tests of levanter's layer, with their shapes and tolerances: levanter's layer, transformers' (where torch is there), and
what gdnctl makes of the same inputs."""
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

import cases_layer as layers
import haliax as hax
import levanter_gdn as levanter
import transformers_gdn as transformers
import transformers_layer
from harness import Skipped, add_case, case, demand, demand_close

FINE = dict(rtol=1e-5, atol=1e-5)
COARSE = dict(rtol=1e-4, atol=1e-4)


def ours(gdnctl, x, metadata, contract="marin", *words):
    path = gdnctl.path(".safetensors")
    gdnctl.run("oracle", "run", "gdn-layer", "--contract", contract, "--inputs", gdnctl.save(x, metadata), "--out", path, *words)
    return safetensors.numpy.load_file(path)


def agree(x, y, names, what, tolerance):
    for name in names:
        demand_close(x[name], y[name], what=f"{what}: {name}", **tolerance)


@case
def their_layer_test_chunks(gdnctl):
    """Chunks of 8 and 16, of 16 and 32, at 37 tokens; forward, and the gradients of a mean over all tokens."""
    x, metadata, config = layers.draw(seed=31, B=2, T=37, Hk=2, Hv=4, dk=8, dv=8)
    x |= {n: v / np.float32(2 * 37) for n, v in x.items() if n.startswith("d_")}
    theirs = {chunk: layers.run(x, config, chunk) for chunk in (8, 16, 32)}
    gradients = [n for n in theirs[8] if n.startswith("d_")]
    mine = ours(gdnctl, x, metadata, "marin", "--backward")
    for a, b in ((8, 16), (16, 32)):
        agree(theirs[a], theirs[b], layers.RESULTS, f"levanter, chunks of {a} and {b}", FINE)
        agree(theirs[a], theirs[b], gradients, f"levanter, chunks of {a} and {b}", dict(rtol=3e-5, atol=3e-6))
    for chunk, results in theirs.items():
        agree(mine, results, layers.RESULTS, f"ours and chunks of {chunk}", FINE)
        agree(mine, results, gradients, f"ours and chunks of {chunk}", dict(rtol=1e-4, atol=1e-5))


@case
def their_layer_test_masks(gdnctl):
    """Masked tokens at the end change nothing before them; masked ones at the beginning nothing after them."""
    x, metadata, config = layers.draw(seed=32, B=2, T=24, Hk=2, Hv=4, dk=8, dv=8)
    layer = layers.layer_with(config, x)
    tokens = hax.named(jnp.asarray(np.concatenate([x["qkvz"], x["ba"]], -1)), ("batch", "position", "embed"))

    def run(mask):
        named = None if mask is None else hax.named(jnp.asarray(mask), ("batch", "position"))
        y, _ = layer(tokens, attention_mask=named)
        return np.asarray(y.rearrange(("batch", "position", "embed")).array)[..., : config.value_dim].reshape(2, 24, 4, 8)

    def masked(mask):
        return {**x, **{n: x[n] * mask[..., None] for n in ("qkvz", "ba")}}

    mask = np.ones((2, 24), np.float32)
    mask[:, 17:] = 0
    whole, cut = run(None)[:, :17], run(mask)[:, :17]
    demand_close(cut, whole, what="levanter: before masked tokens", **FINE)
    demand_close(ours(gdnctl, masked(mask), metadata)["out"][:, :17], whole, what="ours: before masked tokens", **FINE)
    mask = np.ones((2, 24), np.float32)
    mask[0, :6] = 0
    theirs = run(mask)
    mine = ours(gdnctl, masked(mask), metadata)["out"]
    demand_close(mine, theirs, what="ours and levanter: after masked tokens", **COARSE)
    alone = {n: (v[:1, 6:] if n in ("qkvz", "ba") else v) for n, v in x.items() if not n.startswith("d_")}
    demand_close(ours(gdnctl, alone, metadata)["out"], theirs[:1, 6:], what="ours: without the masked tokens", **COARSE)


@case
def their_layer_test_convolution(gdnctl):
    """levanter's convolution and its update, token by token, beside the part of ours."""
    x, metadata, config = layers.draw(seed=33, B=2, T=11, Hk=1, Hv=2, dk=4, dv=4, states=True)
    made = levanter.module()
    channels, weight = x["conv_weight"].shape[0], jnp.asarray(x["conv_weight"])
    # One key head: its channels lie as those of the convolution do.
    rows = jnp.asarray(x["qkvz"][..., :channels]).transpose(0, 2, 1)
    whole = np.asarray(made._causal_depthwise_conv1d_full(rows, weight)).transpose(0, 2, 1)
    stateless = {n: v for n, v in x.items() if not n.startswith(("initial_", "d_"))}
    demand_close(ours(gdnctl, stateless, metadata, "marin", "--parts")["conv_out"], whole, what="all tokens", **FINE)
    state, steps = jnp.asarray(x["initial_conv_state"]), []
    for t in range(11):
        y, state = made._causal_depthwise_conv1d_update(rows[:, :, t : t + 1], weight, None, state)
        steps.append(np.asarray(y)[:, :, 0])
    given = {n: v for n, v in x.items() if not n.startswith("d_")}
    streamed = ours(gdnctl, given, metadata, "marin", "--parts", "--stream", "1")
    demand_close(streamed["conv_out"], np.stack(steps, 1), what="token by token", **FINE)
    demand_close(streamed["final_conv_state"], np.asarray(state), what="the state", **FINE)


@case
def their_layer_test_core(gdnctl):
    """The operator of the layer alone, on the layer's own parts, by each kernel: what the whole layer has there."""
    x, metadata, _ = layers.draw(seed=34, B=2, T=37, Hk=2, Hv=4, dk=8, dv=8)
    whole = ours(gdnctl, x, metadata, "marin", "--parts", "--backward")
    keys = 2 * 8
    q, k, v = np.split(whole["conv_out"].astype(np.float32), (keys, 2 * keys), -1)
    core = {"q": q.reshape(2, 37, 2, 8), "k": k.reshape(2, 37, 2, 8), "v": v.reshape(2, 37, 4, 8),
            "g": whole["g"].astype(np.float32), "beta": whole["beta"].astype(np.float32)}
    for method in ("recurrent64", "recurrent32", "chunk", "fused"):
        path = gdnctl.path(".safetensors")
        inputs = gdnctl.save(core, {"op": "gdn", "head_map": "interleaved"})
        gdnctl.run("oracle", "run", "gdn", "--inputs", inputs, "--method", method, "--out", path)
        results = safetensors.numpy.load_file(path)
        demand_close(results["out"], whole["core_out"], what=f"{method}: core_out", **FINE)
        demand_close(results["final_state"], whole["final_state"], what=f"{method}: final_state", **FINE)


def add_transformers(name, arguments):
    def against_the_layer(gdnctl):
        why = transformers.missing()
        if why:
            raise Skipped(why)
        x, sizes = transformers_layer.draw(**arguments)
        metadata = transformers_layer.metadata(sizes)
        inputs = transformers_layer.masked(x, **arguments)
        theirs = transformers_layer.run(x, sizes, **arguments)
        backward = arguments.get("backward", False)
        mine = ours(gdnctl, inputs, metadata, "hf", *["--backward"] * backward)
        for n, value in theirs.items():
            demand_close(mine[n], value, what=n, **(dict(rtol=1e-4, atol=1e-5) if n.startswith("d_") else COARSE))
        got = gdnctl.run("oracle", "compare", "gdn-layer", "--contract", "hf", "--inputs", gdnctl.save(inputs, metadata), "--outputs",
                         gdnctl.save(theirs))
        demand("verdict: OK" in got.stdout, got.stdout)

    add_case(f"transformers_layer_{name}", against_the_layer)


for _name, _arguments in transformers_layer.PROBLEMS.items():
    if _name != "conv":
        add_transformers(_name, _arguments)
