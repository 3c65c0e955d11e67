"""levanter's whole layer, live: our verdict on what it computes between its projections, and our results beside it.

The projections of the layer are made to be the identity, so that its input is what ours begins with (qkvz and ba) and its
output what ours ends with. Gradients are those of jax.vjp through the layer.
"""
import json

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

import haliax as hax
import levanter_gdn as levanter
from harness import BF16, add_case, demand, relative

PARAMETERS = ("conv_weight", "A_log", "dt_bias", "norm_weight")
RESULTS = ("out", "final_conv_state", "final_state")

# name -> arguments of draw below
PROBLEMS = {
    "prefill": dict(seed=1, B=2, T=70, Hk=2, Hv=4, dk=16, dv=8, chunk=32),
    "equal_heads": dict(seed=2, B=1, T=33, Hk=3, Hv=3, dk=8, dv=16, chunk=16),
    "fewer_tokens_than_taps": dict(seed=3, B=2, T=2, Hk=1, Hv=2, dk=8, dv=8),
    "decode": dict(seed=4, B=3, T=1, Hk=2, Hv=4, dk=16, dv=8, states=True),
    "d128": dict(seed=5, B=1, T=129, Hk=1, Hv=2, dk=128, dv=128),
    "bf16": dict(seed=6, B=2, T=70, Hk=2, Hv=4, dk=16, dv=8, chunk=32, bf16=True),
}


def draw(seed, B, T, Hk, Hv, dk, dv, chunk=64, states=False, bf16=False):
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    channels = 2 * Hk * dk + Hv * dv
    wide = BF16 if bf16 else np.float32
    x = {
        "qkvz": normal(B, T, channels + Hv * dv).astype(wide),
        "ba": normal(B, T, 2 * Hv).astype(wide),
        "conv_weight": 0.5 * normal(channels, 4),
        "A_log": random.uniform(-3, 2.7, Hv).astype(np.float32),
        "dt_bias": normal(Hv),
        "norm_weight": 1 + 0.1 * normal(dv),
        "d_out": normal(B, T, Hv, dv).astype(wide),
        "d_final_conv_state": normal(B, channels, 4).astype(wide),
        "d_final_state": normal(B, Hv, dk, dv),
    }
    if states:
        x["initial_conv_state"] = normal(B, channels, 4).astype(wide)
        x["initial_state"] = 0.1 * normal(B, Hv, dk, dv)
    metadata = {"op": "gdn-layer", "key_heads": str(Hk), "chunk": str(chunk)}
    return x, metadata, levanter.module().GatedDeltaNetConfig(hax.Axis("embed", channels + Hv * dv + 2 * Hv), Hk, Hv, dk, dv)


def layer_with(config, parameters):
    """The layer with these parameters, and projections that let everything through."""
    made = levanter.module().GatedDeltaNet.init(config, key=jax.random.PRNGKey(0))
    qkvz, embed, values = config.mix_qkvz_axis.size, config.Embed.size, config.value_dim
    identity = np.eye(embed, dtype=np.float32)
    return made.load_state_dict({
        "in_proj_qkvz.weight": identity[:qkvz],
        "in_proj_ba.weight": identity[qkvz:],
        "conv_weight": parameters["conv_weight"],
        "A_log": parameters["A_log"],
        "dt_bias": parameters["dt_bias"],
        "o_norm.weight": parameters["norm_weight"],
        "out_proj.weight": identity[:, :values].reshape(embed, config.num_v_heads, config.head_v_dim),
    })


def run(x, config, chunk):
    """Results and gradients, a dict of arrays by our names."""
    B, T = x["qkvz"].shape[:2]
    differentiable = [n for n in ("qkvz", "ba", *PARAMETERS, "initial_conv_state", "initial_state") if n in x]

    def forward(values):
        p = dict(zip(differentiable, values))
        states = (p["initial_conv_state"], p["initial_state"]) if "initial_state" in p else None
        tokens = hax.named(jnp.concatenate([p["qkvz"], p["ba"]], -1), ("batch", "position", "embed"))
        y, (conv_state, state) = layer_with(config, p)(tokens, chunk_size=chunk, decode_state=states)
        out = y.rearrange(("batch", "position", "embed")).array[..., : config.value_dim]
        return out.reshape(B, T, config.num_v_heads, config.head_v_dim), conv_state, state

    @jax.jit
    def both(values, cotangents):
        results, back = jax.vjp(forward, values)
        return results, back(tuple(c.astype(r.dtype) for c, r in zip(cotangents, results)))[0]

    results, gradients = both(tuple(jnp.asarray(x[n]) for n in differentiable), tuple(jnp.asarray(x[f"d_{n}"]) for n in RESULTS))
    found = {n: np.asarray(r) for n, r in zip(RESULTS, results)}
    found |= {f"d_{n}": np.asarray(g) for n, g in zip(differentiable, gradients)}
    return {n: value.astype(BF16) if n == "out" and x["qkvz"].dtype == BF16 else value for n, value in found.items()}


