#include "cli/dispatch.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::cli {

namespace {

constexpr std::array k_color_modes = {
    Choice<ColorMode>{"auto", ColorMode::automatic, "when the stream is a terminal"},
    Choice<ColorMode>{"always", ColorMode::always, "even when the stream is a pipe or a file"},
    Choice<ColorMode>{"never", ColorMode::never, "never"},
};

constexpr std::string_view k_group = "Global options";

}  // namespace

void describe_globals(Args& args, GlobalFlags& flags) {
    args.flag(flags.common.json, "--json", "write one JSON object to stdout", {.group = k_group});
    args.flag(flags.common.quiet, "-q,--quiet", "show warnings and errors only", {.group = k_group});
    args.count(flags.common.verbose, {.names = "-v,--verbose", .help = "show more detail", .group = k_group});
    args.option<ColorMode>(flags.color, k_color_modes, "--color WHEN",
                           "colour the output; NO_COLOR in the environment means never", {.group = k_group});
    args.option(flags.common.config_file, "--config FILE",
                "read this configuration file instead of the gdnctl.toml found upward",
                {.group = k_group, .env = "GDNCTL_CONFIG", .complete = Complete::file});
    args.option(
        flags.common.target, "--target NAME", "target to optimise: a [targets.NAME] table, or a built-in one",
        {.group = k_group, .default_text = "from the configuration, or detected", .complete = Complete::target});
    args.option(flags.directory, "-C DIR", "run as if started in DIR",
                {.group = k_group, .complete = Complete::directory});
    args.flag(flags.help, "-h,--help", "show this help", {.group = k_group});
    args.flag(flags.version, "-V,--version", "show the version", {.group = k_group});
}

namespace {

bool is_in_group(std::string_view name, std::string_view group) {
    return name.size() > group.size() && name.starts_with(group) && name[group.size()] == ' ';
}

// The names under which overviews and suggestions show the command; a hidden one has none.
std::vector<std::string_view> shown_names(const Command& command) {
    if (is_hidden(command)) return {};
    if (command.other_name.empty()) return {command.name};
    return {command.name, command.other_name};
}

const Command* find_command(const Table& table, std::string_view name) {
    const auto it = std::find_if(table.begin(), table.end(), [&](const Command& c) { return c.is_named(name); });
    return it == table.end() ? nullptr : &it->get();
}

bool is_group(const Table& table, std::string_view word) {
    return std::any_of(table.begin(), table.end(),
                       [&](const Command& c) { return is_in_group(c.name, word) || is_in_group(c.other_name, word); });
}

struct GlobalNames {
    std::vector<std::string> all, with_value;
};

GlobalNames global_names() {
    GlobalFlags flags;
    Args globals;
    describe_globals(globals, flags);
    GlobalNames names;
    for (const OptionDef& option : globals.options()) {
        names.all.insert(names.all.end(), option.names.begin(), option.names.end());
        if (option.kind == OptionDef::Kind::flag) continue;
        names.with_value.insert(names.with_value.end(), option.names.begin(), option.names.end());
    }
    return names;
}

// Positions of the words, up to `--`, that are neither options nor values of a global option.
std::vector<std::size_t> bare_words(const std::vector<std::string>& words, std::size_t from, std::size_t wanted) {
    const std::vector<std::string> valued = global_names().with_value;
    const auto takes_value = [&](const std::string& word) {
        return std::find(valued.begin(), valued.end(), word) != valued.end();
    };
    std::vector<std::size_t> found;
    for (std::size_t i = from; i < words.size() && words[i] != "--" && found.size() < wanted; ++i) {
        if (words[i].size() > 1 && words[i][0] == '-') {
            if (takes_value(words[i])) ++i;
            continue;
        }
        found.push_back(i);
    }
    return found;
}

std::vector<std::string> without(const std::vector<std::string>& words, std::span<const std::size_t> positions) {
    std::vector<std::string> rest;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (std::find(positions.begin(), positions.end(), i) == positions.end()) rest.push_back(words[i]);
    }
    return rest;
}

