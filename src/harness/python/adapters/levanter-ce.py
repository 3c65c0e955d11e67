# The fused cross-entropy of marin-levanter, with its default implementation. It returns the loss, but not lse.
framework = "jax"
function = "levanter.kernels.pallas.fused_cross_entropy_loss.fused_cross_entropy_loss_and_logsumexp_penalty"


def supports(case):
    if case["ignored"]:
        return "it ignores no labels"
    return not (case["d_loss"] or case["d_lse"]) or "its gradient is that of the reduced loss"


def forward(fn, x, w, labels, *, weight=None, contract, case):
    w = w if contract.get("layout") == "hv" else w.T
    cap = contract.get("soft_cap") or None
    # Without a reduction, the gradient is that of the sum.
    reduced = fn(x, labels, w, reduction=contract.get("reduction", "mean") or "sum", weight=weight, logit_soft_cap=cap,
                 logsumexp_weight=contract.get("logsumexp_weight") or 0.0)
    return {"loss": fn(x, labels, w, reduction=None, logit_soft_cap=cap), "reduced": reduced}
