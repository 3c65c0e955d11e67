#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/reference.h"

namespace gdnctl::cli {

namespace {

// What is being typed: the command and what of it came before the word at the cursor.
struct Typed {
    const Command* command = nullptr;
    std::string group;               // the first words of a name, with hyphens between them
    std::vector<std::string> words;  // arguments of the command
    std::unique_ptr<Invocation> invocation;
    Args args;
    GlobalFlags flags;
    Args globals;

    const OptionDef* option(std::string_view name) const {
        for (const Args* of : {&std::as_const(args), &globals}) {
            for (const OptionDef& one : of->options()) {
                if (std::find(one.names.begin(), one.names.end(), name) != one.names.end()) return &one;
            }
        }
        return nullptr;
    }

    // A word that is no option.
    void take(const Table& table, const std::string& word) {
        if (command != nullptr) {
            words.push_back(word);
        } else if (word != "help" || !group.empty()) {
            const std::string hyphened = group.empty() ? word : group + "-" + word;
            for (const Command& one : table) {
                if ((one.is_named(group + " " + word) || one.is_named(hyphened)) && !is_hidden(one)) command = &one;
            }
            group = hyphened;
            if (command == nullptr) return;
            invocation = command->create();
            invocation->describe(args);
        }
    }
};

void add_values(const std::string& head, const std::vector<std::string>& choices, Complete kind, Completions& all) {
    for (const std::string& choice : choices) all.words.push_back({head + choice, {}});
    all.values = choices.empty() ? kind : Complete::nothing;
    all.head = head;
}

void add_options(const Typed& typed, Completions& all) {
    for (const Args* of : {&typed.args, &typed.globals}) {
        for (const OptionDef& one : of->options()) {
            for (const auto* names : {&one.names, &one.negated_names}) {
                for (const std::string& name : *names) all.words.push_back({name, one.help});
            }
        }
    }
}

void add_arguments(const Typed& typed, Completions& all) {
    const auto& list = typed.args.positionals();
    if (list.empty()) return;
    std::size_t at = typed.words.size();
    if (list[0].leading) {
        const auto& choices = list[0].choices;
        const bool left_out = at > 0 && std::find(choices.begin(), choices.end(), typed.words[0]) == choices.end();
        if (left_out) ++at;
    }
    const PositionalDef& def = list[std::min(at, list.size() - 1)];
    if (at >= list.size() && !def.repeated) return;
    add_values({}, def.choices, def.complete, all);
    if (at == 0 && def.leading && list.size() > 1) all.values = list[1].complete;
}

// Commands in place of a word that only means them: `lint` becomes lint-log. Names of two words would be quoted.
void add_meant(const Table& table, const std::string& last, Completions& all) {
    for (const std::string_view name : meanings(table, last)) {
        for (const Command& one : table) {
            if (one.name == name && name.find(' ') == std::string_view::npos) {
                all.instead.push_back({std::string(one.name), std::string(one.summary)});
            }
        }
    }
}

void add_commands(const Table& table, const std::string& group, Completions& all) {
    if (!group.empty()) {
        for (const Member& one : members_of(table, group)) {
            all.words.push_back({std::string(one.word), std::string(one.command->summary)});
        }
        for (const Command& one : table) {
            if (is_hidden(one) || !one.name.starts_with(group + "-") || one.other_name.starts_with(group + " "))
                continue;
            all.words.push_back({std::string(one.name.substr(group.size() + 1)), std::string(one.summary)});
        }
        return;
    }
    all.words.push_back({"help", "show the help of a command"});
    for (const Command& one : table) {
        const bool in_group = one.name.find(' ') != std::string_view::npos;
        if (!is_hidden(one) && !in_group) all.words.push_back({std::string(one.name), std::string(one.summary)});
    }
    for (const std::string& name : group_names(table)) {
        all.words.push_back({name, std::string(table.group(name).purpose)});
    }
}

}  // namespace

Completions complete(const Table& table, const std::vector<std::string>& words) {
    Completions all;
    if (words.empty()) return all;
    Typed typed;
    describe_globals(typed.globals, typed.flags);
    const OptionDef* waits = nullptr;  // for its value
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const std::string& word = words[i];
        if (std::exchange(waits, nullptr) != nullptr) continue;
        if (word == "--") return all;
        if (!word.starts_with('-')) {
            typed.take(table, word);
        } else if (const OptionDef* option = typed.option(word)) {
            if (option->kind != OptionDef::Kind::flag) waits = option;
        }
    }
    const std::string& last = words.back();
    const std::size_t equals = last.starts_with("--") ? last.find('=') : std::string::npos;
    if (waits != nullptr) {
        add_values({}, waits->choices, waits->complete, all);
    } else if (equals != std::string::npos) {
        const OptionDef* option = typed.option(last.substr(0, equals));
        if (option != nullptr) add_values(last.substr(0, equals + 1), option->choices, option->complete, all);
    } else if (last.starts_with('-')) {
        add_options(typed, all);
    } else if (typed.command != nullptr) {
        add_arguments(typed, all);
    } else {
        add_commands(table, typed.group, all);
        if (typed.group.empty()) add_meant(table, last, all);
    }
    return all;
}

