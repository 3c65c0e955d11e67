// The lines of a failed check's output that a person should see first. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

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
