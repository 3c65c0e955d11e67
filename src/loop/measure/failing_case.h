// What a person should see first of a failed check's output: the first failing item that `oracle verify` reports, or
// the lines that say why. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace gdnctl::loop {

struct OracleFinding {
    std::string item;                // "case t_hand"
    std::string verdict;             // "WRONG"
    std::string stage;               // stage of the algorithm: "order; also possible: intra"; empty: not reported
    std::string where;               // "value head 0 of 1; chunk 0 (of 64 tokens)"
    std::string token;               // the first wrong token: "out[b=0,t=0,h=0], chunk 0"
    std::int64_t others = 0;         // number of further items that are not OK
    std::vector<std::string> lines;  // as printed: the item, then its details
    bool found() const { return !item.empty(); }
    // "case t_hand: WRONG, stage order"
    std::string sign() const;
    // The same with the place and the number of other items.
    std::string text() const;
};

// Call it with each line of a log.
class OracleFindingReader {
public:
    void line(std::string_view text);
    const OracleFinding& finding() const { return m_finding; }

private:
    void keep(std::string_view text);
    void count(std::string item);
    void count_others(std::string_view names);
    OracleFinding m_finding;
    std::set<std::string> m_counted;  // items that are not OK
    std::string m_kind;               // of the current item
    std::string* m_field = nullptr;   // field that a more indented line continues
    bool m_first = false;             // the current lines belong to the first finding
};

// What the records keep of gdnctl.oracle-verify/1: kernel, verdict, environment, the first groups of failures with the
// number of those left out, and what `finding` knows of the first. null: `line` is no such verdict.
Json oracle_record(std::string_view line, const OracleFinding& finding);
// Whether it could run the kernel; otherwise the reason may lie in the target's table or in what is installed.
bool oracle_ran(std::string_view verdict);

// The lines of a failed check's output that a person should see first. Pure.

inline constexpr std::size_t k_case_lines = 6;

// An excerpt of a log, at most k_case_lines lines.
struct FailingCase {
    std::vector<std::string> lines;
    bool found = false;  // false: no failing case was recognised; these are the last lines
    bool operator==(const FailingCase&) const = default;
};

// The first failing case in a log: an item of `oracle verify` with its details; a pytest test with its assertion and
// location; a test that unittest, ctest, GoogleTest, Go, Rust or TAP reports as failed; the first compiler error; the
// last Python exception. Otherwise the last lines.
FailingCase first_failing_case(std::string_view log);

// "<what>; the first failing case:" or "<what>; the last lines:", the lines, and "all of it: <path>".
std::string failing_case_text(std::string_view what, const FailingCase& shown, std::string_view path);

}  // namespace gdnctl::loop
