// L301-L303: dates are ISO 8601 in UTC, in order, and close to the commit's date.
#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog {

namespace {

using std::chrono::hours;

std::string_view date_text(const Field& field) { return strip_marks(field.value); }

// "2026-02-18 12:55:20 UTC" and "2026-02-18T12:55:20+02:00" -> the same instant with a Z; empty: the offset is unknown.
std::string with_known_offset(std::string_view s) {
    if (s.size() <= 10 || !detail::is_date(s.substr(0, 10))) return {};
    std::string iso(s);
    for (const std::string_view zone : {" UTC", " utc", " GMT", "UTC", " Z", "z"}) {
        if (!s.ends_with(zone)) continue;
        iso = std::string(s.substr(0, s.size() - zone.size())) + "Z";
        break;
    }
    if (iso[10] == ' ' || iso[10] == 't') iso[10] = 'T';
    const std::string_view clock = std::string_view(iso).substr(11);
    if (clock.find_first_of("Z+-") == std::string_view::npos) return {};
    const auto time = parse_iso8601(iso);
    return time ? format_iso8601(*time) : std::string();
}

bool is_utc(std::string_view s) { return parse_iso8601(s) && (s.size() == 10 || s.ends_with("Z")); }

std::chrono::sys_days day_of(WallTime t) { return std::chrono::floor<std::chrono::days>(t); }

}  // namespace

std::optional<EntryDate> date_of(const Entry& entry) {
    const Field* field = entry.field(entry.date);
    if (field == nullptr) return std::nullopt;
    const std::string_view s = date_text(*field);
    auto time = parse_iso8601(s);
    if (!time) {
        if (const std::string mended = with_known_offset(s); !mended.empty()) time = parse_iso8601(mended);
    }
    if (!time) return std::nullopt;
    return EntryDate{*time, s.size() == 10};
}

namespace rule {

void date_format(const EntryFacts& facts, Reporter& reporter) {
    const Field* field = facts.entry.field(facts.entry.date);
    if (field == nullptr) return;
    const std::string_view s = date_text(*field);
    if (s.empty() || s.starts_with("<")) return;  // L106
    if (is_utc(s)) {
        if (s == field->value) return;
        const char* marks = field->value.find('`') != std::string_view::npos ? "backticks" : "asterisks";
        reporter.add(value_of(*field), fmt::format("the date needs no {}", marks),
                     reporter.safe(field->value, std::string(s)));
        return;
    }
    std::optional<Fix> fix;
    if (std::string mended = with_known_offset(s); !mended.empty())
        fix = reporter.safe(field->value, std::move(mended));
    reporter.add(value_of(*field), "the date is not ISO 8601 in UTC (2026-02-18 or 2026-02-18T12:55:20Z)",
                 std::move(fix));
}

void date_order(const EntryFacts& facts, Reporter& reporter) {
    const auto date = date_of(facts.entry);
    if (!date || facts.previous == nullptr || !facts.previous->date) return;
    const EntryDate& before = *facts.previous->date;
    const bool by_day = date->day_only || before.day_only;
    const bool earlier = by_day ? day_of(date->time) < day_of(before.time) : date->time < before.time;
    if (!earlier) return;
    reporter.add(value_of(*facts.entry.field(facts.entry.date)),
                 fmt::format("earlier than the date of iteration {}, {}", facts.previous->dated_iteration,
                             format_iso8601(before.time)));
}

void date_plausible(const EntryFacts& facts, Reporter& reporter) {
    const auto date = date_of(facts.entry);
    if (!date) return;
    const Field& field = *facts.entry.field(facts.entry.date);
    const LintOptions& options = facts.run.options;
    const hours slack{1};  // for clock differences between two machines
    if (options.now != WallTime{} && date->time > options.now + slack) {
        reporter.add(value_of(field), "the date is in the future");
        return;
    }
    if (facts.entry.commit_value.kind != CommitKind::committed) return;
    CommitFacts* history = facts.run.facts();
    if (history == nullptr) return;
    const auto commit = history->resolve(facts.entry.commit_value.sha);
    if (!commit || !*commit) return;
    const WallTime committed = (*commit)->time;
    const auto last = date->day_only ? date->time + hours{24} : date->time;
    if (committed <= last + hours{48} && committed >= date->time - hours{48}) return;
    reporter.add(value_of(field),
                 fmt::format("more than 48 h from the commit's own date, {}", format_iso8601(committed)),
                 reporter.unsafe(date_text(field), format_iso8601(committed)));
}

}  // namespace rule

}  // namespace gdnctl::runlog
