# gdnctl oracle compare --html: the page holds everything that it shows, and nothing that it is given can change that.

# self_contained PAGE: fails unless the page is made of known elements and attributes, none of which can fetch or run
# anything, and tells the browser so.
self_contained() {
    python3 - "$1" <<'PY' || fail "$1 is not self-contained"
import html.parser, re, sys

text = open(sys.argv[1], encoding="utf-8").read()
elements = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "i", "b", "pre", "code", "div", "table", "thead", "tr", "th", "td",
            "svg", "text", "rect", "line", "circle", "polyline"}
attributes = {"lang", "charset", "http-equiv", "content", "name", "class", "width", "height", "role", "aria-label", "x", "y", "x1", "x2",
              "y1", "y2", "cx", "cy", "r", "points", "text-anchor"}

class Page(html.parser.HTMLParser):
    styles, policy, depth = 0, None, []
    def handle_starttag(self, tag, attrs):
        assert tag in elements, tag
        for name, value in attrs:
            assert name in attributes, (tag, name)
        self.styles += tag == "style"
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

page = Page()
page.feed(text)
page.close()
assert page.styles == 1, page.styles
assert page.policy == "default-src 'none'; style-src 'unsafe-inline'", page.policy
style = text[text.index("<style>"):text.index("</style>")]
assert not re.search(r"@import|@font-face|url\(|expression|//", style), style
assert "prefers-color-scheme: dark" in style
PY
}

wrong_page() {  # ARGUMENT...: page.html, of tiled heads taken for interleaved ones, for `oracle run` with these arguments
    "$GDNCTL" oracle run gdn --set head_map=interleaved --out x.safetensors "$@" >/dev/null 2>&1 || fail "oracle run $*"
    expect 1 "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors --set head_map=tiled --html page.html
}
page_has() { grep -qF -- "$1" page.html || fail "page.html lacks: $1"; }

test_a_page_is_self_contained() {
    wrong_page --shape 1,2,4,130,32,32 --backward
    self_contained page.html
    page_has '<span class=WRONG>WRONG</span>'
    page_has 'matches if the head map is interleaved'
    page_has 'B 1, T 130, 2 key heads, 4 value heads, dk 32, dv 32, 1 sequence; chunks of 64 tokens'
    page_has '<title>sequence 0, head 1, chunk 2: '
    page_has 'first wrong: token 0'
    ! grep -q 'Forward only' page.html || fail 'gradients were compared'
    page_has '<td>head_map<td><code>tiled</code><td class=soft>--set</tr>'
    page_has '<code>x.safetensors</code> compared with the exact result for <code>x.safetensors</code>'
    grep -Eq '^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC, gdnctl [0-9.]+</p>$' page.html || fail 'no date, or no version'
    page_has '<h2>Wrong elements</h2>'
    expect 0 "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors --html page.html
    self_contained page.html
    page_has '<span class=OK>OK</span>'
    ! grep -q 'first wrong' page.html || fail 'a right dump has a first wrong token'
    ! grep -q 'Wrong elements' page.html || fail 'a right dump has wrong elements'
}

test_names_of_a_file_cannot_become_part_of_the_page() {
    "$GDNCTL" oracle run gdn --shape 1,2,2,9,8,8 --out x.npz >/dev/null 2>&1
    python3 - <<'PY'
import zipfile
with zipfile.ZipFile("x.npz") as z:
    data = z.read("q.npy")
with zipfile.ZipFile("x.npz", "a") as z:
    z.writestr("<script src='http:§evil'>alert(1)<§script>.npy".replace("§", "\u2215"), data)
    z.writestr('"><img onerror=x>.npy', data)
    z.writestr("n" * 300 + ".npy", data)
PY
    expect 0 "$GDNCTL" oracle compare gdn --inputs x.npz --outputs x.npz --html page.html
    self_contained page.html
    page_has '&lt;script src='
    page_has '&quot;&gt;&lt;img onerror=x&gt;'
}

