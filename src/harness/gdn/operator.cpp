// gdn for verify: its cases under a declared contract, what a kernel is asked of each, and the verdict.
#include "harness/engine/operator.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/gdn/kernel.h"
#include "harness/gdn/read.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/gdn/under_test/metamorphic.h"

namespace gdnctl::harness {

namespace {

using oracle::GdnCase;
using oracle::GdnReference;
using oracle::GdnReport;
using oracle::KernelPass;
using oracle::TensorFile;
using oracle::Verdict;

KernelPass pass_of(const Question& what) { return static_cast<KernelPass>(what.pass); }

Question question(std::string_view kind, KernelPass pass) {
    const std::string_view suffix = pass == KernelPass::decode_in_place ? " in place" : "";
    return {kind, suffix, oracle::entry_of(pass), static_cast<std::size_t>(pass)};
}

// Failures with the same look probably have the same cause: the same tensors are wrong, in all heads or in some, from
// the first token, from the start of a chunk, or from inside one.
std::string look_of(const GdnReport& report, std::int64_t chunk) {
    std::string look;
    for (const auto& t : report.tensors) {
        if (t.verdict != Verdict::ok) look += t.canonical + " ";
    }
    if (!report.place) return look;
    const std::int64_t token = report.place->first_token;
    look += report.place->heads.size() > 1 ? "heads" : "head";
    return look + (report.place->first_chunk == 0 && token == 0 ? " start" : token % chunk == 0 ? " chunk" : " inside");
}

Judgement judgement_with(const GdnReference& reference, const GdnReport& report) {
    Judgement j;
    j.verdict = report.verdict;
    j.reason = report.reason;
    j.stage = report.stage;
    j.diagnosis = oracle_report::diagnosis_text(reference, report) + oracle_report::contract_text(reference.contract);
    j.worst = report.worst;
    j.forward_only = true;
    for (const auto& t : report.tensors) {
        j.error = std::max(j.error, t.error_over_budget);
        j.forward_only = j.forward_only && (t.canonical == "out" || t.canonical == "final_state");
    }
    if (!j.forward_only) j.missing_gradients = oracle_report::missing_gradients(report);
    j.wrong = look_of(report, reference.contract.value.chunk);
    if (!report.hints.empty()) j.hint = report.hints.front().text;
    j.fields = [contract = reference.contract](Json& object) {
        object["contract"] = oracle_report::contract_json(contract);
    };
    return j;
}

class GdnUnderTest : public Problem {
public:
    // With all that is known about it. Both must outlive it.
    GdnUnderTest(const TensorFile& inputs, const GdnReference& reference) : m_file(&inputs), m_reference(&reference) {}
    // The truth is computed once it is needed; then `with_cotangents`, which are these inputs or nullptr, get
    // cotangents from that seed.
    GdnUnderTest(const TensorFile& inputs, ContractChoice choice, TensorFile* with_cotangents = nullptr,
                 std::uint64_t seed = 1)
        : m_file(&inputs), m_with_cotangents(with_cotangents), m_seed(seed), m_choice(std::move(choice)) {}

    Result<Inputs*> inputs_of(const Question& what, int threads) override {
        GDNCTL_TRY(prepare(threads));
        m_asked.emplace(pass_of(what), *m_file, m_reference->contract);
        return &*m_asked;
    }

    Result<Judgement> judge(const TensorFile& outputs, const Judging& how) override {
        GDNCTL_TRY(prepare(how.threads));
        if (!how.ask.recorded) {
            auto judged = oracle::judge_run({outputs, std::nullopt}, *m_file, *m_reference, how.threads,
                                            pass_of(how.ask), how.explain);
            Judgement j = judged.fault && judged.report.tensors.empty() ? Judgement{}
                                                                        : judgement_with(*m_reference, judged.report);
            j.fault = std::move(judged.fault);
            return j;
        }
        GdnReference with_truth = *m_reference;
        GDNCTL_TRY(oracle::add_backward(with_truth, *m_file, outputs, how.threads));
        oracle::CompareOptions options;
        options.hints = how.explain;
        options.threads = how.threads;
        GDNCTL_TRY_ASSIGN(const GdnReport report, oracle::judge(with_truth, outputs, options));
        return judgement_with(with_truth, report);
    }

    // Signs of head dimensions follow the heads of the file's tensors.
    Result<std::optional<Disguised>> disguised(std::uint64_t seed) override {
        const auto& contract = m_reference->contract.value;
        const bool other_axes =
            m_reference->problem.repeated_keys || contract.layout == oracle::TokenLayout::heads_first;
        const oracle::Disguise signs =
            other_axes ? oracle::Disguise() : oracle::Disguise(m_reference->problem.dims, contract.head_map, seed);
        Disguised other{std::make_unique<TensorFile>(*m_file), nullptr, {}};
        apply(signs, *other.file, contract.state_layout);
        other.problem = std::make_unique<GdnUnderTest>(*other.file, *m_reference);
        // Applying the signs again removes them.
        other.undo = [signs, layout = contract.state_layout](TensorFile& outputs) { apply(signs, outputs, layout); };
        return other;
    }

