#include "cli/args.h"

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::cli {

namespace {

Status bad_value(std::string reason, std::string hint = {}) {
    return fail(ErrorKind::usage, std::move(reason), std::move(hint));
}

// "-f,--follow|--no-follow" -> names and negated names.
void split_names(std::string_view spec, OptionDef& def) {
    const auto sides = text::split(spec, '|');
    for (std::size_t side = 0; side < sides.size(); ++side) {
        for (std::string_view name : text::split(sides[side], ',')) {
            name = text::trim(name);
            if (!name.empty()) (side == 0 ? def.names : def.negated_names).emplace_back(name);
        }
    }
}

OptionDef make_def(OptionDef::Kind kind, const OptionSpec& spec, std::string initial) {
    OptionDef def;
    def.kind = kind;
    split_names(spec.names, def);
    def.value = spec.value.empty() && kind != OptionDef::Kind::flag ? "VALUE" : std::string(spec.value);
    def.help = spec.help;
    def.group = spec.group;
    if (kind == OptionDef::Kind::value && !initial.empty()) def.initial = {initial};
    def.default_text = spec.default_text.empty() ? std::move(initial) : std::string(spec.default_text);
    def.env = spec.env;
    def.complete = spec.complete;
    def.required = spec.required;
    def.unless = spec.unless;
    def.common = spec.common;
    return def;
}

PositionalDef make_positional(const PositionalSpec& spec) {
    PositionalDef def;
    def.name = spec.name;
    def.help = spec.help;
    def.complete = spec.complete;
    return def;
}

Result<std::int64_t> to_integer(std::string_view text) {
    if (const auto value = text::parse_int(text)) return *value;
    return fail(ErrorKind::usage, "not a whole number");
}

Result<double> to_number(std::string_view text) {
    if (const auto value = text::parse_double(text)) return *value;
    return fail(ErrorKind::usage, "not a finite decimal number");
}

// Converts a word with `convert` and stores the result.
template <class T, class Convert>
std::function<Status(std::string_view)> storing(T& target, Convert convert) {
    return [&target, convert](std::string_view word) -> Status {
        GDNCTL_TRY_ASSIGN(target, convert(word));
        return {};
    };
}

Result<std::string> as_is(std::string_view word) { return std::string(word); }

std::string choices_text(std::span<const std::string> choices) { return text::join(choices, ", "); }

Status choice_error(std::string_view word, std::span<const std::string> choices) {
    const auto meant = text::nearest(word, choices);
    return bad_value(fmt::format("not one of {}", choices_text(choices)),
                     meant ? fmt::format("did you mean `{}`?", *meant) : std::string());
}

}  // namespace

OptionSpec spec_of(std::string_view words, std::string_view help, OptionSpec more) {
    const std::size_t space = std::min(words.find(' '), words.size());
    more.names = words.substr(0, space);
    more.value = words.substr(std::min(space + 1, words.size()));
    more.help = help;
    return more;
}

std::optional<bool> parse_truth(std::string_view word) {
    const std::string lower = text::to_lower(word);
    if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") return true;
    if (lower == "false" || lower == "no" || lower == "off" || lower == "0") return false;
    return std::nullopt;
}

const std::string& OptionDef::canonical() const {
    for (auto it = names.rbegin(); it != names.rend(); ++it) {
        if (it->starts_with("--")) return *it;
    }
    return names.front();
}

void Args::flag(bool& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::flag, spec, {});
    def.initial = {target ? "true" : "false"};
    if (!def.negated_names.empty() && def.default_text.empty()) {
        def.default_text = target ? def.canonical() : def.negated_names.back();
    }
    def.assign = [&target](std::string_view word) -> Status {
        const auto value = parse_truth(word);
        if (!value) return bad_value("the value of a flag can only be true or false");
        target = *value;
        return {};
    };
    m_options.push_back(std::move(def));
}

void Args::count(int& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::flag, spec, {});
    def.assign = [&target](std::string_view word) -> Status {
        target = word == "true" ? target + 1 : 0;
        return {};
    };
    m_options.push_back(std::move(def));
}

void Args::option(std::string& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, target);
    def.assign = storing(target, as_is);
    m_options.push_back(std::move(def));
}

void Args::option(std::optional<std::string>& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, target.value_or(""));
    def.assign = storing(target, as_is);
    m_options.push_back(std::move(def));
}

