"""Runs kernels that are Python functions for gdnctl. Needs Python 3.9 and numpy, and of the rest only what an adapter
imports. Requests come as lines of JSON on standard input, an answer to each goes to standard output; tensors go by
safetensors files. What a kernel prints goes to standard error."""
import collections.abc
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import struct
import sys
import time
import traceback

# A kernel must neither read requests nor write answers: both pipes move away before anything else is imported.
_asks = os.fdopen(os.dup(0), "r", encoding="utf-8")
_answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}  # that outputs may have
MOST_LINES, MOST_BYTES = 10, 4096
NOT_CONTRACT = ("op", "case", "seed", "method", "threads", "generator")


def one_line(text, most=400):
    text = " ".join(str(text).split())
    return text if len(text) <= most else text[:most - 3] + "..."


class Failure(Exception):
    """What a kernel did instead of computing, as gdnctl names it."""

    def __init__(self, kind, text, trace=()):
        super().__init__(text)
        self.kind, self.text, self.trace = kind, one_line(text, 1000), list(trace)


def text_of(error):
    """"ValueError: what it says"."""
    try:
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # an exception whose text cannot be made
        return type(error).__name__


def described(error):
    """Its text on one line, and the end of the traceback."""
    said = one_line(text_of(error))
    try:
        lines = [line[:200] for line in "".join(traceback.format_tb(error.__traceback__)).splitlines()]
    except Exception:
        lines = []
    lines = lines[-MOST_LINES:]
    while lines and sum(len(line) + 1 for line in lines) > MOST_BYTES:
        lines.pop(0)
    return said, lines


def kind_of(error, compiling):
    text = text_of(error)[:20000]
    if isinstance(error, NotImplementedError):
        return "unsupported"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        return "out_of_memory"
    marks = ("Mosaic", "LoweringException", "CompilationError", "PTXASError", "CompileTimeAssertionFailure")
    if any(mark in text for mark in marks) or (compiling and type(error).__module__.startswith("jaxlib")):
        return "compile"
    return "raised"


def failure_of(error, compiling=False):
    if isinstance(error, Failure):
        return error
    said, lines = described(error)
    if type(error).__name__ in ("TracerArrayConversionError", "ConcretizationTypeError", "TracerBoolConversionError"):
        said += " (jax.jit traces the adapter's forward(): write it without NumPy, or set jit = False in the adapter)"
    return Failure(kind_of(error, compiling), said, lines)


# --- tensor files -----------------------------------------------------------------------------------------------------
class Stored:
    """A tensor as a file has it: `values` of BF16 are uint16."""

    def __init__(self, dtype, values):
        self.dtype, self.values = dtype, values


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + first:8 + length + last], dtype=DTYPES[entry["dtype"]])
        tensors[name] = Stored(entry["dtype"], values.reshape(entry["shape"]))
    return tensors, metadata


def write_tensors(path, tensors):
    header, pieces, at = {}, [], 0
    for name, tensor in tensors.items():
        data = np.ascontiguousarray(tensor.values).tobytes()
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.values.shape), "data_offsets": [at, at + len(data)]}
        pieces.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(pieces)


def number_or_text(value):
    if value == "none":
        return None
    try:
        return int(value)
    except ValueError:
        with contextlib.suppress(ValueError):
            return float(value)
    return value


# --- frameworks -------------------------------------------------------------------------------------------------------
class Numpy:
    name, automatic = "numpy", False

    def __init__(self, _adapter):
        pass

    def environment(self):
        return {"framework": "numpy", "version": np.__version__, "device_kind": "cpu", "device_count": 1, "platform": "cpu",
                "matmul_precision": "default", "matmul_operands": "f32"}

    def array(self, stored):
        if stored.dtype == "BF16":
            return (stored.values.astype(np.uint32) << 16).view(np.float32)
        return stored.values.copy()

    def is_array(self, value):
        return isinstance(value, (np.ndarray, np.generic))

    def dtype_of(self, value):
        return str(value.dtype)

    def stored(self, value):
        if str(value.dtype) == "bfloat16":
            return Stored("BF16", value.view(np.uint16))
        return Stored(NAMES[str(value.dtype)], value)

    def wait(self, values):
        pass

    def flush(self):
        """Takes the inputs out of the accelerator's cache."""

    def timed(self, call, arrays):
        """The results, once they are there, and a function for the seconds on the device; None: not known."""
        values = call(arrays)
        self.wait(values)
        return values, None

    def peak_bytes(self):
        return None

    def prepare(self, function, arrays):
        return function, True

    def chain(self, function, arrays):
        """A compiled function of arrays and a number: the results of as many calls, each after the one before."""
        raise Failure("unsupported", f"{self.name} has no chained calls")

    def bytes_of(self, array):
        return array.tobytes()


