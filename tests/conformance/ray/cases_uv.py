"""The jobs of the target `marin` with the real uv, in a miniature of its checkout: a workspace whose member
lib/levanter has the extra `tpu` and the group `test`. Its jax, transformers, torchvision and locked torch are wheels of
a few hundred bytes; the pinned torch comes from an index that is served here. pytest and uv are the real ones."""
import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile

from harness import Skipped, case, without_ray_lines
from node import Unavailable, package_venv

UV = "0.13.9"
PINNED = "2.9.0+cpu"

ROOT = """
[project]
name = "marin-root"
version = "0"
requires-python = ">=3.10"
dependencies = ["torch", "torchvision"]
[tool.uv]
package = false
[tool.uv.workspace]
members = ["lib/levanter"]
[tool.uv.sources]
torch = { path = "wheels/torch-2.8.0-py3-none-any.whl" }
torchvision = { path = "wheels/torchvision-1-py3-none-any.whl" }
"""
LEVANTER = """
[project]
name = "levanter"
version = "0"
requires-python = ">=3.10"
dependencies = []
[project.optional-dependencies]
tpu = ["jax"]
[dependency-groups]
test = ["pytest", "torch", "transformers"]
[tool.uv]
package = false
[tool.uv.sources]
jax = { path = "../../wheels/jax-1-py3-none-any.whl" }
torch = { path = "../../wheels/torch-2.8.0-py3-none-any.whl" }
transformers = { path = "../../wheels/transformers-1-py3-none-any.whl" }
"""
# What a job's Python was given, and what a `uv run` that it starts is given.
GIVEN = """
import importlib.util, json, os, subprocess, sys
import torch
def given():
    later = subprocess.run(["uv", "run", "python", "-c", "import sys, torch; print(sys.prefix, torch.__version__)"],
                           check=True, capture_output=True, text=True).stdout.split()
    print("GIVEN " + json.dumps({"prefix": sys.prefix, "torch": torch.__version__, "later": later,
                                 "torchvision": importlib.util.find_spec("torchvision") is not None,
                                 "env": {k: os.environ.get(k) for k in ("EQX_ON_ERROR", "WANDB_MODE")}}), flush=True)
"""
TESTS = {"test_gdn_kernels.py": GIVEN + "def test_given(): given()\ndef test_one(): pass\n",
         "test_gdn_layer.py": "import jax, transformers\ndef test_layer(): pass\n"}
PROFILE = GIVEN + "given()\nprint('throughput/mfu: 12.5', sys.argv[1:])\n"


def wheel(folder, name, version, code):
    os.makedirs(folder, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/__init__.py": f"__version__ = {version!r}\n{code}",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(os.path.join(folder, f"{name}-{version}-py3-none-any.whl"), "w") as out:
        for path, content in files.items():
            out.writestr(path, content)


class Index:
    """A package index with one torch, on a port of its own, until the process ends."""

    def __init__(self, folder):
        wheel(os.path.join(folder, "simple/torch"), "torch", PINNED, "")
        os.makedirs(os.path.join(folder, "empty"))
        quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=folder))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def pip_setting(name, *variables):
    """What pip is configured with on this machine; None: nothing."""
    for variable in variables:
        if os.environ.get(variable):
            return os.environ[variable]
    got = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global." + name], capture_output=True, text=True)
    return got.stdout.strip() or None


