"""What the cases are written with: the list of them, inputs, and the binary under test."""
import json
import os
import subprocess

import ml_dtypes
import numpy as np
import safetensors.numpy

CASES = {}
FORWARD = ("out", "final_state")
GRADIENTS = ("dq", "dk", "dv", "dg", "dbeta", "d_initial_state")
BF16 = ml_dtypes.bfloat16


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def case(function):
    """A case is a function of a Gdnctl, whose folder is empty and gone afterwards."""
    CASES[function.__name__] = function
    return function


def add_case(name, function):
    assert name not in CASES, name
    CASES[name] = function


def demand(holds, text):
    if not holds:
        raise Failed(text)


class Inputs(dict):
    """Tensors of one call, with what the call means by them as string metadata."""

    def __init__(self, tensors, chunk=64, l2norm=True):
        super().__init__(tensors)
        self.chunk, self.l2norm = chunk, l2norm

    def metadata(self):
        return {"op": "gdn", "head_map": "interleaved", "l2norm": "rsqrt(sum+eps)" if self.l2norm else "off", "chunk": str(self.chunk)}

    def changed(self, chunk=None, l2norm=None, **tensors):
        """A copy with other tensors; None takes one out."""
        both = {n: x for n, x in {**self, **tensors}.items() if x is not None}
        return Inputs(both, self.chunk if chunk is None else chunk, self.l2norm if l2norm is None else l2norm)


def draw(seed, B, T, Hk, Hv, dk, dv, *, chunk=64, l2norm=True, gate="decay", beta=None, mix=None, size=1.0, state=0.1,
         bf16=False, cotangents=True):
    """Random inputs. gate: decay (-0.1 |N|), signs (-0.1 N), strong (-8 .. -2) or a number; mix: keys are one key plus
    mix times others, 0 for one key throughout; size: of q and k before the l2norm; state 0: no initial state."""
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape)
    q, k, v = size * normal(B, T, Hk, dk), size * normal(B, T, Hk, dk), normal(B, T, Hv, dv)
    if mix is not None:
        k = size * normal(B, 1, Hk, dk) + mix * k
    if not l2norm:
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    gates = {"decay": lambda: -0.1 * np.abs(normal(B, T, Hv)), "signs": lambda: -0.1 * normal(B, T, Hv),
             "strong": lambda: random.uniform(-8, -2, (B, T, Hv))}
    g = gates[gate]() if gate in gates else np.full((B, T, Hv), float(gate))
    b = random.uniform(0, 1, (B, T, Hv)) if beta is None else np.full((B, T, Hv), float(beta))
    x = {name: value.astype(BF16 if bf16 else np.float32) for name, value in dict(q=q, k=k, v=v, g=g, beta=b).items()}
    if state:
        x["initial_state"] = (state * normal(B, Hv, dk, dv)).astype(np.float32)
    if cotangents:
        x["d_out"] = normal(B, T, Hv, dv).astype(np.float32)
        x["d_final_state"] = normal(B, Hv, dk, dv).astype(np.float32)
    return Inputs(x, chunk, l2norm)


def bytes_of(x):
    return np.ascontiguousarray(x).tobytes()


def relative(x, y):
    """Root mean square of the difference, over that of y."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    size = np.sqrt(np.mean(y * y)) if y.size else 0.0
    off = np.sqrt(np.mean((x - y) ** 2)) if y.size else 0.0
    return off / size if size > 0 else off


def demand_close(x, y, rtol, atol, what):
    """NumPy's rule: no element with |x - y| > atol + rtol |y|."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    demand(x.shape == y.shape, f"{what}: shapes {x.shape} and {y.shape}")
    bad = ~(np.abs(x - y) <= atol + rtol * np.abs(y))
    if bad.any():
        at = np.unravel_index(np.argmax(np.where(bad, np.nan_to_num(np.abs(x - y), nan=np.inf), 0)), x.shape)
        raise Failed(f"{what}: {bad.sum()} of {bad.size} elements differ, at {tuple(map(int, at))} {x[at]} and {y[at]}")


class Gdnctl:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.files = binary, folder, 0

    def path(self, suffix):
        self.files += 1
        return os.path.join(self.folder, f"{self.files}{suffix}")

    def run(self, *words, code=0):
        environment = dict(os.environ, HOME=self.folder, LC_ALL="C.UTF-8")
        got = subprocess.run([self.binary, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        if got.returncode != code:
            raise Failed(f"exit code {got.returncode} instead of {code}: gdnctl {' '.join(words)}\n{got.stdout[-3000:]}{got.stderr[-2000:]}")
        return got

    def save(self, tensors, metadata=None):
        path = self.path(".safetensors")
        safetensors.numpy.save_file({n: np.ascontiguousarray(x) for n, x in tensors.items()}, path, metadata)
        return path

    def compare(self, inputs, outputs, *words, code=0):
        """The report on `outputs`, a dict of arrays, as an object."""
        got = self.run("oracle", "compare", "gdn", "--json", "--inputs", self.save(inputs, inputs.metadata()),
                       "--outputs", self.save(outputs), *words, code=code)
        return json.loads(got.stdout)

    def demand_ok(self, inputs, outputs, what, *words):
        report = self.compare(inputs, outputs, *words)
        judged = {t["meaning"] for t in report["tensors"]}
        demand(judged == set(outputs), f"{what}: judged were {sorted(judged)}")
        demand(report["verdict"] == "OK", f"{what}: {report['verdict']}")
        return report

    def compute(self, inputs, *words):
        """What gdnctl makes of the inputs: `oracle run gdn` with these words."""
        path = self.path(".safetensors")
        self.run("oracle", "run", "gdn", "--inputs", self.save(inputs, inputs.metadata()), "--out", path, *words)
        return safetensors.numpy.load_file(path)