    double flop(std::size_t /*pass*/) const override { return 0; }
    TensorFile file() const override { return *m_file; }

private:
    Status prepare(int threads) {
        if (m_reference != nullptr) return {};
        GDNCTL_TRY_ASSIGN(const auto reading, GdnReading::read(*m_file, m_choice, std::nullopt, {}));
        GDNCTL_TRY_ASSIGN(m_own_reference, reading->take_reference(threads));
        m_reference = &*m_own_reference;
        if (m_with_cotangents != nullptr) {
            *m_with_cotangents = oracle::with_cotangents(*m_with_cotangents, *m_reference, m_seed);
        }
        return {};
    }

    const TensorFile* m_file;
    const GdnReference* m_reference = nullptr;
    TensorFile* m_with_cotangents = nullptr;
    std::uint64_t m_seed = 1;
    ContractChoice m_choice;
    std::optional<GdnReference> m_own_reference;
    std::optional<oracle::GdnInputs> m_asked;
};

// Gradients are of something where the forward is, and there are tokens.
std::vector<Question> questions_of(const GdnCase& c) {
    if (c.decode) {
        return {question("decode", KernelPass::decode), question("decode", KernelPass::decode_in_place)};
    }
    std::vector<Question> asks = {question("case", KernelPass::forward)};
    if (c.gradients && c.expected == Verdict::ok && c.dims.T > 0)
        asks.push_back(question("backward", KernelPass::backward));
    return asks;
}

void add_case_fields(const GdnCase& c, Json& object) {
    const oracle::GdnDims& d = c.dims;
    Json values = Json::object();
    for (const oracle::CaseValue& v : oracle::case_values(c)) values[v.factor] = v.value;
    object["shape"] = {{"B", d.B}, {"Hk", d.Hk}, {"Hv", d.Hv}, {"T", d.T}, {"dk", d.dk}, {"dv", d.dv}};
    object["seed"] = c.seed;
    object["dtype"] = oracle::name_of(c.dtype);
    object["cu_seqlens"] = c.cu_seqlens.empty() ? Json(nullptr) : Json(c.cu_seqlens);
    object["values"] = std::move(values);
    object["contract_fields"] = c.contract;
    object["expected_verdict"] = oracle::name_of(c.expected);
    object["signature"] = oracle::signature_of(c);
    object["passes"] = Json::array();
    for (const Question& ask : questions_of(c)) object["passes"].push_back(ask.kind == "case" ? "forward" : ask.kind);
}

// The case with other random numbers, or longer; a golden case is made of formulas.
GdnCase seeded(GdnCase c, const CaseOptions& options) {
    if (c.set == "golden") return c;
    if (options.seed) c.seed = *options.seed;
    const bool resizable = c.cu_seqlens.empty() && c.dims.T > 0 && c.expected == Verdict::ok;
    if (options.unseen && resizable) c.dims.T += 1 + static_cast<std::int64_t>(c.seed % 5);
    return c;
}

// What is declared is not the file's to say, and a program gets canonical values as loaded kernels do.
Status as_given(TensorFile& inputs, const oracle::Declared& declared, const CaseOptions& options) {
    if (options.stated_chunk > 0 && declared.find("chunk") == nullptr) {
        inputs.metadata["chunk"] = fmt::format("{}", options.stated_chunk);
    }
    for (const auto& field : declared.fields) inputs.metadata.erase(field.name);
    const auto* layout = declared.find("layout");
    if (layout != nullptr && layout->value == "B,H,T,D") oracle::store_heads_first(inputs);
    if (!options.program) return {};
    const auto given = [&](std::string_view field) { return declared.find(field) != nullptr; };
    GDNCTL_TRY_ASSIGN(const auto contract,
                      oracle::resolve_contract(declared.contract.value_or("marin"), inputs.metadata, declared.sets));
    GDNCTL_TRY_ASSIGN(inputs, oracle::canonical_inputs(std::move(inputs), contract,
                                                       {given("g_kind"), given("beta_kind"), given("state_layout")}));
    return {};
}

class GatedDeltaNet : public Operator {
public:
    std::string_view name() const override { return "gdn"; }
    std::string_view error_unit() const override { return "budget"; }
    std::vector<std::string_view> kinds() const override {
        return {"case", "backward", "decode", "vector", "relation"};
    }

    CaseList cases() const override {
        static const std::vector<GdnCase> k_all = [] {
            std::vector<GdnCase> all = oracle::all_cases();
            all.insert(all.end(), oracle::device_cases().begin(), oracle::device_cases().end());
            return all;
        }();
        CaseList list{"B,Hk,Hv,T,dk,dv", 18, {}};
        for (const GdnCase& c : k_all) {
            const oracle::GdnDims& d = c.dims;
            list.rows.push_back({c.name, c.set, c.about,
                                 fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv),
                                 c.expected == Verdict::unstable_input ? " (UNSTABLE_INPUT)" : "",
                                 [&c](Json& object) { add_case_fields(c, object); }});
        }
        return list;
    }

    TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed, bool bf16) const override {
        GdnCase c = seeded(*oracle::find_gdn_case(case_name), {.seed = seed});
        if (bf16) c.dtype = oracle::DType::bf16;
        return oracle::make_inputs(c);
    }

    Result<PreparedCase> prepare(std::string_view case_name, const CaseOptions& options) const override {
        GDNCTL_TRY_ASSIGN(const auto declared, oracle::read_declared(options.contract, options.sets));
        GdnCase c = seeded(*oracle::find_gdn_case(case_name), options);
        PreparedCase made;
        if (const auto needed = oracle::declare(c, declared)) {
            made.left_out = "needs " + *needed;
            return made;
        }
        made.inputs = std::make_unique<TensorFile>(oracle::make_inputs(c));
        if (options.dtype && !oracle::store_as(*made.inputs, *options.dtype)) {
            log::info("case {} does not fit into {}: skipped", c.name, options.dtype_name);
            return made;
        }
        GDNCTL_TRY(as_given(*made.inputs, declared, options));
        made.asks = questions_of(c);
        if (options.program) std::erase_if(made.asks, [](const Question& q) { return !q.suffix.empty(); });
        made.seed = c.seed;
        made.expected = c.expected;
        const bool gradients = made.asks.back().kind == "backward";
        made.problem = std::make_unique<GdnUnderTest>(*made.inputs, choice_of(options),
                                                      gradients ? made.inputs.get() : nullptr, c.seed);
        return made;
    }

    Result<PreparedCase> recorded(TensorFile inputs, const CaseOptions& options) const override {
        PreparedCase made;
        made.inputs = std::make_unique<TensorFile>(std::move(inputs));
        GDNCTL_TRY(GdnReading::read(*made.inputs, choice_of(options), std::nullopt, {}));
        made.problem = std::make_unique<GdnUnderTest>(*made.inputs, choice_of(options));
        return made;
    }

    Result<std::uint32_t> entries(Kernel& kernel) const override {
        GDNCTL_TRY_ASSIGN(const auto passes, oracle::passes_of(kernel));
        std::uint32_t bits = 0;
        for (const KernelPass pass : passes) bits |= 1U << oracle::entry_of(pass);
        return bits;
    }

    std::vector<RelationRow> relations() const override {
        std::vector<RelationRow> rows;
        for (const oracle::Relation& relation : oracle::relations()) rows.push_back({relation.name, relation.about});
        return rows;
    }

    Status check_relations_apply(const CaseOptions& options) const override {
        GDNCTL_TRY_ASSIGN(const auto declared, oracle::read_declared(options.contract, options.sets));
        return oracle::check_relations_apply(declared);
    }

    Result<std::optional<Judgement>> check_relation(const RelationRow& relation, Kernel& kernel,
                                                    const CaseOptions& options) const override {
        GDNCTL_TRY_ASSIGN(const auto declared, oracle::read_declared(options.contract, options.sets));
        GDNCTL_TRY_ASSIGN(const auto result, oracle::check_relation(relation.name, kernel, options.threads,
                                                                    options.seed.value_or(1), declared));
        if (!result.applies) return std::optional<Judgement>();
        Judgement j;
        j.verdict = result.held() ? Verdict::ok : Verdict::wrong;
        j.error = result.error == 0 ? 0 : result.error / result.tolerance;
        if (!result.held()) {
            j.reason = fmt::format("does not hold: {}; {} (off by {:.2g} of its size)", relation.about, result.worst,
                                   result.error);
        }
        j.fault = result.fault;
        j.forward_only = relation.name != "gradient";
        j.fields = [](Json& object) { object["contract"] = nullptr; };
        return std::optional(std::move(j));
    }

    Result<std::unique_ptr<Problem>> read(const TensorFile& inputs) const override {
        GDNCTL_TRY(GdnReading::read(inputs, {}, std::nullopt, {}));
        return std::make_unique<GdnUnderTest>(inputs, ContractChoice{});
    }

    std::span<const std::string_view> passes() const override {
        static constexpr std::string_view k_operator_passes[] = {"forward", "backward", "decode"};
        return k_operator_passes;
    }

    Result<std::unique_ptr<Kernel>> open(const std::string& spelling, const Opening& how,
                                         const Context& context) const override {
        return open_kernel(spelling, how.limits, context);
    }

private:
    static ContractChoice choice_of(const CaseOptions& options) {
        return {options.contract.value_or("marin"), options.sets};
    }
};

}  // namespace

std::unique_ptr<Problem> gdn_problem(const TensorFile& inputs, const GdnReference& reference) {
    return std::make_unique<GdnUnderTest>(inputs, reference);
}

const Operator& gdn_operator() {
    static const GatedDeltaNet k_operator;
    return k_operator;
}

}  // namespace gdnctl::harness
