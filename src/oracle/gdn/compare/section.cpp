#include <cmath>
#include <span>

#include "oracle/gdn/compare/stage_search.h"
#include "oracle/judge/sums.h"

namespace gdnctl::oracle {

std::unique_ptr<Section> make_section(const LaneSearch& search, const GdnReference& r, const ForwardEvidence& evidence,
                                      const WrongLane& lane, bool out_wrong, std::size_t columns) {
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const std::size_t start = lane.first_chunk == 0 || !out_wrong ? lane.first_chunk : lane.first_chunk - 1;
    const Window w = search.window(lane.sequence, lane.head, chunk, start, 3, std::nullopt, columns);
    if (w.place.tokens == 0) return nullptr;
    auto owner = std::make_unique<Section>();
    Section& s = *owner;
    s.chunk = chunk;
    s.lane = prepare_lane(w.inputs, r.contract.value);
    if (evidence.out) {
        for (const std::size_t at : search.out_at(w)) s.out.push_back((*evidence.out->got)[at]);
        s.out_unit = evidence.out->budgets[search.group(w)].rms;
    }
    if (w.ends) {
        for (const std::size_t at : search.state_at(w)) s.state.push_back((*evidence.state->got)[at]);
        s.state_unit = evidence.state->budgets[search.group(w)].rms;
    }
    s.truths.push_back(s.lane.state);
    for (std::size_t first = 0; first < s.lane.tokens; first += chunk) s.parts.push_back(chunk_parts(s.lane, first));
    for (ChunkParts& parts : s.parts) {
        s.honest.push_back(open_chunk(parts, key_uses(s.lane, parts.first, parts.rows), s.truths.back()));
        const OpenChunk& c = s.honest.back();
        s.truths.push_back(state_after(c, solved(c, right_hand_side(c))));
    }
    s.wrong = out_wrong ? lane.first_chunk - start : s.parts.size();
    if (s.wrong >= s.parts.size() && (out_wrong || s.state.empty())) return nullptr;
    return owner;
}

void add_out_errors(const Section& s, std::size_t index, const Reals& out, Reals& errors) {
    const std::size_t begin = errors.size();
    errors.insert(errors.end(), out.begin(), out.end());
    scale_difference(std::span(errors).subspan(begin),
                     std::span(s.out).subspan(s.parts[index].first * s.lane.columns, out.size()), 1 / s.out_unit);
}

void add_state_errors(const Section& s, const Reals& state, Reals& errors) {
    const std::size_t begin = errors.size();
    errors.insert(errors.end(), state.begin(), state.end());
    scale_difference(std::span(errors).subspan(begin), s.state, 1 / s.state_unit);
}

double rms_of(const Reals& errors) {
    return errors.empty() ? 0 : std::sqrt(inner(errors, errors) / static_cast<double>(errors.size()));
}

Reals honest_errors(const Section& s, std::size_t index, const Reals& state, Reals* after) {
    OpenChunk c = s.honest[index];
    const KeyUses uses = key_uses(s.lane, s.parts[index].first, c.rows);
    c.KS = product(uses.key_state, state, c.dk, c.columns);
    c.QS = product(uses.query_state, state, c.dk, c.columns);
    c.state = state;
    const Reals U = solved(c, right_hand_side(c));
    Reals errors;
    if (!s.out.empty()) add_out_errors(s, index, out_of(c, U), errors);
    const bool known = s.knows_state_after(index);
    if (known || after != nullptr) {
        const Reals next = state_after(c, U);
        if (known) add_state_errors(s, next, errors);
        if (after != nullptr) *after = next;
    }
    return errors;
}

bool explains(double before, double after) {
    return (after <= before / 100 && after <= k_wrong_band) || (after <= k_ok_band && after <= before / 9);
}

}  // namespace gdnctl::oracle
