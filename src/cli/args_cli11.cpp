#include "cli/args_cli11.h"

#include <algorithm>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/config.h"
#include "core/text.h"

namespace gdnctl::cli {

namespace {

using Options = std::vector<const OptionDef*>;

const OptionDef* find_option(const Options& options, std::string_view name) {
    const auto is_name = [&](const std::string& n) { return n == name; };
    for (const OptionDef* option : options) {
        if (std::any_of(option->names.begin(), option->names.end(), is_name)) return option;
        if (std::any_of(option->negated_names.begin(), option->negated_names.end(), is_name)) return option;
    }
    return nullptr;
}

std::string before_equals(std::string_view word) { return std::string(word.substr(0, word.find('='))); }

tl::unexpected<Error> unknown_option(const Options& options, const std::string& name) {
    std::vector<std::string> names;
    for (const OptionDef* option : options) {
        names.insert(names.end(), option->names.begin(), option->names.end());
        names.insert(names.end(), option->negated_names.begin(), option->negated_names.end());
    }
    std::erase_if(names, [](const std::string& n) { return !n.starts_with("--"); });
    const auto meant = name.starts_with("--") ? text::nearest(name, names) : std::nullopt;
    return fail(ErrorKind::usage, fmt::format("unknown option '{}'", name),
                meant ? fmt::format("did you mean `{}`?", *meant) : std::string());
}

// Rewrites words so that CLI11 sees only names and marks. A mark stands for a value or a positional word, which CLI11
// would otherwise change: it strips brackets, drops empty words, and lets a list swallow what follows.
class Shield {
public:
    explicit Shield(const Options& options) : m_options(options) {}

    Status add_all(const std::vector<std::string>& words) {
        for (std::size_t i = 0; i < words.size(); ++i) {
            const std::string& word = words[i];
            const std::string* next = i + 1 < words.size() ? &words[i + 1] : nullptr;
            Result<bool> took_next = false;
            if (word.size() < 2 || word[0] != '-') {
                m_words.push_back(mark(word));
            } else if (word[1] == '-') {
                took_next = add_long(word, next);
            } else {
                took_next = add_short(word, next);
            }
            GDNCTL_TRY(took_next);
            if (*took_next) ++i;
        }
        return {};
    }

    const std::vector<std::string>& words() const { return m_words; }

    // The original of a mark.
    const std::string& reveal(const std::string& marked) const {
        const auto index = text::parse_int(std::string_view(marked).substr(1));
        return m_values.at(static_cast<std::size_t>(index.value_or(-1)));
    }

private:
    std::string mark(std::string value) {
        m_values.push_back(std::move(value));
        return '\x01' + std::to_string(m_values.size() - 1);
    }

    void add_value(const std::string& name, std::string value) {
        m_words.push_back(name);
        m_words.push_back(mark(std::move(value)));
    }

    // Takes the next word as the value of `name`. If the value was forgotten, this must not swallow an option.
    Result<bool> add_next(const OptionDef& option, const std::string& name, const std::string* next) {
        if (next == nullptr) {
            return fail(ErrorKind::usage, fmt::format("{} needs a value", name),
                        fmt::format("{} {}: {}", option.canonical(), option.value, option.help));
        }
        if (next->size() > 1 && next->front() == '-' && find_option(m_options, before_equals(*next)) != nullptr) {
            return fail(ErrorKind::usage, fmt::format("{} needs a value, but the option {} follows", name, *next),
                        fmt::format("if '{}' is the value, write {}={}", *next, option.canonical(), *next));
        }
        add_value(name, *next);
        return true;
    }

    Result<bool> add_long(const std::string& word, const std::string* next) {
        const std::string name = before_equals(word);
        const OptionDef* option = find_option(m_options, name);
        if (option == nullptr) return unknown_option(m_options, name);
        const bool assigned = name.size() != word.size();
        if (option->kind != OptionDef::Kind::flag) {
            if (!assigned) return add_next(*option, name, next);
            add_value(name, word.substr(name.size() + 1));
            return false;
        }
        if (!assigned) {
            m_words.push_back(word);
            return false;
        }
        const auto truth = parse_truth(std::string_view(word).substr(name.size() + 1));
        if (!truth) {
            return fail(ErrorKind::usage, fmt::format("{} is a flag; its value can only be true or false", name));
        }
        m_words.push_back(name + (*truth ? "=true" : "=false"));
        return false;
    }

    // -f, -fVALUE, -f=VALUE, -qv and -qfVALUE.
    Result<bool> add_short(const std::string& word, const std::string* next) {
        for (std::size_t i = 1; i < word.size(); ++i) {
            const std::string name = std::string("-") + word[i];
            const OptionDef* option = find_option(m_options, name);
            if (option == nullptr) return unknown_option(m_options, name);
            if (option->kind == OptionDef::Kind::flag) {
                m_words.push_back(name);
                continue;
            }
            if (i + 1 == word.size()) return add_next(*option, name, next);
            add_value(name, word.substr(word[i + 1] == '=' ? i + 2 : i + 1));
            break;
        }
        return false;
    }

