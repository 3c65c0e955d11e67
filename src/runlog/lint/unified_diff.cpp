// A unified diff for texts that differ in few places.
#include <algorithm>

#include <fmt/format.h>

#include "core/redact.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

namespace {

constexpr std::size_t k_context = 3;
constexpr std::size_t k_resync = 200;  // lines to search ahead for the next common one

// Lines with their endings, so that a changed ending counts as a change.
std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    LineCursor cursor(text);
    Line line;
    while (cursor.next(line)) {
        lines.push_back({line.text.data(), line.text.size() + cursor.ending().size()});
    }
    return lines;
}

// Replaces each secret by its first four characters and as many line ends as it has; never equal to a masked one
// (`***`).
std::string without_secrets(std::string_view text) {
    std::string shown;
    std::size_t done = 0;
    for (const SecretShape& shape : find_secret_shapes(text)) {
        const std::string_view secret = text.substr(shape.offset, shape.length);
        shown += text.substr(done, shape.offset - done);
        shown += secret.size() >= 16 ? secret.substr(0, 4) : std::string_view();
        shown += "…";
        shown.append(static_cast<std::size_t>(std::count(secret.begin(), secret.end(), '\n')), '\n');
        done = shape.offset + shape.length;
    }
    shown += text.substr(done);
    return shown;
}

// Old lines [a, a_end) became new lines [b, b_end).
struct Replacement {
    std::size_t a, a_end, b, b_end;
};

// The nearest position from which both texts continue alike.
Replacement next_change(const std::vector<std::string_view>& old_lines, const std::vector<std::string_view>& new_lines,
                        std::size_t a, std::size_t b) {
    for (std::size_t sum = 1; sum <= 2 * k_resync; ++sum) {
        for (std::size_t skip_a = sum > k_resync ? sum - k_resync : 0; skip_a <= std::min(sum, k_resync); ++skip_a) {
            const std::size_t i = a + skip_a, j = b + (sum - skip_a);
            if (i > old_lines.size() || j > new_lines.size()) continue;
            const bool both_end = i == old_lines.size() && j == new_lines.size();
            if (both_end || (i < old_lines.size() && j < new_lines.size() && old_lines[i] == new_lines[j])) {
                return {a, i, b, j};
            }
        }
    }
    return {a, old_lines.size(), b, new_lines.size()};
}

void append(std::string& out, char mark, std::string_view line) {
    const bool ended = line.ends_with('\n') || line.ends_with('\r');
    out += mark;
    out += line;
    if (line.ends_with('\r')) out += '\n';
    if (!ended) out += "\n\\ No newline at end of file\n";
}

std::string range(std::size_t begin, std::size_t count) {
    const std::size_t first = count == 0 ? begin : begin + 1;
    return count == 1 ? fmt::format("{}", first) : fmt::format("{},{}", first, count);
}

}  // namespace

std::string unified_diff(std::string_view before, std::string_view after, std::string_view path) {
    if (before == after) return {};
    const std::string shown_before = without_secrets(before), shown_after = without_secrets(after);
    const std::vector<std::string_view> a = lines_of(shown_before), b = lines_of(shown_after);
    std::vector<Replacement> changes;
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        if (i < a.size() && j < b.size() && a[i] == b[j]) {
            ++i;
            ++j;
            continue;
        }
        changes.push_back(next_change(a, b, i, j));
        i = changes.back().a_end;
        j = changes.back().b_end;
    }
    std::string out = fmt::format("--- a/{}\n+++ b/{}\n", path, path);
    for (std::size_t first = 0; first < changes.size();) {
        std::size_t last = first;
        while (last + 1 < changes.size() && changes[last + 1].a - changes[last].a_end <= 2 * k_context) ++last;
        const std::size_t lead = std::min({changes[first].a, changes[first].b, k_context});
        const std::size_t begin_a = changes[first].a - lead, begin_b = changes[first].b - lead;
        const std::size_t tail = std::min(a.size() - changes[last].a_end, k_context);
        const std::size_t end_a = changes[last].a_end + tail, end_b = changes[last].b_end + tail;
        out += fmt::format("@@ -{} +{} @@\n", range(begin_a, end_a - begin_a), range(begin_b, end_b - begin_b));
        std::size_t at = begin_a;
        for (std::size_t c = first; c <= last; ++c) {
            for (; at < changes[c].a; ++at) append(out, ' ', a[at]);
            for (std::size_t i = changes[c].a; i < changes[c].a_end; ++i) append(out, '-', a[i]);
            for (std::size_t i = changes[c].b; i < changes[c].b_end; ++i) append(out, '+', b[i]);
            at = changes[c].a_end;
        }
        for (; at < end_a; ++at) append(out, ' ', a[at]);
        first = last + 1;
    }
    return out;
}

}  // namespace gdnctl::runlog