namespace {

constexpr std::string_view k_bash = R"sh(# bash completion for gdnctl; load it with: source <(gdnctl completion bash)
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
  local IFS=$'\n' words cur line
  COMPREPLY=()
  _gdnctl_words
  [ "${#words[@]}" -gt 0 ] || return
  cur=${words[${#words[@]} - 1]}
  while read -r line; do
    case "$line" in
      :file) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$cur"));;
      :directory) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$cur"));;
      *) COMPREPLY+=("${line%%$'\t'*}");;
    esac
  done < <("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2>/dev/null)
  # `src:` and `src:folder/` go on with a path, `chunk=` with a number.
  case "${#COMPREPLY[@]} ${COMPREPLY[0]}" in '1 '*[:/=]) compopt -o nospace 2>/dev/null;; esac
  # Bash replaces what follows the last of its word breaks only.
  local head=${cur%"${cur##*[:=]}"}
  [ -z "$head" ] || COMPREPLY=("${COMPREPLY[@]#"$head"}")
}
complete -o nosort -F _gdnctl gdnctl 2>/dev/null || complete -F _gdnctl gdnctl
)sh";

constexpr std::string_view k_zsh = R"sh(#compdef gdnctl
# zsh completion for gdnctl; load it with: source <(gdnctl completion zsh)
_gdnctl() {
  local line ret=1
  local -a found unfinished
  local shown
  for line in ${(f)"$(_call_program words gdnctl __complete -- "${(@q)words[2,CURRENT]}" 2>/dev/null)"}; do
    case $line in
      :file) compset -P '--*='; _files && ret=0;;
      :directory) compset -P '--*='; _files -/ && ret=0;;
      *)
        shown="${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}"
        case ${line%%$'\t'*} in
          *[:/=]) unfinished+=("$shown");;
          *) found+=("$shown");;
        esac;;
    esac
  done
  # -U: gdnctl has chosen them, and some replace what was typed.
  (($#found)) && _describe -V value found -U && ret=0
  (($#unfinished)) && _describe -V value unfinished -U -S '' && ret=0
  return ret
}
if [[ $funcstack[1] == _gdnctl ]]; then _gdnctl "$@"; else compdef _gdnctl gdnctl; fi
)sh";

constexpr std::string_view k_fish = R"sh(# fish completion for gdnctl; load it with: gdnctl completion fish | source
function __gdnctl_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l head (string match -r -- '^--[^=]*=' "$token")
    for line in (gdnctl __complete -- $words[2..-1] "$token" 2>/dev/null)
        switch $line
            case :file
                for path in (__fish_complete_path (string replace -- "$head" '' "$token"))
                    printf '%s\n' "$head$path"
                end
            case :directory
                for path in (__fish_complete_directories (string replace -- "$head" '' "$token"))
                    printf '%s\n' "$head$path"
                end
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -k -c gdnctl -f -a '(__gdnctl_complete)'
)sh";

}  // namespace

std::string_view completion_script(Shell shell) {
    return shell == Shell::bash ? k_bash : shell == Shell::zsh ? k_zsh : k_fish;
}

}  // namespace gdnctl::cli
