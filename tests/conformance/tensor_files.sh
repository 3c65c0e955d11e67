# Tensor files against the programs that define the formats: NumPy and the safetensors package.
prepare() {
    local venv=$REPO/build/conformance/venv
    bash "$REPO/tests/conformance/prepare_python.sh" "$venv" >prepare.log 2>&1 ||
        skip "NumPy or safetensors cannot be installed: $(tail -1 prepare.log)"
    python=$venv/bin/python
}
write() { expect 0 "$GDNCTL" oracle run gdn --shape 1,2,2,33,16,8 --seed 7 --out "$1"; }

test_numpy_and_safetensors_read_what_we_write() {
    prepare
    write t.npz
    write t.safetensors
    expect 0 "$python" - <<'PY'
import numpy as np
from safetensors import safe_open
with np.load("t.npz") as zipped, safe_open("t.safetensors", "np") as flat:
    names = set(zipped.files)
    assert names == set(flat.keys()), (names, set(flat.keys()))
    assert {"q", "k", "v", "g", "beta", "out", "final_state"} <= names, names
    for name in names:
        a, b = zipped[name], flat.get_tensor(name)
        assert a.dtype == b.dtype and a.shape == b.shape, (name, a.dtype, b.dtype, a.shape, b.shape)
        assert np.array_equal(a, b) and np.isfinite(a).all(), name
    assert zipped["q"].shape == (1, 2, 33, 16) or zipped["q"].shape == (1, 33, 2, 16), zipped["q"].shape
PY
}

test_we_read_what_numpy_writes() {
    prepare
    write t.npz
    expect 0 "$python" - <<'PY'
import numpy as np
arrays = dict(np.load("t.npz"))
np.savez("plain.npz", **arrays)
np.savez_compressed("packed.npz", **arrays)
np.savez("fortran.npz", **{name: np.asfortranarray(a) for name, a in arrays.items()})
np.savez("swapped.npz", **{name: a.astype(a.dtype.newbyteorder(">")) for name, a in arrays.items()})
arrays["out"] = arrays["out"] + 1
np.savez("wrong.npz", **arrays)
PY
    for file in plain packed; do expect 0 "$GDNCTL" oracle compare gdn --inputs "$file.npz" --outputs "$file.npz"; done
    # Orders that are not the machine's are either understood or refused, never misread.
    for file in fortran swapped; do
        "$GDNCTL" oracle compare gdn --inputs "$file.npz" --outputs "$file.npz" >"$WORK/out" 2>"$WORK/err"
        case $? in 0 | 9) ;; *) fail "$file.npz was misread" ;; esac
    done
    expect 1 "$GDNCTL" oracle compare gdn --inputs wrong.npz --outputs wrong.npz
}

test_we_read_what_safetensors_writes() {
    prepare
    write t.npz
    expect 0 "$python" - <<'PY'
import numpy as np
from safetensors.numpy import save_file
arrays = dict(np.load("t.npz"))
save_file(arrays, "t2.safetensors", metadata={"made_by": "safetensors"})
PY
    expect 0 "$GDNCTL" oracle compare gdn --inputs t2.safetensors --outputs t2.safetensors
    out_has OK
}
