#include <fmt/format.h>

#include "cli/completion.h"

namespace gdnctl::cli {

namespace {

// In fish's single quotes only \ and ' are special.
std::string fish_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'' || c == '\\') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out + "'";
}

std::string fish_values(const std::vector<std::string>& choices, Complete kind) {
    if (!choices.empty()) return " -x -a " + fish_quoted(text::join(choices, " "));
    if (kind == Complete::file) return " -r -F";
    if (kind == Complete::directory) return " -x -a '(__fish_complete_directories)'";
    const std::string_view word = completion_word(kind);
    if (word.empty()) return " -x";
    return fmt::format(" -x -a '(gdnctl __complete {} -- (commandline -opc) 2>/dev/null)'", word);
}

std::string option_lines(std::string_view condition, const Args& args) {
    std::string lines;
    for (const OptionDef& option : args.options()) {
        for (const auto* list : {&option.names, &option.negated_names}) {
            std::string names;
            for (const std::string& name : *list) {
                names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            }
            if (names.empty()) continue;
            lines +=
                fmt::format("complete -c gdnctl{}{}{} -d {}\n", condition, names,
                            option.kind == OptionDef::Kind::flag ? "" : fish_values(option.choices, option.complete),
                            fish_quoted(option.help));
        }
    }
    return lines;
}

constexpr std::string_view k_fish_engine =
    R"sh(# fish completion for gdnctl; load it with: gdnctl completion fish | source
# Prints the bare words before the cursor, without options, values of global options and `help`.
function __gdnctl_words
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case --config --target --color -C
                set skip 1
            case '-*' help
            case '*'
                echo $word
        end
    end
end
# True when the bare words begin with the given ones.
function __gdnctl_in
    set -l words (__gdnctl_words)
    test (count $words) -ge (count $argv); or return 1
    for i in (seq (count $argv))
        test "$words[$i]" = "$argv[$i]"; or return 1
    end
end
# True when the bare words are exactly the given ones.
function __gdnctl_at
    set -l words (__gdnctl_words)
    test (count $words) -eq (count $argv); or return 1
    test (count $argv) -eq 0; or __gdnctl_in $argv
end
complete -c gdnctl -f
)sh";

}  // namespace

std::string fish_completion(const Table& table, const Descriptions& all) {
    std::string out(k_fish_engine);
    out += option_lines("", all.globals);
    for (const std::string& group : group_names(all)) {
        out += fmt::format("complete -c gdnctl -n __gdnctl_at -a {} -d {}\n", fish_quoted(group),
                           fish_quoted(table.group(group).purpose));
        for (const Command* command : members_of(table, group)) {
            out += fmt::format("complete -c gdnctl -n '__gdnctl_at {}' -a {} -d {}\n", group,
                               fish_quoted(command->name.substr(group.size() + 1)), fish_quoted(command->summary));
        }
    }
    for (const Described& one : all.commands) {
        const std::string name(one.command->name);
        if (name.find(' ') == std::string::npos) {
            out += fmt::format("complete -c gdnctl -n __gdnctl_at -a {} -d {}\n", fish_quoted(name),
                               fish_quoted(one.command->summary));
        }
        const std::string condition = fmt::format(" -n '__gdnctl_in {}'", name);
        out += option_lines(condition, one.args);
        for (const PositionalDef& def : one.args.positionals()) {
            out += fmt::format("complete -c gdnctl{}{}\n", condition, fish_values(def.choices, def.complete));
        }
    }
    return out;
}

}  // namespace gdnctl::cli
