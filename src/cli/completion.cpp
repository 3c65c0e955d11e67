#include "cli/completion.h"

#include <algorithm>

namespace gdnctl::cli {

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
