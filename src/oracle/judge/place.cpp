#include "oracle/judge/place.h"

#include <fmt/format.h>

namespace gdnctl::oracle {

namespace {

constexpr int k_most_runs = 12;

// "0-3, 7": at most a dozen runs. `counted`: says how many there are if that is not all.
std::string ranges(const std::vector<std::int64_t>& numbers, bool counted) {
    std::string text;
    int runs = 0;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        if (++runs > k_most_runs) return text + (counted ? fmt::format(", ... ({} in all)", numbers.size()) : ", ...");
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
        if (end > i) text += fmt::format("-{}", numbers[end]);
        i = end + 1;
    }
    return text;
}

}  // namespace

std::string place_text(const std::vector<PlaceAxis>& axes) {
    std::string text;
    for (const PlaceAxis& axis : axes) {
        text += text.empty() ? "where: " : "; ";
        text += axis.at.size() == 1 ? axis.name : axis.several;
        if (axis.whole) {
            text += fmt::format(" {} to {}", axis.at[0], axis.at[1]);
        } else if (!axis.at.empty()) {
            text += " " + ranges(axis.at, axis.extent == 0 && axis.note.empty());
        }
        if (axis.extent > 0) text += fmt::format(" of {}", axis.extent);
        if (!axis.note.empty()) text += fmt::format(" {}", axis.note);
    }
    return text + "\n";
}

}  // namespace gdnctl::oracle
