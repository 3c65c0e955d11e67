// Logs for the tests of sweeps: texts, and those of seed 003.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "platform/fs.h"
#include "sweep/parse.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

inline Report report_of(std::string_view text, const Assumed& assumed = {},
                        const std::optional<std::string>& base = {}) {
    auto report = make_report(parse_results(text, "x.log", assumed), base);
    REQUIRE(report.has_value());
    return std::move(*report);
}

// One result, whatever it is.
inline Measured only(std::string_view text, const Assumed& assumed = {}) {
    Report report = report_of(text, assumed);
    REQUIRE(report.results.size() == 1);
    return std::move(report.results.front());
}

inline Report seed(std::string_view name, const std::optional<std::string>& base = {}, const Assumed& assumed = {}) {
    const auto text = read_file(std::filesystem::path(GDNCTL_FIXTURES) / "sweep/seed003" / name);
    REQUIRE(text.has_value());
    return report_of(*text, assumed, base);
}

// "a.log:3 combined_mismatch" of each warning.
inline std::vector<std::string> kinds(const Report& report) {
    std::vector<std::string> out;
    out.reserve(report.warnings.size());
    for (const Warning& w : report.warnings) out.push_back(w.kind);
    return out;
}

}  // namespace gdnctl::sweep
