# Linear cross-entropy of torch in fp32: torch.nn.functional.linear_cross_entropy where torch has it and nothing else is
# asked for, else cross_entropy of the logits.
framework = "torch"


def supports(case):
    return not case["ignored"] or "torch leaves ignored labels out of the mean"


def forward(fn, x, w, labels, *, weight=None, contract, case):
    import torch

    x, w, labels = x.float(), w.float(), labels.long()
    cap, penalty = contract.get("soft_cap"), contract.get("logsumexp_weight")
    by_rows = w.T if contract.get("layout") == "hv" else w  # [vocab, hidden]
    fused = getattr(torch.nn.functional, "linear_cross_entropy", None)
    if fused is not None and not cap and not penalty and not case["d_lse"]:
        return {"loss": fused(x, by_rows, labels, reduction="none")}
    logits = x @ by_rows.T
    if cap:
        logits = cap * torch.tanh(logits / cap)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return {"loss": loss, "lse": torch.logsumexp(logits, dim=-1)}
