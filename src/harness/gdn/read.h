// From the shape or a file of inputs of gdn to the truth about them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/operator.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/layer_inputs/layer_inputs.h"

namespace gdnctl::harness {

// "B,Hk,Hv,T,dk,dv", as --shape takes it.
Result<oracle::GdnDims> parse_shape(const std::string& text);

// How to choose the contract, in addition to the file's metadata.
struct ContractChoice {
    std::string contract = "marin";
    std::vector<std::string> sets;  // FIELD=VALUE
};

// A file of inputs of gdn, or of its layer, as its contract has it.

// By which rule outputs are judged: both, or neither for the budget.
struct FixedRule {
    std::optional<double> rtol, atol;
};

class GdnReading : public Reading {
public:
    // `inputs` must outlive it. `chunk`: another chunk length than the contract's. Errors: bad_input; usage, of the
    // contract.
    static Result<std::unique_ptr<GdnReading>> read(const oracle::TensorFile& inputs, const ContractChoice& choice,
                                                    std::optional<std::int64_t> chunk, const FixedRule& rule);

    const oracle::GdnProblem& problem() const { return m_reference.problem; }
    const oracle::ResolvedContract& contract() const { return m_reference.contract; }

    // Computes the truth about it and its budget, and gives it away with the problem. Error: bad_input, it is too large
    // (with its gradients, if they are to follow).
    Result<oracle::GdnReference> take_reference(int threads, oracle::Passes passes = oracle::Passes::forward);
    Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) override;

private:
    explicit GdnReading(const oracle::TensorFile& inputs) : m_inputs(inputs) {}

    // The words of a command line with its contract, its sets and `more`.
    std::vector<std::string> words_with(const std::vector<std::string>& more) const;
    void declare(const oracle::Declaration& found, oracle::GdnReport& report) const;
    Status explain(const oracle::TensorFile& outputs, int threads, oracle::GdnReport& report) const;

    const oracle::TensorFile& m_inputs;
    ContractChoice m_choice;
    oracle::GdnReference m_reference;  // the truth once it is judged
    FixedRule m_rule;
};

class LayerReading : public Reading {
public:
    static Result<std::unique_ptr<LayerReading>> read(const oracle::TensorFile& inputs, const ContractChoice& choice);

    const oracle::GdnLayer& layer() const { return m_layer; }
    const oracle::LayerContract& contract() const { return m_contract; }

    Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) override;

private:
    explicit LayerReading(const oracle::TensorFile& inputs) : m_inputs(inputs) {}

    const oracle::TensorFile& m_inputs;
    oracle::GdnLayer m_layer;
    oracle::LayerContract m_contract;
};

// gdn for the engines of verify and bench.
const Operator& gdn_operator();
// Inputs whose truth is known, as those engines have them. Both must outlive it.
std::unique_ptr<Problem> gdn_problem(const oracle::TensorFile& inputs, const oracle::GdnReference& reference);

}  // namespace gdnctl::harness
