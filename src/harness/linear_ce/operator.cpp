#include "harness/linear_ce/operator.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/text.h"
#include "harness/files.h"
#include "harness/linear_ce/arrays.h"
#include "harness/linear_ce/variation.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/declared.h"
#include "oracle/linear_ce/report/report.h"
#include "oracle/tensor/random.h"

namespace gdnctl::harness::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using oracle::TensorFile;

void add_fields(const lce::Case& c, Json& object) {
    object["shape"] = {{"batch", c.batch}, {"hidden", c.hidden}, {"vocab", c.vocab}};
    object["seed"] = c.seed;
    object["dtype"] = oracle::name_of(c.dtype);
    object["layout"] = name_of(c.layout);
    object["soft_cap"] = c.soft_cap > 0 ? Json(c.soft_cap) : Json();
    object["logsumexp_weight"] = c.logsumexp_weight;
    object["reduction"] = name_of(c.reduction);
    object["weighted"] = c.weights != lce::Weights::none;
    object["ignores_rows"] = c.ignores_rows;
    object["d_loss"] = c.d_loss;
    object["d_lse"] = c.d_lse;
    object["expected_verdict"] = "OK";
}

std::string metadata_of(const TensorFile& file, const char* field) {
    const auto found = file.metadata.find(field);
    return found == file.metadata.end() ? std::string() : found->second;
}

// `problem` must outlive it.
class Judged : public JudgementReport {
public:
    Judged(const lce::Problem& problem, const lce::CompareOptions& options, lce::Report report)
        : m_problem(problem), m_options(options), m_report(std::move(report)) {}

    std::string text(const Shown& shown) const override {
        return report_text(m_problem, m_options, m_report, shown.inputs, shown.outputs);
    }
    void add_to(Json& object) const override { add_report(object, m_problem, m_options, m_report); }
    std::string page() const override { return lce::page(m_problem, m_options, m_report); }

private:
    const lce::Problem& m_problem;
    lce::CompareOptions m_options;
    lce::Report m_report;
};

class LinearCe : public PlainOperator {
public:
    std::string_view name() const override { return k_op; }

    CaseList cases() const override {
        CaseList list{"B,H,V", 14, {}};
        for (const lce::Case& c : lce::cases()) {
            list.rows.push_back(
                {c.name, c.set, c.about, fmt::format("{},{},{}", c.batch, c.hidden, c.vocab), {}, [&c](Json& object) {
                     add_fields(c, object);
                 }});
        }
        return list;
    }

    TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed, bool bf16) const override {
        lce::Case c = *lce::find_case(case_name);
        if (seed && c.values != lce::Values::formula && c.values != lce::Values::identity) c.seed = *seed;
        if (bf16) c.dtype = oracle::DType::bf16;
        return lce::make_inputs(c);
    }

    std::optional<TensorFile> resized(std::string_view case_name, std::uint64_t seed, bool bf16) const override {
        lce::Case c = *lce::find_case(case_name);
        if (c.values == lce::Values::formula || c.values == lce::Values::identity) return std::nullopt;
        c.seed = seed;
        c.batch += 1 + static_cast<decltype(c.batch)>(seed % 5);
        if (bf16) c.dtype = oracle::DType::bf16;
        return lce::make_inputs(c);
    }

    std::optional<TensorFile> disguised(const TensorFile& inputs) const override {
        const bool hv = metadata_of(inputs, "layout") == "hv";
        const oracle::Shape& shape = inputs.find("x")->shape;
        const Variation variation(static_cast<std::uint64_t>(text::parse_int(metadata_of(inputs, "seed")).value_or(0)),
                                  static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]),
                                  hv ? lce::Layout::hv : lce::Layout::vh);
        TensorFile file = inputs;
        for (oracle::NamedTensor& t : file.tensors) variation.apply(t.name, t.tensor);
        return file;
    }

    Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets) const override {
        if (sets.empty()) return std::optional<std::string>();
        return lce::declare(inputs, sets);
    }

    Result<std::unique_ptr<Problem>> read(const TensorFile& inputs) const override {
        GDNCTL_TRY_ASSIGN(auto problem, read_problem(inputs, {}));
        return std::make_unique<ReadProblem>(std::move(problem), inputs);
    }

    std::span<const std::string_view> passes() const override {
        static constexpr std::array<std::string_view, 2> k_passes = {"forward", "gradients"};
        return k_passes;
    }

    Result<std::unique_ptr<Kernel>> open(const std::string& spelling, const Opening& how,
                                         const Context& context) const override {
        return open_kernel(spelling, how, context);
    }
};

}  // namespace

