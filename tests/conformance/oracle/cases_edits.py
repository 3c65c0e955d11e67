"""levanter's functions with one line changed: each must be WRONG, and at the stage that the line belongs to.

Where several stages are given, outputs cannot tell them apart. The unchanged functions are OK on the same inputs.
"""
import levanter_gdn as levanter
from harness import FORWARD, add_case, case, demand, draw
from levanter_gdn import Edit

SHAPE = dict(B=1, T=150, Hk=2, Hv=2, dk=32, dv=32, chunk=32)
# Keys below length 1 before the l2norm, so that a missing one leaves the recurrence stable.
INPUTS = {"f32": dict(seed=41, size=0.12, cotangents=False, **SHAPE), "bf16": dict(seed=42, size=0.12, bf16=True, cotangents=False, **SHAPE)}
GRADIENT_INPUTS = dict(seed=43, **SHAPE)

# name -> line of the chunk function, what it becomes, stages
CHUNK = {
    "scale_missing": ("(Dk.size**-0.5)", "1.0", {"scale"}),
    "scale_squared": ("(Dk.size**-0.5)", "(Dk.size**-1.0)", {"scale"}),
    "l2norm_of_k_missing": ("        k = _l2norm(k, axis=Dk)\n", "", {"l2norm"}),
    "l2norm_of_q_missing": ("        q = _l2norm(q, axis=Dk)\n", "", {"l2norm"}),
    "decay_off_by_one": ("hax.cumsum(g_c, axis=C)", "hax.cumsum(g_c, axis=C) - g_c", {"gate"}),
    "gate_sums_never_restart": ("hax.cumsum(g_c, axis=C)", "_chunk(hax.cumsum(gg, axis=PosPad))", {"gate"}),
    "gate_sign": ("gg = g.astype(jnp.float32)", "gg = -g.astype(jnp.float32)", {"gate"}),
    "sigmoid_twice": ("b = beta.astype(jnp.float32)", "b = hnn.sigmoid(beta.astype(jnp.float32))", {"beta"}),
    "M_without_beta": ("A_raw = -hax.dot(kb_ci,", "A_raw = -hax.dot(k_c.rename({C.name: Ci.name}),", {"solve"}),
    "M_sign": ("A_raw = -hax.dot(", "A_raw = hax.dot(", {"solve"}),
    "M_without_decay": ("A = A_raw * decay", "A = A_raw", {"decay", "solve"}),
    "inverse_to_first_order": ("lax.fori_loop(1, C.size, body, A_bhcc)", "A_bhcc", {"solve"}),
    "inverse_of_the_first_rows_alone": ("lax.fori_loop(1, C.size,", "lax.fori_loop(1, C.size // 2,", {"solve"}),
    "v_without_beta": ("v_beta = v_c * b_c.broadcast_axis(Dv)", "v_beta = v_c", {"wu", "beta"}),
    "K_S_without_decay": ("kbeta_bhccd * exp_g_bhcc[..., None]", "kbeta_bhccd", {"wu", "decay"}),
    "K_S_left_out": ("v_new = v_i - v_prime", "v_new = v_i", {"wu"}),
    "P_without_its_diagonal": ("dtype=bool), k=1)", "dtype=bool), k=0)", {"intra", "order"}),
    "P_without_its_mask": ("attn_i = jnp.where(mask_strict_upper, 0.0, attn_i)", "pass", {"intra"}),
    "P_without_decay": ("q_i, k_i) * decay_i", "q_i, k_i)", {"decay", "intra"}),
    "Q_S_without_decay": ("q_i * jnp.exp(gcum_i)[..., None]", "q_i", {"output", "decay"}),
    "state_without_decay": ("S_prev * decay_tail + add", "S_prev + add", {"carry"}),
    "writes_without_decay": ("k_i * decay_weights", "k_i", {"carry"}),
    "writes_with_the_decay_from_the_start": ("jnp.exp((g_tail[..., None] - gcum_i))", "jnp.exp(gcum_i)", {"carry"}),
    "state_not_handed_over": ("return S_new, out_i", "return jnp.zeros_like(S_new), out_i", {"carry"}),
    "state_in_bf16": ("return S_new, out_i", "return S_new.astype(jnp.bfloat16).astype(jnp.float32), out_i", {"rounding", "carry"}),
    "initial_state_ignored": ("initial_state is None else", "True else", {"carry"}),
    "keys_in_bf16": ("k = key.astype(jnp.float32)", "k = key.astype(jnp.bfloat16).astype(jnp.float32)", {"rounding"}),
    "state_transposed": ("return (out_final, S) if", "return (out_final, S.swapaxes(-1, -2)) if", {"layout"}),
}
RECURRENT = {
    "scale_missing": ("(Dk.size**-0.5)", "1.0", {"scale"}),
    "no_decay": ("S_prev = S_prev * decay", "pass", {"gate", "decay"}),
    "gate_sign": ("hax.exp(g_t)", "hax.exp(-g_t)", {"gate"}),
    "r_from_the_undecayed_state": ("hax.dot(S_prev * k_t", "hax.dot(hax.named(S_prev_arr, (Batch, Heads, Dk, Dv)) * k_t", {"order"}),
    "beta_missing": ("(v_t - kv) * b_t.broadcast_axis(Dv)", "v_t - kv", {"beta", "wu"}),
    "output_from_the_old_state": ("hax.dot(S_new * q_t", "hax.dot(S_prev * q_t", {"order", "intra"}),
    "state_in_bf16": ("return S_new.array, y_t.array", "return S_new.array.astype(jnp.bfloat16).astype(jnp.float32), y_t.array", {"rounding", "carry"}),
}
IN_BF16 = {"decay_off_by_one", "v_without_beta", "P_without_its_diagonal", "state_without_decay", "scale_missing", "beta_missing"}

