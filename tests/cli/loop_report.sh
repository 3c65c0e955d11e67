# A run as a report, in Markdown and as a page.

record() { python3 "$REPO/tests/support/loop_journal.py" "$@" || fail "no journal"; }
measure() { python3 "$REPO/tests/support/loop_perf_state.py" "$@" || fail "no perf_state.json"; }
# What an HTML parser makes of a page: every element closed, nothing that would be loaded, texts in texts.txt.
parse_page() { # FILE
  python3 - "$1" <<'P' || fail "the page is not what it should be"
import collections, html.parser, sys
void = {"meta", "rect", "circle", "line", "polyline", "path"}
optional = {"p", "td", "th", "tr", "li", "dt", "dd"}
class Page(html.parser.HTMLParser):
    open, texts, ids, links, count = [], [], [], [], collections.Counter()
    def handle_starttag(self, tag, attributes):
        self.count[tag] += 1
        for name, value in attributes:
            assert not name.startswith("on") and name != "src", (tag, name)
            if name == "href":
                assert value.startswith("#i"), value
                self.links.append(value[1:])
            if name == "id":
                self.ids.append(value)
        assert tag not in {"script", "img", "link", "iframe", "object"}, tag
        if tag not in void and tag not in optional:
            self.open.append(tag)
    def handle_endtag(self, tag):
        if tag in void or tag in optional:
            return
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()
    def handle_data(self, data):
        self.texts.append(data)
page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
page.feed(text)
page.close()
assert not page.open, page.open
assert set(page.links) <= set(page.ids), set(page.links) - set(page.ids)
assert len(page.ids) == len(set(page.ids))
assert "default-src 'none'" in text and "http://" not in text and "https://" not in text
assert "prefers-color-scheme: dark" in text
open("texts.txt", "w").write(" ".join(page.texts))
open("count.txt", "w").write(repr(dict(page.count)))
P
}

test_markdown() {
  record logs --iterations 6
  measure logs 6
  expect 0 "$GDNCTL" loop-report --log-dir logs
  out_has '# Run 20260310t165307z'
  grep -Eq '^gdn/forward\\_ms is [0-9.]+x faster after 2 promotions out of 6 iterations: [0-9.]+ ms now\.$' "$WORK/out" || fail 'the result'
  out_has '| state | ended: iterations (exit code 0) |'
  out_has '| iterations | 6 of 6 have ended, 2 promoted, 4 counted as failures |'
  out_has '| dates | 2026-03-10 16:53 to 17:'
  out_has '## Champions (gdn/forward\_ms)'
  out_has 'Measurements of identical code differ by 0.3 %'
  out_has '| iteration | title | commit | value | gain over the previous champion | decision |'
  out_has '| # | title | result | value | gain | time | device | tokens | why |'
  out_has 'A gain is over the champion at that time'
  out_has '| 1 | Keep the state in registers | d5c094b9ec9a | 4.75 ms | 1.05x faster (1.048-1.052x, 5 pairs) | promoted |'
  out_has '| rejected (tests failed) | 2 | t\_long |'
  out_has '| 3 | Fuse the two loops | rejected (counted as a failure) | 4.826 ms | 1.016x slower (1.014-1.018x, 5 pairs) |'
}

test_page_of_a_measured_run() {
  record logs --iterations 12
  measure logs 12
  : >logs/iteration-003-prompt.txt
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  out_empty
  err_has 'report of 12 iterations'
  parse_page page.html
  for text in 'gdn/forward_ms over the iterations: lower is better' 'Outcomes over time' 'Cost' 'What was not accepted' 'Every iteration' \
    'iteration-003-prompt.txt' 'while_ms' 't_long' 'gate while' '6.25 <= 5'; do
    grep -qF -- "$text" texts.txt || fail "the page lacks: $text"
  done
  grep -q "'details': 12" count.txt || fail "$(cat count.txt)"
  grep -q 'x faster after [0-9]* promotions' texts.txt || fail "no result"
  [ "$(grep -c 'class="cross rejected"' page.html)" = 4 ] || fail "iterations without a measurement are not marked"
  grep -q '@media (max-width: 760px)' page.html || fail "small screens"
  ! grep -Eq 'unknown|device 0 ms' page.html || fail "what was not measured"
  grep -q 'class=band' page.html || fail "no noise band"
  grep -q 'l-5 7 h10 z\|l-5 -7 h10 z' page.html || fail "the outlier is not marked"
}

test_page_of_a_run_without_measurements_and_of_one_that_has_just_begun() {
  record logs --iterations 2 --open
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  parse_page page.html
  ! grep -q 'over the iterations' page.html || fail "a chart of nothing"
  grep -q 'interrupted in iteration 2' page.html || fail "status"
  head -1 logs/journal.jsonl >one && mv one logs/journal.jsonl
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  parse_page page.html
  grep -q 'No iteration has started yet' page.html || fail "empty"
  expect 0 "$GDNCTL" loop-report --log-dir logs
}