class Jax(Numpy):
    name, automatic = "jax", True

    def __init__(self, adapter):
        import jax

        self.jax, self.jit = jax, getattr(adapter, "jit", True)
        self.device = jax.devices()[0]

    def environment(self):
        precision = self.jax.config.jax_default_matmul_precision or "default"
        place = self.device.platform
        narrow = {"tpu": "bf16", "gpu": "tf32"}.get(place, "f32")
        by_name = {"default": narrow, "fastest": narrow, "bfloat16": "bf16", "tensorfloat32": "tf32",
                   "high": "bf16x3" if place == "tpu" else narrow}
        operands = by_name.get(precision, "f32") if place != "cpu" else "f32"
        return {"framework": "jax", "version": self.jax.__version__, "device_kind": self.device.device_kind,
                "device_count": self.jax.device_count(), "platform": place, "matmul_precision": precision,
                "matmul_operands": operands}

    def array(self, stored):
        values = stored.values
        if stored.dtype == "BF16":
            values = values.view(ml_dtypes.bfloat16)
        elif stored.dtype == "I64":
            values = values.astype(np.int32)  # jax has no 64 bits by default; nothing that is counted here needs them
        return self.jax.device_put(np.array(values), self.device)

    def is_array(self, value):
        return isinstance(value, self.jax.Array)

    def stored(self, value):
        return Numpy.stored(self, np.asarray(value))

    def wait(self, values):
        self.jax.block_until_ready(values)

    def peak_bytes(self):
        stats = self.device.memory_stats()
        return stats.get("peak_bytes_in_use") if stats else None

    def prepare(self, function, arrays):
        if not self.jit:
            return function, True
        return self.jax.jit(function).lower(arrays).compile(), False

    def flush(self):
        if self.device.platform == "gpu":
            self.jax.block_until_ready(self.jax.numpy.zeros(64 << 20, device=self.device))

    def chain(self, function, arrays):
        if not self.jit:
            raise Failure("unsupported", "the adapter has jit = False")
        jax, lax, jnp = self.jax, self.jax.lax, self.jax.numpy

        def moved(array, much):
            first = (0,) * array.ndim
            return lax.dynamic_update_slice(array, (array[first] + much.astype(array.dtype)).reshape((1,) * array.ndim), first)

        def step(_, state):
            arrays, _ = state
            values = function(arrays)
            # No result is as large, which XLA cannot know: all inputs stay as they are, but depend on all results.
            much = functools.reduce(jnp.logical_or, (v[(0,) * v.ndim] >= jnp.finfo(v.dtype).max for v in values.values()))
            return {name: moved(a, much) for name, a in arrays.items()}, values

        def chained(arrays, count):
            empty = {name: jnp.zeros(v.shape, v.dtype) for name, v in jax.eval_shape(function, arrays).items()}
            return lax.fori_loop(0, count, step, (arrays, empty))[1]

        return jax.jit(chained).lower(arrays, np.int32(1)).compile()

    def bytes_of(self, array):
        return b"" if array.is_deleted() else np.asarray(array).tobytes()

    def gradients(self, forward, wanted, given, cotangents):
        values, pull = self.jax.vjp(lambda chosen: forward({**given, **chosen}), wanted)
        pulled = pull({name: cotangents[name].astype(value.dtype) for name, value in values.items()})[0]
        return pulled, values