    const Options& m_options;
    std::vector<std::string> m_words;
    std::vector<std::string> m_values;
};

// "-f,--follow,!--no-follow"
std::string cli11_names(const OptionDef& option) {
    std::string names = text::join(option.names, ",");
    for (const std::string& negated : option.negated_names) names += ",!" + negated;
    return names;
}

Status assign(const OptionDef& option, std::string_view word, std::string_view source) {
    const Status done = option.assign(word);
    if (done) return {};
    // What the option is for says which of several was meant, and that a sentence belongs elsewhere.
    const bool is_flag = option.kind == OptionDef::Kind::flag;
    const std::string use = fmt::format("{} {}: {}", option.canonical(), option.value, option.help);
    return fail(ErrorKind::usage, fmt::format("invalid value '{}' for {}: {}", word, source, done.error().message),
                done.error().hint.empty() && !is_flag ? use : done.error().hint);
}

bool is_set(const OptionDef& option, const Lookup& environment) {
    return !option.env.empty() && !environment(option.env).value_or("").empty();
}

// Assigns every use of the option in order, so that the last one wins.
Status assign_uses(const Args& args, const OptionDef& option, const std::vector<std::string>& uses,
                   const Shield& shield, const Lookup& environment) {
    const std::string home = environment("HOME").value_or("");
    for (const std::string& use : uses) {
        const bool is_flag = option.kind == OptionDef::Kind::flag;
        const std::string word = is_flag ? use : with_home(option, shield.reveal(use), home);
        GDNCTL_TRY(assign(option, word, option.canonical()));
        args.add_given({option.canonical(), word, "option " + option.canonical(), true});
    }
    if (!uses.empty() || !is_set(option, environment)) return {};
    const std::string word = with_home(option, environment(option.env).value_or(""), home);
    args.add_given({option.canonical(), word, "environment " + option.env, false});
    return assign(option, word, "the environment variable " + option.env);
}

Status assign_positional(const PositionalDef& def, std::string_view word) {
    const Status done = def.assign(word);
    if (done) return {};
    return fail(ErrorKind::usage, fmt::format("invalid value '{}' for {}: {}", word, def.name, done.error().message),
                done.error().hint);
}

Status assign_positionals(const std::vector<PositionalDef>& defs, const std::vector<std::string>& words) {
    std::size_t at = 0;
    for (const PositionalDef& def : defs) {
        const bool is_choice =
            at < words.size() && std::find(def.choices.begin(), def.choices.end(), words[at]) != def.choices.end();
        // With as many words as arguments, none was left out: the first one is misspelt.
        if (def.leading && !is_choice && words.size() < defs.size()) continue;
        const std::size_t end = def.repeated ? words.size() : std::min(at + 1, words.size());
        for (; at < end; ++at) GDNCTL_TRY(assign_positional(def, words[at]));
    }
    if (at == words.size()) return {};
    return fail(ErrorKind::usage, fmt::format("unexpected argument '{}'", words[at]));
}

using Given = std::set<const OptionDef*>;  // the command's options that have a value

// In their order of strength: the words, the environment, the configuration.
Result<Given> assign_command(const Args& command, const std::vector<const CLI::Option*>& seen, const Shield& shield,
                             const Lookup& environment, const OptionTable& table) {
    Given given;
    for (std::size_t i = 0; i < command.options().size(); ++i) {
        const OptionDef& option = command.options()[i];
        GDNCTL_TRY(assign_uses(command, option, seen[i]->results(), shield, environment));
        if (!seen[i]->empty() || is_set(option, environment)) given.insert(&option);
    }
    if (!table.find) return given;
    GDNCTL_TRY_ASSIGN(const ConfigTable* configured, table.find());
    if (configured == nullptr) return given;
    const auto is_given = [&](const OptionDef& option) { return given.contains(&option); };
    GDNCTL_TRY(assign_option_table(command, *configured, table.name, environment("HOME").value_or(""), is_given));
    for (const OptionDef& option : command.options()) {
        if (configured->contains(option_key(option))) given.insert(&option);
    }
    return given;
}

Status are_required(const std::vector<const OptionDef*>& missing) {
    const OptionDef& first = *missing.front();
    std::string names = first.canonical();
    for (std::size_t i = 1; i < missing.size(); ++i) {
        names += (i + 1 == missing.size() ? " and " : ", ") + missing[i]->canonical();
    }
    return fail(ErrorKind::usage, fmt::format("{} {} required", names, missing.size() == 1 ? "is" : "are"),
                fmt::format("{} {}: {}", first.canonical(), first.value, first.help));
}

Status require_all(const Args& command, const Given& given, std::size_t positional_words) {
    std::vector<const OptionDef*> missing;
    for (const OptionDef& option : command.options()) {
        if (!option.required || given.contains(&option)) continue;
        const auto& all = command.options();
        const auto waives = [&](const OptionDef& one) {
            return one.canonical() == option.unless && given.contains(&one);
        };
        if (!std::any_of(all.begin(), all.end(), waives)) missing.push_back(&option);
    }
    if (!missing.empty()) return are_required(missing);
    for (std::size_t i = positional_words; i < command.positionals().size(); ++i) {
        const PositionalDef& def = command.positionals()[i];
        if (!def.required) continue;
        const std::string words = text::join(def.choices, ", ");
        return fail(ErrorKind::usage, fmt::format("the argument {} is missing", def.name),
                    fmt::format("{}: {}{}{}", def.name, def.help, words.empty() ? "" : ": ", words));
    }
    return {};
}

Status assign_trailing(const Args& command, bool cut, const std::vector<std::string>& trailing) {
    const auto& def = command.trailing_def();
    if (!def) {
        if (!cut) return {};
        return fail(ErrorKind::usage, "this command accepts nothing after '--'");
    }
    if (def->required && trailing.empty()) {
        return fail(ErrorKind::usage, fmt::format("the argument {} is missing", def->name),
                    fmt::format("write it after '--': -- {}", def->name));
    }
    for (const std::string& word : trailing) GDNCTL_TRY(assign_positional(*def, word));
    return {};
}

// Whether the option in `word` takes the word after it as its value.
bool takes_next(const Options& options, const std::string& word) {
    if (word.starts_with("--")) {
        const OptionDef* option = find_option(options, word);
        return option != nullptr && option->kind != OptionDef::Kind::flag;
    }
    for (std::size_t i = 1; i < word.size(); ++i) {
        const OptionDef* option = find_option(options, std::string("-") + word[i]);
        if (option != nullptr && option->kind != OptionDef::Kind::flag) return i + 1 == word.size();
    }
    return false;
}

// Where the options end: at "--" or, if a command line may follow without it, at the first word that is not an option.
std::size_t end_of_options(const Options& options, const Args& command, const std::vector<std::string>& words) {
    const bool bare = command.trailing_def() && command.trailing_def()->bare;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == "--") return i;
        if (!bare) continue;
        if (words[i].size() < 2 || words[i][0] != '-') return i;
        if (takes_next(options, words[i]) && i + 1 < words.size() && words[i + 1] != "--") ++i;
    }
    return words.size();
}

}  // namespace

