#include "services/devtpu/terms.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::devtpu {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t k_year_s = 366LL * 24 * 3600;
constexpr std::chrono::minutes k_ahead{5};

constexpr std::array<std::pair<HoldEnd, std::string_view>, 4> k_ends = {{{HoldEnd::stop, "stop"},
                                                                         {HoldEnd::lease, "lease"},
                                                                         {HoldEnd::max_hold, "max-hold"},
                                                                         {HoldEnd::preempted, "preempted"}}};

void read_term(const std::map<std::string, std::string>& metadata, const char* key, std::int64_t& term) {
    const auto it = metadata.find(key);
    if (it == metadata.end()) return;
    const auto value = text::parse_int(it->second);
    if (value && *value > 0 && *value <= k_year_s) term = *value;
}

}  // namespace

Status check_terms(const Terms& terms) {
    const std::array<std::pair<const char*, std::int64_t>, 3> all = {
        {{"--lease", terms.lease_s}, {"--grace", terms.grace_s}, {"--max-hold", terms.max_hold_s}}};
    for (const auto& [option, value] : all) {
        if (value < 1 || value > k_year_s) {
            return fail(ErrorKind::usage, fmt::format("{} {}: expected 1 or more seconds", option, value));
        }
    }
    return {};
}

milliseconds heartbeat_interval(const Terms& terms) {
    return std::min<milliseconds>(seconds(30), milliseconds(seconds(terms.lease_s)) / 4);
}

void put_terms(std::map<std::string, std::string>& metadata, const Terms& terms) {
    metadata["lease_s"] = std::to_string(terms.lease_s);
    metadata["grace_s"] = std::to_string(terms.grace_s);
    metadata["max_hold_s"] = std::to_string(terms.max_hold_s);
}

Terms terms_of(const std::map<std::string, std::string>& metadata) {
    Terms terms;
    read_term(metadata, "lease_s", terms.lease_s);
    read_term(metadata, "grace_s", terms.grace_s);
    read_term(metadata, "max_hold_s", terms.max_hold_s);
    return terms;
}

WallTime lease_end(const Terms& terms, WallTime created, std::optional<WallTime> renewed) {
    const WallTime end = renewed ? *renewed + seconds(terms.lease_s) : created + seconds(terms.grace_s);
    return std::min(end, cap_end(terms, created));
}

WallTime cap_end(const Terms& terms, WallTime created) { return created + seconds(terms.max_hold_s); }

std::string_view to_text(HoldEnd end) {
    for (const auto& [value, name] : k_ends) {
        if (value == end) return name;
    }
    return "stop";
}

std::optional<HoldEnd> parse_hold_end(std::string_view text) {
    for (const auto& [value, name] : k_ends) {
        if (name == text) return value;
    }
    return std::nullopt;
}

void LeaseWatch::see(std::optional<WallTime> modified, WallTime wall, Clock::Monotonic now) {
    if (!modified) return;
    const bool first = !m_modified;
    if (m_modified == modified) return;
    m_modified = modified;
    if (first || *modified > wall + k_ahead) return;
    const auto age = std::max(wall - *modified, milliseconds(0));
    const Clock::Monotonic at = now - age;
    m_renewed = m_renewed ? std::max(*m_renewed, at) : at;
}

std::optional<HoldEnd> LeaseWatch::over(Clock::Monotonic now) const {
    if (now - m_start >= seconds(m_terms.max_hold_s)) return HoldEnd::max_hold;
    const bool lapsed =
        m_renewed ? now - *m_renewed >= seconds(m_terms.lease_s) : now - m_start >= seconds(m_terms.grace_s);
    return lapsed ? std::optional(HoldEnd::lease) : std::nullopt;
}

}  // namespace gdnctl::devtpu
