// Results that were never written.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/compare/localise.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

// All of it, and that is wrong.
bool all_zero(const std::optional<Evidence>& e) {
    if (!e || std::any_of(e->got->begin(), e->got->end(), [](double x) { return x != 0; })) return false;
    double allowed = 0;
    for (const GroupBudget& b : e->budgets) allowed = std::max(allowed, k_ok_band * b.max_abs);
    return std::any_of(e->want->begin(), e->want->end(), [allowed](double y) { return std::fabs(y) > allowed; });
}

// Rows of out that are wrong, and those of them that are 0.
struct WrongRows {
    Index wrong = 0, zero = 0;
    Index heads = 0;                        // with such rows
    std::int64_t sequence = 0, head = 0;    // of the first
    Index first_token = 0, last_token = 0;  // of that head
    bool tail = true;                       // each head's are the tokens of its last, incomplete chunk
    bool state_wrong = false;
};

WrongRows wrong_rows(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<LaneErrors>& errors) {
    WrongRows rows;
    const auto heads = static_cast<Index>(r.problem.dims.Hv);
    const auto dv = static_cast<Index>(r.problem.dims.dv);
    const auto chunk = static_cast<Index>(r.contract.value.chunk);
    for (const LaneErrors& lane : errors) {
        rows.state_wrong = rows.state_wrong || (lane.final_state && !(*lane.final_state <= k_ok_band));
        if (!evidence.out) continue;
        const GdnSequence s = r.problem.sequences[static_cast<Index>(lane.sequence)];
        const auto length = static_cast<Index>(s.end - s.begin);
        const Index group = static_cast<Index>(lane.sequence) * heads + static_cast<Index>(lane.head);
        const double allowed = k_ok_band * evidence.out->budgets[group].max_abs;
        Index first = length;
        Index last = 0;
        for (Index t = 0; t < length; ++t) {
            const Index at = ((static_cast<Index>(s.begin) + t) * heads + static_cast<Index>(lane.head)) * dv;
            bool wrong = false;
            bool zero = true;
            for (Index i = at; i < at + dv; ++i) {
                wrong = wrong || !(std::fabs((*evidence.out->got)[i] - (*evidence.out->want)[i]) <= allowed);
                zero = zero && (*evidence.out->got)[i] == 0;
            }
            rows.wrong += wrong ? 1 : 0;
            if (!wrong || !zero) continue;
            ++rows.zero;
            first = std::min(first, t);
            last = t;
        }
        if (first == length) continue;
        rows.tail = rows.tail && first > 0 && first % chunk == 0 && length - first < chunk;
        if (rows.heads++ > 0) continue;
        rows.sequence = lane.sequence;
        rows.head = lane.head;
        rows.first_token = first;
        rows.last_token = last;
    }
    return rows;
}

std::string where_zero(const WrongRows& rows, bool several_sequences) {
    const std::string sequence = several_sequences ? fmt::format("sequence {}, ", rows.sequence) : std::string();
    const std::string where =
        rows.first_token == rows.last_token
            ? fmt::format("{}value head {}, token {}", sequence, rows.head, rows.first_token)
            : fmt::format("{}value head {}, tokens {} to {}", sequence, rows.head, rows.first_token, rows.last_token);
    return fmt::format("out is exactly 0 in {} row{} ({}{}): consistent with rows that were never written", rows.zero,
                       rows.zero == 1 ? "" : "s", rows.heads > 1 ? "first in " : "", where);
}

Diagnosis unwritten(const WrongRows& rows, bool several_sequences) {
    Diagnosis d;
    d.stages = rows.tail ? std::vector<std::string>{"padding", "tile"} : std::vector<std::string>{"tile", "padding"};
    d.stage = d.stages.front();
    d.hints.push_back({d.stage, where_zero(rows, several_sequences), 1});
    return d;
}

}  // namespace

std::optional<Diagnosis> match_zeros(const GdnReference& r, const ForwardEvidence& evidence,
                                     const std::vector<LaneErrors>& errors) {
    const bool out = all_zero(evidence.out);
    const bool state = all_zero(evidence.state);
    if (!out && !state) {
        const WrongRows rows = wrong_rows(r, evidence, errors);
        if (rows.zero == 0 || rows.zero != rows.wrong || rows.state_wrong) return std::nullopt;
        return unwritten(rows, r.problem.sequences.size() > 1);
    }
    const char* which = out && state ? "out and final_state are" : out ? "out is" : "final_state is";
    const std::string stage = out ? "output" : "carry";
    return Diagnosis{
        stage,
        {stage, "tile", "padding"},
        {{stage, fmt::format("{} exactly 0 throughout: consistent with results that were never written", which), 1}}};
}

void put_zeros_first(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<LaneErrors>& errors,
                     Diagnosis& d) {
    // What was acted out explains the zeros too.
    if (!d.hints.empty() && d.hints.front().text.starts_with("matches if")) return;
    const WrongRows rows = wrong_rows(r, evidence, errors);
    if (rows.zero == 0) return;
    Diagnosis zeros = unwritten(rows, r.problem.sequences.size() > 1);
    if (rows.zero != rows.wrong) zeros.hints.insert(zeros.hints.end(), d.hints.begin(), d.hints.end());
    for (const std::string& stage : d.stages) {
        if (std::find(zeros.stages.begin(), zeros.stages.end(), stage) == zeros.stages.end())
            zeros.stages.push_back(stage);
    }
    d = std::move(zeros);
}

}  // namespace gdnctl::oracle
