# Gated DeltaNet of flash-linear-attention: Triton kernels on [batch, tokens, heads, dimension].
import importlib.metadata
import inspect

framework = "torch"
function = "fla.ops.gated_delta_rule.chunk_gated_delta_rule"
contract = "fla"
fields = {"l2norm": "rsqrt(sum+eps)"}
dtype = "bf16"


def supports(case):
    if case["dk"] > 256:
        return "its kernels need dk <= 256"
    version = importlib.metadata.version("flash-linear-attention").split(".")
    if case["dtype"] == "f32" and tuple(int(part) for part in version[:2]) < (0, 6):
        return "f32 needs flash-linear-attention 0.6.0"
    return True


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    known = inspect.signature(fn).parameters
    given = {"scale": scale, "initial_state": initial_state, "output_final_state": True, "cu_seqlens": cu_seqlens,
             "use_qk_l2norm_in_kernel": contract.get("l2norm") != "off"}
    return fn(q, k, v, g, beta, **{name: value for name, value in given.items() if name in known})
