// How single values are written in an entry.
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/for_people.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "runlog/parse/log.h"
#include "runlog/records/gain.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

std::string shortest(double value) {
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
    return end.ec == std::errc() ? std::string(buffer.data(), end.ptr) : fmt::format("{}", value);
}

// At least `decimals` decimals, and more only if fewer would change the number.
std::string with_decimals(double value, int decimals) {
    std::string text = shortest(value);
    if (text.find('e') != std::string::npos) return text;
    const auto dot = text.find('.');
    if (dot == std::string::npos) text += '.';
    const auto have = dot == std::string::npos ? std::size_t{0} : text.size() - dot - 1;
    if (have < static_cast<std::size_t>(decimals)) text.append(static_cast<std::size_t>(decimals) - have, '0');
    return text;
}

// A percentage whose text, divided by 100, gives the same fraction.
std::string percent(double fraction) {
    for (int decimals = 2; decimals <= 15; ++decimals) {
        const std::string text = fmt::format("{:.{}f}", fraction * 100, decimals);
        if (text::parse_double(text).value_or(0) * 1e-2 == fraction) return text;
    }
    return shortest(fraction * 100);
}

enum class Kind { ms, seconds, fraction, plain };

Kind kind_of(std::string_view key, std::string_view unit) {
    if (unit == "ms" || (unit.empty() && key.ends_with("_ms"))) return Kind::ms;
    if (unit == "s" || key == "throughput/duration") return Kind::seconds;
    if (unit == "fraction" || key.starts_with("gap_explained_by_")) return Kind::fraction;
    return Kind::plain;
}

std::string number(double value, Kind kind) {
    switch (kind) {
        case Kind::ms: return with_decimals(value, 6) + " ms";
        case Kind::seconds: return with_decimals(value, 6) + " s";
        case Kind::fraction: return percent(value) + "%";
        case Kind::plain: break;
    }
    return shortest(value);
}

template <class Number>
std::string side(const Json& value, const char* name, const Number& number_text) {
    const Json* found = json::find(value, name);
    if (found == nullptr) return "n/a";
    if (found->is_string()) return found->get<std::string>();
    return found->is_number() ? number_text(found->get<double>()) : std::string("n/a");
}

// "before -> after", or the only one that exists.
template <class Number>
std::string sides(const Json& value, const Number& number_text) {
    const bool has_before = json::find(value, "before") != nullptr;
    const bool has_after = json::find(value, "after") != nullptr;
    if (!has_before && !has_after) return "n/a";
    if (!has_before) return side(value, "after", number_text);
    return side(value, "before", number_text) + (has_after ? " -> " + side(value, "after", number_text) : "");
}

// The spelling that people use, if it is read back as the same key.
std::string label_of(std::string_view key, std::string_view unit) {
    std::string words(key);
    if (words.ends_with("_ms")) words.resize(words.size() - 3);
    for (char& c : words) {
        if (c == '_') c = ' ';
    }
    if (unit.empty() && metric_key(words) == key) return words;
    return std::string(key);
}

}  // namespace

std::string render_metric(std::string_view key, const Json& value) {
    const std::string unit = json::text(value, "unit");
    const Kind kind = kind_of(key, unit);
    return fmt::format("{}: `{}`", label_of(key, unit), sides(value, [&](double n) { return number(n, kind); }));
}

std::string render_measured(std::string_view key, const Json& value) {
    const auto after = json::number(value, "after");
    const std::string unit = json::text(value, "unit");
    if (json::text(value, "source") != "profile" || unit.empty() || !after || json::find(value, "before") != nullptr) {
        return render_metric(key, value);
    }
    if (metric_key(key) && kind_of(key, "") == Kind::ms) {
        return fmt::format("{}: `{:.6f} ms`", label_of(key, ""), *after);
    }
    return fmt::format("{}: `{}`", key, quantity(*after, unit));
}

std::string metric_for_people(std::string_view key, const Json& value) {
    const Kind kind = kind_of(key, json::text(value, "unit"));
    const std::string unit = kind == Kind::fraction ? "%" : kind == Kind::ms ? "ms" : shown_unit(key, &value);
    const auto number_text = [&](double n) { return quantity(kind == Kind::fraction ? n * 100 : n, unit); };
    return fmt::format("{}: `{}`", label_of(key, json::text(value, "unit")), sides(value, number_text));
}

namespace {

// "14 cases, 6 recorded vectors: 18 OK, 2 WRONG": what the oracle judged, with its verdicts.
std::string render_judged(const Json& check) {
    std::string items;
    for (const auto& [pointer, one, many] :
         {std::tuple{"/cases", "case", "cases"}, {"/vectors", "recorded vector", "recorded vectors"}}) {
        const auto count = json::integer_at(check, pointer);
        if (!count || *count == 0) continue;
        items += fmt::format("{}{} {}", items.empty() ? "" : ", ", *count, *count == 1 ? one : many);
    }
    std::string verdicts;
    if (const Json* counts = json::object(check, "verdicts")) {
        for (const auto& [word, count] : counts->items()) {
            if (!count.is_number_integer()) continue;
            verdicts += fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", count.get<std::int64_t>(), word);
        }
    }
    return items + (items.empty() || verdicts.empty() ? "" : ": ") + verdicts;
}

}  // namespace

std::string render_check_result(const Json& check) {
    std::string counts;
    for (const char* name : {"failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "errors", "warnings"}) {
        const auto count = json::integer(check, name);
        const bool matters = count && (*count != 0 || std::string_view(name) == "passed");
        if (matters) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", *count, name);
    }
    if (!counts.empty()) return counts;
    const std::string verdict = json::text(check, "verdict");
    const std::string judged = render_judged(check);
    const auto exit = json::integer(check, "exit");
    if (exit && *exit != 0) {
        return verdict.empty() ? fmt::format("FAILED (exit {})", *exit)
                               : fmt::format("FAILED (exit {}, verdict {}{}{})", *exit, verdict,
                                             judged.empty() ? "" : ": ", judged);
    }
    if (!verdict.empty()) return judged.empty() ? verdict : fmt::format("{} ({})", verdict, judged);
    return exit ? "OK" : json::text(check, "result");
}

std::string render_commit(const Json& record) {
    const std::string status = json::text(record, "commit_status");
    const std::string reason = json::text(record, "commit_reason");
    const auto commits = json::texts(record, "commits");
    if (status == "self") return "this commit";
    if (status == "pending") return "(pending)";
    if (status == "none") return reason.empty() ? "none" : fmt::format("none ({})", reason);
    if (status == "other") return reason;
    return commits.empty() ? std::string() : commits.back();
}

}  // namespace gdnctl::runlog
