"""transformers' Qwen3-Next layer on projections that are the identity, so that its input is what ours begins with (qkvz and
ba) and its output what ours ends with. Only where torch is.

transformers_layer.py FOLDER records what the unit tests compare with.
"""
import os
import sys

import numpy as np

PARAMETERS = ("conv_weight", "A_log", "dt_bias", "norm_weight")

# name -> arguments of draw; `prefill` tokens at once and the others one by one, `padding` masked tokens before row 0
PROBLEMS = {
    "prefill": dict(seed=201, B=2, T=37, Hk=2, Hv=4, dk=8, dv=8),
    "decode": dict(seed=202, B=2, T=17, Hk=2, Hv=4, dk=8, dv=8, prefill=10),
    "padded": dict(seed=203, B=2, T=12, Hk=2, Hv=2, dk=8, dv=8, padding=5),
    "backward": dict(seed=204, B=2, T=16, Hk=2, Hv=4, dk=8, dv=8, backward=True),
    "conv": dict(seed=205, B=2, T=9, Hk=1, Hv=2, dk=4, dv=4),
}


def draw(seed, B, T, Hk, Hv, dk, dv, prefill=None, padding=0, backward=False):
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    channels = 2 * Hk * dk + Hv * dv
    x = {
        "qkvz": normal(B, T, channels + Hv * dv),
        "ba": normal(B, T, 2 * Hv),
        "conv_weight": 0.5 * normal(channels, 4),
        "A_log": random.uniform(-3, 2.7, Hv).astype(np.float32),
        "dt_bias": normal(Hv),
        "norm_weight": 1 + 0.1 * normal(dv),
    }
    if backward:
        x["d_out"] = normal(B, T, Hv, dv)
    sizes = dict(B=B, T=T, Hk=Hk, Hv=Hv, dk=dk, dv=dv)
    return x, sizes


def metadata(sizes):
    return {"op": "gdn-layer", "key_heads": str(sizes["Hk"])}


def layer_of(x, sizes):
    import torch
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    qkvz, ba = x["qkvz"].shape[-1], x["ba"].shape[-1]
    config = Qwen3NextConfig(hidden_size=qkvz + ba, num_hidden_layers=1, layer_types=["linear_attention"], linear_num_key_heads=sizes["Hk"],
                             linear_num_value_heads=sizes["Hv"], linear_key_head_dim=sizes["dk"], linear_value_head_dim=sizes["dv"],
                             linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6)
    layer = Qwen3NextGatedDeltaNet(config, 0).float()
    identity = torch.eye(qkvz + ba)
    given = {"in_proj_qkvz.weight": identity[:qkvz], "in_proj_ba.weight": identity[qkvz:],
             "out_proj.weight": identity[:, : sizes["Hv"] * sizes["dv"]], "conv1d.weight": torch.tensor(x["conv_weight"])[:, None],
             "A_log": torch.tensor(x["A_log"]), "dt_bias": torch.tensor(x["dt_bias"]), "norm.weight": torch.tensor(x["norm_weight"])}
    layer.load_state_dict(given)
    return layer, config


def run(x, sizes, prefill=None, padding=0, backward=False, **_):
    """Results, and gradients where asked for; a dict of arrays by our names."""
    import torch
    from transformers.cache_utils import DynamicCache

    layer, config = layer_of(x, sizes)
    B, T, Hv, dv = (sizes[n] for n in ("B", "T", "Hv", "dv"))
    tokens = torch.tensor(np.concatenate([x["qkvz"], x["ba"]], -1)).requires_grad_(backward)
    shaped = lambda y: y[..., : Hv * dv].reshape(B, -1, Hv, dv)
    mask = None
    if padding:
        mask = torch.ones(B, T)
        mask[0, :padding] = 0
    with torch.set_grad_enabled(backward):
        if backward:
            out = shaped(layer(tokens, attention_mask=mask))
            torch.autograd.backward(out, torch.tensor(x["d_out"]))
            width = x["qkvz"].shape[-1]
            named = {"conv_weight": layer.conv1d.weight.grad[:, 0], "A_log": layer.A_log.grad, "dt_bias": layer.dt_bias.grad,
                     "norm_weight": layer.norm.weight.grad, "qkvz": tokens.grad[..., :width], "ba": tokens.grad[..., width:]}
            return {"out": out.detach().numpy()} | {f"d_{n}": g.contiguous().numpy() for n, g in named.items()}
        cache = DynamicCache(config=config)
        first = T if prefill is None else prefill
        pieces = [shaped(layer(tokens[:, :first], cache_params=cache, attention_mask=mask))]
        pieces += [shaped(layer(tokens[:, t : t + 1], cache_params=cache)) for t in range(first, T)]
    # What the layer itself asks its cache for.
    return {"out": torch.cat(pieces, 1).numpy(), "final_conv_state": cache.get_conv_state(0, state_idx=0).contiguous().numpy(),
            "final_state": cache.get_recurrent_state(0, state_idx=0).contiguous().numpy()}


def masked(x, padding=0, **_):
    """The inputs with zeros where a mask of the layer makes the hidden states 0."""
    x = dict(x)
    for name in ("qkvz", "ba"):
        x[name] = x[name].copy()
        x[name][0, :padding] = 0
    return x


def convolution(x, sizes):
    """The convolution alone: all tokens at once, one by one, and its gradients, by transformers' functions."""
    import torch
    from transformers.models.qwen3_next.modeling_qwen3_next import causal_conv1d_fn, causal_conv1d_update

    channels = x["conv_weight"].shape[0]
    given = torch.tensor(x["qkvz"][..., :channels]).transpose(1, 2).contiguous().requires_grad_()
    weight = torch.tensor(x["conv_weight"]).requires_grad_()
    cotangent = torch.cos(torch.arange(given.numel()) * 0.7).reshape(given.shape)
    y = causal_conv1d_fn(given, weight, None, activation="silu")
    torch.autograd.backward(y, cotangent)
    state = torch.zeros(sizes["B"], channels, 4)
    with torch.no_grad():
        steps = [causal_conv1d_update(given[:, :, t : t + 1], state, weight, None, "silu") for t in range(sizes["T"])]
    rows = lambda value: value.detach().transpose(1, 2).contiguous().numpy()
    return {"x": rows(given), "y": rows(y), "steps": rows(torch.cat(steps, 2)), "final_conv_state": state.numpy(),
            "d_y": rows(cotangent), "dx": rows(given.grad), "d_weight": weight.grad.numpy()}


def record(folder):
    import safetensors.numpy

    for name, arguments in PROBLEMS.items():
        x, sizes = draw(**arguments)
        results = convolution(x, sizes) if name == "conv" else run(x, sizes, **arguments)
        save = lambda tensors, kind: safetensors.numpy.save_file(
            {n: np.ascontiguousarray(t) for n, t in tensors.items()}, os.path.join(folder, f"{name}.{kind}.safetensors"), metadata(sizes))
        save(masked(x, **arguments), "inputs")
        save(results, "outputs")


if __name__ == "__main__":
    record(sys.argv[1])
