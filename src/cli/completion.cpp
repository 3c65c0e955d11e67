#include <algorithm>

#include <fmt/format.h>

#include "cli/reference.h"

namespace gdnctl::cli {

namespace {

// How the script's tables describe a value: as words, or as one of the kinds that _gdnctl_offer knows.
std::string values_of(const std::vector<std::string>& choices, Complete kind) {
    if (!choices.empty()) return "words " + text::join(choices, " ");
    if (kind == Complete::file) return "file";
    if (kind == Complete::directory) return "directory";
    const std::string_view word = completion_word(kind);
    return word.empty() ? "nothing" : fmt::format("ask {}", word);
}

std::string option_names(const Args& args) {
    std::string names;
    for (const OptionDef& option : args.options()) {
        for (const auto* list : {&option.names, &option.negated_names}) {
            for (const std::string& name : *list) names += (names.empty() ? "" : " ") + name;
        }
    }
    return names;
}

// "    'lint-log --format') REPLY='words text json';;"; global options have an empty command.
std::string value_rows(std::string_view command, const Args& args) {
    std::string rows;
    for (const OptionDef& option : args.options()) {
        if (option.kind == OptionDef::Kind::flag) continue;
        for (const std::string& name : option.names) {
            rows += fmt::format("    {}) REPLY={};;\n", single_quoted(fmt::format("{} {}", command, name)),
                                single_quoted(values_of(option.choices, option.complete)));
        }
    }
    return rows;
}

std::string positional_rows(const Described& one) {
    std::string rows;
    int index = 0;
    for (const PositionalDef& def : one.args.positionals()) {
        const std::string pattern = def.repeated ? single_quoted(fmt::format("{} ", one.command->name)) + "*"
                                                 : single_quoted(fmt::format("{} {}", one.command->name, index));
        rows += fmt::format("    {}) REPLY={};;\n", pattern, single_quoted(values_of(def.choices, def.complete)));
        ++index;
    }
    return rows;
}

std::string function(std::string_view name, std::string_view rows) {
    return fmt::format("{}() {{\n  REPLY=\n  case \"$1\" in\n{}  esac\n}}\n", name, rows);
}

// The part of the script that does not depend on the commands.
constexpr std::string_view k_bash_engine = R"sh(
_gdnctl_offer() { # KIND [WORDS]
  case "$1" in
    words) COMPREPLY=($(compgen -W "${*:2}" -- "$cur"));;
    file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"));;
    directory) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur"));;
    ask) COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "$2" -- "${words[@]}" 2>/dev/null)" -- "$cur"));;
  esac
  # `src:` goes on with a path.
  case "${#COMPREPLY[@]} ${COMPREPLY[0]}" in '1 '*:) compopt -o nospace 2>/dev/null;; esac
  # Bash replaces what follows the last of its word breaks only.
  local head=${cur%"${cur##*[:=]}"}
  [ -z "$head" ] || COMPREPLY=("${COMPREPLY[@]#"$head"}")
}

# The words before the cursor and, last, the one at the cursor, into the caller's `words`. Bash breaks words at : and =
# too; here --option=value is two words and builtin:name is one.
_gdnctl_words() {
  local i word glue=''
  words=()
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case "$word" in
      [:=]*)
        [ "${#words[@]}" -gt 0 ] || words=('')
        case "$word ${words[${#words[@]} - 1]}" in
          '= --'*) if [ "$i" = "$COMP_CWORD" ]; then words+=(''); fi; glue='';;
          *) words[${#words[@]} - 1]+=$word; glue=1;;
        esac;;
      *) if [ -n "$glue" ]; then words[${#words[@]} - 1]+=$word; else words+=("$word"); fi; glue='';;
    esac
  done
}

_gdnctl() {
  local IFS=$' \t\n' REPLY words cur previous='' command='' group='' index=0 i word
  COMPREPLY=()
  _gdnctl_words
  local last=$((${#words[@]} - 1))
  [ "$last" -ge 0 ] || return
  cur=${words[last]}
  [ "$last" -ge 1 ] && previous=${words[last - 1]}
  for ((i = 0; i < last; i++)); do
    word=${words[i]}
    case "$word" in
      --) return;;
      -*)
        _gdnctl_value "$command $word"; [ -n "$REPLY" ] || _gdnctl_value " $word"
        [ -n "$REPLY" ] && i=$((i + 1))
        continue;;
    esac
    if [ -n "$command" ]; then index=$((index + 1)); continue; fi
    if [ "$word" = help ] && [ -z "$group" ]; then continue; fi
    _gdnctl_is_command "${group:+$group }$word"
    if [ -n "$REPLY" ]; then command=${group:+$group }$word; else group=$word; fi
  done
  case "$previous" in
    -*)
      _gdnctl_value "$command $previous"; [ -n "$REPLY" ] || _gdnctl_value " $previous"
      if [ -n "$REPLY" ]; then _gdnctl_offer $REPLY; return; fi;;
  esac
  case "$cur" in
    -*)
      _gdnctl_options "$command"
      COMPREPLY=($(compgen -W "$REPLY $_gdnctl_globals" -- "$cur"));;
    *)
      if [ -n "$command" ]; then _gdnctl_positional "$command $index"; else _gdnctl_next "$group"; fi
      [ -n "$REPLY" ] && _gdnctl_offer $REPLY;;
  esac
}
complete -F _gdnctl gdnctl
)sh";

}  // namespace

