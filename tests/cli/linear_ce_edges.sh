# linear-ce on the smallest shapes, and on files that cannot be judged.
ce() { local verb=$1; shift; "$GDNCTL" oracle "$verb" linear-ce "$@"; }
put() { # FILE TENSOR INDEX VALUE: another value in a tensor
  python3 -c '
import json, struct, sys
path, name, index, value = sys.argv[1:]
data = bytearray(open(path, "rb").read())
size = struct.unpack_from("<Q", data)[0]
tensor = json.loads(data[8:8 + size])[name]
kind, number = {"I64": ("<q", int), "F32": ("<f", float), "F64": ("<d", float)}[tensor["dtype"]]
struct.pack_into(kind, data, 8 + size + tensor["data_offsets"][0] + struct.calcsize(kind) * int(index), number(value))
open(path, "wb").write(data)' "$@"
}

test_the_smallest_and_the_oddest_shapes() {
  local shape
  for shape in '1 1 1' '1 7 1' '1 1 9' '3 33 130' '17 5 1'; do
    # shellcheck disable=SC2086
    set -- $shape
    expect 0 ce run --batch "$1" --hidden "$2" --vocab "$3" --logsumexp-weight 0.1 --out a.safetensors
    for level in exact sampled; do
      expect 0 ce compare --inputs a.safetensors --outputs a.safetensors --level $level
      out_has 'verdict: OK'
    done
    expect 0 ce bench --batch "$1" --hidden "$2" --vocab "$3" --rounds 1 --runs 1 --json
    jq -e '.forward.verified and .gradients.verified' "$WORK/out" >/dev/null || fail "our own kernel at $shape: $(cat "$WORK/out")"
  done
}

test_values_that_are_not_finite_are_named() {
  expect 0 ce run --batch 6 --hidden 4 --vocab 9 --weights zero-every=2 --out good.safetensors
  cp good.safetensors in.safetensors
  put in.safetensors x 13 nan
  expect 9 ce compare --inputs in.safetensors --outputs good.safetensors --json
  jq -e '.verdict == "UNSTABLE_INPUT" and (.reason | contains("row 3 of x is not finite"))' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
  cp good.safetensors in.safetensors
  put in.safetensors w 14 inf
  expect 9 ce compare --inputs in.safetensors --outputs good.safetensors
  out_has 'column 5 of w is not finite'
  expect 9 ce run --inputs in.safetensors --out out.safetensors
  err_has 'column 5 of w is not finite'
  # A row of a dump that is not finite is wrong, whatever its weight.
  cp good.safetensors out.safetensors
  put out.safetensors loss 4 nan
  expect 1 ce compare --inputs good.safetensors --outputs out.safetensors --level exact --json
  jq -e '.verdict == "WRONG" and .stage == "tile" and .worst.index == [4]' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
}

test_labels_outside_the_vocabulary() {
  expect 0 ce run --batch 6 --hidden 4 --vocab 9 --weights zero-every=3 --out in.safetensors
  put in.safetensors labels 2 0
  expect 0 ce run --inputs in.safetensors --out out.safetensors
  local label
  for label in 9 4294967296 -9223372036854775808 -1; do
    put in.safetensors labels 2 "$label"
    expect 9 ce compare --inputs in.safetensors --outputs out.safetensors
    err_has "labels[2] = $label is outside [0, 9)"
    err_has "--ignore-index $label"
  done
  put out.safetensors loss 2 99  # kernels write what they like there
  expect 0 ce compare --inputs in.safetensors --outputs out.safetensors --level exact --ignore-index -1
  out_has 'rows with the ignored label, taken as weight 0: 1'
  put out.safetensors lse 2 99
  expect 1 ce compare --inputs in.safetensors --outputs out.safetensors --level exact --ignore-index -1
}

test_files_that_are_cut_off_or_declare_too_much() {
  expect 0 ce run --batch 6 --hidden 4 --vocab 9 --out good.safetensors
  local size bytes
  size=$(stat -c %s good.safetensors)
  for bytes in 0 5 40 $((size - 1)); do
    head -c "$bytes" good.safetensors >cut.safetensors
    expect 9 ce compare --inputs cut.safetensors --outputs good.safetensors
    expect 9 ce compare --inputs good.safetensors --outputs cut.safetensors
    err_has cut.safetensors
  done
  # w of [1, 2^31 - 1] without its 8 GiB.
  python3 - <<'PY'
import json, struct
V = 2**31 - 1
header = {"x": ["F32", [1, 1], 4], "labels": ["I64", [1], 8], "w": ["F32", [1, V], 4 * V]}
at, out = 0, {"__metadata__": {"layout": "hv"}}
for name, (dtype, shape, size) in header.items():
    out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(out).encode()
open("declared.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<fq", 1, V))
PY
  expect 9 ce compare --inputs declared.safetensors --outputs good.safetensors
  err_has declared.safetensors
  expect 9 ce run --batch 100000 --hidden 4096 --vocab 2147483647 --out huge.safetensors
  err_has 'GiB of memory'
  err_has 'hint: '
}

test_a_truth_file_as_outputs_is_said() {
  for name in truth.safetensors truth.npz; do
    expect 0 ce run --batch 8 --hidden 16 --vocab 40 --out $name
    expect 0 ce compare --inputs $name --outputs $name --layout hv
    out_has 'note: --outputs is a truth file that `gdnctl oracle run` wrote, so no kernel is judged here'
  done
}

test_sizes_out_of_range() {
  expect 2 "$GDNCTL" ce-infer --device 'TPU v4' --batch 8 --hidden 8 --vocab 0
  err_has '--vocab 0: expected at least 1'
  expect 2 "$GDNCTL" ce-infer --device 'TPU v4' --batch 8 --hidden 8 --vocab 2000000000000
  err_has '--vocab 2000000000000: expected at most 1099511627776'
}
