"""A Python kernel judged and timed as a job and on a held TPU: this program goes along, and what it says there, it says
here."""
import json
import os
import subprocess

from harness import case

KERNEL = '''
import numpy as np

framework = "numpy"
contract = "marin"
fields = {"head_map": "interleaved"}


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    q, k = (np.repeat(x.astype(np.float64), case["Hv"] // case["Hk"], axis=2) for x in (q, k))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + contract["eps"]) for x in (q, k))
    out, S = np.zeros(v.shape), initial_state.astype(np.float64)
    for t in range(case["T"]):
        S = S * np.exp(g[:, t].astype(np.float64))[..., None, None]
        d = beta[:, t, :, None] * (v[:, t] - np.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + np.einsum("bhk,bhv->bhkv", k[:, t], d)
        out[:, t] = np.einsum("bhkv,bhk->bhv", S, q[:, t]) * case["dk"] ** -0.5
    return out.astype(np.float32), S.astype(np.float32)
'''


def python_with_numpy(t):
    for python in ("/usr/bin/python3", "python3"):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    t.skip("no python3 with numpy")


def verify(t, code, *words):
    ran = t.run(code, "oracle", "verify", "gdn", "--kernel", "py:mine.py", "--python", python_with_numpy(t), "--case",
                 "device_001", "--case", "device_007", "--json", *t.place.args, *words, place=False)
    return json.loads(ran.out)


def bench(t, code, *words):
    ran = t.run(code, "oracle", "bench", "gdn", "--kernel", "py:mine.py", "--python", python_with_numpy(t), "--shape",
                "1,1,2,32,16,16", "--rounds", "2", "--runs", "1", "--threads", "1", "--json", *t.place.args, *words, place=False)
    return json.loads(ran.out)


def write(t, kernel):
    with open(os.path.join(t.cwd, "mine.py"), "w") as f:
        f.write(kernel)


@case()
def oracle_judges_a_python_kernel_as_a_job(t):
    write(t, KERNEL)
    report = verify(t, 0)
    t.equal((report["verdict"], report["cases"], report["job"]["status"]), ("OK", 2, "SUCCEEDED"), "the verdict")
    t.equal(report["environment"]["framework"], "numpy", "where it ran")
    write(t, KERNEL.replace("S = S * np.exp(", "S = S * 0.9 * np.exp("))
    report = verify(t, 1)
    t.equal((report["verdict"], report["job"]["driver_exit_code"]), ("WRONG", 1), "the verdict of a wrong kernel")
    write(t, "import no_such_module")
    t.equal(verify(t, 9)["verdict"], "NO_ENTRY_POINT", "the verdict of no kernel")


@case()
def oracle_times_a_python_kernel_as_a_job(t):
    write(t, KERNEL)
    report = bench(t, 0, "--peer", "py:./mine.py")
    t.equal((report["forward"]["verified"], report["job"]["status"]), (True, "SUCCEEDED"), "what was timed")
    t.check(report["peers"][0]["forward"]["ratio"]["median"] > 0, "no ratio")
    write(t, KERNEL.replace("S = S * np.exp(", "S = S * 0.9 * np.exp("))
    report = bench(t, 1)
    t.equal((report["forward"]["verified"], report["job"]["driver_exit_code"]), (False, 1), "a wrong kernel")


@case(on=("ray", "iris"), tpu=True)
def oracle_demands_the_tpu_that_was_asked_for(t):
    write(t, KERNEL)
    t.equal(verify(t, 9, "--tpu", "v5p-8")["verdict"], "OK", "what its functions return")
    t.check("no TPU was seen" in t.last.err, "it does not say so")
    verify(t, 0, "--tpu", "v5p-8", "--allow-cpu")
    t.equal(bench(t, 9, "--tpu", "v5p-8")["forward"]["verified"], True, "what is timed")
    t.check("no TPU was seen" in t.last.err, "it does not say so")


@case(tpu=True)
def oracle_judges_on_a_held_tpu(t):
    write(t, KERNEL)
    name = t.id("o")
    t.run(0, "dev-tpu-allocate", "--tpu-name", name, "--tpu-type", "v5p-8", "--no-sync", "--detach")
    report = verify(t, 0, "--tpu-name", name, "--allow-cpu")
    t.equal(report["verdict"], "OK", "the verdict")
    t.equal(bench(t, 0, "--tpu-name", name, "--allow-cpu")["forward"]["verified"], True, "what was timed")
    t.run(0, "dev-tpu-release", "--tpu-name", name)
