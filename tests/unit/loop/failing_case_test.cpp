// What is shown first of a check that failed.
#include "loop/measure/failing_case.h"

#include <doctest/doctest.h>

namespace gdnctl::loop {

namespace {
using Lines = std::vector<std::string>;
}

TEST_CASE("failing case: the oracle's first item that is wrong, with its details") {
    const std::string log =
        "Job submitted\ncase   t_one                      OK             0.31 x budget\n"
        "case   t_hand                     WRONG          6.3e+06 x budget\n"
        "       where: value head 0 of 1; chunk 0 (of 64 tokens)\n"
        "       stage: order; also possible: intra\n"
        "       a: 1\n       b: 2\n       c: 3\n       d: 4\n"
        "case   t_long                     WRONG          2 x budget\n"
        "       stage: gate\nverdict: WRONG: 2 of 3 cases\n";
    const Lines lines = first_failing_case(log).lines;
    REQUIRE(lines.size() == k_case_lines);
    CHECK(lines[0] == "case   t_hand                     WRONG          6.3e+06 x budget");
    CHECK(lines[2] == "       stage: order; also possible: intra");
    CHECK(lines[5] == "       c: 3");
}

TEST_CASE("failing case: pytest's first failure, what it asserted and where") {
    const std::string log =
        "..F.F\n=================================== FAILURES ===================================\n"
        "____________________ test_forward[128-True] ____________________\n\n"
        "    def test_forward(n, packed):\n        want = truth(n)\n>       assert_close(got, want)\n"
        "E       AssertionError: \nE       Mismatched elements: 3 / 64\nE       Max absolute difference: 0.25\n"
        "E       more\n\ntests/test_gdn.py:12: AssertionError\n----------- Captured stdout -----------\nE  noise\n"
        "____________________ test_backward ____________________\n>       other\n"
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_gdn.py::test_forward[128-True] - AssertionError\n";
    CHECK(first_failing_case(log).lines == Lines{"test_forward[128-True]", ">       assert_close(got, want)",
                                                 "E       AssertionError:", "E       Mismatched elements: 3 / 64",
                                                 "E       Max absolute difference: 0.25",
                                                 "tests/test_gdn.py:12: AssertionError"});
    CHECK(first_failing_case("x\nFAILED tests/a.py::t - boom\nFAILED tests/b.py::u\n1 failed\n").lines ==
          Lines{"FAILED tests/a.py::t - boom"});
}

TEST_CASE("failing case: compilers, exceptions, and else the last lines") {
    CHECK(first_failing_case("cc -c k.c\nk.c:3:5: error: expected ';'\n  int a\n      ^\nmake: *** [all] Error 1\n")
              .lines.front() == "k.c:3:5: error: expected ';'");
    std::string trace = "Traceback (most recent call last):\n";
    for (int i = 0; i < 9; ++i) trace += "  File \"x.py\", line " + std::to_string(i) + "\n";
    const Lines lines = first_failing_case("before\n" + trace + "ValueError: no\nafter\n").lines;
    CHECK(lines.size() == k_case_lines);
    CHECK(lines.back() == "ValueError: no");
    const FailingCase last = first_failing_case("1\n2\n\n3\n4\n5\n6\n7\n\n");
    CHECK(last == FailingCase{{"2", "3", "4", "5", "6", "7"}, false});
    CHECK(first_failing_case("").lines.empty());
    CHECK(first_failing_case(std::string(1000, 'x')).lines.front().size() < 220);
    CHECK(first_failing_case("a\x1b[31mb\n").lines.front() == "a\\x1b[31mb");
}

TEST_CASE("failing case: the test that a runner calls failed, among those that passed") {
    for (const std::string line :
         {"3/9 Test #3: shapes ...........***Failed    0.02 sec",
          "  7/9 Test #7: x .....***Exception: SegFault  0.1 sec", "--- FAIL: TestShapes (0.00s)", "not ok 3 - shapes",
          "[  FAILED  ] Shapes.Tail (3 ms)", "FAIL: test_tail (tests.Shapes.test_tail)", "test shapes::tail ... FAILED",
          "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"}) {
        CAPTURE(line);
        const FailingCase shown = first_failing_case("ok 1 - a\nTest #1: b ... Passed\n" + line + "\nok 4 - c\n");
        CHECK(shown.found);
        REQUIRE_FALSE(shown.lines.empty());
        CHECK(shown.lines.front() == line);
    }
    CHECK_FALSE(first_failing_case("ok 34 - y\nok 35 - z\nall quiet\nERROR: none so far\n").found);
}

TEST_CASE("failing case: what is said has the lines and where the rest is") {
    CHECK(failing_case_text("tests on local: red", {{"a", "b"}, true}, "/logs/x.log") ==
          "tests on local: red; the first failing case:\n  a\n  b\nall of it: /logs/x.log");
    CHECK(failing_case_text("exit 3", {{"a"}, false}, "/logs/x.log") ==
          "exit 3; the last lines:\n  a\nall of it: /logs/x.log");
    CHECK(failing_case_text("exit 3", {}, "/logs/x.log") == "exit 3; it printed nothing: /logs/x.log");
}

}  // namespace gdnctl::loop
