#include "cli/help.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/dispatch.h"
#include "cli/wrap.h"
#include "gdnctl/core/exit_code.h"
#include "gdnctl/core/text.h"

namespace gdnctl::cli {

namespace {

constexpr int k_widest_left = 26;  // columns of "  -f, --follow VALUE" before the text moves to the next line

std::string heading(std::string_view text, const PageStyle& style) {
    return style.color ? fmt::format("\n\x1b[1m{}:\x1b[0m\n", text) : fmt::format("\n{}:\n", text);
}

struct Row {
    std::string left, right;
};

std::string table_text(const std::vector<Row>& rows, const PageStyle& style) {
    std::size_t widest = 0;
    for (const Row& row : rows) {
        if (row.left.size() <= k_widest_left) widest = std::max(widest, row.left.size());
    }
    std::string out;
    for (const Row& row : rows) out += two_columns(row.left, row.right, static_cast<int>(widest) + 4, style.columns);
    return out;
}

// Long names line up whether or not a short one stands before them.
std::string aligned_label(const OptionDef& option) {
    const std::string label = option_label(option);
    return label.starts_with("--") ? "    " + label : label;
}

std::vector<Row> option_rows(const Args& args, std::string_view group) {
    std::vector<Row> rows;
    for (const OptionDef& option : args.options()) {
        if (option.group != group) continue;
        rows.push_back({aligned_label(option), option_text(option)});
        for (std::size_t i = 0; i < option.choices.size(); ++i) {
            if (i < option.choice_help.size() && !option.choice_help[i].empty()) {
                rows.push_back({"          " + option.choices[i], option.choice_help[i]});
            }
        }
    }
    return rows;
}

std::string positional_text(const PositionalDef& def) {
    return def.choices.empty() ? def.help : fmt::format("{}: {}", def.help, text::join(def.choices, ", "));
}

std::vector<Row> argument_rows(const Args& args) {
    std::vector<Row> rows;
    for (const PositionalDef& def : args.positionals()) rows.push_back({def.name, positional_text(def)});
    if (const auto& def = args.trailing_def()) rows.push_back({"-- " + def->name, positional_text(*def)});
    return rows;
}

std::string positional_label(const PositionalDef& def) {
    std::string label = def.choices.size() == 1 ? def.choices[0] : def.name;
    if (def.repeated && !label.ends_with("...")) label += "...";
    return def.required ? label : '[' + label + ']';
}

std::string examples_text(const Args& args, const PageStyle& style) {
    std::string out;
    for (const Example& example : args.examples()) {
        out += "  " + example.command + '\n';
        if (!example.text.empty()) out += wrap(example.text, 6, style.columns);
    }
    return out;
}

}  // namespace

std::string option_label(const OptionDef& option) {
    std::string label = text::join(option.names, ", ");
    for (const std::string& negated : option.negated_names) label += ", " + negated;
    if (option.kind != OptionDef::Kind::flag) label += ' ' + option.value;
    return label;
}

std::string option_text(const OptionDef& option) {
    std::string text = option.help;
    const bool choices_are_listed = std::any_of(option.choice_help.begin(), option.choice_help.end(),
                                                [](const std::string& help) { return !help.empty(); });
    if (!option.choices.empty() && !choices_are_listed) text += ": " + text::join(option.choices, ", ");
    std::vector<std::string> notes;
    if (option.required) notes.emplace_back("required");
    if (option.kind == OptionDef::Kind::list) notes.emplace_back("repeatable");
    if (!option.default_text.empty()) notes.push_back("default: " + option.default_text);
    if (!option.env.empty()) notes.push_back("environment: " + option.env);
    return notes.empty() ? text : fmt::format("{} ({})", text, text::join(notes, "; "));
}

std::vector<ExitNote> exit_codes(const Args& args) {
    std::map<int, std::string> codes;
    for (const ExitCode code : {ExitCode::ok, ExitCode::usage, ExitCode::internal}) {
        codes[static_cast<int>(code)] = describe(code);
    }
    for (const ExitNote& note : args.exit_notes()) codes[note.code] = note.text;
    std::vector<ExitNote> notes;
    for (auto& [code, text] : codes) notes.push_back({code, std::move(text)});
    return notes;
}

std::vector<std::string> option_groups(const Args& args) {
    std::vector<std::string> groups;
    for (const OptionDef& option : args.options()) {
        if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
    }
    return groups;
}

std::vector<std::string_view> command_groups(std::span<const Command> table) {
    std::vector<std::string_view> groups;
    for (const Command& command : table) {
        if (is_hidden(command)) continue;
        if (std::find(groups.begin(), groups.end(), command.group) == groups.end()) groups.push_back(command.group);
    }
    return groups;
}

std::string synopsis(std::string_view name, const Args& args) {
    std::string line = fmt::format("gdnctl {}", name);
    for (const OptionDef& option : args.options()) {
        if (option.required) line += fmt::format(" {} {}", option.canonical(), option.value);
    }
    line += " [OPTIONS]";
    for (const PositionalDef& def : args.positionals()) line += ' ' + positional_label(def);
    if (const auto& def = args.trailing_def()) {
        std::string words = def->name.ends_with("...") ? def->name : def->name + "...";
        line += def->required ? " -- " + words : " [-- " + words + ']';
    }
    return line;
}

std::string help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style) {
    std::string page = wrap(fmt::format("gdnctl {}: {}", command.name, command.summary), 0, style.columns);
    page += heading("Usage", style) + wrap(synopsis(command.name, args), 2, style.columns);
    for (const std::string& paragraph : args.paragraphs()) page += '\n' + wrap(paragraph, 0, style.columns);
    if (!args.examples().empty()) page += heading("Examples", style) + examples_text(args, style);
    const auto arguments = argument_rows(args);
    if (!arguments.empty()) page += heading("Arguments", style) + table_text(arguments, style);
    for (const Args* part : {&args, &globals}) {
        for (const std::string& group : option_groups(*part)) {
            page += heading(group, style) + table_text(option_rows(*part, group), style);
        }
    }
    std::vector<Row> codes;
    for (const ExitNote& note : exit_codes(args)) codes.push_back({std::to_string(note.code), note.text});
    page += heading("Exit codes", style) + table_text(codes, style);
    if (!args.see_also_names().empty()) {
        std::vector<std::string> names;
        for (const std::string& name : args.see_also_names()) {
            names.push_back(name.starts_with("docs/") ? name : "gdnctl " + name);
        }
        page += heading("See also", style) + wrap(text::join(names, ", "), 2, style.columns);
    }
    return page;
}

