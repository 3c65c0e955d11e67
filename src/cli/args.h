// How a command describes its options. The description is data: parsing, help, man pages, the CLI reference, shell
// completion and suggestions are all derived from it. No parser type is visible here; only cli/args_cli11.cpp knows
// CLI11.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/result.h"

namespace gdnctl::cli {

// The kind of value that shell completion offers.
enum class Complete {
    nothing,
    file,
    directory,
    target,
    cluster,
    contract,        // of the oracle
    oracle_case,     // a named case of the oracle
    kernel,          // builtin:NAME, and the prefixes of the other forms
    timed_kernel,    // the same for kernels that can be timed
    adapter,         // of Python kernels, by name
    outcome,         // of an iteration
    lint_rule,       // ID=SEVERITY
    lint_rule_id,    // ID
    iteration,       // in the target's log
    loop_iteration,  // of the loop in the log directory, or attempt of an evolve run
    attempt,         // of an evolve run
    evolve_run,      // id of an evolve run
    job,             // of any backend, that gdnctl knows
    contract_set,    // FIELD=VALUE of a contract
    case_or_set,     // a named case of the oracle, or a set of them
    prompt,          // of an iteration, by name
    preset,          // a directive, by name
    document,        // a prompt or a directive
    download         // a path in a repository, from what the default output folder contains
};

struct OptionSpec {
    std::string_view names = {};  // "--tail", "-f,--follow"; a negated form after a bar: "--wait|--no-wait"
    std::string_view value = {};  // placeholder for the value on help pages ("N", "PATH"); empty for flags
    std::string_view help = {};   // one sentence without a final period
    std::string_view group = "Options";
    std::string_view default_text = {};  // shown instead of the variable's initial value
    std::string_view env = {};           // environment variable read when the option is absent
    Complete complete = Complete::nothing;
    bool required = false;
    std::string_view unless = {};  // the option that makes a required one optional
    bool common = false;           // on the short page of -h, where a command has one
};

struct PositionalSpec {
    std::string_view name = {};  // "ID", "PATH"
    std::string_view help = {};
    Complete complete = Complete::nothing;
};

// `words`: names and placeholder, "-f,--follow" or "--tail N".
OptionSpec spec_of(std::string_view words, std::string_view help, OptionSpec more);

template <class E>
struct Choice {
    std::string_view name;
    E value;
    std::string_view help = {};
};

// One recorded option. `assign` parses and stores one occurrence: the last one wins, and vectors collect all.
struct OptionDef {
    enum class Kind { flag, value, list };
    Kind kind = Kind::value;
    std::vector<std::string> names;          // "-f", "--follow"; the last long one is canonical
    std::vector<std::string> negated_names;  // "--no-wait"
    std::string value, help, group, default_text, env, unless;
    std::vector<std::string> initial;  // the words that stand for the value before any is given
    std::vector<std::string> choices;  // closed set of values, for errors, suggestions and completion
    std::vector<std::string> choice_help;
    Complete complete = Complete::nothing;
    bool required = false, common = false;
    std::function<Status(std::string_view)> assign;  // flags get "true" or "false"

    // The name for help and messages: the last long one, or the short one if there is no other.
    const std::string& canonical() const;
};

struct PositionalDef {
    std::string name, help;
    std::vector<std::string> choices;
    Complete complete = Complete::nothing;
    bool required = true;
    bool repeated = false;
    bool leading = false;  // may be left out before others: a word that is no choice belongs to the next one
    bool bare = false;  // for trailing words: they may also begin without `--`, at the first word that is not an option
    std::function<Status(std::string_view)> assign;
};

// true/yes/on/1, false/no/off/0 in any case; nullopt: anything else. Only this function knows these words.
std::optional<bool> parse_truth(std::string_view word);

// A value that was given to an option, be it overridden by another.
struct GivenOption {
    std::string option, value;  // canonical name; flags have "true" or "false"
    std::string origin;         // "option --model", "gdnctl.toml:5"
    bool typed = false;         // on the command line
};

struct ExitNote {
    int code;
    std::string text;
};

struct Example {
    std::string command;
    std::string text;  // what it does; may be empty
};

// Records what describe() declares.
class Args {
public:
    void flag(bool& target, const OptionSpec& spec);
    void count(int& target, const OptionSpec& spec);  // a flag that may be repeated (-vv)
    void option(std::string& target, const OptionSpec& spec);
    void option(std::optional<std::string>& target, const OptionSpec& spec);
    void option(std::int64_t& target, const OptionSpec& spec);
    void option(std::optional<std::int64_t>& target, const OptionSpec& spec);
    void option(double& target, const OptionSpec& spec);
    void option(std::optional<double>& target, const OptionSpec& spec);
    void option(std::vector<std::string>& target, const OptionSpec& spec);  // repeatable, one value per use

