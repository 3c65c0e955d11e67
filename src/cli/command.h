// A command consists of an options struct, describe(Args&, Options&), run(const Options&, Context&) and its row, which
// names them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/result.h"
#include "platform/context.h"

namespace gdnctl::cli {

// One parsed call of a command.
class Invocation {
public:
    virtual ~Invocation() = default;
    virtual void describe(Args& args) = 0;
    virtual Result<ExitCode> run(Context& context) = 0;
};

struct Command {
    std::string_view name;     // "lint-log", "log append"
    std::string_view group;    // heading on the overview page; empty: hidden
    std::string_view summary;  // one line, no final period
    Tier tier;
    std::unique_ptr<Invocation> (*create)();
    bool reads_config = true;
    bool options_in_config = false;  // its options can be set in the configuration, in the table of its name
    // Called last, after printing the error (bad words, bad configuration) that prevented run().
    void (*never_ran)(const Error& error) = nullptr;
    std::string_view other_name = {};  // "job test"; empty: none
    bool report = false;               // agents get its output in agent mode: see cli/agent_mode.h

    constexpr bool is_named(std::string_view word) const {
        return word == name || (!other_name.empty() && word == other_name);
    }
    // The same row with a second name, which pages show beside the first.
    constexpr Command also(std::string_view word) const {
        Command changed = *this;
        changed.other_name = word;
        return changed;
    }
    // The same row for a command that must work, and start fast, whatever the configuration files contain. Its
    // Context::config is empty.
    constexpr Command without_config() const {
        Command changed = *this;
        changed.reads_config = false;
        return changed;
    }
    constexpr Command with_options_in_config() const {
        Command changed = *this;
        changed.options_in_config = true;
        return changed;
    }
    // The same row for a command that prints a report: not data, a log or the output of a job.
    constexpr Command prints_report() const {
        Command changed = *this;
        changed.report = true;
        return changed;
    }
    constexpr Command with_last_word(void (*word)(const Error& error)) const {
        Command changed = *this;
        changed.never_ran = word;
        return changed;
    }
};

// The page of a group: commands that share a first word ("log") or, with an empty name, the whole program.
struct Group {
    std::string_view name;
    std::string_view purpose;  // one line, no final period
    std::string_view example, example_text;
    std::array<std::string_view, 3> see_also = {};  // commands and "docs/PAGE.md"; empty entries are skipped
};

// A word that people try ("lint", "loop start"), and the command or global option that they mean by it. Several rows
// may share a word. Suggestions, `gdnctl help WORD` and completion use them.
struct Word {
    std::string_view typed, meant;
};

// Each row is defined in its command's source; the table only refers to it.
using TableRow = std::reference_wrapper<const Command>;

// All commands in the order of the overview, and the pages of their groups.
struct Table {
    std::vector<TableRow> commands;
    std::span<const Group> groups = {};
    std::span<const Word> words = {};
    // Checks that the target named by --target exists and can be read; nullptr: targets are unknown.
    Status (*check_target)(const Config& config, const std::filesystem::path& root) = nullptr;

    Table(std::span<const TableRow> rows, std::span<const Group> pages = {})
        : commands(rows.begin(), rows.end()), groups(pages) {}
    template <std::size_t N>
    Table(const TableRow (&rows)[N]) : Table(std::span(rows)) {}

    auto begin() const { return commands.begin(); }
    auto end() const { return commands.end(); }
    // A group without a page has only its name.
    Group group(std::string_view name) const {
        for (const Group& page : groups) {
            if (page.name == name) return page;
        }
        return {name, "a group of commands", {}, {}};
    }
};

namespace detail {

template <class Options>
Options options_of(Result<ExitCode> (*)(const Options&, Context&));

template <auto Describe, auto Run>
class TypedInvocation final : public Invocation {
public:
    void describe(Args& args) override { Describe(args, m_options); }
    Result<ExitCode> run(Context& context) override { return Run(m_options, context); }

private:
    decltype(options_of(Run)) m_options{};
};

template <auto Describe, auto Run>
std::unique_ptr<Invocation> create() {
    return std::make_unique<TypedInvocation<Describe, Run>>();
}

}  // namespace detail

// A row: make<describe, run>("lint-log", "Running log", "check the running log", Tier::git).
template <auto Describe, auto Run>
constexpr Command make(std::string_view name, std::string_view group, std::string_view summary, Tier tier) {
    return Command{name, group, summary, tier, &detail::create<Describe, Run>};
}

// Parses argv against the table, builds the Context, runs the command, prints any error, and returns the process's exit
// code. Catches all exceptions.
int run(const Table& table, int argc, char** argv);

}  // namespace gdnctl::cli