def compare(gdnctl, x, metadata, outputs, code, *words):
    got = gdnctl.run("oracle", "compare", "gdn-layer", "--json", "--contract", "marin", "--inputs", gdnctl.save(x, metadata),
                     "--outputs", gdnctl.save(outputs), *words, code=code)
    return json.loads(got.stdout)


def add(name, arguments):
    def verdict_and_distance(gdnctl):
        x, metadata, config = draw(**arguments)
        theirs = run(x, config, int(metadata["chunk"]))
        report = compare(gdnctl, x, metadata, theirs, 0)
        judged = {t["name"] for t in report["tensors"]}
        demand(judged == set(theirs), f"judged were {sorted(judged)}, levanter returned {sorted(theirs)}")
        demand(report["verdict"] == "OK", f"{levanter.VERSION}: {report['verdict']}")
        path = gdnctl.path(".safetensors")
        gdnctl.run("oracle", "run", "gdn-layer", "--contract", "marin", "--inputs", gdnctl.save(x, metadata), "--backward", "--out", path)
        ours = safetensors.numpy.load_file(path)
        for n, value in theirs.items():
            # bf16 inputs: their gradients are bf16, and so is g.
            limit = 1e-2 if arguments.get("bf16") else 1e-4
            off = relative(value, ours[n])
            demand(off <= limit, f"{n} is {off:.2g} of its size away")

    add_case(f"levanter_layer_{name}", verdict_and_distance)


for _name, _arguments in PROBLEMS.items():
    add(_name, _arguments)


def edited_weights_are_wrong(gdnctl):
    """The layer with one parameter that the inputs do not have: wrong, at the part that the parameter is of."""
    x, metadata, config = draw(**PROBLEMS["prefill"])
    for name, part in (("conv_weight", "conv"), ("dt_bias", "core"), ("norm_weight", "norm")):
        changed = {**x, name: x[name] * np.float32(1.05)}
        results = {n: value for n, value in run(changed, config, 32).items() if n in RESULTS}
        report = compare(gdnctl, x, metadata, results, 1)
        demand(report["verdict"] == "WRONG", f"{name}: {report['verdict']}")
        wrong = {t["name"] for t in report["tensors"] if t["verdict"] != "OK"}
        # The convolution's state holds its inputs, and the operator's no longer sees the norm.
        expected = {"out"} if part == "norm" else {"out", "final_state"}
        demand(wrong == expected, f"{name}: wrong are {sorted(wrong)}")


add_case("levanter_layer_edited", edited_weights_are_wrong)


def streaming_equals_prefill(gdnctl):
    """Tokens one by one through levanter's decode, judged as one call of ours."""
    x, metadata, config = draw(seed=7, B=2, T=9, Hk=2, Hv=4, dk=16, dv=8, states=True)
    layer = layer_with(config, x)
    states = (jnp.asarray(x["initial_conv_state"]), jnp.asarray(x["initial_state"]))
    rows = []
    for t in range(9):
        token = np.concatenate([x["qkvz"], x["ba"]], -1)[:, t : t + 1]
        y, states = layer(hax.named(jnp.asarray(token), ("batch", "position", "embed")), decode_state=states)
        rows.append(np.asarray(y.rearrange(("batch", "position", "embed")).array)[..., : config.value_dim])
    outputs = {"out": np.concatenate(rows, 1).reshape(2, 9, 4, 8), "final_conv_state": np.asarray(states[0]), "final_state": np.asarray(states[1])}
    report = compare(gdnctl, x, metadata, outputs, 0)
    demand(report["verdict"] == "OK" and len(report["tensors"]) == 3, f"{report['verdict']} of {len(report['tensors'])} tensors")


add_case("levanter_layer_streaming", streaming_equals_prefill)