std::string bash_completion(const Table& table, const Descriptions& all) {
    std::string values = value_rows("", all.globals);
    std::string options, positionals, commands;
    std::string first_words;
    for (const Described& one : all.commands) {
        const std::string name(one.command->name);
        if (name.find(' ') == std::string::npos) first_words += ' ' + name;
        commands += fmt::format("    {}) REPLY=1;;\n", single_quoted(name));
        options += fmt::format("    {}) REPLY={};;\n", single_quoted(name), single_quoted(option_names(one.args)));
        values += value_rows(name, one.args);
        positionals += positional_rows(one);
    }
    std::string next;
    for (const std::string& group : group_names(all)) {
        first_words += ' ' + group;
        std::string members;
        for (const Command* command : members_of(table, group)) {
            members += ' ' + std::string(command->name.substr(group.size() + 1));
        }
        next += fmt::format("    {}) REPLY={};;\n", single_quoted(group), single_quoted("words" + members));
    }
    next += fmt::format("    '') REPLY={};;\n", single_quoted("words help" + first_words));
    return "# bash completion for gdnctl; load it with: source <(gdnctl completion bash)\n"
           "_gdnctl_globals=" +
           single_quoted(option_names(all.globals)) + "\n" + function("_gdnctl_is_command", commands) +
           function("_gdnctl_next", next) + function("_gdnctl_options", options) + function("_gdnctl_value", values) +
           function("_gdnctl_positional", positionals) + std::string(k_bash_engine);
}

namespace {

// Escapes text for a specification of _arguments, in which colons separate the parts and brackets hold the help.
std::string escaped(std::string_view text, std::string_view special) {
    std::string out;
    for (const char c : text) {
        if (special.find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

// ":MESSAGE:ACTION"
std::string action(std::string_view name, const std::vector<std::string>& choices, Complete kind) {
    std::string act = " ";
    if (!choices.empty()) {
        act = "(" + text::join(choices, " ") + ")";
    } else if (kind == Complete::file) {
        act = "_files";
    } else if (kind == Complete::directory) {
        act = "_files -/";
    } else if (const std::string_view word = completion_word(kind); !word.empty()) {
        act = fmt::format("_gdnctl_ask {}", word);
    }
    return fmt::format(":{}:{}", escaped(name, ":[]\\"), act);
}

std::string option_specs(const Args& args) {
    std::string specs;
    for (const OptionDef& option : args.options()) {
        const bool is_flag = option.kind == OptionDef::Kind::flag;
        for (const auto* list : {&option.names, &option.negated_names}) {
            for (const std::string& name : *list) {
                std::string spec = option.kind == OptionDef::Kind::list ? "*" : "";
                spec += name;
                if (!is_flag) spec += name.starts_with("--") ? "=" : "+";
                spec += "[" + escaped(option.help, "[]\\") + "]";
                if (!is_flag) spec += action(option.value, option.choices, option.complete);
                specs += " \\\n        " + single_quoted(spec);
            }
        }
    }
    return specs;
}

std::string positional_specs(const Args& args) {
    std::string specs;
    for (const PositionalDef& def : args.positionals()) {
        std::string spec = action(def.name, def.choices, def.complete);
        if (def.repeated) {
            spec = "*" + spec;
        } else if (!def.required) {
            spec = ":" + spec;
        }
        specs += " \\\n        " + single_quoted(spec);
    }
    return specs;
}

std::string described_word(std::string_view word, std::string_view help) {
    return " \\\n        " + single_quoted(escaped(word, ":\\") + ":" + escaped(help, "\\"));
}

constexpr std::string_view k_zsh_engine = R"sh(
_gdnctl_ask() { # [options for compadd, which _arguments puts in] KIND
  local -a values
  values=(${(f)"$(_call_program values gdnctl __complete $argv[-1] -- ${(q)words} 2>/dev/null)"})
  compadd "${(@)argv[1,-2]}" -a values
}

_gdnctl() {
  local command='' group='' word i=2
  while ((i < CURRENT)); do
    word=$words[i]
    case $word in
      --config|--target|--color|-C) ((i++));;
      -*|help) ;;
      *)
        if _gdnctl_is_command "${group:+$group }$word"; then command="${group:+$group }$word"; break; fi
        group=$word;;
    esac
    ((i++))
  done
  if [[ -n $command ]]; then
    # _arguments sees the command's last word as the program.
    words=("${(@)words[i,-1]}")
    ((CURRENT -= i - 1))
    _gdnctl_arguments "$command"
  elif [[ $words[CURRENT] == -* ]] || ((i > CURRENT)); then
    _arguments -s $_gdnctl_globals
  else
    _gdnctl_next "$group"
  fi
}

if [[ $funcstack[1] == _gdnctl ]]; then _gdnctl "$@"; else compdef _gdnctl gdnctl; fi
)sh";

}  // namespace

