// A generated case as arrays of a caller of libgdn.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gdn/gdn.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/problem.h"

namespace gdnctl::libgdn_testing {

using Floats = std::vector<float>;

inline Floats narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

// A generated case as arrays of the caller.
struct Problem {
    oracle::ResolvedContract contract;
    oracle::GdnProblem problem;
    Floats q, k, v, g, beta, state, out, final_state;
    std::vector<std::int64_t> cu_seqlens;
    gdn_call call{};

    explicit Problem(std::string_view name) {
        const auto inputs = oracle::make_inputs(*oracle::find_gdn_case(name));
        contract = *oracle::resolve_contract("marin", inputs.metadata, {});
        problem = *oracle::read_problem(inputs, contract);
        q = narrowed(problem.q);
        k = narrowed(problem.k);
        v = narrowed(problem.v);
        g = narrowed(problem.gate);
        beta = narrowed(problem.beta);
        state = narrowed(problem.initial_state);
        out.resize(v.size());
        const auto& d = problem.dims;
        final_state.resize(problem.sequences.size() * static_cast<std::size_t>(d.Hv * d.dk * d.dv));
        gdn_call_init(&call, d.B, d.T, d.Hk, d.Hv, d.dk, d.dv);
        if (problem.has_cu_seqlens) {
            cu_seqlens.push_back(0);
            for (const auto& s : problem.sequences) cu_seqlens.push_back(s.end);
            call.cu_seqlens = cu_seqlens.data();
            call.sequences = static_cast<std::int64_t>(problem.sequences.size());
        }
        gdn_call_arrays(&call, q.data(), k.data(), v.data(), g.data(), beta.data(),
                        state.empty() ? nullptr : state.data(), out.data(), final_state.data());
        call.l2norm = contract.value.l2norm == oracle::L2Norm::off ? 0 : 1;
        call.l2norm_eps = contract.value.eps;
        call.head_map = contract.value.head_map == oracle::HeadMap::tiled ? GDN_HEADS_TILED : GDN_HEADS_INTERLEAVED;
    }

    oracle::GdnReport judged() const {
        const auto reference = oracle::make_reference(problem, contract, 2);
        const oracle::GdnOutputs outputs{{out.begin(), out.end()}, {final_state.begin(), final_state.end()}, 0};
        return *oracle::judge(
            reference, oracle::outputs_file(problem, contract.value, outputs, oracle::DType::f32, oracle::DType::f32),
            {});
    }
};

}  // namespace gdnctl::libgdn_testing
