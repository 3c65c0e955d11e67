#include "trace/report/blocks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "core/text.h"

namespace gdnctl::trace {

namespace {

// Columns of text on a terminal: one for each code point.
std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

// The first `columns` of the text, "…" at its end where some is cut.
std::string cut(const std::string& text, std::size_t columns) {
    if (columns_of(text) <= columns) return text;
    std::size_t end = 0;
    for (std::size_t seen = 0; end < text.size(); ++end) {
        if ((static_cast<unsigned char>(text[end]) & 0xc0U) != 0x80U && ++seen == columns) break;
    }
    return text.substr(0, end) + "…";
}

std::size_t sum_of(const std::vector<std::size_t>& widths) {
    return std::accumulate(widths.begin(), widths.end(), 2 * widths.size()) -
           std::min<std::size_t>(widths.size(), 1) * 2;
}

std::vector<std::size_t> widths_of(const Table& table) {
    std::vector<std::size_t> widths;
    for (const Column& column : table.columns) widths.push_back(columns_of(column.name));
    for (const auto& row : table.rows) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
    }
    return widths;
}

// Cuts the widest texts, one after the other, until the rows fit.
std::vector<std::size_t> widths_within(const Table& table, std::size_t limit) {
    constexpr std::size_t k_least = 16;
    std::vector<std::size_t> widths = widths_of(table);
    while (sum_of(widths) > limit) {
        std::size_t widest = widths.size();
        for (std::size_t i = 0; i < widths.size(); ++i) {
            if (!table.columns[i].left || widths[i] <= k_least) continue;
            if (widest == widths.size() || widths[i] > widths[widest]) widest = i;
        }
        if (widest == widths.size()) break;
        widths[widest] = std::max(k_least, widths[widest] - std::min(widths[widest], sum_of(widths) - limit));
    }
    return widths;
}

// Names come from the trace and may contain anything.
Block cleaned(Block block) {
    for (auto* lines : {&block.lines, &block.after}) {
        for (std::string& line : *lines) line = one_line(line);
    }
    for (auto& row : block.table.rows) {
        for (std::string& word : row) word = one_line(word);
    }
    return block;
}

void remove_column(Table& table, std::size_t i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    table.columns.erase(table.columns.begin() + at);
    for (auto& row : table.rows) row.erase(row.begin() + at);
}

// Leaves out the columns that say nothing: "-" or "" in every row.
Table without_blanks(Table table) {
    for (std::size_t i = table.columns.size(); i-- > 0;) {
        const bool says = std::any_of(table.rows.begin(), table.rows.end(),
                                      [i](const auto& row) { return !row[i].empty() && row[i] != "-"; });
        if (!says) remove_column(table, i);
    }
    return table;
}

// Leaves out columns that the table may lack, the last one first, until the rows fit.
Table without_optional(Table table, std::size_t limit) {
    for (std::size_t i = table.columns.size(); i-- > 0 && sum_of(widths_of(table)) > limit;) {
        if (table.columns[i].optional) remove_column(table, i);
    }
    return table;
}

std::string aligned(const Table& whole, int width) {
    const auto limit = static_cast<std::size_t>(std::max(width, 40));
    const Table table = without_optional(whole, limit);
    const std::vector<std::size_t> widths = widths_within(table, limit);
    std::string text;
    const auto line = [&](const auto& cell) {
        std::string out;
        for (std::size_t i = 0; i < widths.size(); ++i) {
            const std::string word = cut(cell(i), widths[i]);
            const std::string blanks(widths[i] - columns_of(word), ' ');
            out += i > 0 ? "  " : "";
            out += table.columns[i].left ? word + blanks : blanks + word;
        }
        out.erase(out.find_last_not_of(' ') + 1);
        text += out + "\n";
    };
    line([&](std::size_t i) { return table.columns[i].name; });
    for (const auto& row : table.rows) line([&](std::size_t i) { return row[i]; });
    return text;
}

std::string bars(const Table& table) {
    const auto escaped = [](std::string word) {
        for (std::size_t at = word.find('|'); at != std::string::npos; at = word.find('|', at + 2))
            word.insert(at, "\\");
        return word;
    };
    std::string text = "|", rule = "|";
    for (const Column& column : table.columns) {
        text += " " + column.name + " |";
        rule += column.left ? " --- |" : " ---: |";
    }
    text += "\n" + rule + "\n";
    for (const auto& row : table.rows) {
        text += "|";
        for (const std::string& word : row) text += " " + escaped(word) + " |";
        text += "\n";
    }
    return text;
}

}  // namespace

std::string one_line(std::string_view text) {
    std::string line(text);
    std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    return text::visible(line);
}

std::string first_bytes(const std::string& text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80U) --bytes;
    return text.substr(0, bytes);
}

std::string as_text(const std::vector<Block>& blocks, int width) {
    std::string text;
    for (const Block& raw : blocks) {
        const Block block = cleaned(raw);
        for (const std::string& line : block.lines) text += text::folded(line, width) + "\n";
        if (!block.table.rows.empty()) text += aligned(without_blanks(block.table), width);
        for (const std::string& line : block.after) text += text::folded(line, width) + "\n";
    }
    return text;
}

std::string as_markdown(const std::vector<Block>& blocks, int level) {
    std::string text;
    for (const Block& raw : blocks) {
        const Block block = cleaned(raw);
        if (!text.empty()) text += "\n";
        if (!block.heading.empty())
            text += std::string(static_cast<std::size_t>(level), '#') + " " + block.heading + "\n\n";
        for (const std::string& line : block.lines) text += line + "\n";
        if (!block.table.rows.empty()) text += (block.lines.empty() ? "" : "\n") + bars(without_blanks(block.table));
        for (const std::string& line : block.after) text += "\n" + line + "\n";
    }
    return text;
}

}  // namespace gdnctl::trace
