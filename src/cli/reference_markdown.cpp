#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/completion.h"
#include "cli/described.h"
#include "cli/help.h"
#include "cli/reference.h"
#include "core/text.h"

namespace gdnctl::cli {

namespace {

constexpr std::string_view k_folder = "docs/reference/";  // folder of the page

// Turns a heading into an anchor as common hosts do.
std::string anchor(std::string_view heading) {
    std::string id = text::to_lower(heading);
    std::replace(id.begin(), id.end(), ' ', '-');
    return id;
}

// On one line, without tags.
std::string plain(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<') {
            out += "&lt;";
        } else {
            out += c == '\n' ? ' ' : c;
        }
    }
    return out;
}

std::string item(std::string_view code, std::string_view text) {
    return fmt::format("- `{}`: {}\n", code, plain(text));
}

std::string option_list(const Args& args, std::string_view group) {
    std::string out;
    for (const OptionDef& option : args.options()) {
        if (option.group != group) continue;
        out += item(option_label(option), option_text(option));
        for (std::size_t i = 0; i < option.choices.size(); ++i) {
            if (i >= option.choice_help.size() || option.choice_help[i].empty()) continue;
            out += "  " + item(option.choices[i], option.choice_help[i]);
        }
    }
    return out;
}

std::string argument_list(const Args& args) {
    std::string out;
    const auto add = [&](const PositionalDef& def, const std::string& name) {
        out +=
            item(name, def.choices.empty() ? def.help : fmt::format("{}: {}", def.help, text::join(def.choices, ", ")));
    };
    for (const PositionalDef& def : args.positionals()) add(def, def.name);
    if (const auto& def = args.trailing_def()) add(*def, "-- " + def->name);
    return out;
}

std::string exit_code_list(const std::vector<ExitRow>& rows, const std::vector<ExitRow>& common = {}) {
    std::string out;
    for (const ExitRow& exit : rows) {
        const auto same = [&](const ExitRow& one) { return one.codes == exit.codes && one.text == exit.text; };
        if (std::none_of(common.begin(), common.end(), same)) out += item(exit.codes, exit.text);
    }
    return out.empty() ? out : "\n**Exit codes**\n" + out;
}

std::string see_also(const std::vector<std::string>& names) {
    std::vector<std::string> links;
    for (const std::string& name : names) {
        if (name.starts_with(k_folder)) {
            links.push_back(fmt::format("[{}]({})", name, name.substr(k_folder.size())));
        } else if (name.starts_with("docs/")) {
            links.push_back(fmt::format("[{}](../{})", name, name.substr(5)));
        } else {
            links.push_back(fmt::format("[gdnctl {}](#gdnctl-{})", name, anchor(name)));
        }
    }
    return links.empty() ? std::string() : "\nSee also: " + text::join(links, ", ") + "\n";
}

// The options of a group, or a reference to the command that has the same ones. `shown` holds what was printed before.
std::string option_group(const Described& one, const std::string& group, std::map<std::string, std::string>& shown) {
    const std::string list = option_list(one.args, group);
    const auto [first, added] = shown.emplace(group + list, std::string(one.command->name));
    if (added) return fmt::format("\n**{}**\n{}", group, list);
    return fmt::format("\n**{}**: as for [gdnctl {}](#gdnctl-{}).\n", group, first->second, anchor(first->second));
}

std::string section(const Described& one, const Table& table, std::map<std::string, std::string>& shown) {
    std::string out = fmt::format("\n## gdnctl {}\n\n{}: `{}`\n", one.command->name, one.command->summary,
                                  synopsis(one.command->name, one.args));
    for (const std::string& paragraph : one.args.paragraphs()) out += '\n' + paragraph + '\n';
    if (!one.args.examples().empty()) {
        out += "\n```sh\n";
        for (const Example& example : one.args.examples()) {
            if (!example.text.empty()) out += "# " + example.text + '\n';
            out += example.command + '\n';
        }
        out += "```\n";
    }
    if (!one.args.positionals().empty() || one.args.trailing_def()) out += '\n' + argument_list(one.args);
    for (const std::string& group : option_groups(one.args)) {
        out += option_group(one, group, shown);
    }
    return out + exit_code_list(exit_codes(one.args), exit_codes(table, {})) + see_also(one.args.see_also_names());
}

std::string group_text(const Group& group, const Table& table) {
    std::string out;
    if (!group.example.empty()) out += fmt::format("\n```sh\n# {}\n{}\n```\n", group.example_text, group.example);
    const auto common = exit_codes(table, {});
    return out + exit_code_list(exit_codes(table, group.name), group.name.empty() ? std::vector<ExitRow>() : common) +
           see_also(see_also_names(group));
}

// Printed before the first command of the group.
std::string group_section(const std::string& name, const Table& table) {
    std::string out = fmt::format("\n## gdnctl {}\n\n{}.\n\n", name, table.group(name).purpose);
    for (const Command* command : members_of(table, name)) {
        out += fmt::format("- [gdnctl {}](#gdnctl-{}): {}\n", command->name, anchor(command->name), command->summary);
    }
    return out + group_text(table.group(name), table);
}

}  // namespace

ReferenceFile markdown_reference(const Table& table) {
    const auto all = describe_all(table);
    std::string out =
        "# Command line reference\n\n"
        "This page is generated from the help (`gdnctl __docs markdown`). Every command also takes the\n"
        "[global options](#global-options). A command lists only the exit codes that mean something else than in\n"
        "[the common list](#gdnctl).\n";
    for (const std::string_view group : command_groups(table)) {
        out += fmt::format("\n**{}**\n\n", group);
        for (const Described& one : all->commands) {
            if (one.command->group != group) continue;
            out += fmt::format("- [gdnctl {}](#gdnctl-{}): {}\n", one.command->name, anchor(one.command->name),
                               one.command->summary);
        }
    }
    out += "\n## Global options\n";
    for (const std::string& group : option_groups(all->globals)) out += '\n' + option_list(all->globals, group);
    out += "\n## gdnctl\n\n" + std::string(table.group("").purpose) + ".\n" + group_text(table.group(""), table);
    std::map<std::string, std::string> shown;
    std::vector<std::string> groups = group_names(*all);
    for (const Described& one : all->commands) {
        const std::string first(one.command->name.substr(0, one.command->name.find(' ')));
        if (const auto at = std::find(groups.begin(), groups.end(), first); at != groups.end()) {
            out += group_section(first, table);
            groups.erase(at);
        }
        out += section(one, table, shown);
    }
    // An empty heading leaves two empty lines behind.
    for (std::size_t at = 0; (at = out.find("\n\n\n", at)) != std::string::npos;) out.erase(at, 1);
    return {"cli-reference.md", out};
}

}  // namespace gdnctl::cli
