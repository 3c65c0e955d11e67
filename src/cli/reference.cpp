#include "cli/reference.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/dispatch.h"
#include "cli/help.h"
#include "core/text.h"
#include "core/version.h"

namespace gdnctl::cli {

std::unique_ptr<Descriptions> describe_all(const Table& table) {
    auto all = std::make_unique<Descriptions>();
    describe_globals(all->globals, all->flags);
    for (const Command& command : table) {
        if (is_hidden(command)) continue;
        Described one{&command, command.create(), {}};
        one.invocation->describe(one.args);
        all->commands.push_back(std::move(one));
    }
    return all;
}

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
    std::string out = fmt::format("\n## gdnctl {}\n\n{}{}: `{}`\n", one.command->name, one.command->summary,
                                  other_name_note(*one.command), synopsis(one.command->name, one.args));
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
    for (const Member& one : members_of(table, name)) {
        out +=
            fmt::format("- [gdnctl {}](#gdnctl-{}): {}\n", one.name, anchor(one.command->name), one.command->summary);
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
            out += fmt::format("- [gdnctl {}](#gdnctl-{}): {}{}\n", one.command->name, anchor(one.command->name),
                               one.command->summary, other_name_note(*one.command));
        }
    }
    out += "\n## Global options\n";
    for (const std::string& group : option_groups(all->globals)) out += '\n' + option_list(all->globals, group);
    out += "\n## gdnctl\n\n" + std::string(table.group("").purpose) + ".\n" + group_text(table.group(""), table);
    std::map<std::string, std::string> shown;
    std::vector<std::string> groups = group_names(table);
    for (const Described& one : all->commands) {
        for (const std::string_view name : {one.command->name, one.command->other_name}) {
            const auto at = std::find(groups.begin(), groups.end(), name.substr(0, name.find(' ')));
            if (at == groups.end()) continue;
            out += group_section(*at, table);
            groups.erase(at);
        }
        out += section(one, table, shown);
    }
    // An empty heading leaves two empty lines behind.
    for (std::size_t at = 0; (at = out.find("\n\n\n", at)) != std::string::npos;) out.erase(at, 1);
    return {"cli-reference.md", out};
}

namespace {

// Escapes text for roff, so that it contains no escapes or requests.
std::string roff(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const bool line_start = out.empty() || out.back() == '\n';
        if (line_start && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') {
            out += "\\e";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
    }
    return out;
}

std::string page_name(std::string_view command) {
    std::string name = command.empty() ? std::string("gdnctl") : fmt::format("gdnctl-{}", command);
    std::replace(name.begin(), name.end(), ' ', '-');
    return name;
}

std::string header(std::string_view name, std::string_view summary) {
    return fmt::format(".TH \"{}\" 1 \"\" \"gdnctl {}\" \"gdnctl manual\"\n.SH NAME\n{} \\- {}\n", name, version(),
                       roff(name), roff(summary));
}

std::string tagged(std::string_view tag, std::string_view text) {
    return fmt::format(".TP\n.B {}\n{}\n", roff(tag), roff(text));
}

std::string options(const Args& args) {
    std::string out;
    for (const std::string& group : option_groups(args)) {
        std::string upper = group;
        std::transform(upper.begin(), upper.end(), upper.begin(),
                       [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
        out += ".SH \"" + roff(upper) + "\"\n";
        for (const OptionDef& option : args.options()) {
            if (option.group != group) continue;
            out += tagged(option_label(option), option_text(option));
            for (std::size_t i = 0; i < option.choice_help.size(); ++i) {
                if (option.choice_help[i].empty()) continue;
                out += fmt::format(".br\n{}: {}\n", roff(option.choices[i]), roff(option.choice_help[i]));
            }
        }
    }
    return out;
}

std::string arguments(const Args& args) {
    std::string out;
    for (const PositionalDef& def : args.positionals()) out += tagged(def.name, def.help);
    if (const auto& def = args.trailing_def()) out += tagged("-- " + def->name, def->help);
    return out.empty() ? out : ".SH ARGUMENTS\n" + out;
}

std::string exit_status(const std::vector<ExitRow>& rows) {
    std::string out = ".SH \"EXIT STATUS\"\n";
    for (const ExitRow& row : rows) out += tagged(row.codes, row.text);
    return out;
}

std::string examples(std::span<const Example> list) {
    std::string out = list.empty() ? "" : ".SH EXAMPLES\n";
    for (const Example& example : list) {
        out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(example.command));
        if (!example.text.empty()) out += ".RS\n" + roff(example.text) + "\n.RE\n";
    }
    return out;
}

// Only commands: documentation pages have no manual page.
std::string see_also(const std::vector<std::string>& names, std::string_view parent) {
    std::vector<std::string> pages;
    if (!parent.empty()) pages.emplace_back(parent);
    for (const std::string& name : names) {
        if (!name.starts_with("docs/")) pages.push_back(page_name(name));
    }
    if (pages.empty()) return {};
    for (std::string& page : pages) page = fmt::format(".BR {} (1)", roff(page));
    return ".SH \"SEE ALSO\"\n" + text::join(pages, ",\n") + "\n";
}

std::string command_page(const Described& one, const Args& globals) {
    std::string out = header(page_name(one.command->name), one.command->summary);
    out += ".SH SYNOPSIS\n" + roff(synopsis(one.command->name, one.args)) + "\n";
    if (!one.args.paragraphs().empty()) {
        out += ".SH DESCRIPTION\n";
        for (const std::string& paragraph : one.args.paragraphs()) out += ".PP\n" + roff(paragraph) + "\n";
    }
    out += arguments(one.args) + options(one.args) + options(globals);
    out += exit_status(exit_codes(one.args));
    return out + examples(one.args.examples()) + see_also(one.args.see_also_names(), "gdnctl");
}

// The common end of the program's page and the groups' pages.
std::string group_end(const Table& table, std::string_view name, std::string_view parent) {
    const Group group = table.group(name);
    const Example example{std::string(group.example), std::string(group.example_text)};
    return exit_status(exit_codes(table, name)) + examples(std::span(&example, group.example.empty() ? 0U : 1U)) +
           see_also(see_also_names(group), parent);
}

std::string group_page(const Table& table, std::string_view name) {
    std::string out = header(page_name(name), table.group(name).purpose);
    out += fmt::format(".SH SYNOPSIS\n.B gdnctl {}\nCOMMAND [OPTIONS] ...\n.SH COMMANDS\n", roff(name));
    for (const Member& one : members_of(table, name)) out += tagged(one.name, one.command->summary);
    return out + group_end(table, name, "gdnctl");
}

}  // namespace

std::vector<ReferenceFile> man_pages(const Table& table) {
    const auto all = describe_all(table);
    std::string main = header("gdnctl", table.group("").purpose);
    main += ".SH SYNOPSIS\n.B gdnctl\nCOMMAND [OPTIONS] ...\n";
    for (const std::string_view group : command_groups(table)) {
        main += fmt::format(".SH \"{}\"\n", roff(group));
        for (const Described& one : all->commands) {
            if (one.command->group != group) continue;
            main += tagged(one.command->name, std::string(one.command->summary) + other_name_note(*one.command));
        }
    }
    main += options(all->globals) + group_end(table, "", "");
    std::vector<ReferenceFile> files = {{"gdnctl.1", main}};
    for (const std::string& group : group_names(table))
        files.push_back({page_name(group) + ".1", group_page(table, group)});
    for (const Described& one : all->commands) {
        files.push_back({page_name(one.command->name) + ".1", command_page(one, all->globals)});
    }
    return files;
}

}  // namespace gdnctl::cli
