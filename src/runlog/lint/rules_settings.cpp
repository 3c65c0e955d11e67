// L507: a setting that took effect with a value other than the requested one.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog::rule {

namespace {

enum class Role { requested, effective };

struct Setting {
    Role role;
    std::string name;  // normalised; empty: the bullet's name
    std::string_view value;
};

bool has_text(std::string_view text, std::string_view part) {
    return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

std::string_view word_of_setting(std::string_view s) {
    s = s.substr(std::min(s.find_first_not_of(" =:`*\"'"), s.size()));
    return s.substr(0, s.find_first_of(" ,;`*()\"'"));
}

// `requested`, `chunk requested`, `effective chunk`, `CE backend selected`, `chunk (requested)`: role and name.
std::optional<Setting> setting_of_label(std::string_view label) {
    std::string name = normalise_label(label);
    std::erase_if(name, [](char c) { return c == '(' || c == ')'; });
    for (const auto& [word, role] : {std::pair{std::string_view("requested"), Role::requested},
                                     {"effective", Role::effective},
                                     {"selected", Role::effective}}) {
        if (name == word) return Setting{role, {}, {}};
        if (name.ends_with(word) && name[name.size() - word.size() - 1] == ' ') {
            return Setting{role, name.substr(0, name.size() - word.size() - 1), {}};
        }
        if (name.starts_with(word) && name[word.size()] == ' ') return Setting{role, name.substr(word.size() + 1), {}};
    }
    return std::nullopt;
}

// The value after a role word up to the next separator: `=auto`, ` 96`, ` chunk: 96`; nullopt for prose.
std::optional<Setting> setting_behind(Role role, std::string_view rest) {
    rest = rest.substr(0, std::min(rest.find_first_of(",;()|"), rest.find("->")));
    const std::size_t ink = std::min(rest.find_first_not_of(" `*"), rest.size());
    const std::size_t sign = rest.find_first_of("=:");
    Setting setting{role, {}, {}};
    if (sign != std::string_view::npos) {
        if (sign > ink) setting.name = normalise_label(rest.substr(ink, sign - ink));
        setting.value = word_of_setting(rest.substr(sign));
    } else {
        const bool marked = ink < rest.size() && (detail::is_digit(rest[ink]) || rest.substr(0, ink).ends_with('`'));
        if (marked) setting.value = word_of_setting(rest);
    }
    return setting.value.empty() ? std::nullopt : std::optional(setting);
}

// Every setting in a text: "requested=auto, effective=xla".
std::vector<Setting> settings_in(std::string_view text) {
    std::vector<Setting> found;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (at > 0 && detail::is_word(text[at - 1])) continue;
        for (const auto& [word, role] :
             {std::pair{std::string_view("requested"), Role::requested}, {"effective", Role::effective}}) {
            const std::string_view rest = text.substr(at);
            if (!rest.starts_with(word) || (rest.size() > word.size() && detail::is_word(rest[word.size()]))) continue;
            if (auto setting = setting_behind(role, rest.substr(word.size()))) found.push_back(std::move(*setting));
        }
    }
    return found;
}

bool same_setting(std::string_view a, std::string_view b) {
    if (text::to_lower(a) == text::to_lower(b)) return true;
    const auto x = text::parse_double(a), y = text::parse_double(b);
    return x && y && *x == *y;
}

// The value that was chosen instead, from "`auto` chose `xla`" or, after a selection, "auto -> xla".
std::string_view chosen_by_auto(const Field& field) {
    const std::string_view line = field.line;
    for (std::size_t at = line.find("auto"); at != std::string_view::npos; at = line.find("auto", at + 1)) {
        if ((at > 0 && detail::is_word(line[at - 1])) || (at + 4 < line.size() && detail::is_word(line[at + 4])))
            continue;
        std::string_view rest = line.substr(at + 4);
        rest = rest.substr(std::min(rest.find_first_not_of(" `*"), rest.size()));
        for (const std::string_view verb : {"chose ", "picked ", "selected ", "resolved to ", "-> ", "=> "}) {
            const bool arrow = verb.size() == 3;
            if (!rest.starts_with(verb) || (arrow && !setting_of_label(field.label))) continue;
            const std::string_view taken = word_of_setting(rest.substr(verb.size()));
            if (!taken.empty() && taken != "auto") return taken;
        }
    }
    return {};
}

// `96 run as 128`
bool runs_as_another(std::string_view line) {
    constexpr std::string_view words = " run as ";
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) return false;
    std::size_t begin = at;
    while (begin > 0 && (detail::is_digit(line[begin - 1]) || line[begin - 1] == '.')) --begin;
    const std::string_view asked = line.substr(begin, at - begin);
    const std::string_view taken = word_of_setting(line.substr(at + words.size()));
    return !asked.empty() && !taken.empty() && detail::is_digit(taken[0]) && !same_setting(asked, taken);
}

