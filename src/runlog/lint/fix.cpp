#include <algorithm>
#include <map>

#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

FixResult apply_fixes(std::string_view bytes, std::span<const Finding> findings, bool unsafe) {
    std::vector<const Finding*> chosen;
    for (const Finding& finding : findings) {
        if (finding.fix && (finding.fix->safe || unsafe)) chosen.push_back(&finding);
    }
    // All edits of a finding are applied together, or in the next round if one overlaps another finding's edit.
    std::vector<Edit> edits;
    std::map<std::size_t, std::size_t> taken;  // start of the bytes of each edit -> their end
    FixResult result;
    for (const Finding* finding : chosen) {
        const auto overlaps = [&](const Edit& edit) {
            const auto after = taken.lower_bound(edit.offset + edit.length);
            return after != taken.begin() && std::prev(after)->second > edit.offset;
        };
        const auto& wanted = finding->fix->edits;
        if (std::any_of(wanted.begin(), wanted.end(), overlaps)) continue;
        for (const Edit& edit : wanted) {
            edits.push_back(edit);
            std::size_t& end = taken[edit.offset];
            end = std::max(end, edit.offset + edit.length);
        }
        ++result.fixed;
    }
    std::stable_sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.offset < b.offset; });
    std::size_t copied = 0;
    for (const Edit& edit : edits) {
        if (edit.offset < copied) continue;  // a fix whose own edits overlap
        result.bytes += bytes.substr(copied, edit.offset - copied);
        result.bytes += edit.text;
        copied = edit.offset + edit.length;
    }
    result.bytes += bytes.substr(copied);
    return result;
}

}  // namespace gdnctl::runlog
