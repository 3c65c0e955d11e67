#include <algorithm>

#include "gdnctl/services/runlog/lint.h"

namespace gdnctl::runlog {

FixResult apply_fixes(std::string_view bytes, std::span<const Finding> findings, bool unsafe) {
    std::vector<const Finding*> chosen;
    for (const Finding& finding : findings) {
        if (finding.fix && (finding.fix->safe || unsafe)) chosen.push_back(&finding);
    }
    struct Planned {
        const Edit* edit;
        std::size_t finding;
    };
    std::vector<Planned> edits;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        for (const Edit& edit : chosen[i]->fix->edits) edits.push_back({&edit, i});
    }
    std::stable_sort(edits.begin(), edits.end(),
                     [](const Planned& a, const Planned& b) { return a.edit->offset < b.edit->offset; });
    FixResult result;
    std::vector<bool> applied(chosen.size(), false);
    std::size_t copied = 0;
    for (const Planned& planned : edits) {
        if (planned.edit->offset < copied) continue;  // overlaps an earlier one: the next round sees to it
        result.bytes += bytes.substr(copied, planned.edit->offset - copied);
        result.bytes += planned.edit->text;
        copied = planned.edit->offset + planned.edit->length;
        applied[planned.finding] = true;
    }
    result.bytes += bytes.substr(copied);
    result.fixed = static_cast<std::size_t>(std::count(applied.begin(), applied.end(), true));
    return result;
}

}  // namespace gdnctl::runlog
