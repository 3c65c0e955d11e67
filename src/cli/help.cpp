#include "cli/help.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/dispatch.h"
#include "core/result.h"
#include "core/text.h"

namespace gdnctl::cli {

namespace {

// Width of UTF-8 text in columns, counting one per code point.
int width_of(std::string_view text) {
    int width = 0;
    for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    return width;
}

// Appends wrapped words to `out`, whose last line is `column` wide; later lines start at `indent`.
void append_wrapped(std::string& out, int column, std::string_view text, int indent, int columns) {
    bool line_empty = true;
    while (!text.empty()) {
        const std::size_t start = text.find_first_not_of(" \n");
        if (start == std::string_view::npos) break;
        text.remove_prefix(start);
        const std::string_view word = text.substr(0, text.find_first_of(" \n"));
        text.remove_prefix(word.size());
        const int width = width_of(word);
        if (!line_empty && column + 1 + width > columns) {
            out += '\n';
            out.append(static_cast<std::size_t>(indent), ' ');
            column = indent;
            line_empty = true;
        }
        if (!line_empty) {
            out += ' ';
            ++column;
        }
        out += word;
        column += width;
        line_empty = false;
    }
    out += '\n';
}

}  // namespace

std::string wrap(std::string_view text, int indent, int columns) {
    std::string out(static_cast<std::size_t>(indent), ' ');
    append_wrapped(out, indent, text, indent, columns);
    return out;
}

std::string two_columns(std::string_view left, std::string_view right, int at, int columns) {
    std::string out = "  ";
    int column = 2 + width_of(left);
    // If two names of an option are too long for one line, each gets its own.
    if (const std::size_t comma = left.rfind(", "); column > columns && comma != std::string_view::npos) {
        const std::size_t indent = left.find_first_not_of(' ');
        out += fmt::format("{},\n  {:{}}", left.substr(0, comma), "", indent);
        left.remove_prefix(comma + 2);
        column = 2 + static_cast<int>(indent) + width_of(left);
    }
    out += left;
    if (right.empty()) return out + '\n';
    if (column + 2 > at) {
        out += '\n';
        column = 0;
    }
    out.append(static_cast<std::size_t>(at - column), ' ');
    append_wrapped(out, at, right, at, columns);
    return out;
}

namespace {

constexpr int k_widest_left = 26;  // width of "  -f, --follow VALUE" beyond which the text starts on the next line

std::string heading(std::string_view text, const PageStyle& style) {
    return style.color ? fmt::format("\n\x1b[1m{}:\x1b[0m\n", text) : fmt::format("\n{}:\n", text);
}

struct Row {
    std::string left, right;
};

std::size_t widest_left(const std::vector<Row>& rows) {
    std::size_t widest = 0;
    for (const Row& row : rows) {
        if (row.left.size() <= k_widest_left) widest = std::max(widest, row.left.size());
    }
    return widest;
}

// `least`: columns of the left side where other tables of the page are wider.
std::string table_text(const std::vector<Row>& rows, const PageStyle& style, std::size_t least = 0) {
    const std::size_t widest = std::max(widest_left(rows), least);
    std::string out;
    for (const Row& row : rows) out += two_columns(row.left, row.right, static_cast<int>(widest) + 4, style.columns);
    return out;
}

// Aligns long names whether or not a short one precedes them.
std::string aligned_label(const OptionDef& option) {
    const std::string label = option_label(option);
    return label.starts_with("--") ? "    " + label : label;
}

bool has_common(const Args& args) {
    const auto& all = args.options();
    return std::any_of(all.begin(), all.end(), [](const OptionDef& option) { return option.common; });
}

std::vector<Row> option_rows(const Args& args, std::string_view group, bool common_only = false) {
    std::vector<Row> rows;
    for (const OptionDef& option : args.options()) {
        if (option.group != group || (common_only && !option.common)) continue;
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

std::string examples_text(std::span<const Example> examples, const PageStyle& style) {
    std::string out;
    for (const Example& example : examples) {
        out += "  " + example.command + '\n';
        if (!example.text.empty()) out += wrap(example.text, 6, style.columns);
    }
    return out;
}

constexpr int k_interrupted = static_cast<int>(ExitCode::interrupted);

// Any command reads a configuration and prints, and any can be interrupted.
std::map<int, std::string> common_codes() {
    std::map<int, std::string> codes;
    for (const ExitCode code : {ExitCode::ok, ExitCode::usage, ExitCode::local_io, ExitCode::internal}) {
        codes[static_cast<int>(code)] = describe(code);
    }
    codes[k_interrupted] = "interrupted by SIGINT / SIGTERM, after cleaning up";
    return codes;
}

std::vector<ExitRow> rows_of(const std::map<int, std::string>& codes) {
    std::vector<ExitRow> rows;
    for (const auto& [code, text] : codes) {
        rows.push_back({code == k_interrupted ? fmt::format("{}, {}", code, static_cast<int>(ExitCode::terminated))
                                              : std::to_string(code),
                        text});
    }
    return rows;
}

std::string exit_codes_text(std::vector<ExitRow> codes, const PageStyle& style) {
    std::vector<Row> rows;
    for (ExitRow& row : codes) rows.push_back({std::move(row.codes), std::move(row.text)});
    return heading("Exit codes", style) + table_text(rows, style);
}

std::string see_also_text(std::span<const std::string> pages, const PageStyle& style) {
    if (pages.empty()) return {};
    std::vector<std::string> names;
    for (const std::string& name : pages) names.push_back(name.starts_with("docs/") ? name : "gdnctl " + name);
    return heading("See also", style) + wrap(text::join(names, ", "), 2, style.columns);
}

std::string group_examples(const Group& group, const PageStyle& style) {
    if (group.example.empty()) return {};
    const Example example{std::string(group.example), std::string(group.example_text)};
    return heading("Examples", style) + examples_text(std::span(&example, 1), style);
}

}  // namespace

std::vector<std::string> see_also_names(const Group& group) {
    std::vector<std::string> names;
    for (const std::string_view name : group.see_also) {
        if (!name.empty()) names.emplace_back(name);
    }
    return names;
}

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
    if (option.required) notes.push_back(option.unless.empty() ? "required" : "required without " + option.unless);
    if (option.kind == OptionDef::Kind::list) notes.emplace_back("repeatable");
    if (!option.required && !option.default_text.empty()) notes.push_back("default: " + option.default_text);
    if (!option.env.empty()) notes.push_back("environment: " + option.env);
    return notes.empty() ? text : fmt::format("{} ({})", text, text::join(notes, "; "));
}

std::vector<ExitRow> exit_codes(const Args& args) {
    std::map<int, std::string> codes = common_codes();
    for (const ExitNote& note : args.exit_notes()) codes[note.code] = note.text;
    return rows_of(codes);
}

std::vector<ExitRow> exit_codes(const Table& table, std::string_view group) {
    std::map<int, std::string> codes = common_codes();
    const auto add = [&codes](const Command& command) {
        Args args;
        const auto invocation = command.create();
        invocation->describe(args);
        for (const ExitNote& note : args.exit_notes()) {
            codes.try_emplace(note.code, describe(static_cast<ExitCode>(note.code)));
        }
    };
    for (const Member& member : members_of(table, group)) add(*member.command);
    for (const Command& command : table) {
        if (group.empty() && !is_hidden(command)) add(command);
    }
    return rows_of(codes);
}

std::vector<std::string> option_groups(const Args& args) {
    std::vector<std::string> groups;
    for (const OptionDef& option : args.options()) {
        if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
    }
    return groups;
}

std::vector<std::string_view> command_groups(const Table& table) {
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

namespace {

std::string page_head(const Command& command, const Args& args, const PageStyle& style) {
    std::string usage = wrap(synopsis(command.name, args), 2, style.columns);
    if (!command.other_name.empty()) usage += wrap(synopsis(command.other_name, args), 2, style.columns);
    return wrap(fmt::format("gdnctl {}: {}", command.name, command.summary), 0, style.columns) +
           heading("Usage", style) + usage;
}

// On a page long enough to have a short form, the options of all groups share one column.
std::size_t common_width(const Args& args, bool common_only) {
    std::size_t widest = 0;
    if (!has_common(args)) return widest;
    for (const std::string& group : option_groups(args)) {
        widest = std::max(widest, widest_left(option_rows(args, group, common_only)));
    }
    return widest;
}

}  // namespace

std::string help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style) {
    std::string page = page_head(command, args, style);
    for (const std::string& paragraph : args.paragraphs()) page += '\n' + wrap(paragraph, 0, style.columns);
    if (!args.examples().empty()) page += heading("Examples", style) + examples_text(args.examples(), style);
    const auto arguments = argument_rows(args);
    if (!arguments.empty()) page += heading("Arguments", style) + table_text(arguments, style);
    const std::size_t width = common_width(args, false);
    for (const Args* part : {&args, &globals}) {
        for (const std::string& group : option_groups(*part)) {
            page += heading(group, style) + table_text(option_rows(*part, group), style, width);
        }
    }
    return page + exit_codes_text(exit_codes(args), style) + see_also_text(args.see_also_names(), style);
}

std::string short_help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style) {
    if (!has_common(args)) return help_page(command, args, globals, style);
    std::string page = page_head(command, args, style);
    if (!args.examples().empty()) page += heading("Examples", style) + examples_text(args.examples(), style);
    const std::size_t width = common_width(args, true);
    for (const std::string& group : option_groups(args)) {
        const auto rows = option_rows(args, group, true);
        if (!rows.empty()) page += heading(group, style) + table_text(rows, style, width);
    }
    return page + '\n' +
           wrap(fmt::format("`gdnctl {} --help` shows all {} options and the exit codes.", command.name,
                            args.options().size()),
                0, style.columns);
}

std::string overview(const Table& table, const Args& globals, const PageStyle& style) {
    const Group program = table.group("");
    std::string page = wrap(fmt::format("gdnctl: {}", program.purpose), 0, style.columns);
    page += heading("Usage", style) + "  gdnctl COMMAND [OPTIONS] ...\n" + group_examples(program, style);
    for (const std::string_view group : command_groups(table)) {
        std::vector<Row> rows;
        for (const Command& command : table) {
            if (command.group != group) continue;
            rows.push_back({std::string(command.name), std::string(command.summary) + other_name_note(command)});
        }
        page += heading(group, style) + table_text(rows, style);
    }
    for (const std::string& group : option_groups(globals)) {
        page += heading(group, style) + table_text(option_rows(globals, group), style);
    }
    page += exit_codes_text(exit_codes(table, {}), style) + see_also_text(see_also_names(program), style);
    return page + "\n`gdnctl COMMAND --help` shows the options of a command, with examples.\n";
}

std::string group_overview(const Table& table, std::string_view group, const PageStyle& style) {
    std::vector<Row> rows;
    for (const Member& member : members_of(table, group)) {
        rows.push_back({std::string(member.name), std::string(member.command->summary)});
    }
    const Group about = table.group(group);
    std::string page = wrap(fmt::format("gdnctl {}: {}", group, about.purpose), 0, style.columns);
    page += heading("Usage", style) + fmt::format("  gdnctl {} COMMAND [OPTIONS] ...\n", group);
    page += heading("Commands", style) + table_text(rows, style) + group_examples(about, style);
    page += exit_codes_text(exit_codes(table, group), style) + see_also_text(see_also_names(about), style);
    return page + fmt::format("\n`gdnctl {} COMMAND --help` shows the options of one, with examples.\n", group);
}

}  // namespace gdnctl::cli
