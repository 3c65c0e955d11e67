# Tensor files of the real savers: NumPy's and safetensors' own writers and readers, bit for bit in both directions.
# rooms: src/oracle/tensor src/harness/files
venv() {
    local dir=$REPO/build/conformance/tensor-formats
    if ! "$dir/bin/python" -c 'import numpy, safetensors, ml_dtypes' 2>/dev/null; then
        rm -rf "$dir"
        python3 -m venv "$dir" >&2 || skip "no virtual environment (apt-get install python3-venv)"
        "$dir/bin/pip" install -q numpy==2.4.6 ml_dtypes==0.6.0 safetensors==0.8.0 >&2 || skip "pip cannot install numpy and safetensors"
    fi
    PYTHON=$dir/bin/python
}

# Inputs of one call in float32 and bfloat16, saved by the libraries themselves in every layout that they write.
write_inputs() {
    "$PYTHON" - <<'PY'
import ml_dtypes, numpy as np, safetensors.numpy as st
r = np.random.default_rng(1)
n = lambda *s: r.standard_normal(s)
x = dict(q=n(2, 9, 3, 8), k=n(2, 9, 3, 8), v=n(2, 9, 3, 4), g=-0.1 * abs(n(2, 9, 3)), beta=r.uniform(0, 1, (2, 9, 3)),
         initial_state=0.1 * n(2, 3, 8, 4))
f32 = {k: v.astype(np.float32) for k, v in x.items()}
bf16 = {k: v.astype(ml_dtypes.bfloat16) for k, v in x.items()}
for name, tensors in (("f32", f32), ("bf16", bf16)):
    np.savez(f"{name}.npz", **tensors)
    np.savez_compressed(f"{name}_packed.npz", **tensors)
    st.save_file(tensors, f"{name}.safetensors", metadata={"op": "gdn"})
for k, v in f32.items():
    np.save(f"{k}.npy", v)
np.savez("fortran.npz", **{k: np.asfortranarray(v) for k, v in f32.items()})
np.savez("big_endian.npz", **{k: v.astype(">f4") for k, v in f32.items()})
np.savez("f64.npz", **{k: v.astype(np.float64) for k, v in f32.items()})
PY
}

# What gdnctl read and wrote again must be what the library reads from the original.
same_bits() {
    "$PYTHON" - "$@" <<'PY'
import sys
import ml_dtypes, numpy as np, safetensors.numpy as st

def load(path):
    if path.endswith(".safetensors"):
        return st.load_file(path)
    with np.load(path) as z:
        return {k: z[k].view(ml_dtypes.bfloat16) if z[k].dtype.kind == "V" else z[k] for k in z.files}

written, original = load(sys.argv[1]), load(sys.argv[2])
for name, want in original.items():
    got = written[name]
    want = want.astype(want.dtype.newbyteorder("<"))
    assert got.dtype == want.dtype and got.shape == want.shape, (name, got.dtype, want.dtype, got.shape)
    assert got.tobytes() == np.ascontiguousarray(want).tobytes(), name
assert written["out"].dtype == np.float64 and written["out"].shape == (2, 9, 3, 4)

def truth(x):  # the recurrence, in NumPy
    q, k, v, g, b, S = (np.asarray(x[n], np.float64) for n in ("q", "k", "v", "g", "beta", "initial_state"))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))
    S, out = S.copy(), np.zeros(v.shape)
    for t in range(q.shape[1]):
        S *= np.exp(g[:, t])[..., None, None]
        d = b[:, t][..., None] * (v[:, t] - np.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S += k[:, t][..., None] * d[..., None, :]
        out[:, t] = np.einsum("bhkv,bhk->bhv", S, q[:, t]) / np.sqrt(q.shape[-1])
    return out, S

out, S = truth(original)
assert abs(written["out"] - out).max() < 1e-14 and abs(written["final_state"] - S).max() < 1e-14
PY
}

test_files_of_the_real_savers_survive_both_ways() {
    venv
    write_inputs
    for source in f32.npz f32_packed.npz bf16.npz bf16_packed.npz f32.safetensors bf16.safetensors fortran.npz big_endian.npz f64.npz; do
        for target in again.safetensors again.npz; do
            expect 0 "$GDNCTL" oracle run gdn --inputs $source --out $target
            same_bits $target $source || fail "$source written as $target differs"
        done
    done
}

test_single_npy_files() {
    venv
    write_inputs
    expect 0 "$GDNCTL" oracle run gdn --inputs q.npy --inputs k.npy --inputs v.npy --inputs g.npy --inputs beta.npy \
        --inputs initial_state.npy --out again.safetensors
    same_bits again.safetensors f32.npz || fail "the arrays differ"
}

test_pickled_and_odd_arrays_are_refused() {
    venv
    mkdir object complex structured
    "$PYTHON" -c 'import numpy as np; np.save("object/q.npy", np.array([{}], dtype=object)); np.save("complex/q.npy", np.zeros(3, np.complex64)); np.save("structured/q.npy", np.zeros(3, [("a", "f4")]))'
    for kind in object complex structured; do
        expect 9 "$GDNCTL" oracle run gdn --inputs $kind/q.npy --out x.npz
        err_has "tensor 'q': gdnctl cannot read dtype "
        [ ! -e x.npz ] || fail 'a result'
    done
}
