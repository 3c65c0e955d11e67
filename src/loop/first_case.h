// What a person wants to see first of a check that failed. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

inline constexpr std::size_t k_case_lines = 6;

// The first failing case of a log, in at most k_case_lines lines: an item of `oracle verify` with its details, a test
// of pytest with what it asserted and where, the first error of a compiler, the last exception of Python; else the last
// lines.
std::vector<std::string> first_failing_case(std::string_view log);

// "<what>; the first failing case:", these lines, and "all of it: <path>".
std::string failing_case_text(std::string_view what, const std::vector<std::string>& lines, std::string_view path);

}  // namespace gdnctl::loop
