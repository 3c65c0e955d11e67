# gdnctl oracle compare: verdicts, texts, exit codes.
V=$FIXTURES/oracle
compare() { "$GDNCTL" oracle compare gdn "$@"; }
base() { compare --inputs "$V/gdn_base.inputs.safetensors" --outputs "$V/gdn_base.levanter_chunk.outputs.safetensors" "$@"; }

test_unknown_tensors_of_the_inputs_are_listed() {
  "$GDNCTL" oracle run gdn --shape 1,2,2,9,8,8 --out in.npz >/dev/null 2>&1
  python3 - <<'PY'
import zipfile
with zipfile.ZipFile('in.npz') as z:
    data = z.read('q.npy')
with zipfile.ZipFile('in.npz', 'a') as z:
    z.writestr('foo.npy', data)
PY
  expect 0 "$GDNCTL" oracle compare gdn --inputs in.npz --outputs in.npz --json
  [ "$(grep -c '"foo"' "$WORK/out")" = 1 ] || fail "foo is not listed once: $(cat "$WORK/out")"
}

test_names_in_files_give_a_terminal_no_orders() {
    python3 - <<'PY'
import json, struct
def write(path, metadata, names):
    head, data = {"__metadata__": metadata}, b""
    for name, shape in names.items():
        count = 1
        for n in shape: count *= n
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack("<%df" % count, *[0.25] * count)
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)
inputs = {"q": [1, 3, 1, 2], "k": [1, 3, 1, 2], "v": [1, 3, 1, 2], "g": [1, 3, 1], "beta": [1, 3, 1]}
write("in.safetensors", {}, inputs)
write("out.safetensors", {}, {"out": [1, 3, 1, 2], "\x1b]0;title\x07\x1b[31mred": [1]})
write("op.safetensors", {"op": "\x1b[2J"}, inputs)
PY
    "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs out.safetensors >"$WORK/out" 2>"$WORK/err"
    out_has 'unknown tensors: \x1b]0;title\x07\x1b[31mred'
    expect 9 "$GDNCTL" oracle compare gdn --inputs op.safetensors --outputs out.safetensors
    err_has "is for op '\x1b[2J', not gdn"
    ! grep -q "$(printf '\033')" "$WORK/out" "$WORK/err" || fail 'an escape character'
}

test_unreadable_file_is_unusable_input() {
  mkdir folder.npz
  expect 9 "$GDNCTL" oracle compare gdn --inputs folder.npz --outputs folder.npz
  expect 2 "$GDNCTL" oracle compare gdn --inputs none.npz --outputs none.npz
}

test_a_recorded_dump_is_ok() {
    expect 0 base
    out_has 'verdict: OK'
    for name in dq dk dv dg dbeta d_initial_state; do grep -q "^$name .* OK " "$WORK/out" || fail "$name is not judged"; done
    grep -q 'FORWARD ONLY' "$WORK/out" && fail 'gradients were compared'
    out_has 'contract marin: head_map=interleaved (inputs metadata)'
    out_has 'worst: d'
    [ "$(tail -n 1 "$WORK/out")" = 'verdict: OK' ] || fail "the verdict is not the last line"
}

test_set_overrides_the_metadata_and_names_its_origin() {
    expect 1 base --set scale=1
    out_has 'scale=1 (--set)'
    out_has 'verdict: WRONG: out is'
    out_has 'final_state'
}

test_another_contract_on_top_of_the_same_metadata() {
    expect 0 compare --inputs "$V/gdn_bf16.inputs.safetensors" --outputs "$V/gdn_bf16.hf_recurrent.outputs.safetensors" --contract hf
    out_has 'contract hf: '
    out_has 'out_dtype=query'
    out_has 'verdict: OK'
}

