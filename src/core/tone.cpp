#include "core/tone.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl {

namespace {

struct ToneRow {
    std::string_view word;
    Tone tone;
};

constexpr std::array k_results = {
    ToneRow{"OK", Tone::good},
    ToneRow{"ok", Tone::good},
    ToneRow{"PASSED", Tone::good},
    ToneRow{"PASS", Tone::good},
    ToneRow{"SUCCEEDED", Tone::good},
    ToneRow{"pass", Tone::good},
    ToneRow{"passed", Tone::good},
    ToneRow{"kept", Tone::good},
    ToneRow{"keep", Tone::good},
    ToneRow{"accepted", Tone::good},
    ToneRow{"promoted", Tone::good},
    ToneRow{"promote_corrupt_champion", Tone::good},
    ToneRow{"improved", Tone::good},
    ToneRow{"SUSPECT", Tone::undecided},
    ToneRow{"NO_DATA", Tone::undecided},
    ToneRow{"UNSTABLE_INPUT", Tone::undecided},
    ToneRow{"STOPPED", Tone::undecided},
    ToneRow{"tie", Tone::undecided},
    ToneRow{"infra", Tone::undecided},
    ToneRow{"WRONG", Tone::bad},
    ToneRow{"FAILED", Tone::bad},
    ToneRow{"FAIL", Tone::bad},
    ToneRow{"CRASHED", Tone::bad},
    ToneRow{"REFUSED", Tone::bad},
    ToneRow{"NO_ENTRY_POINT", Tone::bad},
    ToneRow{"BUILD_FAILED", Tone::bad},
    ToneRow{"CACHED", Tone::bad},
    ToneRow{"TIMED_OUT", Tone::bad},
    ToneRow{"MEMORY_LIMIT", Tone::bad},
    ToneRow{"OUT_OF_BOUNDS", Tone::bad},
    ToneRow{"INCOMPLETE", Tone::bad},
    ToneRow{"NON_FINITE", Tone::bad},
    ToneRow{"WRONG_SHAPE", Tone::bad},
    ToneRow{"UNSTEADY", Tone::bad},
    ToneRow{"IMPOSSIBLE", Tone::bad},
    ToneRow{"fail", Tone::bad},
    ToneRow{"failed", Tone::bad},
    ToneRow{"rejected", Tone::bad},
    ToneRow{"refuse", Tone::bad},
    ToneRow{"regression", Tone::bad},
    ToneRow{"control_flow_regression", Tone::bad},
    ToneRow{"regressed", Tone::bad},
    ToneRow{"invalid", Tone::bad},
    ToneRow{"tampered", Tone::bad},
};

std::string_view code_of(Tone tone) {
    switch (tone) {
        case Tone::good: return "32";
        case Tone::bad: return "31";
        case Tone::undecided: return "33";
        case Tone::none: break;
    }
    return {};
}

bool is_of_verdict(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_of_word(char c) { return is_of_verdict(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

struct Part {
    std::size_t at = std::string_view::npos, size = 0;
};

// The first result within the columns that tables have before titles.
Part result_in(std::string_view line) {
    constexpr std::size_t k_columns = 48;
    for (std::size_t i = 0; i < std::min(line.size(), k_columns);) {
        std::size_t end = i;
        while (end < line.size() && is_of_word(line[end])) ++end;
        if (end > i && tone_of(line.substr(i, end - i)) != Tone::none) return {i, end - i};
        i = end + 1;
    }
    return {};
}

// "1.02x faster"
Part gain_in(std::string_view line) {
    for (const std::string_view word : {"x faster", "x slower", "x better", "x worse"}) {
        const std::size_t at = line.find(word);
        if (at == std::string_view::npos) continue;
        std::size_t from = at;
        while (from > 0 && ((line[from - 1] >= '0' && line[from - 1] <= '9') || line[from - 1] == '.')) --from;
        if (from < at) return {from, at + word.size() - from};
    }
    return {};
}

std::string toned_row(std::string_view line) {
    const Part result = result_in(line), gain = gain_in(line);
    std::string out(line);
    const auto color_part = [&](const Part& part, Tone tone) {
        if (part.size > 0) out.replace(part.at, part.size, toned(line.substr(part.at, part.size), tone, true));
    };
    const bool apart = gain.size == 0 || result.size == 0 || gain.at >= result.at + result.size;
    color_part(gain, tone_of_gain(line.substr(std::min(gain.at, line.size()), gain.size)));
    if (apart) color_part(result, tone_of(line.substr(std::min(result.at, line.size()), result.size)));
    return out;
}

}  // namespace

Tone tone_of(std::string_view result) {
    const std::string_view word = text::trim(result);
    const auto found =
        std::find_if(k_results.begin(), k_results.end(), [&](const ToneRow& r) { return r.word == word; });
    return found == k_results.end() ? Tone::none : found->tone;
}

Tone tone_of_gain(std::string_view gain) {
    const std::string_view first = gain.substr(0, gain.find_first_of("(;,"));
    const auto has = [&](std::string_view word) { return first.find(word) != std::string_view::npos; };
    if (has("x faster") || has("x better")) return Tone::good;
    return has("x slower") || has("x worse") ? Tone::bad : Tone::none;
}

std::string toned(std::string_view text, Tone tone, bool color) {
    if (!color || tone == Tone::none || text.empty()) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", code_of(tone), text);
}

std::string toned(std::string_view result, bool color) { return toned(result, tone_of(result), color); }

std::string toned_rows(std::string_view text, bool color) {
    if (!color) return std::string(text);
    std::string out;
    const auto lines = text::split(text, '\n');
    for (std::size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? "" : "\n") + toned_row(lines[i]);
    return out;
}

std::string toned_verdicts(std::string_view text, bool color) {
    if (!color) return std::string(text);
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const bool starts = is_of_verdict(text[i]) && (i == 0 || !is_of_word(text[i - 1]));
        std::size_t end = i + 1;
        while (starts && end < text.size() && is_of_word(text[end])) ++end;
        const std::string_view word = text.substr(i, end - i);
        out += starts && std::all_of(word.begin(), word.end(), is_of_verdict) ? toned(word, true) : std::string(word);
        i = end;
    }
    return out;
}

}  // namespace gdnctl
