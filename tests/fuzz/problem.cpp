// Any bytes as a file of inputs to the operator, and to the layer around it: the contract in its metadata, then sizes,
// sequences and values. What is accepted has values for all its sizes and sequences inside its tokens, and its contract
// reads the same after it was written.
#include "oracle/gdn/contract/problem.h"

#include <algorithm>
#include <cstdint>

#include "fuzz/fuzz.h"
#include "oracle/gdn/layer_inputs/layer_inputs.h"
#include "oracle/tensor/formats.h"

namespace {

using namespace gdnctl::oracle;

bool has(const std::vector<double>& values, std::initializer_list<std::int64_t> shape) {
    return element_count(Shape(shape)) == values.size();
}

void check_sizes(const GdnProblem& p) {
    const GdnDims& d = p.dims;
    require(d.Hk > 0 && d.Hv > 0 && d.dk > 0 && d.dv > 0 && d.Hv % d.Hk == 0);
    require(has(p.q, {p.rows(), d.Hk, d.dk}) && has(p.k, {p.rows(), d.Hk, d.dk}) && has(p.v, {p.rows(), d.Hv, d.dv}));
    require(has(p.gate, {p.rows(), d.Hv}) && has(p.beta, {p.rows(), d.Hv}));
    const auto states = static_cast<std::int64_t>(p.sequences.size());
    require(p.initial_state.empty() || has(p.initial_state, {states, d.Hv, d.dk, d.dv}));
    require(p.head_lengths.empty() || p.head_lengths.size() == static_cast<std::size_t>(states * d.Hv));
    for (const std::int64_t length : p.head_lengths) require(0 <= length && length <= d.T);
    for (const GdnSequence& s : p.sequences) require(0 <= s.begin && s.begin <= s.end && s.end <= p.rows());
}

void check_sizes(const GdnLayer& p) {
    const GdnDims& d = p.dims;
    const std::int64_t rows = d.B * d.T, channels = p.channels();
    require(d.Hk > 0 && d.Hv > 0 && d.dk > 0 && d.dv > 0 && d.Hv % d.Hk == 0 && p.taps > 0);
    require(has(p.x, {rows, channels}) && has(p.z, {rows, d.Hv, d.dv}));
    require(has(p.a, {rows, d.Hv}) && has(p.b, {rows, d.Hv}));
    require(has(p.conv_weight, {channels, p.taps}) && (p.conv_bias.empty() || has(p.conv_bias, {channels})));
    require(has(p.A_log, {d.Hv}) && has(p.dt_bias, {d.Hv}) && has(p.norm_weight, {d.dv}));
    require(p.conv_state.empty() || has(p.conv_state, {d.B, channels, p.taps}));
    require(p.initial_state.empty() || has(p.initial_state, {d.B, d.Hv, d.dk, d.dv}));
}

void try_layer(const TensorFile& file) {
    for (const std::string& name : layer_contract_names()) {
        auto contract = resolve_layer_contract(name, file.metadata, {});
        if (!contract) continue;
        if (const auto layer = read_layer(file, *contract)) check_sizes(*layer);
    }
}

}  // namespace

FUZZ(problem) {
    const auto file = parse_safetensors({data, size}, "input");
    if (!file) return 0;
    try_layer(*file);
    for (const char* name : {"marin", "hf", "flashinfer"}) {
        auto contract = resolve_contract(name, file->metadata, {});
        if (!contract) continue;
        const auto problem = read_problem(*file, *contract);
        if (!problem) continue;
        check_sizes(*problem);
        auto again = resolve_contract(name, contract->as_metadata(), {});
        require(again && read_problem(*file, *again).has_value() && again->text() == contract->text());
    }
    return 0;
}