test_large_maps_stay_small_pages() {
    # 64 heads x 512 chunks, most of them wrong.
    wrong_page --shape 1,2,64,512,4,4 --chunk 1
    self_contained page.html
    [ "$(wc -c <page.html)" -lt 1500000 ] || fail "the page has $(wc -c <page.html) bytes"
    page_has 'aria-label="error by head and chunk"'
    page_has '2 chunks a column'
    page_has 'Forward only: no gradient was compared'
    # 600 sequences of one head each: the worst 512.
    wrong_page --shape 300,2,4,3,4,4
    self_contained page.html
    page_has 'the 512 worst of 1200 value heads of sequences'
    page_has 'Error of out by token of sequence'
}

test_pages_of_what_cannot_be_judged() {
    "$GDNCTL" oracle run gdn --shape 1,2,2,60,16,16 --set l2norm=off --out x.safetensors >/dev/null 2>&1
    "$GDNCTL" oracle compare gdn --inputs x.safetensors --outputs x.safetensors --html page.html >"$WORK/out" 2>"$WORK/err"
    self_contained page.html
    "$GDNCTL" oracle run gdn --shape 1,2,2,9,8,8 --out in.npz >/dev/null 2>&1
    python3 - <<'PY'
import zipfile
with zipfile.ZipFile("in.npz") as z, zipfile.ZipFile("only_q.npz", "w") as o:
    o.writestr("q.npy", z.read("q.npy"))
PY
    expect 9 "$GDNCTL" oracle compare gdn --inputs in.npz --outputs only_q.npz --html page.html
    self_contained page.html
    page_has '<span class=NO_DATA>NO_DATA</span>'
}

test_gradients_have_a_map_and_a_chart() {
    "$GDNCTL" oracle run gdn --shape 1,2,4,130,16,16 --set head_map=interleaved --backward --out 2.safetensors >/dev/null 2>&1
    python3 - <<'PY'
import json, struct
data = bytearray(open("2.safetensors", "rb").read())  # other cotangents: the forward is right, the gradients are not
size = struct.unpack("<Q", data[:8])[0]
first, last = json.loads(data[8:8 + size])["d_out"]["data_offsets"]
data[8 + size + first:8 + size + last] = bytes(last - first)
open("1.safetensors", "wb").write(data)
PY
    expect 1 "$GDNCTL" oracle compare gdn --inputs 1.safetensors --outputs 2.safetensors --heatmap --html page.html
    out_has 'error / budget of the worst gradient by value head (rows) and chunk of 64 tokens (columns), d_initial_state right of the bar'
    grep -q '^head   3 ### |' "$WORK/out" || fail "the gradients' row is missing"
    grep -q '^head   3 \.\.\. |\.$' "$WORK/out" || fail "the forward's row is missing"
    self_contained page.html
    page_has 'Error of the worst gradient by value head and chunk'
    page_has '<tr><td><code>dq['
    ! grep -q '<tr><td><code>out\[' page.html || fail 'an element of a tensor that is OK is among the wrong ones'
    [ "$(grep -c '>d_initial_state</text>' page.html)" = 1 ] || fail 'no column of the initial state'
    python3 - <<'PY' || fail 'words are cut off at the right'
import re
for width, svg in re.findall(r'<svg width="(\d+)".*?>\n(.*?)</svg>', open("page.html").read(), re.S):
    for x, text in re.findall(r'<text x="([\d.]+)" y="[\d.]+">(.*?)</text>', svg):
        assert float(x) + 7 * len(text) <= float(width), (text, x, width)
PY
    page_has 'Error of the worst gradient by token'
    page_has 'last wrong: token 129'
    ! grep -q 'first wrong' page.html || fail 'the forward is right'
    expect 1 "$GDNCTL" oracle compare gdn --inputs 1.safetensors --outputs 2.safetensors --json
    jq -e '.error_map.chunk_tokens == 64 and (.error_map.forward | length) == 4 and (.error_map.gradients | length) == 4 and
           .error_map.gradients[3].chunks[2] > 30 and .error_map.forward[3].chunks[2] < 4 and .error_map.forward[0].final_state < 4 and
           .condition.growth_factor >= 1 and .condition.inverse_norm >= 1' "$WORK/out" >/dev/null || fail "no error map"
    expect 0 "$GDNCTL" oracle compare gdn --inputs 2.safetensors --outputs 2.safetensors --heatmap
}
