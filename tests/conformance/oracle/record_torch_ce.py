"""record_torch_ce.py FOLDER: torch's loss and gradients at four small shapes, as inputs and outputs of linear-ce.

Run by hand with a Python that has torch, numpy and safetensors; its files are in tests/fixtures/linear_ce. Two ways: the
logits path (matmul, cap, cross_entropy) and torch.nn.functional.linear_cross_entropy, which has no cap and no penalty.
Weights of torch lie as [V,H].
"""
import os
import sys

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F

# name -> B, H, V, what else
SHAPES = {
    "torch_small": (6, 4, 5, {}),
    "torch_tail": (24, 32, 130, {"scale": 0.02}),
    "torch_cap_penalty": (16, 32, 64, {"cap": 1.5, "penalty": 0.2}),
    "torch_bf16": (16, 16, 200, {"dtype": torch.bfloat16, "scale": 0.3}),
}


def outputs(way, x, w, labels, cap, penalty):
    x, w = (t.detach().clone().requires_grad_() for t in (x, w))
    logits = F.linear(x, w)
    if cap:
        logits = cap * torch.tanh(logits / cap)
    lse = torch.logsumexp(logits, 1)
    if way == "linear_cross_entropy":
        loss = F.linear_cross_entropy(x, w, labels, reduction="none")
        reduced = F.linear_cross_entropy(x, w, labels)
    else:
        loss = F.cross_entropy(logits, labels, reduction="none")
        reduced = (loss + penalty * lse * lse).mean()
    reduced.backward()
    return {"loss": loss.detach(), "lse": lse.detach(), "reduced": reduced.detach(), "gx": x.grad, "gw": w.grad}


def main():
    folder = sys.argv[1]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for seed, (name, (B, H, V, more)) in enumerate(SHAPES.items()):
        random = np.random.default_rng(100 + seed)
        dtype, cap, penalty = more.get("dtype", torch.float32), more.get("cap"), more.get("penalty", 0.0)
        x = torch.tensor(random.standard_normal((B, H)), dtype=torch.float32).to(dtype)
        w = torch.tensor(more.get("scale", 1.0) * random.standard_normal((V, H)), dtype=torch.float32).to(dtype)
        labels = torch.tensor(random.integers(0, V, B))
        labels[:3] = torch.tensor([V - 1, 0, V - 2])
        told = {"op": "linear-ce", "case": name, "layout": "vh", "reduction": "mean", "logsumexp_weight": str(penalty)}
        told |= {"soft_cap": str(cap)} if cap else {}
        path = os.path.join(folder, name)
        safetensors.torch.save_file({"x": x, "w": w, "labels": labels}, path + ".inputs.safetensors", told)
        for way in ("logits", *(() if cap or penalty else ("linear_cross_entropy",))):
            told["producer"] = f"{way}, torch {torch.__version__}"
            safetensors.torch.save_file(outputs(way, x, w, labels, cap, penalty), f"{path}.{way}.outputs.safetensors", told)


main()
