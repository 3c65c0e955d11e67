"""Python kernels under `oracle verify --kernel py:...`, with the real libraries: levanter as it is and with lines changed,
its cross-entropy, and what torch and transformers have where they are installed."""
import importlib.util
import json
import os
import sys

import cases_edits
from harness import Skipped, add_case, case, demand

HERE = os.path.dirname(os.path.abspath(__file__))


def verify(gdnctl, op, kernel, *words, code=0):
    got = gdnctl.run("oracle", "verify", op, "--kernel", kernel, "--python", sys.executable, "--json", *words, code=code)
    return json.loads(got.stdout)


def device_cases(gdnctl):
    return json.loads(gdnctl.run("oracle", "cases", "gdn", "--cases", "device", "--json").stdout)["cases"]


@case
def python_levanter_is_ok_in_all_device_cases(gdnctl):
    report = verify(gdnctl, "gdn", "py:levanter")
    demand(report["verdict"] == "OK", f"{report['verdict']}: {report['groups']}")
    listed = device_cases(gdnctl)
    packed = [c for c in listed if c["cu_seqlens"]]
    demand(report["cases"] == sum("forward" in c["passes"] for c in listed) - len(packed), f"{report['cases']} cases")
    demand(report["backward"] == sum("backward" in c["passes"] for c in listed), f"{report['backward']} gradients")
    demand(len(report["skipped"]["unsupported"]) == len(packed), f"skipped: {report['skipped']}")
    on = report["environment"]
    demand(on["framework"] == "jax" and on["platform"] == "cpu" and on["matmul_operands"] == "f32", f"{on}")
    demand("marin-levanter" in on["libraries"], f"{on['libraries']}")


@case
def python_levanter_is_ok_where_its_rounding_is_luck(gdnctl):
    """Sums of gates of 128 to 1024, and gradients of zero keys that fp32 flushes, from seeds of which honest results were refused."""
    for seed in ("8", "15"):
        words = [w for n in ("049", "072", "091") for w in ("--case", "device_" + n)]
        report = verify(gdnctl, "gdn", "py:levanter", "--seed", seed, *words)
        demand(report["verdict"] == "OK", f"seed {seed}: {report['verdict']}: {report['groups']}")


@case
def python_levanter_recurrent_by_its_name(gdnctl):
    name = "levanter.layers.gated_deltanet.recurrent_gated_delta_rule"
    report = verify(gdnctl, "gdn", f"py:levanter:{name}", "--case", "device_007", "--case", "device_008")
    demand(report["verdict"] == "OK" and report["cases"] == 2, f"{report['verdict']}, {report['cases']} cases")


def adapter_with(gdnctl, edit):
    """The embedded adapter around levanter's module with a line changed, as a file of one's own."""
    source = gdnctl.run("oracle", "adapter", "levanter").stdout
    path = os.path.join(gdnctl.folder, "edited.py")
    within, line, by = edit
    with open(path, "w") as f:
        f.write(source.replace("def forward(fn,", "def forward(_,").replace("\nfunction = ", "\n_ = "))
        f.write(f"\n\nimport sys\nsys.path.append({HERE!r})\nimport levanter_gdn\n"
                f"fn = levanter_gdn.module(levanter_gdn.Edit({within!r}, {line!r}, {by!r})).chunk_gated_delta_rule\n")
    return path


FORWARD = ("scale_missing", "writes_without_decay", "decay_off_by_one", "M_sign", "inverse_to_first_order", "v_without_beta",
           "P_without_its_diagonal", "Q_S_without_decay", "state_without_decay")
BACKWARD = ("gate_cut_off", "beta_cut_off", "initial_state_cut_off")


def add(name, edit, stages, backward):
    def is_wrong_at_its_stage(gdnctl):
        report = verify(gdnctl, "gdn", "py:" + adapter_with(gdnctl, edit), "--case", "device_023", code=1)
        demand(report["verdict"] == "WRONG", f"verdict {report['verdict']}")
        first = report["groups"][0]
        demand(first["kind"] == ("backward" if backward else "case"), f"{first}")
        demand(first["stage"] in stages, f"stage {first['stage']}, not {sorted(stages)}: {first}")
        demand(first["tensor"], f"{first}")

    add_case("python_levanter_wrong_" + name, is_wrong_at_its_stage)


for each in FORWARD:
    line, by, stages = cases_edits.CHUNK[each]
    add(each, ("chunk", line, by), stages, False)
for each in BACKWARD:
    within, line, by, stages = cases_edits.GRADIENTS[each]
    add(each, (within, line, by), stages, True)


