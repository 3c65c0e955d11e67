"""transformers' Qwen3-Next functions: recorded vectors always, the functions themselves where torch is installed."""
import glob
import json
import os

import safetensors
import transformers_gdn as transformers
from harness import FORWARD, GRADIENTS, Skipped, case, demand, draw

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/oracle")

PROBLEMS = {
    "small": dict(seed=61, B=2, T=57, Hk=3, Hv=3, dk=8, dv=8, chunk=16),
    "shared_key_heads": dict(seed=62, B=1, T=130, Hk=2, Hv=4, dk=32, dv=16, chunk=32),
    "d128": dict(seed=63, B=1, T=129, Hk=1, Hv=2, dk=128, dv=128),
    "strong_decay": dict(seed=64, B=1, T=90, Hk=2, Hv=2, dk=16, dv=8, chunk=32, gate="strong"),
    "bf16": dict(seed=65, B=1, T=130, Hk=2, Hv=4, dk=32, dv=16, chunk=32, bf16=True),
}
# name -> line of the chunk function of 5.23.0, what it becomes, stages
EDITS = {
    "scale_missing": ("scaling = query.shape[-1] ** -0.5", "scaling = 1.0", {"scale"}),
    "decay_off_by_one": ("decay.cumsum(dim=3)", "decay.cumsum(dim=3) - decay", {"gate"}),
    "M_without_decay": ("(k_beta @ key.transpose(-1, -2)) * pairwise_decay", "k_beta @ key.transpose(-1, -2)", {"decay", "solve"}),
    "v_without_beta": ("v_beta = value * beta.unsqueeze(-1)", "v_beta = value", {"wu", "beta"}),
    "P_without_its_diagonal": ("device=query.device).triu(1)", "device=query.device).triu(0)", {"intra", "order"}),
    "state_without_decay": ("last_recurrent_state * chunk_decay[:, :, i]", "last_recurrent_state", {"carry"}),
}


@case
def transformers_recorded_vectors_are_right(gdnctl):
    found = sorted(glob.glob(os.path.join(VECTORS, "gdn_*.hf_*.outputs.safetensors")))
    demand(len(found) >= 20, f"{len(found)} vectors")
    for outputs in found:
        inputs = os.path.join(VECTORS, os.path.basename(outputs).split(".")[0] + ".inputs.safetensors")
        report = json.loads(gdnctl.run("oracle", "compare", "gdn", "--json", "--inputs", inputs, "--outputs", outputs).stdout)
        with safetensors.safe_open(outputs, "numpy") as f:
            names = set(f.keys())
        demand(report["verdict"] == "OK" and {t["meaning"] for t in report["tensors"]} == names, f"{outputs}: {report['verdict']}")


def needs_torch():
    why = transformers.missing()
    if why:
        raise Skipped(why)


@case
def transformers_live(gdnctl):
    needs_torch()
    for name, arguments in PROBLEMS.items():
        inputs = draw(**arguments)
        for form in ("chunk", "recurrent"):
            results = transformers.run(form, inputs)
            demand(set(results) == set(FORWARD + GRADIENTS), f"transformers returned {sorted(results)}")
            gdnctl.demand_ok(inputs, results, f"{transformers.version()}, {form}, {name}")


@case
def edited_transformers(gdnctl):
    needs_torch()
    inputs = draw(seed=66, B=1, T=150, Hk=2, Hv=2, dk=32, dv=32, chunk=32, cotangents=False)
    for name, (line, by, stages) in EDITS.items():
        report = gdnctl.compare(inputs, transformers.run("chunk", inputs, line, by), code=1)
        demand(report["verdict"] == "WRONG" and report["stage"] in stages,
               f"{name}: {report['verdict']}, stage {report['stage']}, not {sorted(stages)}")
