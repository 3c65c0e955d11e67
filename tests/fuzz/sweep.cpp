// Logs of the fused cross-entropy's scripts and journals of sweeps: bytes that other programs wrote, or a crash left.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "sweep/parse.h"
#include "sweep/report.h"

namespace {

// What is read of a log can be shown in every way, and is JSON that anyone reads.
void check_log(std::string_view text) {
    const auto records = gdnctl::sweep::parse_results(text, "fuzz.log", {"TPU v5", "bfloat16", 4});
    const auto report = gdnctl::sweep::make_report(records, std::nullopt);
    require(report.has_value());
    require(report->results.size() == records.size());
    for (const auto& m : report->results) {
        require(m.record.status != gdnctl::sweep::ResultStatus::failed || m.record.failure.kind.has_value());
    }
    require(gdnctl::parse_json(gdnctl::to_text(gdnctl::sweep::report_json(*report)), "report").has_value());
    (void)gdnctl::sweep::report_table(*report);
    (void)gdnctl::sweep::report_markdown(*report);
    (void)gdnctl::sweep::report_patch(*report);
    require(gdnctl::sweep::report_html(*report).find("<script") == std::string::npos);
    if (!records.empty()) (void)gdnctl::sweep::make_report(records, records.front().implementation);
}

void check_journal(std::string_view line) {
    const auto event = gdnctl::sweep::parse_journal_event(line);
    if (!event) return;
    const std::string written = gdnctl::sweep::to_line(*event);
    const auto again = gdnctl::sweep::parse_journal_event(written);
    require(again.has_value());
    require(gdnctl::sweep::to_line(*again) == written);
}

}  // namespace

FUZZ(sweep) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_log(text);
    check_journal(text.substr(0, text.find('\n')));
    return 0;
}
