#include <fmt/format.h>

#include "cli/completion.h"

namespace gdnctl::cli {

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

}  // namespace gdnctl::cli