class Torch(Numpy):
    name, automatic = "torch", True

    def __init__(self, _adapter):
        import torch

        self.torch = torch
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.cuda else "cpu")

    def environment(self):
        tf32 = self.cuda and (self.torch.backends.cuda.matmul.allow_tf32 or os.environ.get("NVIDIA_TF32_OVERRIDE") == "1")
        return {"framework": "torch", "version": self.torch.__version__,
                "device_kind": self.torch.cuda.get_device_name() if self.cuda else "cpu",
                "device_count": self.torch.cuda.device_count() if self.cuda else 1, "platform": "gpu" if self.cuda else "cpu",
                "matmul_precision": self.torch.get_float32_matmul_precision(), "matmul_operands": "tf32" if tf32 else "f32"}

    def array(self, stored):
        if stored.dtype == "BF16":
            return self.torch.from_numpy(stored.values.view(np.int16).copy()).view(self.torch.bfloat16).to(self.device)
        return self.torch.from_numpy(stored.values.copy()).to(self.device)

    def is_array(self, value):
        return isinstance(value, self.torch.Tensor)

    def dtype_of(self, value):
        return str(value.dtype).replace("torch.", "")

    def stored(self, value):
        value = value.detach().cpu().contiguous()
        if value.dtype == self.torch.bfloat16:
            return Stored("BF16", value.view(self.torch.int16).numpy().view(np.uint16))
        return Stored(NAMES[self.dtype_of(value)], value.numpy())

    def wait(self, _values):
        if self.cuda:
            self.torch.cuda.synchronize()

    def flush(self):
        if self.cuda:
            self.torch.empty(256 << 20, dtype=self.torch.uint8, device=self.device).fill_(1)
            self.torch.cuda.synchronize()

    def timed(self, call, arrays):
        if not self.cuda:
            return call(arrays), None
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        values = call(arrays)
        last.record()
        self.torch.cuda.synchronize()
        return values, lambda: first.elapsed_time(last) / 1e3

    def peak_bytes(self):
        return self.torch.cuda.max_memory_allocated() if self.cuda else None

    def bytes_of(self, array):
        array = array.detach().cpu().contiguous()
        return (array.view(self.torch.int16) if array.dtype == self.torch.bfloat16 else array).numpy().tobytes()

    def gradients(self, forward, wanted, given, cotangents):
        wanted = {name: value.detach().requires_grad_() for name, value in wanted.items()}
        values = forward({**given, **wanted})
        names = [name for name, value in values.items() if value.requires_grad]
        pulled = self.torch.autograd.grad(
            [values[name] for name in names], list(wanted.values()),
            [cotangents[name].to(values[name].dtype) for name in names], allow_unused=True)
        zeros = self.torch.zeros_like
        return {n: zeros(w) if g is None else g for (n, w), g in zip(wanted.items(), pulled)}, values


FRAMEWORKS = {"numpy": Numpy, "jax": Jax, "torch": Torch}


# --- operators --------------------------------------------------------------------------------------------------------
class Gdn:
    """forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens, scale, contract, case) -> (out, final_state)"""

    arguments = ("q", "k", "v", "g", "beta", "initial_state")
    cotangents = {"out": "d_out", "final_state": "d_final_state"}
    gradients = {"q": "dq", "k": "dk", "v": "dv", "g": "dg", "beta": "dbeta", "initial_state": "d_initial_state"}

    def __init__(self, tensors, contract):
        q, v = tensors["q"].values.shape, tensors["v"].values.shape
        self.heads_first = contract.get("layout") == "B,H,T,D"
        self.contract = contract
        axes = (1, 2) if self.heads_first else (2, 1)
        packed = "cu_seqlens" in tensors
        self.case = {"B": q[0], "T": q[axes[1]], "Hk": q[axes[0]], "Hv": v[axes[0]], "dk": q[3], "dv": v[3],
                     "chunk": contract.get("chunk", 64), "dtype": tensors["q"].dtype.lower(), "packed": packed,
                     "has_initial_state": "initial_state" in tensors}
        sequences = len(tensors["cu_seqlens"].values) - 1 if packed else q[0]
        state = (q[3], v[3]) if contract.get("state_layout", "B,H,K,V") == "B,H,K,V" else (v[3], q[3])
        self.shapes = {"out": v, "final_state": (sequences, v[axes[0]], *state)}
        c = self.case
        self.case["name"] = "B{B}_T{T}_Hk{Hk}_Hv{Hv}_dk{dk}_dv{dv}_{dtype}".format(**c) + \
            ("_packed" if packed else "") + ("_state" if c["has_initial_state"] else "")

    def call(self, adapter, fn, arrays, name="forward", **more):
        scale = self.contract.get("scale")
        return getattr(adapter, name)(
            fn, *(arrays.get(n) for n in self.arguments), cu_seqlens=arrays.get("cu_seqlens"),
            scale=scale if isinstance(scale, (int, float)) else None, contract=dict(self.contract), case=dict(self.case), **more)

    def results(self, returned):
        if not isinstance(returned, (tuple, list)) or len(returned) != 2:
            raise Failure("bad_output", f"forward() returned {shown(returned)}, not (out, final_state)")
        out, state = returned
        return {"out": out} if state is None else {"out": out, "final_state": state}