# Changes after which the results are right and a gradient is not.
GRADIENTS = {
    "gate_cut_off": ("chunk", "gg = g.astype(jnp.float32)", "gg = lax.stop_gradient(g.astype(jnp.float32))", {"dg"}),
    "beta_cut_off": ("chunk", "b = beta.astype(jnp.float32)", "b = lax.stop_gradient(beta.astype(jnp.float32))", {"dbeta"}),
    "initial_state_cut_off": ("chunk", "initial_state.astype(v.dtype)", "lax.stop_gradient(initial_state).astype(v.dtype)", {"dS0"}),
    "norm_cut_off": ("norm", "(x32 * inv)", "(x32 * lax.stop_gradient(inv))", {"l2norm_grad"}),
    "decay_of_P_cut_off": ("chunk", "q_i, k_i) * decay_i", "q_i, k_i) * lax.stop_gradient(decay_i)", {"dg"}),
}


def add(name, form, line, by, stages, dtype):
    def caught_at_its_stage(gdnctl):
        inputs = draw(**INPUTS[dtype])
        report = gdnctl.compare(inputs, levanter.run(form, inputs, Edit(form, line, by)), code=1)
        demand(report["verdict"] == "WRONG", f"verdict {report['verdict']}")
        demand(report["stage"] in stages, f"stage {report['stage']} (also {report['stages']}), not {sorted(stages)}; hint: {report['hint']}")
        demand(report["place"]["heads"] == [0, 1], f"value heads {report['place']['heads']} of both")

    add_case(f"edited_{form}_{name}" + ("" if dtype == "f32" else "_" + dtype), caught_at_its_stage)


def add_gradient(name, within, line, by, stages):
    def caught_at_its_stage(gdnctl):
        inputs = draw(**GRADIENT_INPUTS)
        results = levanter.run("chunk", inputs, Edit(within, line, by))
        report = gdnctl.compare(inputs, results, code=1)
        demand(report["verdict"] == "WRONG", f"verdict {report['verdict']}")
        verdicts = {t["meaning"]: t["verdict"] for t in report["tensors"]}
        demand(all(verdicts[n] == "OK" for n in FORWARD), f"the results are right: {verdicts}")
        demand(report["stage"] in stages, f"stage {report['stage']} (also {report['stages']}), not {sorted(stages)}; hint: {report['hint']}")

    add_case(f"edited_gradient_{name}", caught_at_its_stage)


@case
def unedited_functions_are_right_on_the_inputs_of_the_edited_ones(gdnctl):
    for arguments, forms in ((INPUTS["f32"], ("chunk", "recurrent")), (INPUTS["bf16"], ("chunk", "recurrent")), (GRADIENT_INPUTS, ("chunk",))):
        inputs = draw(**arguments)
        for form in forms:
            gdnctl.demand_ok(inputs, levanter.run(form, inputs), form)


for _form, _edits in (("chunk", CHUNK), ("recurrent", RECURRENT)):
    for _name, (_line, _by, _stages) in _edits.items():
        add(_name, _form, _line, _by, _stages, "f32")
        if _name in IN_BF16:
            add(_name, _form, _line, _by, _stages, "bf16")
for _name, _row in GRADIENTS.items():
    add_gradient(_name, *_row)