test_whatever_names_hold_the_page_is_escaped_and_secrets_are_masked() {
  record logs --iterations 6 --nasty
  measure logs 6
  : >"logs/iteration-001-<script>alert(1)<
script>"
  sed -i 's/00112233aabbccdd/x/; s/gdn.forward_ms/<b>\&forward/' logs/perf_state.json
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  parse_page page.html
  for words in '' --json; do expect 0 "$GDNCTL" loop-report --log-dir logs $words; out_lacks hf_abcdefgh; done
  ! grep -q hf_abcdefgh page.html || fail "a secret is in the page"
  ! grep -q $'\x1b\|\xe2\x80\xae\|\xc2\x9b\|\xe2\x80\x8b' page.html "$WORK/out" || fail "a control character is in the page"
  ! grep -q '<b>&' page.html || fail "markup comes through"
  expect 0 "$GDNCTL" loop-report --log-dir logs
  out_has 'case t\_long: WRONG \<b\>\&\\n\\x1b\[31m'
}

test_json() {
  record logs --iterations 6
  measure logs 6
  expect 0 "$GDNCTL" loop-report --log-dir logs --json
  python3 - "$WORK/out" <<'P' || fail "other facts"
import json, sys
r = json.load(open(sys.argv[1]))
assert list(r)[0] == "schema" and r["schema"] == "gdnctl.loop-report/1"
assert [c["iteration"] for c in r["champions"]] == [1, 1, 4] and abs(r["noise_pct"] - 0.3) < 1e-9
assert r["failures"][0]["count"] == 2 and {f["outcome"] for f in r["failures"]} == {"rejected", "test-fail"}
assert [i["iteration"] for i in r["iterations"]] == [1, 2, 3, 4, 5, 6]
assert r["iterations"][2]["measured"]["decision"] == "regression" and r["iterations"][1]["measured"] is None
P
}

test_ledger_coverage_and_flakes_are_shown() {
  record logs
  cat >logs/ledger.jsonl <<'J'
{"schema":"gdnctl.iteration/1","id":"a-1","iteration":1,"suffix":"","loop":{"run_id":"r","index":1},"outcome":"rejected","coverage_slot":"G","idea":{"title":"exp"},"files":["k.c"],"decision_reasons":["slower"]}
{"schema":"gdnctl.iteration/1","id":"a-2","iteration":2,"suffix":"","loop":{"run_id":"r","index":2},"outcome":"oom","coverage_slot":"G","idea":{"title":"exp 2"},"files":["k.c"],"decision_reasons":["no memory"]}
J
  printf '{"slots":[{"slot":"A","title":"layout"},{"slot":"G","title":"decay"}]}' >logs/coverage.json
  printf '{"v":1,"test":"t_flaky","passed_alone":true,"max_abs":4.99e-5}\n' >logs/flakes.jsonl
  expect 0 "$GDNCTL" loop-report --log-dir logs
  out_has '- slot:G: 2 times; no memory'
  out_has '| A | layout | 0 | 0 | 0 | open |'
  out_has '| G | decay | 2 | 0 | 2 |  |'
  out_has '| t\_flaky | 1 | 1 | 4.99e-05 |'
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  parse_page page.html
  printf '[]' >logs/coverage.json
  expect 9 "$GDNCTL" loop-report --log-dir logs
}

test_a_page_that_cannot_be_written() {
  record logs
  expect 8 "$GDNCTL" loop-report --log-dir logs --html nowhere/page.html
  expect 2 "$GDNCTL" loop-report --log-dir logs --html ''
  printf 'old' >page.html
  expect 8 bash -c 'ulimit -f 1; exec "$0" loop-report --log-dir logs --html page.html' "$GDNCTL"
  [ "$(cat page.html)" = old ] || fail "the old page is gone"
}

test_a_thousand_iterations() {
  record logs --iterations 1000
  measure logs 1000
  expect 0 "$GDNCTL" loop-report --log-dir logs --html page.html
  parse_page page.html
  grep -q "'details': 1000" count.txt || fail "$(cat count.txt)"
  [ "$(wc -c <page.html)" -lt 4000000 ] || fail "$(wc -c <page.html) bytes"
}

test_the_heading_names_the_agents_command() {
  . "$REPO/tests/support/loop_repo.sh"
  repo && agent "$works"
  loop 0 --iterations 1
  expect 0 "$GDNCTL" loop-report --html page.html
  expect 0 "$GDNCTL" loop-report
  for page in "$WORK/out" page.html; do
    grep -qF "command $WORK/agent" $page || fail "no command in $page"
    ! grep -q gpt- $page || fail "a model in $page"
  done
}
