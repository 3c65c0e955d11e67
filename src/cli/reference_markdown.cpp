#include <algorithm>

#include <fmt/format.h>

#include "cli/completion.h"
#include "cli/described.h"
#include "cli/help.h"
#include "cli/reference.h"
#include "core/text.h"

namespace gdnctl::cli {

namespace {

// Headings become anchors this way on the usual hosts.
std::string anchor(std::string_view heading) {
    std::string id = text::to_lower(heading);
    std::replace(id.begin(), id.end(), ' ', '-');
    return id;
}

// Inside a table cell.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '|') out += '\\';
        if (c == '<') {
            out += "&lt;";
        } else {
            out += c == '\n' ? ' ' : c;
        }
    }
    return out;
}

std::string row(std::string_view code, std::string_view text) {
    return fmt::format("| `{}` | {} |\n", code, cell(text));
}

std::string option_table(const Args& args, std::string_view group) {
    std::string out = "| option | meaning |\n|---|---|\n";
    for (const OptionDef& option : args.options()) {
        if (option.group != group) continue;
        std::string text = cell(option_text(option));
        for (std::size_t i = 0; i < option.choices.size(); ++i) {
            if (i >= option.choice_help.size() || option.choice_help[i].empty()) continue;
            text += fmt::format("<br>`{}`: {}", cell(option.choices[i]), cell(option.choice_help[i]));
        }
        out += fmt::format("| `{}` | {} |\n", cell(option_label(option)), text);
    }
    return out;
}

std::string argument_table(const Args& args) {
    std::string out = "| argument | meaning |\n|---|---|\n";
    const auto add = [&](const PositionalDef& def, const std::string& name) {
        out +=
            row(name, def.choices.empty() ? def.help : fmt::format("{}: {}", def.help, text::join(def.choices, ", ")));
    };
    for (const PositionalDef& def : args.positionals()) add(def, def.name);
    if (const auto& def = args.trailing_def()) add(*def, "-- " + def->name);
    return out;
}

std::string exit_code_table(const std::vector<ExitRow>& rows) {
    std::string out = "\n| exit code | meaning |\n|---|---|\n";
    for (const ExitRow& exit : rows) out += row(exit.codes, exit.text);
    return out;
}

std::string see_also(const std::vector<std::string>& names) {
    std::vector<std::string> links;
    for (const std::string& name : names) {
        if (name.starts_with("docs/")) {
            links.push_back(fmt::format("[{}]({})", name, name.substr(5)));
        } else {
            links.push_back(fmt::format("[gdnctl {}](#gdnctl-{})", name, anchor(name)));
        }
    }
    return links.empty() ? std::string() : "\nSee also: " + text::join(links, ", ") + "\n";
}

std::string section(const Described& one) {
    std::string out = fmt::format("\n## gdnctl {}\n\n{}.\n\n```\n{}\n```\n", one.command->name, one.command->summary,
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
    if (!one.args.positionals().empty() || one.args.trailing_def()) out += '\n' + argument_table(one.args);
    for (const std::string& group : option_groups(one.args)) {
        out += fmt::format("\n{}\n\n{}", group == "Options" ? "" : "**" + group + "**", option_table(one.args, group));
    }
    return out + exit_code_table(exit_codes(one.args)) + see_also(one.args.see_also_names());
}

std::string group_text(const Group& group, const Table& table) {
    std::string out;
    if (!group.example.empty()) out += fmt::format("\n```sh\n# {}\n{}\n```\n", group.example_text, group.example);
    return out + exit_code_table(exit_codes(table, group.name)) + see_also(see_also_names(group));
}

// Before the first of its commands.
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
        "This page is generated from the descriptions that the program itself uses (`gdnctl __docs markdown`).\n"
        "Every command also takes the [global options](#global-options).\n";
    for (const std::string_view group : command_groups(table)) {
        out += fmt::format("\n**{}**\n\n", group);
        for (const Described& one : all->commands) {
            if (one.command->group != group) continue;
            out += fmt::format("- [gdnctl {}](#gdnctl-{}): {}\n", one.command->name, anchor(one.command->name),
                               one.command->summary);
        }
    }
    out += "\n## Global options\n";
    for (const std::string& group : option_groups(all->globals)) out += '\n' + option_table(all->globals, group);
    out += "\n## gdnctl\n\n" + std::string(table.group("").purpose) + ".\n" + group_text(table.group(""), table);
    std::vector<std::string> groups = group_names(*all);
    for (const Described& one : all->commands) {
        const std::string first(one.command->name.substr(0, one.command->name.find(' ')));
        if (const auto at = std::find(groups.begin(), groups.end(), first); at != groups.end()) {
            out += group_section(first, table);
            groups.erase(at);
        }
        out += section(one);
    }
    // An empty heading leaves two empty lines behind.
    for (std::size_t at = 0; (at = out.find("\n\n\n", at)) != std::string::npos;) out.erase(at, 1);
    return {"cli-reference.md", out};
}

}  // namespace gdnctl::cli
