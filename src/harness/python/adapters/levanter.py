# Gated DeltaNet of marin-levanter: haliax NamedArrays with axes batch, position, heads and a dimension.
import inspect

framework = "jax"
function = "levanter.layers.gated_deltanet.chunk_gated_delta_rule"
contract = "marin"
fields = {"head_map": "interleaved"}


def supports(case):
    return not case["packed"] or "levanter's function takes no packed sequences"


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    import haliax
    import jax.numpy as jnp

    repeats = case["Hv"] // case["Hk"]  # it takes as many key heads as value heads
    if repeats > 1:
        q, k = jnp.repeat(q, repeats, axis=2), jnp.repeat(k, repeats, axis=2)
    token = ("batch", "position", "heads")
    named = [haliax.named(x, token + last)
             for x, last in ((q, ("k_head_dim",)), (k, ("k_head_dim",)), (v, ("v_head_dim",)), (g, ()), (beta, ()))]
    known = inspect.signature(fn).parameters
    given = {"chunk_size": case["chunk"], "initial_state": initial_state, "output_final_state": True,
             "use_qk_l2norm_in_kernel": contract.get("l2norm") != "off"}
    out, state = fn(*named, **{name: value for name, value in given.items() if name in known})
    return out.rearrange((*token, "v_head_dim")).array, state