// Typed with spaces instead of hyphens: "ray test", "dev tpu list".
struct Spaced {
    const Command* command = nullptr;
    std::size_t words = 0;
};

Spaced find_spaced(const Table& table, const std::vector<std::string>& words, std::span<const std::size_t> at) {
    Spaced found;
    std::string name;
    for (std::size_t i = 0; i < at.size(); ++i) {
        name += (i == 0 ? "" : "-") + words[at[i]];
        const Command* command = i == 0 ? nullptr : find_command(table, name);
        if (command != nullptr && !is_hidden(*command)) found = {command, i + 1};
    }
    return found;
}

std::string did_you_mean(const std::vector<std::string_view>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += fmt::format("{}`gdnctl {}`", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
    }
    return fmt::format("did you mean {}?", text);
}

// "dev-tpu" begins the names of several commands; empty: it does not.
std::string begun_names(const Table& table, std::string_view typed) {
    std::vector<std::string> names;
    for (const Command& command : table) {
        if (!is_hidden(command) && command.name.starts_with(std::string(typed) + "-")) {
            names.push_back(fmt::format("`gdnctl {}`", command.name));
        }
    }
    return names.size() < 2 ? std::string() : "the commands are " + text::join(names, ", ");
}

std::string hint_for(const Table& table, std::string_view typed, std::string_view second) {
    const std::string both_typed = fmt::format("{} {}", typed, second);
    if (const auto meant = meanings(table, second.empty() ? typed : both_typed); !meant.empty()) {
        return did_you_mean(meant);
    }
    std::vector<std::string> names;
    for (const Command& command : table) {
        for (const std::string_view name : shown_names(command)) names.emplace_back(name);
    }
    std::string spaced(typed);  // "evolve-log"
    std::replace(spaced.begin(), spaced.end(), '-', ' ');
    if (std::find(names.begin(), names.end(), spaced) != names.end()) return did_you_mean({spaced});
    if (!second.empty()) {
        const auto both = text::nearest(both_typed, names);
        if (both && both->find(' ') != std::string::npos) return did_you_mean({*both});
        if (const auto hyphened = text::nearest(fmt::format("{}-{}", typed, second), names);
            hyphened && hyphened->starts_with(std::string(typed) + "-")) {
            return did_you_mean({*hyphened});
        }
    }
    if (const auto meant = meanings(table, typed); !meant.empty()) return did_you_mean(meant);
    if (const std::string begun = begun_names(table, typed); !begun.empty()) return begun;
    std::erase_if(names, [](const std::string& name) { return name.find(' ') != std::string::npos; });
    const std::vector<std::string> groups = group_names(table);
    names.insert(names.end(), groups.begin(), groups.end());
    names.emplace_back("help");
    for (const Word& word : table.words) names.emplace_back(word.typed);
    const auto near = text::nearest(typed, names);
    if (!near) return "`gdnctl --help` lists the commands";
    const auto meant = meanings(table, *near);
    return did_you_mean(meant.empty() ? std::vector<std::string_view>{*near} : meant);
}

// `--colr never lint-log`: the value of a misspelt option is where the command is expected.
tl::unexpected<Error> unknown_command(const Table& table, const std::vector<std::string>& words, std::size_t at,
                                      std::string_view second) {
    const std::string before = at > 0 ? words[at - 1] : std::string();
    const std::vector<std::string> known = global_names().all;
    if (before.starts_with("--") && before.find('=') == std::string::npos &&
        std::find(known.begin(), known.end(), before) == known.end()) {
        const auto meant = text::nearest(before, known);
        return fail(ErrorKind::usage, fmt::format("unknown option '{}'", before),
                    meant ? fmt::format("did you mean `{}`?", *meant) : "`gdnctl --help` lists the global options");
    }
    return fail(ErrorKind::usage, fmt::format("unknown command '{}'", words[at]), hint_for(table, words[at], second));
}

