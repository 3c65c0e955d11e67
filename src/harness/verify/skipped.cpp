#include "harness/verify/skipped.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "harness/verify/alike.h"

namespace gdnctl::harness {

std::string text_of(const std::vector<SkippedCase>& cases) {
    std::vector<std::pair<std::string, int>> counts;
    for (const SkippedCase& c : cases) {
        const auto found =
            std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == c.reason; });
        if (found == counts.end()) {
            counts.emplace_back(c.reason, 1);
        } else {
            ++found->second;
        }
    }
    if (counts.empty()) return {};
    std::string text = fmt::format("skipped, not as declared: {} case{}\n", cases.size(), cases.size() == 1 ? "" : "s");
    for (const auto& [reason, count] : counts) text += fmt::format("       {:>4}  {}\n", count, reason);
    return text;
}

Json json_of(const std::vector<SkippedCase>& cases) {
    Json all = Json::array();
    for (const SkippedCase& c : cases) all.push_back({{"name", c.name}, {"reason", c.reason}});
    return all;
}

std::string alike_text(const std::string& analysed, const std::vector<std::string>& others) {
    std::string line = fmt::format("fault in {}", analysed);
    if (others.empty()) return line;
    line += fmt::format("; {} more look{} like it:", others.size(), others.size() == 1 ? "s" : "");
    constexpr std::size_t k_listed = 5;
    for (std::size_t i = 0; i < std::min(others.size(), k_listed); ++i) {
        line += fmt::format("{} {}", i == 0 ? "" : ",", others[i]);
    }
    return line + (others.size() > k_listed ? ", ..." : "");
}

}  // namespace gdnctl::harness
