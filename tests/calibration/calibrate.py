#!/usr/bin/env python3
"""Measures error / budget of honest variants, the figures that the verdict's bands rest on.

    tests/calibration/calibrate.py build/release/gdnctl [--backward] [--quick]

Every variant is honest arithmetic on inputs of `gdnctl oracle`: chunk lengths from 1 to 256, other orders of summation
(recurrence, fused recurrence, chunked form), bf16 inputs, bf16 and three-pass bf16 operands (declared), strong decay,
correlated and identical keys, up to 32768 tokens and 256 dimensions. Gradients are those of our chunked backward on the
same inputs, and those that levanter and transformers gave for tests/fixtures/oracle. Prints the tables of docs/reference/oracle-methods.md;
exit status 1 when a variant is not OK.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

FREE = [  # B,Hk,Hv,T,dk,dv
    ("1,2,2,64,8,8", "T 64, d 8"),
    ("2,2,4,130,16,8", "T 130, d 16"),
    ("1,2,4,257,64,64", "T 257, d 64"),
    ("1,1,2,513,128,128", "T 513, d 128"),
    ("1,1,1,512,256,256", "T 512, d 256"),
    ("1,1,1,4096,64,64", "T 4096, d 64"),
    ("1,1,1,32768,32,32", "T 32768, d 32"),
]
CASES = {
    "correlated keys": ["keys_cos65", "keys_cos91", "keys_identical", "keys_identical_beta1"],
    "strong decay": ["gates_strong", "gates_minus_30", "gates_sparse_200", "marin_extreme_gates"],
    "one huge gate": ["gate_1e4", "gate_1e30", "gate_inf"],
    "ill-conditioned": ["keys_identical_beta2", "beta_corners"],
    "scales": ["keys_tiny", "values_1e18", "values_denormal", "long_no_decay"],
}
CHUNKS = [1, 7, 16, 32, 64, 128, 256]


def variants(matmul):
    for chunk in CHUNKS:
        yield ["--method", "chunk", "--chunk", str(chunk)]
    if matmul == "f32":
        yield ["--method", "fused"]
        yield ["--method", "recurrent32"]


GRADIENTS = ["dq", "dk", "dv", "dg", "dbeta", "d_initial_state"]
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "oracle")


class Gradients:
    """Error / budget of gradients: rows of values by tensor."""

    def __init__(self, gdnctl):
        self.gdnctl, self.rows, self.bad, self.count = gdnctl, {}, [], 0

    def judge(self, group, what, inputs, outputs, *settings):
        done = subprocess.run([self.gdnctl, "oracle", "compare", "gdn", "--inputs", inputs, "--outputs", outputs,
                               "--no-hints", "--json", *settings], capture_output=True, text=True)
        report = json.loads(done.stdout)
        if report["verdict"] == "UNSTABLE_INPUT":
            return
        self.count += 1
        for tensor in report["tensors"]:
            if tensor["meaning"] not in GRADIENTS:
                continue
            worst = float(tensor["error_over_budget"])
            self.rows.setdefault(group, {}).setdefault(tensor["meaning"], []).append(worst)
            if tensor["verdict"] != "OK":
                self.bad.append(f"{what}: {tensor['name']} {tensor['verdict']} ({worst:.2g} x budget)")

    def generated(self, group, source):
        settings = ["--set", "head_map=interleaved"] if "--shape" in source else []
        made = subprocess.run([self.gdnctl, "oracle", "run", "gdn", *source, *settings, "--backward", "--method",
                               "chunk", "--out", "x.safetensors"], capture_output=True, text=True)
        if made.returncode:
            sys.exit(made.stderr)
        for chunk in ("16", "64"):
            self.judge(group, " ".join(source), "x.safetensors", "x.safetensors", "--set", f"chunk={chunk}")

    def recorded(self):
        for name in sorted(os.listdir(VECTORS)):
            if not (name.startswith("gdn_") and name.endswith(".outputs.safetensors")):
                continue
            case, producer = name.split(".")[:2]
            self.judge(f"recorded, {producer}", name, os.path.join(VECTORS, f"{case}.inputs.safetensors"),
                       os.path.join(VECTORS, name))

    def table(self):
        print("| gradients on | variants | " + " | ".join(GRADIENTS) + " |\n" + "|---" * (len(GRADIENTS) + 2) + "|")
        for group, tensors in self.rows.items():
            cells = [f"{statistics.median(tensors[g]):.2g}, {max(tensors[g]):.2g}" if g in tensors else ""
                     for g in GRADIENTS]
            count = max(len(values) for values in tensors.values())
            print(f"| {group} | {count} | " + " | ".join(cells) + " |")


def backward(gdnctl, quick):
    gradients = Gradients(gdnctl)
    for shape, group in FREE[:3] if quick else FREE:
        if group.startswith("T 32768"):
            continue
        for dtype in ("f32", "bf16"):
            for seed in ("1", "2", "3"):
                gradients.generated(group + (", bf16 inputs" if dtype == "bf16" else ""),
                                    ["--shape", shape, "--dtype", dtype, "--seed", seed])
    for group, names in CASES.items():
        for name in names:
            gradients.generated(group, ["--case", name])
    gradients.recorded()
    gradients.table()
    print(f"\n{gradients.count} honest backward passes, {len(gradients.bad)} gradients not OK")
    for line in gradients.bad:
        print("  " + line)
    return bool(gradients.bad)


def main():
    gdnctl = os.path.abspath(sys.argv[1])
    quick = "--quick" in sys.argv
    if "--backward" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            return 1 if backward(gdnctl, quick) else 0
    rows, bad, count = {}, [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)

        def judge(group, matmul, source, variant):
            nonlocal count
            settings = ["--set", "head_map=interleaved"] if "--shape" in source else []
            made = subprocess.run([gdnctl, "oracle", "run", "gdn", *source, *settings, "--set", f"matmul={matmul}",
                                   *variant, "--out", "x.safetensors"], capture_output=True, text=True)
            if made.returncode:
                sys.exit(made.stderr)
            # The budget is always that of chunks of 64, whatever the variant did.
            done = subprocess.run([gdnctl, "oracle", "compare", "gdn", "--inputs", "x.safetensors", "--outputs",
                                   "x.safetensors", "--set", "chunk=64", "--no-hints", "--json"],
                                  capture_output=True, text=True)
            report = json.loads(done.stdout)
            if report["verdict"] == "UNSTABLE_INPUT":
                return
            count += 1
            worst = max(float(t["error_over_budget"]) for t in report["tensors"])
            rows.setdefault((matmul, group), []).append(worst)
            if report["verdict"] != "OK":
                bad.append(f"{matmul} {' '.join(source + variant)}: {report['verdict']}: {report['reason']}")

        for matmul in ("f32", "bf16x3", "bf16"):
            for variant in variants(matmul):
                for shape, group in FREE[:3] if quick else FREE:
                    if matmul != "f32" and group.startswith("T 32768"):
                        continue
                    for dtype in ("f32", "bf16"):
                        for seed in ("1", "2"):
                            if seed == "2" and group.startswith(("T 4096", "T 32768", "T 512,", "T 513")):
                                continue
                            judge(group + (", bf16 inputs" if dtype == "bf16" else ""), matmul,
                                  ["--shape", shape, "--dtype", dtype, "--seed", seed], variant)
                for group, names in CASES.items():
                    for name in names:
                        judge(group, matmul, ["--case", name], variant)
    print("| operands | inputs | variants | median | largest |\n|---|---|---|---|---|")
    for (matmul, group), values in rows.items():
        print(f"| {matmul} | {group} | {len(values)} | {statistics.median(values):.2g} | {max(values):.2g} |")
    print(f"\n{count} honest variants, {len(bad)} not OK")
    for line in bad:
        print("  " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
