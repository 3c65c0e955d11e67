"""levanter's chunk and recurrent functions, live: our verdict on what they return, and our own results beside theirs."""
import levanter_gdn as levanter
from harness import FORWARD, GRADIENTS, add_case, demand, draw, relative

# What takes time is compiling, once for each shape, dtype and chunk: most problems share one.
SHARED = dict(B=1, T=150, Hk=2, Hv=4, dk=32, dv=16, chunk=32)

# name -> arguments of draw
PROBLEMS = {
    "small": dict(seed=1, B=2, T=57, Hk=3, Hv=3, dk=8, dv=8, chunk=16),
    "shared_key_heads": dict(seed=2, **SHARED),
    "strong_decay": dict(seed=3, gate="strong", **SHARED),
    "gates_of_both_signs": dict(seed=4, gate="signs", **SHARED),
    "close_keys": dict(seed=5, mix=0.32, beta=0.9, **SHARED),
    "one_key_beta_1": dict(seed=6, mix=0, beta=1, gate=0, **SHARED),
    "one_key_beta_2": dict(seed=16, B=1, T=200, Hk=1, Hv=1, dk=64, dv=64, mix=0, beta=2, gate=0),
    "no_writes": dict(seed=7, beta=0, **SHARED),
    "d128": dict(seed=8, B=1, T=129, Hk=1, Hv=2, dk=128, dv=128),
    "long": dict(seed=9, B=1, T=1500, Hk=1, Hv=2, dk=64, dv=32),
    "normalised_outside": dict(seed=10, l2norm=False, **SHARED),
    "no_initial_state": dict(seed=11, state=0, **SHARED),
    "one_token": dict(seed=12, B=2, T=1, Hk=2, Hv=2, dk=8, dv=8),
    "bf16": dict(seed=13, bf16=True, **SHARED),
    "bf16_close_keys": dict(seed=14, mix=0.32, beta=0.9, bf16=True, **SHARED),
    "bf16_d128": dict(seed=15, B=1, T=129, Hk=1, Hv=2, dk=128, dv=128, bf16=True),
}


def add(name, arguments, form):
    def verdict_and_distance(gdnctl):
        inputs = draw(**arguments)
        theirs = levanter.run(form, inputs)
        wanted = set(FORWARD + GRADIENTS) - ({"d_initial_state"} if "initial_state" not in inputs else set())
        demand(set(theirs) == wanted, f"levanter returned {sorted(theirs)}")
        gdnctl.demand_ok(inputs, theirs, levanter.VERSION)
        # Gradients of bf16 inputs are bf16 with them: 2^-9 of each element, and less in the mean.
        limit = {n: 4e-3 if x.dtype.itemsize == 2 else 3e-5 for n, x in theirs.items()}
        if arguments.get("beta") == 2:  # their inverse has a norm of 127, and loses as many digits
            limit = {n: 3e-3 for n in limit}
        for method in ("recurrent64", "chunk"):
            ours = gdnctl.compute(inputs, "--method", method, "--backward")
            for n, x in theirs.items():
                off = relative(x, ours[n])
                demand(off <= limit[n], f"{n} is {off:.2g} of its size away from --method {method}")

    add_case(f"levanter_{form}_{name}", verdict_and_distance)


for _name, _arguments in PROBLEMS.items():
    for _form in ("chunk", "recurrent"):
        add(_name, _arguments, _form)