// The settings of one entry by name, until requested and effective values are both known.
class Settings {
public:
    // Returns the pair once both values are known and differ.
    std::optional<std::pair<std::string_view, std::string_view>> add(const std::string& name, const Setting& setting) {
        Pair& pair = m_pairs[name];
        if (setting.role == Role::requested) {
            if (!pair.requested.empty()) pair.effective = {};  // the next run's
            pair.requested = setting.value;
        } else {
            pair.effective = setting.value;
        }
        if (pair.requested.empty() || pair.effective.empty() || same_setting(pair.requested, pair.effective)) return {};
        return std::pair{pair.requested, pair.effective};
    }

private:
    struct Pair {
        std::string_view requested, effective;
    };
    std::map<std::string, Pair> m_pairs;
};

// All settings in a bullet, with their names. A name that is missing is taken from its label or from the enclosing
// bullet.
std::vector<Setting> settings_of(const Field& field) {
    std::vector<Setting> all = settings_in(field.value);
    const auto labelled = setting_of_label(field.label);
    if (labelled) {
        const std::string_view head = field.value.substr(0, field.value.find_first_of(",;("));
        const bool own = head.find("requested") == std::string_view::npos &&
                         head.find("effective") == std::string_view::npos && !word_of_setting(head).empty();
        if (own) all.insert(all.begin(), {labelled->role, labelled->name, word_of_setting(head)});
    }
    const std::string name = labelled ? labelled->name : normalise_label(field.label);
    for (Setting& setting : all) {
        if (setting.name.empty()) setting.name = name;
        if (setting.name.empty()) setting.name = fmt::format("#{}", field.parent);
    }
    return all;
}

}  // namespace

void not_as_requested(const EntryFacts& facts, Reporter& reporter) {
    // Most entries contain none of the words: search the whole entry once instead of each line several times.
    const std::string_view whole = facts.entry.head.text;
    const bool paired = has_text(whole, "requested") || has_text(whole, "effective");
    if (!paired && !has_text(whole, " run as ") && !has_text(whole, "auto")) return;
    const bool asked_for_auto = has_text(whole, "--ce-implementation auto");
    Settings settings;
    for (const Field& field : facts.entry.fields) {
        if (const std::string_view taken = chosen_by_auto(field); !taken.empty()) {
            reporter.add(at(field), fmt::format("requested auto, but {} took effect", taken));
            continue;
        }
        bool reported = false;
        for (const Setting& setting : settings_of(field)) {
            const auto differ = settings.add(setting.name, setting);
            if (!differ || reported) continue;
            reported = true;
            reporter.add(at(field), fmt::format("requested {}, but {} took effect", differ->first, differ->second));
        }
        if (reported) continue;
        if (asked_for_auto && detail::label_is(field.label, "ce backend selected") &&
            word_of_setting(field.value) == "xla") {
            reporter.add(at(field), "requested auto, but xla took effect");
        } else if (runs_as_another(field.line)) {
            reporter.add(at(field), "a setting other than the requested one took effect");
        }
    }
}

}  // namespace gdnctl::runlog::rule