def write(t, name, content):
    path = os.path.join(t.cwd, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(content)


def checkout(t, index="simple"):
    """The miniature, and the options with which its jobs find uv, Python and the package index of this machine."""
    try:
        venv = package_venv("uv-" + UV, ["uv==" + UV])
    except Unavailable as why:
        raise Skipped(str(why)) from None
    t.index = Index(t.path("index"))
    write(t, "pyproject.toml", ROOT)
    write(t, "lib/levanter/pyproject.toml", LEVANTER)
    for name, text in TESTS.items():
        write(t, "lib/levanter/tests/" + name, text)
    write(t, "experiments/speedrun/hackable_transformer_gdn/tiny_profile.py", PROFILE)
    write(t, "gdnctl.toml", f'target = "marin"\n[targets.marin]\ntorch_index = "{t.index.url}/{index}"\n')
    wheels = os.path.join(t.cwd, "wheels")
    wheel(wheels, "jax", "1", "def default_backend(): return 'tpu'\ndef device_count(): return 4\n")
    for name, version in (("transformers", "1"), ("torchvision", "1"), ("torch", "2.8.0")):
        wheel(wheels, name, version, "")
    home = t.path("home")
    with open(home + "/.bash_profile", "w") as f:
        f.write(f"export PATH={venv}/bin:/usr/local/bin:/usr/bin:/bin\n")
    settings = {"HOME": home, "UV_CACHE_DIR": t.path("cache"), "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never",
                "UV_DEFAULT_INDEX": pip_setting("index-url", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"),
                "SSL_CERT_FILE": pip_setting("cert", "SSL_CERT_FILE", "PIP_CERT"), "UV_HTTP_TIMEOUT": "60"}
    return [word for name, value in settings.items() if value for word in ("-e", f"{name}={value}")]


def given(t, ran):
    lines = [l for l in without_ray_lines(open(ran.err_path, "rb").read()).decode().splitlines() if "GIVEN {" in l]
    t.equal(len(lines), 1, "the number of reports")
    return json.loads(lines[0][lines[0].index("{"):])


def one_environment(t, got, prefix):
    t.check(got["prefix"].endswith(prefix), f"the environment is {got['prefix']}, not {prefix}")
    t.equal(got["torch"], PINNED, "torch")
    t.equal(got["later"], [got["prefix"], PINNED], "what a later `uv run` is given")
    t.equal(got["env"]["EQX_ON_ERROR"], "nan", "EQX_ON_ERROR")


@case(on=("local", "ray"), tpu=True)
def uv_test_of_a_marin_checkout(t):
    words = checkout(t)
    for active in ("", t.path("active")):
        ran = t.run(0, "ray-test", "--json", "--tpu", "v5p-8", "--pytest-args=-s", "-e", "VIRTUAL_ENV=" + active, *words)
        got = given(t, ran)
        one_environment(t, got, active or "/.venv")
        t.equal(got["env"]["WANDB_MODE"], "offline", "WANDB_MODE")
        t.equal(ran.json["tests"]["passed"], 3, "passed tests")
        t.equal(ran.json["device"], {"backend": "tpu", "count": 4}, "the device")


@case(on=("local", "ray"), tpu=True)
def uv_other_indexes_of_the_machine(t):
    words = checkout(t)
    wheel(t.path("index/mirror/torch"), "torch", "2.8.0", "")
    mirror = t.index.url + "/mirror"
    settings = t.path("uv.toml")
    with open(settings, "w") as f:
        f.write('[pip]\ntorch-backend = "cu128"\nno-index = true\n')
    for name, value in (("UV_INDEX", mirror), ("UV_EXTRA_INDEX_URL", mirror), ("UV_TORCH_BACKEND", "cu128"),
                        ("UV_CONFIG_FILE", settings)):
        ran = t.run(0, "ray-test", "--json", "--tpu", "v5p-8", "--pytest-args=-s", *words, "-e", f"{name}={value}")
        t.equal(given(t, ran)["torch"], PINNED, "torch with " + name)


@case(on=("local", "ray"), tpu=True)
def uv_profile_of_a_marin_checkout(t):
    words = checkout(t)
    for active in ("", t.path("active")):
        ran = t.run(0, "ray-profile", "--json", "--dry-run", "-e", "VIRTUAL_ENV=" + active, *words)
        got = given(t, ran)
        one_environment(t, got, "/.venv")
        t.check(not got["torchvision"], "torchvision was not removed")
        t.equal(ran.json["metric"]["value"], 12.5, "the metric")
    t.check(not os.path.exists(t.path("active")), "the profile touched the active environment")


@case(on=("local", "ray"), tpu=True)
def uv_step_that_fails_is_named(t):
    words = checkout(t, index="empty")
    ran = t.run(1, "ray-test", "--json", "--tpu", "v5p-8", *words)
    t.check("gdnctl: failed step: install torch (exit status" in ran.json["message"], "the step")
    with open(t.path("home/.bash_profile"), "w") as f:
        f.write("export PATH=/usr/bin:/bin\n")
    if not os.path.exists("/usr/bin/uv") and not os.path.exists("/bin/uv"):
        ran = t.run(1, "ray-test", "--json", "--tpu", "v5p-8", *words)
        t.check("hint: install it there" in ran.json["message"], "the hint")