class LinearCe:
    """forward(fn, x, w, labels, *, weight, contract, case) -> a dict with loss, lse or reduced"""

    arguments = ("x", "w", "labels")
    cotangents = {"loss": "d_loss", "lse": "d_lse"}
    gradients = {"x": "gx", "w": "gw"}

    def __init__(self, tensors, contract):
        x, w = tensors["x"].values.shape, tensors["w"].values.shape
        vocab = w[1] if contract.get("layout", "hv") == "hv" else w[0]
        self.contract = contract
        self.case = {"batch": x[0], "hidden": x[1], "vocab": vocab, "dtype": tensors["x"].dtype.lower(),
                     **{name: name in tensors for name in ("weight", "d_loss", "d_lse")}}
        labels = tensors["labels"].values
        self.case["ignored"] = bool(((labels < 0) | (labels >= vocab)).any())  # rows whose label is none
        self.case["name"] = "B{batch}_H{hidden}_V{vocab}_{dtype}".format(**self.case)
        self.shapes = {"loss": (x[0],), "lse": (x[0],), "reduced": ()}

    def call(self, adapter, fn, arrays, name="forward", **more):
        return getattr(adapter, name)(fn, *(arrays[n] for n in self.arguments), weight=arrays.get("weight"),
                                      contract=dict(self.contract), case=dict(self.case), **more)

    def results(self, returned):
        if not isinstance(returned, dict) or not returned or set(returned) - {"loss", "lse", "reduced", "argmax"}:
            raise Failure("bad_output", f"forward() returned {shown(returned)}, not a dict with loss, lse or reduced")
        return {name: value for name, value in returned.items() if name != "argmax" and value is not None}


def shown(value):
    """What a kernel returned, for people."""
    if isinstance(value, dict):
        return one_line("a dict with " + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()))[:200]
    if isinstance(value, (tuple, list)):
        return one_line(f"a {type(value).__name__} of {len(value)}")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__module__.split('.')[0]} {str(value.dtype).replace('torch.', '')}{list(value.shape)}"
    return "None" if value is None else type(value).__name__


