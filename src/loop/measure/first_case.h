// What a person wants to see first of a check that failed. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

inline constexpr std::size_t k_case_lines = 6;

// What is shown of a log, in at most k_case_lines lines.
struct FailingCase {
    std::vector<std::string> lines;
    bool found = false;  // false: no case is told apart, these are the last lines
    bool operator==(const FailingCase&) const = default;
};

// The first failing case of a log: an item of `oracle verify` with its details, a test of pytest with what it asserted
// and where, a test that unittest, ctest, GoogleTest, Go, Rust or TAP calls failed, the first error of a compiler, the
// last exception of Python; else the last lines.
FailingCase first_failing_case(std::string_view log);

// "<what>; the first failing case:" or "<what>; the last lines:", the lines, and "all of it: <path>".
std::string failing_case_text(std::string_view what, const FailingCase& shown, std::string_view path);

}  // namespace gdnctl::loop
