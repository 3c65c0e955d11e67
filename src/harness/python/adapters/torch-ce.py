# Linear cross-entropy of torch: the logits, and torch.nn.functional.cross_entropy of them.
framework = "torch"


def supports(case):
    return True


def forward(fn, x, w, labels, *, weight=None, contract, case):
    import torch

    logits = (x @ (w if contract.get("layout") == "hv" else w.T)).float()
    cap = contract.get("soft_cap")
    if cap:
        logits = cap * torch.tanh(logits / cap)
    loss = torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none")
    return {"loss": loss, "lse": torch.logsumexp(logits, dim=-1)}
