#include <algorithm>

#include "core/text.h"

namespace gdnctl::text {

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
    if (a.size() > b.size()) std::swap(a, b);
    if (b.size() - a.size() > limit) return limit + 1;
    // Three rows of the optimal-string-alignment table: two back (for a swap of neighbours), one back, this one.
    std::vector<std::size_t> before(a.size() + 1), last(a.size() + 1), row(a.size() + 1);
    for (std::size_t i = 0; i <= a.size(); ++i) last[i] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
        row[0] = j;
        std::size_t best = j;
        for (std::size_t i = 1; i <= a.size(); ++i) {
            const std::size_t substitution = last[i - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[i] = std::min({last[i] + 1, row[i - 1] + 1, substitution});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[i] = std::min(row[i], before[i - 2] + 1);
            }
            best = std::min(best, row[i]);
        }
        if (best > limit) return limit + 1;
        before.swap(last);
        last.swap(row);
    }
    return std::min(last[a.size()], limit + 1);
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
    if (word.empty()) return std::nullopt;
    const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
    const std::string* best = nullptr;
    std::size_t best_distance = limit + 1;
    const std::string lower = to_lower(word);
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(lower, to_lower(candidate), limit);
        if (distance < best_distance) {
            best = &candidate;
            best_distance = distance;
        }
    }
    if (best != nullptr) return *best;
    const std::string* extended = nullptr;
    for (const std::string& candidate : candidates) {
        if (!candidate.starts_with(word)) continue;
        if (extended != nullptr) return std::nullopt;  // more than one could be meant
        extended = &candidate;
    }
    return extended == nullptr ? std::nullopt : std::optional<std::string>(*extended);
}

}  // namespace gdnctl::text
