#include "harness/gdn/read.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "harness/files.h"
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/report/report.h"

namespace gdnctl::harness {

Result<oracle::GdnDims> parse_shape(const std::string& text) {
    const auto parts = text::split(text, ',');
    std::vector<std::int64_t> numbers;
    for (const std::string_view part : parts) {
        const auto number = text::parse_int(part);
        if (number && *number >= (numbers.size() == 3 ? 0 : 1) && *number < (std::int64_t{1} << 30U))
            numbers.push_back(*number);
    }
    if (numbers.size() != 6 || parts.size() != 6) {
        return fail(ErrorKind::usage,
                    fmt::format("--shape {}: expected B,Hk,Hv,T,dk,dv, as in 1,4,8,4096,128,128", text));
    }
    return oracle::GdnDims{numbers[0], numbers[3], numbers[1], numbers[2], numbers[4], numbers[5]};
}

namespace {

// `reference` must outlive it.
class GdnJudged : public JudgementReport {
public:
    GdnJudged(const oracle::GdnReference& reference, oracle::GdnReport report, int threads)
        : m_reference(reference), m_report(std::move(report)), m_threads(threads) {}

    std::string text(const Shown& shown) const override {
        return (shown.heatmap ? oracle_report::heatmap_text(m_reference, m_report) : std::string()) +
               oracle_report::report_text(m_reference, m_report);
    }
    void add_to(Json& object) const override {
        oracle_report::add_report(object, m_reference, m_report, oracle::condition_of(m_reference, m_threads));
    }
    std::string page(const Json& verdict) const override { return oracle_report::page(m_reference, m_report, verdict); }

private:
    const oracle::GdnReference& m_reference;
    oracle::GdnReport m_report;
    int m_threads;
};

bool is_gradient(const std::string& name) { return oracle::layer_name(name).role == oracle::GdnRole::gradient; }

// `contract` must outlive it.
class LayerJudged : public JudgementReport {
public:
    LayerJudged(const oracle::ResolvedContract& contract, oracle::LayerReport report, bool outputs_are_truth)
        : m_contract(contract), m_report(std::move(report)), m_outputs_are_truth(outputs_are_truth) {}

    std::string text(const Shown& /*shown*/) const override {
        std::string text;
        std::size_t width = 0;
        for (const auto& t : m_report.tensors) width = std::max(width, t.name.size());
        for (const auto& t : m_report.tensors) text += oracle_report::tensor_text(t, width);
        text += oracle_report::not_compared_text(m_report.not_compared);
        std::vector<std::string> missing;
        for (const auto& item : m_report.not_compared) {
            if (is_gradient(item.tensor)) missing.push_back(item.tensor);
        }
        text += oracle_report::missing_gradients_text(any_gradient(), missing);
        text += oracle_report::left_alone_text(m_report.unknown, m_report.unread);
        text += oracle_report::contract_text(m_contract);
        if (m_report.worst && !m_report.worst->index.empty()) {
            text += "worst: " + oracle_report::place_text(*m_report.worst) + "\n";
        }
        if (!m_report.stage.empty()) text += fmt::format("stage: {}\n", m_report.stage);
        if (m_outputs_are_truth) text += oracle_report::k_truth_note;
        return text + oracle_report::verdict_text(oracle::name_of(m_report.verdict), m_report.reason);
    }

    void add_to(Json& object) const override {
        object["verdict"] = oracle::name_of(m_report.verdict);
        object["reason"] = m_report.reason;
        object["stage"] = m_report.stage.empty() ? Json() : Json(m_report.stage);
        object["worst"] = oracle_report::worst_json(m_report.worst);
        object["tensors"] = Json::array();
        for (const auto& t : m_report.tensors) object["tensors"].push_back(oracle_report::tensor_json(t));
        object["not_compared"] = oracle_report::not_compared_json(m_report.not_compared);
        oracle_report::add_left_alone(object, m_report.unknown, m_report.unread);
        object["forward_only"] = !any_gradient();
        object["outputs_are_truth"] = m_outputs_are_truth;
        object["bands"] = {{"ok", oracle::k_ok_band}, {"wrong", oracle::k_wrong_band}};
        object["contract"] = oracle_report::contract_json(m_contract);
    }

private:
    bool any_gradient() const {
        return std::any_of(m_report.tensors.begin(), m_report.tensors.end(),
                           [](const auto& t) { return is_gradient(t.canonical); });
    }