void Args::option(std::int64_t& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, std::to_string(target));
    def.assign = storing(target, to_integer);
    m_options.push_back(std::move(def));
}

void Args::option(std::optional<std::int64_t>& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, target ? std::to_string(*target) : "");
    def.assign = storing(target, to_integer);
    m_options.push_back(std::move(def));
}

void Args::option(double& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, fmt::format("{}", target));
    def.assign = storing(target, to_number);
    m_options.push_back(std::move(def));
}

void Args::option(std::optional<double>& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, target ? fmt::format("{}", *target) : "");
    def.assign = storing(target, to_number);
    m_options.push_back(std::move(def));
}

void Args::option(std::vector<std::string>& target, const OptionSpec& spec) {
    OptionDef def = make_def(OptionDef::Kind::list, spec, choices_text(target));
    def.initial = target;
    // The first word given replaces the initial list, so that a default list can be removed.
    def.assign = [&target, fresh = true](std::string_view word) mutable -> Status {
        if (fresh) target.clear();
        fresh = false;
        target.emplace_back(word);
        return {};
    };
    m_options.push_back(std::move(def));
}

void Args::add_choice(const OptionSpec& spec, std::vector<std::string> names, std::vector<std::string> help,
                      std::string initial, std::function<void(std::size_t)> store) {
    OptionDef def = make_def(OptionDef::Kind::value, spec, std::move(initial));
    def.choices = names;
    def.choice_help = std::move(help);
    def.assign = [names = std::move(names), store = std::move(store)](std::string_view word) -> Status {
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (names[i] == word) {
                store(i);
                return {};
            }
        }
        return choice_error(word, names);
    };
    m_options.push_back(std::move(def));
}

void Args::positional(std::string& target, const PositionalSpec& spec) {
    PositionalDef def = make_positional(spec);
    def.assign = storing(target, as_is);
    m_positionals.push_back(std::move(def));
}

void Args::positional(std::optional<std::string>& target, const PositionalSpec& spec) {
    PositionalDef def = make_positional(spec);
    def.required = false;
    def.assign = storing(target, as_is);
    m_positionals.push_back(std::move(def));
}

void Args::positional(std::vector<std::string>& target, const PositionalSpec& spec) {
    PositionalDef def = make_positional(spec);
    def.required = false;
    def.repeated = true;
    def.assign = [&target](std::string_view word) -> Status {
        target.emplace_back(word);
        return {};
    };
    m_positionals.push_back(std::move(def));
}

void Args::positional(std::string& target, std::span<const std::string_view> choices, const PositionalSpec& spec) {
    PositionalDef def = make_positional(spec);
    def.choices.assign(choices.begin(), choices.end());
    def.assign = [&target, names = def.choices](std::string_view word) -> Status {
        for (const std::string& name : names) {
            if (name == word) {
                target = name;
                return {};
            }
        }
        return choice_error(word, names);
    };
    m_positionals.push_back(std::move(def));
}

void Args::leading(std::string& target, std::span<const std::string_view> choices, const PositionalSpec& spec) {
    positional(target, choices, spec);
    m_positionals.back().leading = true;
    m_positionals.back().required = false;
}

void Args::trailing(std::vector<std::string>& target, bool required, const PositionalSpec& spec) {
    PositionalDef def = make_positional(spec);
    def.required = required;
    def.repeated = true;
    def.assign = [&target](std::string_view word) -> Status {
        target.emplace_back(word);
        return {};
    };
    m_trailing = std::move(def);
}

void Args::command_line(std::vector<std::string>& target, bool required, const PositionalSpec& spec) {
    trailing(target, required, spec);
    m_trailing->bare = true;
}

void Args::note_use(std::string_view prefix, bool& used) {
    for (OptionDef& def : m_options) {
        if (!def.canonical().starts_with(prefix)) continue;
        def.assign = [&used, assign = std::move(def.assign)](std::string_view word) -> Status {
            used = true;
            return assign(word);
        };
    }
}

void Args::about(std::string_view text) { m_paragraphs.emplace_back(text); }

void Args::example(std::string_view command, std::string_view text) {
    m_examples.push_back({std::string(command), std::string(text)});
}

void Args::exit_code(int code, std::string_view text) { m_exit_notes.push_back({code, std::string(text)}); }

void Args::check(std::function<Status()> rule) { m_checks.push_back(std::move(rule)); }

}  // namespace gdnctl::cli
