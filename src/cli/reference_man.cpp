#include <algorithm>

#include <fmt/format.h>

#include "cli/described.h"
#include "cli/help.h"
#include "gdnctl/cli/reference.h"
#include "gdnctl/cli/version.h"
#include "gdnctl/core/text.h"

namespace gdnctl::cli {

namespace {

// Text as roff reads it: no escape of ours is taken for one of its own, no line for a request.
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

std::string item(std::string_view tag, std::string_view text) {
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
            out += item(option_label(option), option_text(option));
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
    for (const PositionalDef& def : args.positionals()) out += item(def.name, def.help);
    if (const auto& def = args.trailing_def()) out += item("-- " + def->name, def->help);
    return out.empty() ? out : ".SH ARGUMENTS\n" + out;
}

std::string command_page(const Described& one, const Args& globals) {
    std::string out = header(page_name(one.command->name), one.command->summary);
    out += ".SH SYNOPSIS\n" + roff(synopsis(one.command->name, one.args)) + "\n";
    if (!one.args.paragraphs().empty()) {
        out += ".SH DESCRIPTION\n";
        for (const std::string& paragraph : one.args.paragraphs()) out += ".PP\n" + roff(paragraph) + "\n";
    }
    out += arguments(one.args) + options(one.args) + options(globals);
    out += ".SH \"EXIT STATUS\"\n";
    for (const ExitNote& note : exit_codes(one.args)) out += item(std::to_string(note.code), note.text);
    if (!one.args.examples().empty()) {
        out += ".SH EXAMPLES\n";
        for (const Example& example : one.args.examples()) {
            out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(example.command));
            if (!example.text.empty()) out += ".RS\n" + roff(example.text) + "\n.RE\n";
        }
    }
    out += ".SH \"SEE ALSO\"\n.BR gdnctl (1)";
    for (const std::string& name : one.args.see_also_names()) {
        if (!name.starts_with("docs/")) out += fmt::format(",\n.BR {} (1)", roff(page_name(name)));
    }
    return out + "\n";
}

}  // namespace

std::vector<ReferenceFile> man_pages(std::span<const Command> table) {
    const auto all = describe_all(table);
    std::string main = header("gdnctl", "test, measure and record work on Gated DeltaNet kernels");
    main += ".SH SYNOPSIS\n.B gdnctl\nCOMMAND [OPTIONS] ...\n";
    for (const std::string_view group : command_groups(table)) {
        main += fmt::format(".SH \"{}\"\n", roff(group));
        for (const Described& one : all->commands) {
            if (one.command->group == group) main += item(one.command->name, one.command->summary);
        }
    }
    main += options(all->globals);
    std::vector<ReferenceFile> files = {{"gdnctl.1", main}};
    for (const Described& one : all->commands) {
        files.push_back({page_name(one.command->name) + ".1", command_page(one, all->globals)});
    }
    return files;
}

}  // namespace gdnctl::cli