tl::unexpected<Error> unknown_member(const Table& table, const std::string& group, const std::string& word) {
    if (const auto words = meanings(table, group + ' ' + word); !words.empty()) {
        return fail(ErrorKind::usage, fmt::format("unknown command '{} {}'", group, word), did_you_mean(words));
    }
    std::vector<std::string> members;
    for (const Member& member : members_of(table, group)) members.emplace_back(member.word);
    const auto meant = text::nearest(word, members);
    return fail(ErrorKind::usage, fmt::format("unknown command '{} {}'", group, word),
                meant ? fmt::format("did you mean `gdnctl {} {}`?", group, *meant)
                      : fmt::format("`gdnctl {}` has: {}", group, text::join(members, ", ")));
}

// What `gdnctl help WORD` shows; nullptr: the table does not have the word.
const Command* find_meant(const Table& table, std::string_view word) {
    for (const std::string_view name : meanings(table, word)) {
        if (const Command* command = find_command(table, name)) return command;
    }
    return nullptr;
}

}  // namespace

std::vector<std::string_view> meanings(const Table& table, std::string_view typed) {
    std::vector<std::string_view> found;
    for (const Word& word : table.words) {
        if (word.typed == typed) found.push_back(word.meant);
    }
    if (!found.empty()) return found;
    if (is_group(table, typed)) return {};
    // `append` alone: the second word of only one command.
    for (const Command& command : table) {
        for (const std::string_view name : shown_names(command)) {
            if (name.ends_with(" " + std::string(typed))) found.push_back(name);
        }
    }
    return found.size() == 1 ? found : std::vector<std::string_view>();
}

std::string other_name_note(const Command& command) {
    return command.other_name.empty() ? std::string() : fmt::format(" (also: {})", command.other_name);
}

std::vector<std::string> group_names(const Table& table) {
    std::vector<std::string> groups;
    for (const Command& command : table) {
        for (const std::string_view name : shown_names(command)) {
            const std::size_t space = name.find(' ');
            if (space == std::string_view::npos) continue;
            std::string group(name.substr(0, space));
            if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(std::move(group));
        }
    }
    return groups;
}

std::vector<Member> members_of(const Table& table, std::string_view group) {
    std::vector<Member> members;
    for (const Command& command : table) {
        for (const std::string_view name : shown_names(command)) {
            if (is_in_group(name, group)) members.push_back({&command, name, name.substr(group.size() + 1)});
        }
    }
    return members;
}

Result<Dispatch> dispatch(const Table& table, const std::vector<std::string>& words) {
    Dispatch result;
    constexpr std::size_t k_longest = 4;  // words of "help dev tpu list"
    std::vector<std::size_t> at = bare_words(words, 0, k_longest);
    std::vector<std::size_t> taken;
    if (!at.empty() && words[at[0]] == "help") {
        result.help = true;
        taken.push_back(at[0]);
        at.erase(at.begin());
    }
    if (at.empty()) {
        result.words = without(words, taken);
        return result;
    }
    const std::string& first = words[at[0]];
    const std::string second = at.size() > 1 ? words[at[1]] : std::string();
    taken.push_back(at[0]);
    if (const Command* pair = second.empty() ? nullptr : find_command(table, first + ' ' + second)) {
        result.command = pair;
        taken.push_back(at[1]);
    } else if (const Command* single = find_command(table, first)) {
        result.command = single;
    } else if (const Spaced spaced = find_spaced(table, words, at); spaced.command != nullptr) {
        result.command = spaced.command;
        taken.insert(taken.end(), at.begin() + 1, at.begin() + static_cast<std::ptrdiff_t>(spaced.words));
    } else if (const Command* meant = result.help ? find_meant(table, first) : nullptr) {
        result.command = meant;
    } else if (!is_group(table, first)) {
        return unknown_command(table, words, at[0], second);
    } else if (!second.empty()) {
        return unknown_member(table, first, second);
    } else {
        result.group = first;
    }
    if (const Command* named = result.command) {
        result.name = named->other_name == first + ' ' + second ? named->other_name : named->name;
    }
    result.words = without(words, taken);
    return result;
}

}  // namespace gdnctl::cli
