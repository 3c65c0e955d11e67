#include "oracle/gdn/compare/unjudged.h"

#include <algorithm>

#include "oracle/gdn/compare/backward.h"

namespace gdnctl::oracle {

namespace {

void list_missing(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    for (const std::string_view wanted : {"out", "final_state"}) {
        const bool there = std::any_of(report.tensors.begin(), report.tensors.end(),
                                       [&](const TensorReport& t) { return t.canonical == wanted; });
        if (!there) report.not_compared.push_back({std::string(wanted), "not in the dump"});
    }
    for (const std::string_view wanted : gradient_names()) {
        const auto found = std::find_if(report.tensors.begin(), report.tensors.end(),
                                        [&](const TensorReport& t) { return t.canonical == wanted; });
        if (found != report.tensors.end()) continue;
        const bool there = dump.any_name(
            [&](std::string_view name) { return name_in_dump(dump, name, r.contract.value).canonical == wanted; });
        // The gradients of raw gates and logits say the same.
        const auto judged = [&](std::string_view name) {
            return std::any_of(report.tensors.begin(), report.tensors.end(),
                               [&](const TensorReport& t) { return t.canonical == name; });
        };
        if (!there && wanted == "dg" && (judged("d_a") || judged("d_alpha"))) continue;
        if (!there && wanted == "dbeta" && judged("d_b")) continue;
        // Without an initial state, its gradient is not missing.
        if (!there && wanted == "d_initial_state" && r.problem.initial_state.empty() && r.backward) continue;
        report.not_compared.push_back(
            {std::string(wanted), there ? "neither file contains d_out or d_final_state" : "not in the dump"});
    }
}

// Gradients with a known name, of inputs that the contract does not have.
void list_foreign(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    const auto usual = gradient_names();
    for (const NamedTensor& entry : dump.tensors) {
        const GdnName name = name_in_dump(dump, entry.name, r.contract.value);
        if (name.role != GdnRole::gradient || std::find(usual.begin(), usual.end(), name.canonical) != usual.end()) {
            continue;
        }
        const bool judged = std::any_of(report.tensors.begin(), report.tensors.end(),
                                        [&](const TensorReport& t) { return t.canonical == name.canonical; });
        if (judged) continue;
        report.not_compared.push_back({entry.name, r.backward ? "the contract has no such input"
                                                              : "neither file contains d_out or d_final_state"});
    }
}

}  // namespace

void list_left_alone(const TensorFile& file, GdnName (*meaning)(std::string_view), std::vector<std::string>& unknown,
                     std::vector<UnreadTensor>& unread) {
    const auto add_unknown = [&](const std::string& name) {
        if (meaning(name).role != GdnRole::unknown) return;
        if (std::find(unknown.begin(), unknown.end(), name) == unknown.end()) unknown.push_back(name);
    };
    for (const NamedTensor& entry : file.tensors) add_unknown(entry.name);
    for (const UnreadTensor& entry : file.unread) {
        add_unknown(entry.name);
        if (std::find(unread.begin(), unread.end(), entry) == unread.end()) unread.push_back(entry);
    }
}

void list_unjudged(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    list_left_alone(dump, canonical_name, report.unknown, report.unread);
    for (const NamedTensor& entry : dump.tensors) {
        const std::string_view like = gradient_that_resembles(entry.name);
        if (!like.empty()) report.unjudged_gradients.push_back({entry.name, std::string(like)});
    }
    list_missing(r, dump, report);
    list_foreign(r, dump, report);
}

bool is_written_truth(const TensorFile& dump, const GdnReport& report) {
    const auto exact = [](const TensorReport& t) { return t.stored == DType::f64; };
    const auto equal = [](const TensorReport& t) { return t.max_abs == 0 && t.nonfinite_got == t.nonfinite_want; };
    const auto& tensors = report.tensors;
    if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), exact)) return false;
    const auto method = dump.metadata.find("method");
    return method != dump.metadata.end() ? method->second == "recurrent64"
                                         : std::all_of(tensors.begin(), tensors.end(), equal);
}

}  // namespace gdnctl::oracle