Status parse_words(const Args& globals, const Args& command, const std::vector<std::string>& words,
                   const Lookup& environment, const std::function<bool()>& stop_early, const OptionTable& table) {
    Options options;
    for (const OptionDef& option : command.options()) options.push_back(&option);
    for (const OptionDef& option : globals.options()) options.push_back(&option);
    const auto cut = words.begin() + static_cast<std::ptrdiff_t>(end_of_options(options, command, words));
    const std::vector<std::string> before(words.begin(), cut);
    const std::vector<std::string> after(cut != words.end() && *cut == "--" ? cut + 1 : cut, words.end());
    // If no command line may follow, "--" only ends the options, so that an argument may begin with '-'.
    const bool ends_options = !command.trailing_def() && !command.positionals().empty() && !after.empty();

    Shield shield(options);
    GDNCTL_TRY(shield.add_all(before));

    CLI::App app;
    app.set_help_flag();
    std::vector<std::vector<std::string>> values(options.size());
    std::vector<const CLI::Option*> seen;
    for (std::size_t i = 0; i < options.size(); ++i) {
        const std::string names = cli11_names(*options[i]);
        CLI::Option* option = options[i]->kind == OptionDef::Kind::flag
                                  ? app.add_flag(names)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                                  : app.add_option(names, values[i])->allow_extra_args(false);
        seen.push_back(option);
    }
    std::vector<std::string> positional_marks;
    app.add_option("arguments", positional_marks);
    try {
        std::vector<std::string> reversed(shield.words().rbegin(), shield.words().rend());
        app.parse(std::move(reversed));
    } catch (const CLI::Error& e) {
        return fail(ErrorKind::usage, e.what());
    }

    std::vector<std::string> positional_words;
    for (const std::string& marked : positional_marks) positional_words.push_back(shield.reveal(marked));
    for (std::size_t i = command.options().size(); i < options.size(); ++i) {
        GDNCTL_TRY(assign_uses(globals, *options[i], seen[i]->results(), shield, environment));
    }
    if (stop_early()) return {};
    GDNCTL_TRY_ASSIGN(const Given given, assign_command(command, seen, shield, environment, table));
    if (ends_options) positional_words.insert(positional_words.end(), after.begin(), after.end());
    GDNCTL_TRY(assign_positionals(command.positionals(), positional_words));
    GDNCTL_TRY(require_all(command, given, positional_words.size()));
    if (!ends_options) GDNCTL_TRY(assign_trailing(command, cut != words.end(), after));
    for (const auto& check : command.checks()) {
        if (Status done = check(); !done) return done;
    }
    return {};
}

}  // namespace gdnctl::cli