    const oracle::ResolvedContract& m_contract;
    oracle::LayerReport m_report;
    bool m_outputs_are_truth;
};

// The error of reading the inputs, with a hint if their shapes fit the other order of tokens and heads.
Error with_layout(const oracle::TensorFile& inputs, oracle::ResolvedContract contract, Error error) {
    const bool swapped = contract.value.layout == oracle::TokenLayout::heads_first;
    const std::string_view other = swapped ? "B,T,H,D" : "B,H,T,D";
    if (error.kind != ErrorKind::bad_input || !oracle::set_field(contract, "layout", other, "tried") ||
        !oracle::read_problem(inputs, contract)) {
        return error;
    }
    error.hint = fmt::format("the shapes fit [{}], {}: --set layout={}", other,
                             swapped ? "tokens before heads" : "heads before tokens", other);
    return error;
}

template <class Report>
Judgement judgement_of(const Report& report, bool forward_only) {
    Judgement j{report.verdict, report.reason, report.stage, {}, 0, report.worst, forward_only, nullptr};
    for (const auto& t : report.tensors) j.error = std::max(j.error, t.error_over_budget);
    return j;
}

}  // namespace

Result<std::unique_ptr<GdnReading>> GdnReading::read(const oracle::TensorFile& inputs, const ContractChoice& choice,
                                                     std::optional<std::int64_t> chunk, const FixedRule& rule) {
    std::unique_ptr<GdnReading> reading(new GdnReading(inputs));
    oracle::ResolvedContract& contract = reading->m_reference.contract;
    GDNCTL_TRY_ASSIGN(contract, oracle::resolve_contract(choice.contract, inputs.metadata, choice.sets));
    if (chunk) GDNCTL_TRY(oracle::set_field(contract, "chunk", fmt::format("{}", *chunk), "--chunk"));
    const oracle::ResolvedContract as_declared = contract;
    auto problem = oracle::read_problem(inputs, contract);
    if (!problem) return tl::unexpected(with_layout(inputs, as_declared, std::move(problem).error()));
    reading->m_reference.problem = std::move(*problem);
    reading->m_rule = rule;
    reading->m_choice = choice;
    return reading;
}

Result<oracle::GdnReference> GdnReading::take_reference(int threads, oracle::Passes passes) {
    GDNCTL_TRY(oracle_files::check_memory(problem().dims, problem().sequences.size(), passes));
    return oracle::make_reference(std::move(m_reference.problem), std::move(m_reference.contract), threads);
}

std::vector<std::string> GdnReading::words_with(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"--contract", m_reference.contract.name};
    const auto field = [](const std::string& set) { return set.substr(0, set.find('=')); };
    std::vector<std::string> sets = m_choice.sets;
    for (const std::string& set : more) {
        std::erase_if(sets, [&](const std::string& given) { return field(given) == field(set); });
        sets.push_back(set);
    }
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return words;
}

void GdnReading::declare(const oracle::Declaration& found, oracle::GdnReport& report) const {
    report.declare = words_with(found.sets);
    report.declare_widens = found.widens;
    report.stage = found.stage;
    report.stages = {found.stage};
    const std::string words = "--set " + text::join(found.sets, " --set ");
    const bool moved = found.stage == "head_map" || found.stage == "layout";
    report.hints = {{found.stage,
                     found.stage == "rounding" ? fmt::format("{}: declare it with {}", found.meaning, words)
                     : moved                   ? fmt::format("matches if {}", found.meaning)
                                               : fmt::format("matches if {}: {}", found.meaning, words),
                     found.improvement}};
}

