#include <algorithm>

#include <fmt/format.h>

#include "cli/completion.h"
#include "cli/described.h"
#include "cli/help.h"
#include "cli/reference.h"
#include "core/text.h"
#include "core/version.h"

namespace gdnctl::cli {

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
    for (const Command* command : members_of(table, name)) out += tagged(command->name, command->summary);
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
            if (one.command->group == group) main += tagged(one.command->name, one.command->summary);
        }
    }
    main += options(all->globals) + group_end(table, "", "");
    std::vector<ReferenceFile> files = {{"gdnctl.1", main}};
    for (const std::string& group : group_names(*all))
        files.push_back({page_name(group) + ".1", group_page(table, group)});
    for (const Described& one : all->commands) {
        files.push_back({page_name(one.command->name) + ".1", command_page(one, all->globals)});
    }
    return files;
}

}  // namespace gdnctl::cli
