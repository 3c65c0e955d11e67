#include "loop/evolve/edits.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::loop::evolve {

namespace {

constexpr std::string_view k_head = "EDIT v1 ", k_search = "<<<<<<< SEARCH",
                           k_middle = "=======", k_replace = ">>>>>>> REPLACE";

std::string_view without_cr(std::string_view line) {
    return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

bool is_marker(std::string_view line, std::string_view marker) {
    line = without_cr(line);
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    return line == marker;
}

// Lines without their ends. A text that ends with a newline has no further, empty line.
std::vector<std::string_view> lines_of(std::string_view text) {
    auto lines = text::split(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
}

bool matches_at(const std::vector<std::string_view>& lines, std::size_t at, const std::vector<std::string>& old) {
    for (std::size_t i = 0; i < old.size(); ++i) {
        if (without_cr(lines[at + i]) != old[i]) return false;
    }
    return true;
}

std::vector<std::size_t> matches(const std::vector<std::string_view>& lines, const std::vector<std::string>& old) {
    std::vector<std::size_t> found;
    for (std::size_t at = 0; at + old.size() <= lines.size(); ++at) {
        if (matches_at(lines, at, old)) found.push_back(at);
    }
    return found;
}

// Where the old lines agree best: the most lines equal but for white space, then the first line nearest.
std::size_t closest(const std::vector<std::string_view>& lines, const std::vector<std::string>& old) {
    constexpr std::size_t k_compared = 200, k_far = 60;
    std::size_t best = 0, best_equal = 0, best_distance = k_far + 1;
    for (std::size_t at = 0; at < lines.size(); ++at) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i < std::min(old.size(), lines.size() - at) && i < 20; ++i) {
            if (text::trim(lines[at + i]) == text::trim(old[i])) ++equal;
        }
        if (equal < best_equal) continue;
        const std::size_t distance = text::edit_distance(lines[at].substr(0, k_compared),
                                                         std::string_view(old.front()).substr(0, k_compared), k_far);
        if (equal == best_equal && distance >= best_distance) continue;
        best = at;
        best_equal = equal;
        best_distance = distance;
    }
    return best;
}

std::string near_miss(const Edit& edit, const std::vector<std::string_view>& lines, std::size_t count) {
    if (count > 1) {
        return fmt::format("{}: the SEARCH lines occur {} times; add lines around them until they occur once.\n",
                           edit.file, count);
    }
    if (lines.empty()) return fmt::format("{}: the file is empty.\n", edit.file);
    const std::size_t at = closest(lines, edit.old_lines);
    std::string out = fmt::format("{}: the SEARCH lines occur 0 times. Closest, from line {}:\n", edit.file, at + 1);
    for (std::size_t i = 0; i < edit.old_lines.size() && i < 20; ++i) {
        const std::string_view have = at + i < lines.size() ? without_cr(lines[at + i]) : std::string_view();
        if (at + i < lines.size() && have == edit.old_lines[i]) {
            out += fmt::format("  {}\n", have);
            continue;
        }
        out += fmt::format("- {}\n", edit.old_lines[i]);
        if (at + i < lines.size()) out += fmt::format("+ {}\n", have);
    }
    return out;
}

std::string replaced(const std::vector<std::string_view>& lines, std::size_t at, const Edit& edit, bool ends) {
    std::string out;
    const std::string_view end = lines[at].ends_with('\r') ? "\r\n" : "\n";
    for (std::size_t i = 0; i < at; ++i) out.append(lines[i]).append("\n");
    for (const auto& line : edit.new_lines) out.append(line).append(end);
    for (std::size_t i = at + edit.old_lines.size(); i < lines.size(); ++i) out.append(lines[i]).append("\n");
    if (!ends && !out.empty()) out.pop_back();  // the file's last line had no newline
    return out;
}

// Reads one block whose head is at `at`; returns the first line behind it.
std::size_t read_block(const std::vector<std::string_view>& lines, std::size_t at, EditReply& reply) {
    Edit edit;
    edit.file = std::string(text::trim(without_cr(lines[at]).substr(k_head.size())));
    std::size_t i = at + 1;
    if (i >= lines.size() || !is_marker(lines[i], k_search)) {
        reply.problems.push_back(fmt::format("{}: no line `{}` after the head", edit.file, k_search));
        return at + 1;
    }
    for (++i; i < lines.size() && !is_marker(lines[i], k_middle); ++i) {
        edit.old_lines.emplace_back(without_cr(lines[i]));
    }
    if (i == lines.size()) {
        reply.problems.push_back(fmt::format("{}: no line `{}`", edit.file, k_middle));
        return i;
    }
    for (++i; i < lines.size() && !is_marker(lines[i], k_replace); ++i) {
        edit.new_lines.emplace_back(without_cr(lines[i]));
    }
    if (i == lines.size()) {
        reply.problems.push_back(fmt::format("{}: no line `{}`: was the reply cut off?", edit.file, k_replace));
        return i;
    }
    reply.edits.push_back(std::move(edit));
    return i + 1;
}

}  // namespace

bool abstains(std::string_view reply) {
    const auto lines = text::split(reply, '\n');
    return std::any_of(lines.begin(), lines.end(),
                       [](std::string_view line) { return text::trim(line) == k_no_valid_edit; });
}

EditReply parse_edits(std::string_view reply) {
    EditReply out;
    const auto lines = lines_of(reply);
    for (std::size_t i = 0; i < lines.size();) {
        i = lines[i].starts_with(k_head) ? read_block(lines, i, out) : i + 1;
    }
    return out;
}

AppliedEdits apply_edits(const EditReply& reply, const std::map<std::string, std::string>& files, std::size_t most) {
    AppliedEdits out;
    std::map<std::string, std::string> changed;
    bool failed = !reply.problems.empty() || reply.edits.empty();
    for (const auto& problem : reply.problems) out.near_misses += problem + "\n";
    if (reply.edits.size() > most) {
        failed = true;
        out.near_misses += fmt::format("{} edits; at most {} are allowed.\n", reply.edits.size(), most);
    }
    for (const Edit& edit : reply.edits) {
        EditResult result{edit.file, false, {}};
        const auto original = files.find(edit.file);
        if (original == files.end()) {
            result.reason = "not a file that may be changed";
            out.near_misses += fmt::format("{}: {}\n", edit.file, result.reason);
        } else if (edit.old_lines.empty()) {
            result.reason = "no SEARCH lines";
            out.near_misses += fmt::format("{}: {}\n", edit.file, result.reason);
        } else {
            const std::string text = changed.contains(edit.file) ? changed[edit.file] : original->second;
            const auto lines = lines_of(text);
            const auto found = matches(lines, edit.old_lines);
            if (found.size() == 1) {
                result.applied = true;
                changed[edit.file] = replaced(lines, found.front(), edit, text.ends_with('\n'));
            } else {
                result.reason = fmt::format("the SEARCH lines occur {} times", found.size());
                out.near_misses += near_miss(edit, lines, found.size());
            }
        }
        failed = failed || !result.applied;
        out.results.push_back(std::move(result));
    }
    out.all = !failed;
    if (failed) {
        for (EditResult& result : out.results) {
            if (result.applied) result = {result.file, false, "another edit of the reply failed"};
        }
        return out;
    }
    out.files = std::move(changed);
    return out;
}

}  // namespace gdnctl::loop::evolve
