#include <fmt/format.h>

#include "cli/completion.h"

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

}  // namespace gdnctl::cli