    template <class E>
    void option(E& target, std::type_identity_t<std::span<const Choice<E>>> choices, const OptionSpec& spec) {
        std::vector<std::string> names, help;
        std::string initial;
        std::vector<E> values;
        for (const auto& c : choices) {
            names.emplace_back(c.name);
            help.emplace_back(c.help);
            values.push_back(c.value);
            if (c.value == target) initial = c.name;
        }
        add_choice(spec, std::move(names), std::move(help), std::move(initial),
                   [&target, values](std::size_t index) { target = values[index]; });
    }

    // The short forms: args.option(options.tail, "--tail N", "print the last N lines").
    void flag(bool& target, std::string_view names, std::string_view help, const OptionSpec& more = {}) {
        flag(target, spec_of(names, help, more));
    }
    template <class T>
    void option(T& target, std::string_view words, std::string_view help, const OptionSpec& more = {}) {
        option(target, spec_of(words, help, more));
    }
    template <class E>
    void option(E& target, std::type_identity_t<std::span<const Choice<E>>> choices, std::string_view words,
                std::string_view help, const OptionSpec& more = {}) {
        option<E>(target, choices, spec_of(words, help, more));
    }
    template <class T>
    void positional(T& target, std::string_view name, std::string_view help, PositionalSpec more = {}) {
        positional(target, PositionalSpec{name, help, more.complete});
    }

    void positional(std::string& target, const PositionalSpec& spec);                 // required
    void positional(std::optional<std::string>& target, const PositionalSpec& spec);  // optional
    void positional(std::vector<std::string>& target, const PositionalSpec& spec);    // zero or more
    // A required word from a closed set ("gdn" in `oracle compare gdn`).
    void positional(std::string& target, std::span<const std::string_view> choices, const PositionalSpec& spec);
    // The same, for the first argument: it may be left out, and is then empty.
    void leading(std::string& target, std::span<const std::string_view> choices, const PositionalSpec& spec);
    // Everything after `--`, unchanged; if `required`, a missing `--` is an error.
    void trailing(std::vector<std::string>& target, bool required, const PositionalSpec& spec);

    // A command line: the words after the options, with or without `--` before them, unchanged.
    void command_line(std::vector<std::string>& target, bool required, const PositionalSpec& spec);

    // Sets `used` if any option recorded so far whose name starts with `prefix` is given, whatever its value.
    void note_use(std::string_view prefix, bool& used);

    // Collects every value that the command line, the environment and the configuration give to the command's options.
    void note_given(std::vector<GivenOption>& given) { m_given = &given; }
    void add_given(GivenOption one) const {
        if (m_given != nullptr) m_given->push_back(std::move(one));
    }

    // Prose below the synopsis; paragraphs are wrapped.
    void about(std::string_view text);
    void example(std::string_view command, std::string_view text = {});
    // Replaces or adds an exit code on the help page. 0, 2, 8, 70 and "130, 143" are always listed; text for 130 covers
    // both.
    void exit_code(int code, std::string_view text);
    void see_also(std::string_view name) { m_see_also.emplace_back(name); }
    void see_also(std::initializer_list<std::string_view> names) {
        for (const std::string_view name : names) see_also(name);
    }
    // Runs after parsing and before run(), to check combinations of options.
    void check(std::function<Status()> rule);

    const std::vector<OptionDef>& options() const { return m_options; }
    const std::vector<PositionalDef>& positionals() const { return m_positionals; }
    const std::optional<PositionalDef>& trailing_def() const { return m_trailing; }
    const std::vector<std::string>& paragraphs() const { return m_paragraphs; }
    const std::vector<Example>& examples() const { return m_examples; }
    const std::vector<ExitNote>& exit_notes() const { return m_exit_notes; }
    const std::vector<std::string>& see_also_names() const { return m_see_also; }
    const std::vector<std::function<Status()>>& checks() const { return m_checks; }

private:
    void add_choice(const OptionSpec& spec, std::vector<std::string> names, std::vector<std::string> help,
                    std::string initial, std::function<void(std::size_t)> store);

    std::vector<OptionDef> m_options;
    std::vector<PositionalDef> m_positionals;
    std::optional<PositionalDef> m_trailing;
    std::vector<std::string> m_paragraphs;
    std::vector<Example> m_examples;
    std::vector<ExitNote> m_exit_notes;
    std::vector<std::string> m_see_also;
    std::vector<std::function<Status()>> m_checks;
    std::vector<GivenOption>* m_given = nullptr;
};

}  // namespace gdnctl::cli