test_json_holds_every_metric() {
    expect 0 base --json
    python3 - "$WORK/out" <<'PY' || fail "not the promised object"
import json, sys
r = json.load(open(sys.argv[1]))
assert list(r)[:5] == ["schema", "op", "verdict", "reason", "stage"], list(r)
assert r["schema"] == "gdnctl.oracle-compare/1" and r["verdict"] == "OK"
assert r["stage"] is None and r["stages"] == [] and r["hint"] is None and r["forward_only"] is False
assert r["hints"] == [] and r["place"] is None
assert set(r["worst"]) == {"tensor", "axes", "index", "got", "want"}
out = r["tensors"][0]
for key in ("error_over_budget", "budget_rms_ratio", "max_abs", "max_rel", "rms_ratio", "nmse", "cosine", "ulp",
            "outside_atol_rtol", "outside_flashinfer", "nonfinite", "worst", "dtype", "judged_as", "shape"):
    assert key in out, key
assert set(out["ulp"]) == {"max", "p50", "p99"}
assert r["contract"]["fields"]["head_map"] == {"value": "interleaved", "origin": "inputs metadata"}
assert [t["meaning"] for t in r["tensors"]] == ["out", "final_state", "dq", "dk", "dv", "dg", "dbeta", "d_initial_state"]
assert r["not_compared"] == []
PY
    [ ! -s "$WORK/err" ] || fail "stderr is not empty"
}

test_npz_of_numpy_with_bfloat16_is_read() {
    expect 0 compare --inputs "$V/gdn_bf16.inputs.npz" --outputs "$V/gdn_bf16.levanter_chunk.outputs.npz" --set head_map=interleaved
    out_has 'verdict: OK'
    err_has 'as bfloat16 (NumPy files do not store that type)'
    expect 0 compare --inputs "$V/gdn_base.inputs.npz" --outputs "$V/gdn_base.hf_chunk.outputs.npz" --contract hf --set 'l2norm=rsqrt(sum+eps)'
}

test_tolerances_instead_of_the_budget() {
    expect 0 base --rtol 1e-4 --atol 1e-4
    expect 1 base --rtol 0 --atol 1e-12
    out_has 'are outside rtol 0 and atol 1e-12'
    expect 2 base --rtol 1e-4
    err_has '--rtol and --atol must be given together'
    expect 2 base --rtol 1e-4 --atol 1e-4 --budget
}

test_no_data_and_unstable_input_are_never_ok() {
    printf '\002\000\000\000\000\000\000\000{}' >empty.safetensors
    expect 9 compare --inputs "$V/gdn_base.inputs.safetensors" --outputs empty.safetensors
    out_has 'verdict: NO_DATA: the dump is empty'
    expect 0 "$GDNCTL" oracle run gdn --case g1_no_l2norm --out g1.safetensors
    expect 9 compare --inputs g1.safetensors --outputs g1.safetensors
    out_has 'verdict: UNSTABLE_INPUT: the state grows'
}

test_missing_and_malformed_files() {
    expect 2 compare --inputs missing.safetensors --outputs missing.safetensors
    err_has missing.safetensors
    head -c 2000 "$V/gdn_base.inputs.safetensors" >cut.safetensors
    expect 9 compare --inputs cut.safetensors --outputs "$V/gdn_base.hf_chunk.outputs.safetensors"
    err_has 'cut.safetensors: truncated: header says 50360 bytes, file has 2000'
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >lfs.npz
    expect 9 compare --inputs lfs.npz --outputs lfs.npz
    err_has 'lfs.npz: Git LFS pointer, not data (run: git lfs pull --include lfs.npz)'
    head -c 3000 "$V/gdn_base.inputs.npz" >cut.npz
    expect 9 compare --inputs cut.npz --outputs cut.npz
    err_has cut.npz
    : >nothing.safetensors
    expect 9 compare --inputs nothing.safetensors --outputs nothing.safetensors
    err_has 'nothing.safetensors: truncated'
}

test_a_flipped_byte_in_an_npz_is_noticed() {
    python3 - "$V/gdn_base.inputs.npz" <<'PY'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[600] ^= 1
open("flipped.npz", "wb").write(b)
PY
    expect 9 compare --inputs flipped.npz --outputs "$V/gdn_base.hf_chunk.outputs.npz"
    err_has flipped.npz
}

test_wrong_shape_is_unusable() {
    expect 9 compare --inputs "$V/gdn_base.inputs.safetensors" --outputs "$V/gdn_d64.hf_chunk.outputs.safetensors"
    err_has "tensor 'out': expected [2,57,3,8] float32, got [1,130,2,64] float32"
}

test_typing_errors_get_a_suggestion() {
    expect 2 base --contract marn
    err_has "did you mean 'marin'?"
    expect 2 base --set head_mop=tiled
    err_has "did you mean 'head_map'?"
    expect 2 "$GDNCTL" oracle compare gnd --inputs x --outputs y
    expect 2 base --threads 9999
}