@case
def python_levanter_has_a_time_of_chained_calls(gdnctl):
    got = gdnctl.run("oracle", "bench", "gdn", "--kernel", "py:levanter", "--peer",
                     "py:levanter:levanter.layers.gated_deltanet.recurrent_gated_delta_rule", "--python", sys.executable, "--shape",
                     "1,2,4,256,64,64", "--rounds", "3", "--runs", "2", "--chained", "4", "--json")
    report = json.loads(got.stdout)
    for name in ("forward", "backward"):
        ours, peer = report[name], report["peers"][0][name]
        demand(ours["verified"] and peer["verified"], f"{name}: {ours}, {peer}")
        for timed in (ours, peer):
            demand(0.3 < timed["device_ms"] / timed["median_ms"] < 3, f"{name}: {timed}")
        demand(peer["device_ratio"]["median"] > 0 and "ratios_disagree" in peer, f"{name}: {peer}")
    got = gdnctl.run("oracle", "bench", "gdn", "--kernel", "py:levanter", "--python", sys.executable, "--shape", "1,2,4,64,64,64",
                     "--rounds", "2", "--runs", "1", "--json")
    report = json.loads(got.stdout)
    demand(report["forward"]["device_ms"] is None and report["backward"]["device_ms"] is None, "chained unasked on a CPU")


def inert_modules(gdnctl):
    """A folder for PYTHONPATH: what levanter's cross-entropy imports and never calls on one machine."""
    folder = os.path.join(gdnctl.folder, "inert")
    os.makedirs(folder)
    with open(os.path.join(folder, "sitecustomize.py"), "w") as f:
        f.write(f"import sys\nsys.path.append({HERE!r})\nimport levanter_ce\nlevanter_ce.package()\n")
    return folder


@case
def python_levanter_ce_is_ok_where_it_divides_by_no_zero(gdnctl):
    words = ("--env", "PYTHONPATH=" + inert_modules(gdnctl))
    report = verify(gdnctl, "linear-ce", "py:levanter-ce", *words, code=1)
    # Its mean over weights that are all 0 has the gradient NaN.
    failed = {i["name"] for i in report["items"] if i["verdict"] != "OK"}
    demand(failed == {"no_weight_at_all"}, f"{report['verdict']}: {sorted(failed)}")
    demand(report["cases"] > 40, f"{report['cases']} cases")


INTERPRETED = """import levanter_ce
from jax.experimental.pallas import tpu

framework = "jax"
interpreted = tpu.force_tpu_interpret_mode()  # for gradients, too, which are traced after forward() has returned
interpreted.__enter__()
ce, own = levanter_ce.package(), levanter_ce._pallas()
sizes = {"block_sizes": ce.BlockSizes(128, 128, 128)}


def supports(case):
    return case["batch"] % 128 == 0 and case["hidden"] % 128 == 0 or "no multiple of a block"


def forward(fn, x, w, labels, *, weight=None, contract, case):
    call = lambda *a, **k: own(*a, **{**k, **sizes})
    reduced = ce.fused_cross_entropy_loss_and_logsumexp_penalty(
        x, labels, w, reduction="mean", weight=weight, logsumexp_weight=contract.get("logsumexp_weight") or 0.0,
        logit_soft_cap=contract.get("soft_cap") or None, implementation=[call], **sizes)
    return {"reduced": reduced}
"""


@case
def python_levanter_ce_in_the_interpreter_of_pallas_is_ok(gdnctl):
    adapter = os.path.join(gdnctl.folder, "interpreted.py")
    with open(adapter, "w") as f:
        f.write(INTERPRETED)
    report = verify(gdnctl, "linear-ce", "py:" + adapter, "--env", "PYTHONPATH=" + inert_modules(gdnctl))
    demand(report["verdict"] == "OK" and report["cases"] == 4, f"{report['verdict']}, {report['cases']} cases: {report['groups']}")


def needs(module):
    if importlib.util.find_spec(module) is None:
        raise Skipped(f"{module} is not installed (run.py --torch)")


def needs_gpu():
    if not os.path.exists("/dev/nvidia0"):
        raise Skipped("no NVIDIA GPU on this machine")


@case
def python_fla_is_ok_on_a_gpu_and_timed_beside_its_recurrent_form(gdnctl):
    needs_gpu()
    needs("fla")
    report = verify(gdnctl, "gdn", "py:fla")
    demand(report["verdict"] == "OK" and not report["forward_only"], f"{report['verdict']}: {report['groups']}")
    recurrent = "py:fla:fla.ops.gated_delta_rule.fused_recurrent_gated_delta_rule"
    got = gdnctl.run("oracle", "bench", "gdn", "--kernel", "py:fla", "--peer", recurrent, "--python", sys.executable, "--json", code=0)
    timed = json.loads(got.stdout)
    demand(timed["forward"]["verified"] and timed["forward"]["device_ms"] > 0, f"{timed['forward']}")


@case
def python_levanter_on_a_gpu(gdnctl):
    needs_gpu()
    report = verify(gdnctl, "gdn", "py:levanter", "--env", "JAX_DEFAULT_MATMUL_PRECISION=highest")
    if report["environment"]["platform"] not in ("gpu", "cuda"):
        raise Skipped(f"this JAX runs on {report['environment']['platform']}")
    demand(report["verdict"] == "OK", f"{report['verdict']}: {report['groups']}")


@case
def python_transformers_is_ok_in_all_device_cases(gdnctl):
    needs("transformers")
    report = verify(gdnctl, "gdn", "py:transformers")
    demand(report["verdict"] == "OK", f"{report['verdict']}: {report['groups']}")


@case
def python_torch_ce_is_ok(gdnctl):
    needs("torch")
    report = verify(gdnctl, "linear-ce", "py:torch-ce")
    demand(report["verdict"] == "OK", f"{report['verdict']}: {report['groups']}")
