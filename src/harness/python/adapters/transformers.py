# Gated DeltaNet of transformers' Qwen3-Next in plain torch. It takes as many key heads as value heads.
import inspect

framework = "torch"
function = "transformers.models.qwen3_next.modeling_qwen3_next.torch_chunk_gated_delta_rule"
contract = "hf"
fields = {"l2norm": "rsqrt(sum+eps)"}


def supports(case):
    return not case["packed"] or "the torch function takes no packed sequences"


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    repeats = case["Hv"] // case["Hk"]
    if repeats > 1:
        q, k = q.repeat_interleave(repeats, dim=2), k.repeat_interleave(repeats, dim=2)
    known = inspect.signature(fn).parameters
    given = {"chunk_size": case["chunk"], "initial_state": initial_state, "output_final_state": True,
             "use_qk_l2norm_in_kernel": contract.get("l2norm") != "off"}
    return fn(q, k, v, g, beta, **{name: value for name, value in given.items() if name in known})