// What is declared otherwise explains more than any mistake, so that comes first.
Status GdnReading::explain(const oracle::TensorFile& outputs, int threads, oracle::GdnReport& report) const {
    if (!m_rule.rtol) {
        if (const auto found = oracle::find_operation(m_inputs, outputs, m_reference, m_choice.sets, threads)) {
            declare(*found, report);
            return {};
        }
    }
    GDNCTL_TRY_ASSIGN(report, oracle::judge(m_reference, outputs, {m_rule.rtol, m_rule.atol, true, threads}));
    if (m_rule.rtol || report.stage != "rounding" || report.hints.empty()) return {};
    if (const auto found =
            oracle::find_precision(m_inputs, outputs, m_reference, m_choice.sets, report.hints.front(), threads)) {
        declare(*found, report);
    }
    return {};
}

Result<Judgement> GdnReading::judge(const oracle::TensorFile& outputs, const Judging& how) {
    const bool gradients = outputs.any_name(
        [](std::string_view name) { return oracle::canonical_name(name).role == oracle::GdnRole::gradient; });
    const auto passes = gradients ? oracle::Passes::with_gradients : oracle::Passes::forward;
    GDNCTL_TRY_ASSIGN(m_reference, take_reference(how.threads, passes));
    GDNCTL_TRY(oracle::add_backward(m_reference, m_inputs, outputs, how.threads));
    if (how.stop && how.stop()) return Judgement{};
    GDNCTL_TRY_ASSIGN(auto report, oracle::judge(m_reference, outputs, {m_rule.rtol, m_rule.atol, false, how.threads}));
    if (!m_rule.rtol) {
        if (auto longer = oracle::judge_with_longer_chunks(m_reference, report, m_inputs, outputs, how.threads)) {
            report = std::move(longer->report);
            report.declare_widens = oracle::widened(m_reference, longer->reference);
            m_reference = std::move(longer->reference);
            report.declare = words_with({fmt::format("chunk={}", longer->chunk)});
        }
    }
    const bool at_fault = report.verdict != oracle::Verdict::ok && report.verdict != oracle::Verdict::no_data;
    if (how.thorough && at_fault) GDNCTL_TRY(explain(outputs, how.threads, report));
    report.outputs_are_truth = oracle::is_written_truth(outputs, report);
    oracle::list_left_alone(m_inputs, oracle::canonical_name, report.unknown, report.unread);
    Judgement j = judgement_of(report, !gradients);
    j.report = std::make_shared<GdnJudged>(m_reference, std::move(report), how.threads);
    return j;
}

Result<std::unique_ptr<LayerReading>> LayerReading::read(const oracle::TensorFile& inputs,
                                                         const ContractChoice& choice) {
    std::unique_ptr<LayerReading> reading(new LayerReading(inputs));
    oracle::LayerContract& contract = reading->m_contract;
    GDNCTL_TRY_ASSIGN(contract, oracle::resolve_layer_contract(choice.contract, inputs.metadata, choice.sets));
    GDNCTL_TRY_ASSIGN(reading->m_layer, oracle::read_layer(inputs, contract));
    const oracle::GdnDims& dims = reading->m_layer.dims;
    GDNCTL_TRY(oracle_files::check_memory(dims, static_cast<std::size_t>(dims.B)));
    for (oracle::ContractField& field : contract.resolved.fields) {
        if (field.name == "key_heads" && !contract.key_heads) {
            field = {"key_heads", fmt::format("{}", dims.Hk), "inputs tensors"};
        }
    }
    return reading;
}

Result<Judgement> LayerReading::judge(const oracle::TensorFile& outputs, const Judging& how) {
    GDNCTL_TRY_ASSIGN(auto report, oracle::judge_layer(m_layer, m_contract, m_inputs, outputs, how.threads));
    Judgement j = judgement_of(report, false);
    const auto equal = [](const auto& t) { return t.max_abs == 0 && t.nonfinite_got == t.nonfinite_want; };
    const bool truth = is_written_truth(outputs, "recurrent64", report.tensors, equal);
    j.report = std::make_shared<LayerJudged>(m_contract.resolved, std::move(report), truth);
    return j;
}

}  // namespace gdnctl::harness