test_a_wrong_dump_is_localised_and_explained() {
    "$GDNCTL" oracle run gdn --shape 1,2,4,130,32,32 --set head_map=interleaved --out x.safetensors >/dev/null 2>&1
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set head_map=tiled
    out_has 'where: value heads 1-2 of 4; chunks 0-2 (of 64 tokens)'
    out_has 'first wrong token: out[b=0,t=0,h=1], chunk 0'
    out_has 'stage: head_map'
    out_has 'hint: matches if the head map is interleaved (key head h div r)'
    out_has 'FORWARD ONLY: no gradient was compared'
    [ "$(awk 'length > 100' "$WORK/out" | wc -l)" = 0 ] || fail "a line passes 100 columns"
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set head_map=tiled --json
    python3 - "$WORK/out" <<'PY' || fail "not the promised object"
import json, sys
r = json.load(open(sys.argv[1]))
assert r["verdict"] == "WRONG" and r["stage"] == "head_map" and r["stages"] == ["head_map"]
assert r["hint"] == "matches if the head map is interleaved (key head h div r)"
assert r["hints"][0]["stage"] == "head_map" and r["hints"][0]["error_reduction"] > 100
assert r["place"]["heads"] == [1, 2] and r["place"]["chunks"] == [0, 1, 2]
assert r["place"]["first"] == {"tensor": "out", "sequence": 0, "b": 0, "t": 0, "h": 1, "chunk": 0}
PY
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set head_map=tiled --no-hints
    grep -q 'hint:' "$WORK/out" && fail 'hints in spite of --no-hints'
    return 0
}

test_wrong_gradients_are_named_with_their_stage() {
    python3 - "$V/gdn_gva.levanter_chunk.outputs.safetensors" <<'PY'
import array, json, struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
for name in ("dq", "dk"):  # r = 3: averaged instead of summed
    begin, end = (8 + n + x for x in h[name]["data_offsets"])
    values = array.array("f", bytes(b[begin:end]))
    b[begin:end] = array.array("f", [x / 3 for x in values]).tobytes()
open("mean.safetensors", "wb").write(b)
PY
    expect 1 compare --inputs "$V/gdn_gva.inputs.safetensors" --outputs mean.safetensors
    out_has 'stage: gva_grad'
    out_has 'dq is averaged over the 3 value heads of a key head, not summed'
    out_has 'last wrong token (gradients run from the end)'
    out_has 'verdict: WRONG: d'
}

