#include "trace/report/blocks.h"

#include <algorithm>
#include <cstddef>

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

std::vector<std::size_t> widths_of(const Table& table, int width) {
    std::vector<std::size_t> widths;
    for (const Column& column : table.columns) widths.push_back(columns_of(column.name));
    for (const auto& row : table.rows) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
    }
    std::size_t sum = 0, widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
        sum += widths[i] + (i > 0 ? 2 : 0);
        if (table.columns[i].left && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    constexpr std::size_t k_least = 16;
    const auto limit = static_cast<std::size_t>(std::max(width, 40));
    if (sum > limit && widest < widths.size() && widths[widest] > k_least) {
        widths[widest] = std::max(k_least, widths[widest] - std::min(widths[widest], sum - limit));
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

// Leaves out the columns that say nothing: "-" or "" in every row.
Table without_blanks(const Table& table) {
    Table kept;
    kept.rows.resize(table.rows.size());
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        const bool says = std::any_of(table.rows.begin(), table.rows.end(),
                                      [i](const auto& row) { return !row[i].empty() && row[i] != "-"; });
        if (!says) continue;
        kept.columns.push_back(table.columns[i]);
        for (std::size_t k = 0; k < table.rows.size(); ++k) kept.rows[k].push_back(table.rows[k][i]);
    }
    return kept;
}

std::string aligned(const Table& table, int width) {
    const std::vector<std::size_t> widths = widths_of(table, width);
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
        for (const std::string& line : block.lines) text += line + "\n";
        if (!block.table.rows.empty()) text += aligned(without_blanks(block.table), width);
        for (const std::string& line : block.after) text += line + "\n";
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