const PlainOperator& plain() {
    static const LinearCe k_operator;
    return k_operator;
}

Status check_memory(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact) {
    return oracle_files::check_memory(lce::memory_estimate(batch, hidden, vocab, exact), "use fewer rows or columns");
}

Result<lce::Problem> read_problem(const TensorFile& file, const lce::Overrides& overrides) {
    GDNCTL_TRY_ASSIGN(auto contract, lce::resolve(file.metadata, overrides));
    return lce::read_problem(file, std::move(contract));
}

namespace {

TensorFile random_inputs(const BenchSizes& s, std::uint64_t seed, bool bf16) {
    TensorFile file;
    file.tensors.push_back({"x", random_matrix({s.batch, s.hidden, 1, bf16, seed, 1})});
    file.tensors.push_back({"w", random_matrix({s.hidden, s.vocab, 0.05, bf16, seed, 2})});
    std::vector<std::int64_t> labels(static_cast<std::size_t>(s.batch));
    oracle::Random random(seed, 3);
    for (std::int64_t& y : labels) y = static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(s.vocab));
    file.tensors.push_back({"labels", oracle::from_i64(labels, {s.batch})});
    file.metadata = {{"op", std::string(k_op)},
                     {"layout", "hv"},
                     {"logsumexp_weight", fmt::format("{}", s.logsumexp_weight)},
                     {"reduction", "mean"}};
    if (s.soft_cap > 0) file.metadata["soft_cap"] = fmt::format("{}", s.soft_cap);
    return file;
}

}  // namespace

Result<BenchCase> bench_inputs(const BenchSizes& s, std::uint64_t seed, bool bf16) {
    GDNCTL_TRY(check_memory(static_cast<std::size_t>(s.batch), static_cast<std::size_t>(s.hidden),
                            static_cast<std::size_t>(s.vocab), false));
    log::info("generating inputs");
    BenchCase timed;
    timed.inputs = random_inputs(s, seed, bf16);
    timed.fresh = [s, bf16](std::uint64_t other) { return random_inputs(s, other, bf16); };
    timed.title = fmt::format("B {}, H {}, V {}", s.batch, s.hidden, s.vocab);
    timed.shape = [s](Json& report) {
        report["shape"] = {{"batch", s.batch}, {"hidden", s.hidden}, {"vocab", s.vocab}};
    };
    return timed;
}

Result<Judgement> ReadProblem::judge(const TensorFile& outputs, const Judging& how) {
    lce::CompareOptions options = m_how.value_or(lce::CompareOptions{});
    if (!m_how) options.level = how.thorough ? lce::Level::exact : lce::Level::sampled;
    options.hints = how.thorough && how.explain;
    if (!m_how && !how.thorough) {
        options.rows = 8;
        options.columns = 32;
        options.seed = how.seed;
    }
    options.work = {how.threads, how.stop};
    GDNCTL_TRY_ASSIGN(auto report, lce::compare(m_problem, outputs, options));
    // Invariants that hold accept nothing and refuse nothing.
    Judgement j{report.invariants_hold ? oracle::Verdict::ok : report.verdict,
                report.reason,
                report.stage,
                diagnosis_text(report),
                0,
                report.worst,
                report.forward_only};
    for (const lce::TensorVerdict& t : report.tensors) {
        j.error = std::max(j.error, t.error_over_limit);
        if (t.verdict != oracle::Verdict::ok) j.wrong += (j.wrong.empty() ? "" : " ") + t.name;
    }
    if (!m_how) return j;
    for (const std::string& name : m_problem.unknown) report.unknown.push_back(name);
    const auto equal = [](const lce::TensorVerdict& t) { return t.max_abs == 0 && t.nonfinite == 0; };
    report.outputs_are_truth = is_written_truth(outputs, "exact64", report.tensors, equal);
    j.report = std::make_shared<Judged>(m_problem, options, std::move(report));
    return j;
}

double ReadProblem::flop(std::size_t pass) const {
    return (pass > 0 ? 6.0 : 2.0) * static_cast<double>(m_problem.batch) * static_cast<double>(m_problem.hidden) *
           static_cast<double>(m_problem.vocab);
}

}  // namespace gdnctl::harness::linear_ce