test_missing_gradients_are_said_loudly() {
    python3 - "$V/gdn_base.levanter_chunk.outputs.safetensors" <<'PY'
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
header, data = {}, b""
for name in ("out", "dq"):
    begin, end = h[name]["data_offsets"]
    header[name] = dict(h[name], data_offsets=[len(data), len(data) + end - begin])
    data += b[8 + n + begin:8 + n + end]
text = json.dumps(header).encode()
open("some.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
    expect 0 compare --inputs "$V/gdn_base.inputs.safetensors" --outputs some.safetensors
    out_has 'GRADIENTS MISSING: dk, dv, dg, dbeta, d_initial_state'
}

test_heatmap_and_page() {
    "$GDNCTL" oracle run gdn --shape 1,2,4,130,32,32 --set head_map=interleaved --out x.safetensors >/dev/null 2>&1
    expect 1 compare --inputs x.safetensors --outputs x.safetensors --set head_map=tiled --heatmap --html page.html
    out_has 'head   0 ... |.'
    out_has 'head   1 ### |#'
    python3 - page.html <<'PY' || fail "not a well-formed page"
import html.parser, sys
text = open(sys.argv[1]).read()
for word in ("WRONG", "head map is interleaved", "prefers-color-scheme: dark", "<svg", "polyline", "head_map", "out[b="):
    assert word in text, word
assert "<td class=n>0<" not in text.split("Wrong elements")[1].split("</table>")[0], "an element that is right"
for word in ("http:", "https:", "<script", "src=", "url("):
    assert word not in text, word
html.parser.HTMLParser().feed(text)
PY
    expect 0 base --html ok.html --json
    [ -s ok.html ] || fail "no page"
    expect 0 compare --inputs x.safetensors --outputs x.safetensors --html exact.html
    ! grep -q 'Wrong elements' exact.html || fail "an exact result has worst elements"
    expect 8 base --html missing/page.html
}

test_endless_and_huge_inputs_are_refused() {
    for file in /dev/zero /dev/urandom /dev/null; do
        expect 9 compare --inputs $file --outputs $file
        err_has "$file is a device, not a file of tensors"
    done
    truncate -s 4T huge.safetensors
    expect 9 compare --inputs huge.safetensors --outputs huge.safetensors
    err_has 'huge.safetensors is larger than the limit of'
    expect 9 "$GDNCTL" oracle run gdn --inputs /dev/zero --out x.safetensors
}

test_inputs_may_come_from_a_pipe() {
    "$GDNCTL" oracle run gdn --shape 1,2,2,9,8,8 --out in.safetensors >/dev/null 2>&1
    "$GDNCTL" oracle compare gdn --inputs /dev/stdin --outputs in.safetensors < <(cat in.safetensors) >out.txt 2>&1 ||
        fail "$(cat out.txt)"
}

# Writes in.safetensors (inputs), and dumps of it in files named after the tensor that lies beside out and final_state.
write_tensors_nobody_asked_for() {
    "$GDNCTL" oracle run gdn --shape 1,1,2,20,8,8 --set head_map=interleaved --method chunk --out both.safetensors >/dev/null
    python3 - <<'PY'
import io, json, struct, zipfile
raw = open("both.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
meta = head.pop("__metadata__")
tensors = {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in head.items()}
def save(path, tensors, meta=None):
    head, body = ({"__metadata__": meta} if meta else {}), b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
def npy(descr, shape, raw):
    text = "{'descr': %s, 'fortran_order': False, 'shape': %s, }" % (descr, tuple(shape))
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + raw
outputs = {k: tensors[k] for k in ("out", "final_state")}
inputs = {k: v for k, v in tensors.items() if k not in outputs}
save("in.safetensors", inputs, meta)
for dtype, size in {"U16": 2, "U32": 4, "U64": 8, "F8_E4M3": 1, "F8_E8M0": 1, "C64": 8, "F4": 1, "F6_E2M3": 1, "NEW": 3}.items():
    save("beside-%s.safetensors" % dtype, {"extra": (dtype, [1], bytes(size)), **outputs})
    save("in-%s.safetensors" % dtype, {"extra": (dtype, [1], bytes(size)), **inputs}, meta)
save("out-F8.safetensors", {"out": ("F8_E4M3", tensors["out"][1], bytes(len(tensors["out"][2]) // 4)), "final_state": outputs["final_state"]})
save("in-k.safetensors", {**inputs, "k": ("C64", inputs["k"][1], bytes(2 * len(inputs["k"][2])))}, meta)
for dtype, code in {"U8": "B", "U16": "H", "U32": "I", "U64": "Q", "I8": "b", "I16": "h", "I32": "i", "I64": "q"}.items():
    save("cu-%s.safetensors" % dtype, {**inputs, "cu_seqlens": (dtype, [2], struct.pack("<2" + code, 0, 20))}, meta)
save("cu-huge.safetensors", {**inputs, "cu_seqlens": ("U64", [2], struct.pack("<2Q", 0, 1 << 63))}, meta)
for name, array in {"text": npy("'<U3'", [2], bytes(24)), "bytes": npy("'|S3'", [2], bytes(6)), "object": npy("'|O'", [1], b"\x80\x04N."),
                    "structured": npy("[('a', '<f4'), ('b', '<i8', (2,))]", [1], bytes(20)), "complex": npy("'<c8'", [1], bytes(8)),
                    "u4": npy("'<u4'", [2], bytes(8)), "u2": npy("'<u2'", [2], bytes(4)), "u8": npy("'<u8'", [2], bytes(16)), "bool": npy("'|b1'", [2], bytes(2))}.items():
    with zipfile.ZipFile("beside-%s.npz" % name, "w") as z:
        z.writestr("extra.npy", array)
        for key, (dtype, shape, raw) in outputs.items():
            z.writestr(key + ".npy", npy("'<f4'", shape, raw))
PY
}

test_tensors_nobody_asked_for_are_named_and_left_alone() {
    write_tensors_nobody_asked_for
    for file in beside-*; do
        expect 0 "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs "$file"
        out_has 'unknown tensors: extra'
    done
    for file in in-[A-Z]*; do
        expect 0 "$GDNCTL" oracle compare gdn --inputs "$file" --outputs beside-U32.safetensors
        out_has 'unknown tensors: extra'
    done
    expect 0 "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs beside-F8_E8M0.safetensors
    out_has 'not read because of the dtype: extra (F8_E8M0)'
    expect 0 "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs beside-text.npz --json
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["unread_tensors"] == [{"tensor": "extra", "dtype": "<U3"}]' "$WORK/out" ||
        fail "unread_tensors: $(cat "$WORK/out")"
}

test_a_tensor_that_is_needed_must_have_a_dtype_that_can_be_read() {
    write_tensors_nobody_asked_for
    expect 9 "$GDNCTL" oracle compare gdn --inputs in.safetensors --outputs out-F8.safetensors
    err_has "tensor 'out': gdnctl cannot read dtype F8_E4M3"
    expect 9 "$GDNCTL" oracle compare gdn --inputs in-k.safetensors --outputs beside-U32.safetensors
    err_has "tensor 'k': gdnctl cannot read dtype C64"
}

test_offsets_may_have_any_integer_dtype() {
    write_tensors_nobody_asked_for
    for file in cu-[UI]*; do expect 0 "$GDNCTL" oracle compare gdn --inputs "$file" --outputs beside-U32.safetensors; done
    expect 9 "$GDNCTL" oracle compare gdn --inputs cu-huge.safetensors --outputs beside-U32.safetensors
    err_has "tensor 'cu_seqlens': element 1 is 9223372036854775808, beyond the range of int64"
}

# Writes wrong.safetensors: out and final_state of x.safetensors in fp32, times 1.003.
off_by_a_little() {
    python3 - <<'PY'
import json, struct
b = open("x.safetensors", "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
header, data = {}, b""
for name in ("out", "final_state"):
    begin, end = h[name]["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 8}d", b[8 + n + begin:8 + n + end])
    more = struct.pack(f"<{len(values)}f", *(1.003 * x for x in values))
    header[name] = {"dtype": "F32", "shape": h[name]["shape"], "data_offsets": [len(data), len(data) + len(more)]}
    data += more
text = json.dumps(header).encode()
open("wrong.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
}

test_tolerances_that_accept_what_the_budget_refuses_say_both() {
    "$GDNCTL" oracle run gdn --shape 1,2,4,130,32,32 --set head_map=interleaved --out x.safetensors >/dev/null 2>&1
    off_by_a_little
    local both=(compare --inputs x.safetensors --outputs wrong.safetensors)
    expect 1 "${both[@]}"
    expect 0 "${both[@]}" --rtol 1e-2 --atol 1e-2
    out_has 'verdict: OK: within rtol 0.01 and atol 0.01; by the error budget it would be WRONG: '
    grep -q '^out .* OK .*(WRONG by the budget)$' "$WORK/out" || fail "the line of out hides the refusal"
    expect 0 "${both[@]}" --rtol 1e-2 --atol 1e-2 --json
    jq -e '.verdict == "OK" and (.reason | test("budget it would be WRONG")) and
           (.tensors | all(.verdict == "OK" and .budget_verdict == "WRONG"))' "$WORK/out" >/dev/null ||
        fail "the JSON hides the refusal"
    expect 0 compare --inputs x.safetensors --outputs x.safetensors --rtol 1e-2 --atol 1e-2 --json
    jq -e '.reason == "" and (.tensors | all(.budget_verdict == "OK"))' "$WORK/out" >/dev/null || fail "a false refusal"
}

test_a_truth_file_as_outputs_is_said() {
    local note='note: --outputs is a truth file that `gdnctl oracle run` wrote, so no kernel is judged here'
    for name in x.safetensors x.npz; do
        "$GDNCTL" oracle run gdn --shape 1,2,4,130,32,32 --set head_map=interleaved --backward --out $name >/dev/null 2>&1
        expect 0 compare --inputs $name --outputs $name --set head_map=interleaved
        out_has "$note"
        expect 0 compare --inputs $name --outputs $name --set head_map=interleaved --json
        jq -e '.outputs_are_truth' "$WORK/out" >/dev/null || fail "$name: not in the JSON"
    done
    # Results of a kernel of ours in such a file, or of another with the truth's inputs, are no truth.
    "$GDNCTL" oracle run gdn --inputs x.safetensors --method chunk --out chunk.safetensors >/dev/null 2>&1
    off_by_a_little
    for name in chunk wrong; do
        "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs $name.safetensors --json >json 2>/dev/null
        jq -e '.outputs_are_truth | not' json >/dev/null || fail "$name is called the truth"
    done
}