# --- kernels ----------------------------------------------------------------------------------------------------------
def import_function(name):
    """The object of a dotted name: the longest prefix that is a module, and attributes of it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(error.name + ".")) and end > 1:
                continue
            raise
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(f"no module named {name}")


class Kernel:
    """One adapter with one function; calls come as place(), run() and store()."""

    def __init__(self, path, function):
        name = f"gdnctl_adapter_{len(kernels)}"
        sys.path[:0] = [os.path.dirname(os.path.abspath(path))]
        spec = importlib.util.spec_from_file_location(name, path)
        self.adapter = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.adapter)
        framework = getattr(self.adapter, "framework", None)
        if framework not in FRAMEWORKS:
            raise Failure("import", f"framework = {framework!r}: it has to be \"jax\", \"torch\" or \"numpy\"")
        if not callable(getattr(self.adapter, "forward", None)):
            raise Failure("import", "the adapter has no function forward()")
        self.function = function or getattr(self.adapter, "function", None)
        self.fn = import_function(self.function) if self.function else None
        self.framework = FRAMEWORKS[framework](self.adapter)
        self.own_backward = getattr(self.adapter, "backward", None)
        automatic = self.framework.automatic and not hasattr(self.adapter, "backward")
        self.passes = ["forward"] + (["backward"] if self.own_backward or automatic else [])
        if callable(getattr(self.adapter, "decode", None)):
            self.passes.append("decode")
        self.prepared, self.failed, self.chains = {}, {}, {}
        self.earlier = collections.deque()

    def hello(self):
        packages = {"jax", "jaxlib", "libtpu", "torch", "triton", "numpy"}
        if self.function:
            packages.add(self.function.split(".")[0])
        versions = {}
        # Reads a file of every installed package. Python 3.10 and newer.
        known = getattr(importlib.metadata, "packages_distributions", dict)()
        for package in sorted(packages):
            for name in known.get(package, [package]):
                with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                    versions[name] = importlib.metadata.version(name)
        fields = {str(k): str(v) for k, v in getattr(self.adapter, "fields", {}).items()}
        return {"python": platform.python_version(), **self.framework.environment(), "function": self.function,
                "passes": self.passes, "contract": getattr(self.adapter, "contract", None), "fields": fields,
                "dtype": getattr(self.adapter, "dtype", None), "libraries": versions}

    def place(self, which, path, buffers):
        """Calls rotate among `buffers` sets of inputs in memory."""
        tensors, metadata = read_tensors(path)
        contract = {k: number_or_text(v) for k, v in metadata.items() if k not in NOT_CONTRACT}
        self.op = (LinearCe if metadata.get("op") == "linear-ce" else Gdn)(tensors, contract)
        self.which = which
        supports = getattr(self.adapter, "supports", None)
        reason = True if supports is None else supports(dict(self.op.case))
        if reason is not True and not (reason is None or reason == 1):
            return {"skipped": one_line(reason) if isinstance(reason, str) and reason else "not supported"}
        self.tensors = tensors
        self.arrays = {name: self.framework.array(t) for name, t in tensors.items()}
        self.framework.wait(self.arrays)
        self.earlier = collections.deque([*self.earlier, self.arrays], buffers - 1)
        shapes = sorted((name, t.dtype, t.values.shape) for name, t in tensors.items())
        key = json.dumps([which, shapes, self.op.case, contract], sort_keys=True)
        started, fresh = time.perf_counter(), key not in self.prepared
        self.key = key
        if key in self.failed:
            raise Failure("not_run", self.failed[key])
        if fresh:
            # Nothing of a call may stay in what is compiled for all of its signature.
            notes = {"without": [], "narrow": {}}
            try:
                self.prepared[key] = (*self.framework.prepare(self.call_of(which, notes), self.arrays), notes)
            except Exception as error:
                failure = failure_of(error, True)
                if failure.kind == "compile":
                    self.failed[key] = failure.text
                raise failure from None
        self.call, self.exposed, self.notes = self.prepared[key]
        return {"compile_seconds": time.perf_counter() - started if fresh else 0.0}

    def call_of(self, which, notes):
        """A function from arrays to named results. `notes`: the results that forward() does not return, and the 16-bit
        types that cotangents are rounded to."""
        op, adapter, fn, framework = self.op, self.adapter, self.fn, self.framework

        def results(arrays, name="forward"):
            values = op.results(op.call(adapter, fn, arrays, name))
            self.check(values, op.shapes)
            notes["without"] = [n for n in op.shapes if n not in values]
            return values

        def own(arrays):
            given = {c: arrays.get(c) for c in op.cotangents.values()}
            values = op.call(adapter, fn, arrays, "backward", **given)
            if not isinstance(values, collections.abc.Mapping) or not all(isinstance(name, str) for name in values):
                raise Failure("bad_output", f"backward() returned {shown(values)}, not a dict of gradients")
            return dict(values)

        def automatic(arrays):
            wanted = {n: arrays[n] for n in op.gradients if n in arrays}
            seeds = {n: arrays[c] for n, c in op.cotangents.items() if c in arrays}
            reduces = isinstance(op, LinearCe) and not seeds

            def forward(given):
                values = results(given)
                notes["without"] = [] if reduces else [n for n in seeds if n not in values]
                if reduces:
                    return {"reduced": reduced_of(values, given.get("weight"), op.contract)}
                return {n: values[n] for n in seeds if n in values}

            if reduces:
                seeds["reduced"] = arrays["x"].reshape(-1)[0] * 0 + 1
            pulled, values = framework.gradients(forward, wanted, arrays, seeds)
            notes["narrow"] = {op.cotangents[n]: framework.dtype_of(v) for n, v in values.items()
                           if n in op.cotangents and framework.dtype_of(v) in ("bfloat16", "float16")}
            return {op.gradients[n]: value for n, value in pulled.items()}

        if which == "backward":
            return own if self.own_backward else automatic
        return lambda arrays: results(arrays, which)

    def check(self, values, shapes):
        for name, value in values.items():
            if not self.framework.is_array(value):
                raise Failure("bad_output", f"{name} is {shown(value)}, not an array of {self.framework.name}")
            want = shapes.get(name)
            if want is not None and tuple(value.shape) != tuple(want):
                raise Failure("bad_output", f"{name} is {shown(value)}, expected the shape {list(want)}")
            if self.framework.dtype_of(value) not in NAMES:
                raise Failure("bad_output", f"{name} is {shown(value)}, expected float32, bfloat16 or float16")

    def run(self):
        self.framework.flush()
        started = time.perf_counter()
        values, on_device = self.framework.timed(self.call, self.arrays)
        self.values = values
        return {"seconds": time.perf_counter() - started, "device_seconds": on_device() if on_device else None}

    def chain(self, calls):
        """Seconds of a call on the device: those between 1 and `calls` chained ones, so that dispatch drops out."""
        try:
            if self.key not in self.chains:
                function = self.call_of(self.which, {"without": [], "narrow": {}})
                self.chains[self.key] = self.framework.chain(function, self.arrays)
            taken = []
            for count in (1, calls):
                started = time.perf_counter()
                values = self.chains[self.key](self.arrays, np.int32(count))
                self.framework.wait(values)
                taken.append(time.perf_counter() - started)
            for name, value in values.items():
                once, many = (np.asarray(v).astype(np.float64) for v in (self.values[name], value))
                if not np.abs(once - many).max() <= 0.05 * np.abs(once).max():
                    raise Failure("unsupported", f"chained calls give another {name}")
            return {"device_seconds": (taken[1] - taken[0]) / (calls - 1)}
        except Exception as error:
            return {"reason": failure_of(error).text}

    def store(self, path):
        if self.exposed:  # jax.jit never writes to its arguments
            for name, tensor in self.tensors.items():
                if self.framework.bytes_of(self.arrays[name]) != self.framework.bytes_of(self.framework.array(tensor)):
                    raise Failure("wrote", f"wrote to input {name}")
        self.check(self.values, {})
        write_tensors(path, {name: self.framework.stored(value) for name, value in self.values.items()})
        self.arrays = self.values = None
        return {**self.notes, "peak_bytes": self.framework.peak_bytes()}


def reduced_of(values, weight, contract):
    """The scalar that a loss is reduced to: mean or sum of weight (loss + penalty lse^2); the sum without a reduction."""
    if "reduced" in values:
        return values["reduced"]
    rows, penalty = values["loss"], contract.get("logsumexp_weight") or 0
    if penalty:
        if "lse" not in values:
            raise Failure("unsupported", "the penalty's gradient needs lse or reduced, and forward() returns neither")
        rows = rows + penalty * values["lse"] ** 2
    if weight is not None:
        rows = rows * weight
    if contract.get("reduction", "mean") != "mean":
        return rows.sum()
    if weight is None:
        return rows.mean()
    total = weight.sum()
    return rows.sum() / (total + (total == 0))  # 0 where all weights are


kernels = []


def open_kernel(path, function, cwd):
    os.chdir(cwd)
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
    try:
        kernel = Kernel(path, function)
        kernels.append(kernel)
        return {"kernel": len(kernels) - 1, **kernel.hello()}
    except Failure:
        raise
    except BaseException as error:  # SystemExit, too
        said, lines = described(error)
        hidden = os.path.splitext(os.path.basename(path))[0]
        if hidden == (function or "").split(".")[0] or f"'{hidden}'" in said:
            said += f" (the adapter's file hides any package named {hidden}: rename it)"
        raise Failure("import", said, lines) from None


def answer(ask):
    what = ask["do"]
    if what == "open":
        return open_kernel(ask["adapter"], ask["function"], ask["cwd"])
    kernel = kernels[ask["kernel"]]
    if what == "place":
        return kernel.place(ask["pass"], ask["inputs"], ask["buffers"])
    if what == "chain":
        return kernel.chain(ask["calls"])
    return kernel.run() if what == "run" else kernel.store(ask["outputs"])


def say(reply):
    _answers.write(json.dumps(reply, ensure_ascii=False) + "\n")
    _answers.flush()


def serve():
    say({"ready": {"python": platform.python_version(), "pid": os.getpid()}})
    for line in _asks:
        ask = json.loads(line)
        try:
            reply = answer(ask)
        except BaseException as error:  # whatever a kernel throws
            failure = failure_of(error, ask["do"] == "place")
            reply = {"error": {"kind": failure.kind, "text": failure.text, "trace": failure.trace}}
        say({"id": ask["id"], **reply})


if __name__ == "__main__":
    serve()