std::string overview(std::span<const Command> table, const Args& globals, const PageStyle& style) {
    std::string page =
        wrap("gdnctl: tests, measures and records the hill-climb on Gated DeltaNet kernels", 0, style.columns);
    page += heading("Usage", style) + "  gdnctl COMMAND [OPTIONS] ...\n";
    for (const std::string_view group : command_groups(table)) {
        std::vector<Row> rows;
        for (const Command& command : table) {
            if (command.group == group) rows.push_back({std::string(command.name), std::string(command.summary)});
        }
        page += heading(group, style) + table_text(rows, style);
    }
    for (const std::string& group : option_groups(globals)) {
        page += heading(group, style) + table_text(option_rows(globals, group), style);
    }
    return page + "\n`gdnctl COMMAND --help` shows the options of a command, with examples.\n";
}

std::string group_overview(std::span<const Command> table, std::string_view group, const PageStyle& style) {
    std::vector<Row> rows;
    for (const Command* command : members_of(table, group)) {
        rows.push_back({std::string(command->name), std::string(command->summary)});
    }
    std::string page = wrap(fmt::format("gdnctl {}: a group of commands", group), 0, style.columns);
    page += heading("Usage", style) + fmt::format("  gdnctl {} COMMAND [OPTIONS] ...\n", group);
    page += heading("Commands", style) + table_text(rows, style);
    return page + fmt::format("\n`gdnctl {} COMMAND --help` shows the options of one, with examples.\n", group);
}

}  // namespace gdnctl::cli
