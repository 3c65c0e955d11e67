#include "oracle/gdn/selftest/backward_mutants.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"

namespace gdnctl::oracle {

namespace {

using BackwardMutants = std::vector<BackwardMutant>;
using Stages = std::vector<std::string>;
using Term = BackwardTerm;

BackwardMutant term(std::string name, Stages stages, Term which, double factor, Dropped dropped = Dropped::nothing) {
    BackwardMutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.fault.term = which;
    m.fault.factor = factor;
    m.fault.dropped = dropped;
    return m;
}

template <class Change>
BackwardMutant with(std::string name, Stages stages, Change change, bool whole_only) {
    BackwardMutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    change(m.fault);
    m.whole_only = whole_only;
    return m;
}

BackwardMutant after(std::string name, Stages stages, std::function<void(GdnGradients&, const GdnReference&)> spoil) {
    return with(std::move(name), std::move(stages), [&](BackwardFault& f) { f.after = std::move(spoil); }, true);
}

// dU, dP, Y, dM: used by several gradients.
void add_shared(BackwardMutants& all) {
    const Stages shared = {"bwd_shared"};
    all.push_back(term("P^T dO left out", shared, Term::dU_intra, 0));
    all.push_back(term("P^T dO 10 % too large", shared, Term::dU_intra, 1.1));
    all.push_back(term("K D left out of dU", shared, Term::dU_state, 0));
    all.push_back(term("K D without decay", shared, Term::dU_state, 1, Dropped::decay));
    all.push_back(term("Y without the solve", shared, Term::solve, 0));
    all.push_back(term("Y solved with the wrong sign", shared, Term::solve, -1));
    all.push_back(term("dP left out", shared, Term::dP, 0));
    all.push_back(term("dP with the wrong sign", shared, Term::dP, -1));
    all.push_back(term("dM left out", shared, Term::dM, 0));
    all.push_back(term("dM with the wrong sign", shared, Term::dM, -1));
    all.push_back(with("dP without its mask", shared, [](BackwardFault& f) { f.upper_triangle = true; }, false));
    all.push_back(with(
        "Y, U and D in bf16", {"rounding", "bwd_shared"}, [](BackwardFault& f) { f.bf16_operands = true; }, false));
}

// The gradient of the state, from chunk to chunk.
void add_state(BackwardMutants& all) {
    const Stages shared = {"bwd_shared"};
    all.push_back(term("D without decay", shared, Term::dS_keep, 1, Dropped::decay));
    all.push_back(term("D left out of dS", shared, Term::dS_keep, 0));
    all.push_back(term("Q^T dO left out of dS", shared, Term::dS_read, 0));
    all.push_back(term("Q^T dO without decay", shared, Term::dS_read, 1, Dropped::decay));
    all.push_back(term("Q^T dO without the scale", shared, Term::dS_read, 1, Dropped::scale));
    all.push_back(term("K^T Y left out of dS", shared, Term::dS_forget, 0));
    all.push_back(term("K^T Y without decay", shared, Term::dS_forget, 1, Dropped::decay));
    all.push_back(term("K^T Y without beta", shared, Term::dS_forget, 1, Dropped::beta));
    all.push_back(
        with("the state's gradient is not carried", shared, [](BackwardFault& f) { f.carried = false; }, false));
    all.push_back(with(
        "the final state's gradient is dropped", shared, [](BackwardFault& f) { f.final_cotangent = false; }, true));
    all.push_back(
        with("recomputed without the initial state", shared, [](BackwardFault& f) { f.initial_state = false; }, true));
    all.push_back(after("dS0 transposed", {"dS0"}, [](GdnGradients& g, const GdnReference& r) {
        g.d_initial_state = to_layout(g.d_initial_state, r.problem.dims, StateLayout::value_key);
    }));
    all.push_back(after("dS0 is dS_T", {"dS0"}, [](GdnGradients& g, const GdnReference& r) {
        g.d_initial_state = r.backward->cotangents.d_final_state;
    }));
}

void add_values(BackwardMutants& all) {
    all.push_back(term("dv without beta", {"dv"}, Term::dV, 1, Dropped::beta));
    all.push_back(term("dv 5 % too small", {"dv"}, Term::dV, 0.95));
    all.push_back(term("beta's gradient without its second term", {"dbeta"}, Term::dbeta_gram, 0));
    all.push_back(term("beta's second term without decay", {"dbeta"}, Term::dbeta_gram, 1, Dropped::decay));
    all.push_back(term("beta's gradient without its first term", {"dbeta"}, Term::dbeta_row, 0));
    all.push_back(term("beta's gradient without K S's decay", {"dbeta"}, Term::dbeta_row, 1, Dropped::decay));
    all.push_back(after("dbeta times beta", {"dbeta"}, [](GdnGradients& g, const GdnReference& r) {
        for (std::size_t i = 0; i < g.dbeta.size(); ++i) g.dbeta[i] *= r.problem.beta[i];
    }));
}

void add_keys(BackwardMutants& all) {
    all.push_back(term("dO S^T left out of dq", {"dq"}, Term::dQ_state, 0));
    all.push_back(term("dO S^T without decay", {"dq"}, Term::dQ_state, 1, Dropped::decay));
    all.push_back(term("dO S^T without the scale", {"dq"}, Term::dQ_state, 1, Dropped::scale));
    all.push_back(term("dP K left out of dq", {"dq"}, Term::dQ_intra, 0));
    all.push_back(term("dP K without decay", {"dq"}, Term::dQ_intra, 1, Dropped::decay));
    all.push_back(term("dP K without the scale", {"dq"}, Term::dQ_intra, 1, Dropped::scale));
    all.push_back(term("U D^T left out of dk", {"dk"}, Term::dK_state, 0));
    all.push_back(term("U D^T without decay", {"dk"}, Term::dK_state, 1, Dropped::decay));
    all.push_back(term("Y S^T left out of dk", {"dk"}, Term::dK_forget, 0));
    all.push_back(term("Y S^T with the wrong sign", {"dk"}, Term::dK_forget, -1));
    all.push_back(term("Y S^T without beta", {"dk"}, Term::dK_forget, 1, Dropped::beta));
    all.push_back(term("dP^T Q left out of dk", {"dk"}, Term::dK_intra, 0));
    all.push_back(term("dP^T Q without the scale", {"dk"}, Term::dK_intra, 1, Dropped::scale));
    all.push_back(term("N K left out of dk", {"dk"}, Term::dK_row, 0));
    all.push_back(term("N^T K left out of dk", {"dk"}, Term::dK_column, 0));
    all.push_back(term("N^T K without beta", {"dk"}, Term::dK_column, 1, Dropped::beta));
    const Stages group = {"gva_grad"};
    all.push_back(
        with("first value head alone", group, [](BackwardFault& f) { f.group = GroupGradient::first; }, true));
    all.push_back(with("last value head alone", group, [](BackwardFault& f) { f.group = GroupGradient::last; }, true));
    all.push_back(
        with("average over the value heads", group, [](BackwardFault& f) { f.group = GroupGradient::average; }, true));
    const Stages norm = {"l2norm_grad"};
    all.push_back(
        with("l2norm's gradient missing", norm, [](BackwardFault& f) { f.norm = NormGradient::missing; }, true));
    all.push_back(with(
        "l2norm's projection missing", norm, [](BackwardFault& f) { f.norm = NormGradient::no_projection; }, true));
    all.push_back(after("dq and dk exchanged", {"bwd_shared", "dq", "dk", "gva_grad", "l2norm_grad"},
                        [](GdnGradients& g, const GdnReference&) { std::swap(g.dq, g.dk); }));
    all.push_back(after("dq has the wrong sign", {"dq"}, [](GdnGradients& g, const GdnReference&) {
        for (double& x : g.dq) x = -x;
    }));
}

void add_gates(BackwardMutants& all) {
    const Stages dg = {"dg"};
    all.push_back(term("dP P left out of dg", dg, Term::dg_intra, 0));
    all.push_back(term("dM M left out of dg", dg, Term::dg_solve, 0));
    all.push_back(term("Q S left out of dg", dg, Term::dg_read, 0));
    all.push_back(term("K S left out of dg", dg, Term::dg_forget, 0));
    all.push_back(term("K S without beta in dg", dg, Term::dg_forget, 1, Dropped::beta));
    all.push_back(term("writes left out of dg", dg, Term::dg_insert, 0));
    all.push_back(term("writes without decay in dg", dg, Term::dg_insert, 1, Dropped::decay));
    all.push_back(term("the state's decay left out of dg", dg, Term::dg_keep, 0));
    all.push_back(term("the state's decay without decay in dg", dg, Term::dg_keep, 1, Dropped::decay));
    for (const auto& [name, gates] : {std::pair{"dg without its reverse sum", GateGradient::no_sum},
                                      {"dg summed forwards", GateGradient::forwards},
                                      {"dg's sum exclusive", GateGradient::exclusive}}) {
        const GateGradient how = gates;
        all.push_back(with(name, dg, [how](BackwardFault& f) { f.gates = how; }, false));
    }
    all.push_back(after("one value of dg is NaN", {"dg", "bwd_shared"},
                        [](GdnGradients& g, const GdnReference&) { g.dg[g.dg.size() / 2] = std::nan(""); }));
    all.push_back(after("dg of alpha", {"dg"}, [](GdnGradients& g, const GdnReference& r) {
        for (std::size_t i = 0; i < g.dg.size(); ++i) g.dg[i] /= std::exp(r.problem.gate[i]);
    }));
}

}  // namespace

std::vector<BackwardMutant> unexpected_backward_mutants() {
    struct Named {
        Term term;
        const char* name;
        const char* stage;
    };
    constexpr std::array k_terms = {
        Named{Term::dU_intra, "P^T dO", "bwd_shared"},
        Named{Term::dU_state, "K D in dU", "bwd_shared"},
        Named{Term::solve, "the solve for Y", "bwd_shared"},
        Named{Term::dP, "dP", "bwd_shared"},
        Named{Term::dM, "dM", "bwd_shared"},
        Named{Term::dS_keep, "D in dS", "bwd_shared"},
        Named{Term::dS_read, "Q^T dO in dS", "bwd_shared"},
        Named{Term::dS_forget, "K^T Y in dS", "bwd_shared"},
        Named{Term::dV, "dv", "dv"},
        Named{Term::dbeta_row, "beta's first term", "dbeta"},
        Named{Term::dbeta_gram, "beta's second term", "dbeta"},
        Named{Term::dQ_state, "dO S^T in dq", "dq"},
        Named{Term::dQ_intra, "dP K in dq", "dq"},
        Named{Term::dK_state, "U D^T in dk", "dk"},
        Named{Term::dK_forget, "Y S^T in dk", "dk"},
        Named{Term::dK_intra, "dP^T Q in dk", "dk"},
        Named{Term::dK_row, "N K in dk", "dk"},
        Named{Term::dK_column, "N^T K in dk", "dk"},
        Named{Term::dg_intra, "dP P in dg", "dg"},
        Named{Term::dg_solve, "dM M in dg", "dg"},
        Named{Term::dg_read, "Q S in dg", "dg"},
        Named{Term::dg_forget, "K S in dg", "dg"},
        Named{Term::dg_insert, "writes in dg", "dg"},
        Named{Term::dg_keep, "the state's decay in dg", "dg"},
    };
    BackwardMutants all;
    for (const Named& n : k_terms) {
        BackwardMutant some = term(fmt::format("{}, one value in five 0", n.name), {n.stage}, n.term, 0);
        some.fault.period = 5;
        BackwardMutant other = term(fmt::format("{}, one value in three turned round", n.name), {n.stage}, n.term, -1);
        other.fault.period = 3;
        BackwardMutant noisy = term(fmt::format("{}, up to 10 % more or less", n.name), {n.stage}, n.term, 1);
        noisy.fault.ripple = 0.1;
        for (BackwardMutant* m : {&some, &other, &noisy}) all.push_back(std::move(*m));
    }
    return all;
}

std::vector<BackwardMutant> all_backward_mutants() {
    BackwardMutants all;
    add_shared(all);
    add_state(all);
    add_values(all);
    add_keys(all);
    add_gates(all);
    return all;
}

}  // namespace gdnctl::oracle