std::string zsh_completion(const Table& table, const Descriptions& all) {
    std::string is_command, arguments, first_words;
    for (const Described& one : all.commands) {
        const std::string name(one.command->name);
        is_command += (is_command.empty() ? "" : "|") + single_quoted(name);
        arguments += fmt::format("    {})\n      _arguments -s -S $_gdnctl_globals{}{};;\n", single_quoted(name),
                                 option_specs(one.args), positional_specs(one.args));
        if (name.find(' ') == std::string::npos) first_words += described_word(name, one.command->summary);
    }
    std::string next;
    for (const std::string& group : group_names(all)) {
        first_words += described_word(group, table.group(group).purpose);
        std::string members;
        for (const Command* command : members_of(table, group)) {
            members += described_word(command->name.substr(group.size() + 1), command->summary);
        }
        next += fmt::format("    {}) list=({});;\n", single_quoted(group), members);
    }
    next += fmt::format("    '') list=({});;\n", first_words + described_word("help", "show the help of a command"));
    if (is_command.empty()) is_command = "''";
    return "#compdef gdnctl\n# zsh completion for gdnctl; load it with: source <(gdnctl completion zsh)\n"
           "typeset -ga _gdnctl_globals\n_gdnctl_globals=(" +
           option_specs(all.globals) + ")\n" + "_gdnctl_is_command() { case \"$1\" in " + is_command +
           ") return 0;; esac; return 1 }\n" + "_gdnctl_next() {\n  local -a list\n  case \"$1\" in\n" + next +
           "  esac\n  _describe command list\n}\n" + "_gdnctl_arguments() {\n  case \"$1\" in\n" + arguments +
           "  esac\n}\n" + std::string(k_zsh_engine);
}

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

std::string single_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'') {
            out += "'\\''";
        } else {
            out += c == '\n' ? ' ' : c;
        }
    }
    return out + "'";
}

std::vector<std::string> group_names(const Descriptions& all) {
    std::vector<std::string> names;
    for (const Described& one : all.commands) {
        const std::size_t space = one.command->name.find(' ');
        if (space == std::string_view::npos) continue;
        std::string first(one.command->name.substr(0, space));
        if (std::find(names.begin(), names.end(), first) == names.end()) names.push_back(std::move(first));
    }
    return names;
}

std::string_view completion_word(Complete kind) {
    switch (kind) {
        case Complete::target: return "target";
        case Complete::cluster: return "cluster";
        case Complete::local_job: return "local-job";
        case Complete::command_name: return "command";
        case Complete::contract: return "contract";
        case Complete::oracle_case: return "case";
        case Complete::kernel: return "kernel";
        case Complete::timed_kernel: return "timed-kernel";
        case Complete::outcome: return "outcome";
        case Complete::lint_rule: return "rule";
        case Complete::iteration: return "iteration";
        case Complete::prompt: return "prompt";
        case Complete::preset: return "preset";
        case Complete::document: return "document";
        case Complete::download: return "download";
        case Complete::nothing:
        case Complete::file:
        case Complete::directory: break;
    }
    return {};
}

std::string completion_script(const Table& table, Shell shell) {
    const auto all = describe_all(table);
    switch (shell) {
        case Shell::bash: return bash_completion(table, *all);
        case Shell::zsh: return zsh_completion(table, *all);
        case Shell::fish: return fish_completion(table, *all);
    }
    return {};
}

}  // namespace gdnctl::cli
