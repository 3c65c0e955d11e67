#include "oracle/linear_ce/judge/selftest.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/mutants.h"

namespace gdnctl::oracle::linear_ce {

namespace {

template <class Real>
Tensor floats(const std::vector<Real>& values, Shape shape) {
    return from_f64(std::vector<double>(values.begin(), values.end()), std::move(shape), DType::f32);
}

// A gradient as fp32 or bf16, as its operand is.
class Out {
public:
    Out(DType dtype, Shape shape) : m_tensor{dtype, std::move(shape), {}} {
        m_tensor.bytes.resize(element_count(m_tensor.shape).value_or(0) * size_of(dtype));
    }
    Gradient<float> gradient() {
        if (m_tensor.dtype == DType::bf16) return {nullptr, reinterpret_cast<Bf16*>(m_tensor.bytes.data())};
        return {reinterpret_cast<float*>(m_tensor.bytes.data()), nullptr};
    }
    Tensor take() { return std::move(m_tensor); }

private:
    Tensor m_tensor;
};

Result<Problem> problem_of(const Case& c, const Overrides& overrides = {}) {
    const TensorFile inputs = make_inputs(c);
    GDNCTL_TRY_ASSIGN(auto contract, resolve(inputs.metadata, overrides));
    return read_problem(inputs, std::move(contract));
}

class Selftest {
public:
    explicit Selftest(const Work& work) : m_work(work) {}

    SelftestReport run() {
        for (const Mutant& mutant : mutants()) {
            for (const Level level : {Level::exact, Level::sampled}) {
                if (!stopped()) judge(mutant, level);
            }
        }
        for (const Case& c : cases()) {
            if (!stopped()) variants(c);
        }
        return std::move(m_report);
    }

private:
    bool stopped() const { return m_work.stop && m_work.stop(); }

    Result<Report> verdict(const Problem& problem, const TensorFile& dump, Level level) const {
        CompareOptions options;
        options.level = level;
        options.rows = 24;
        options.columns = 48;
        options.work = m_work;
        return compare(problem, dump, options);
    }

    void finding(const char* kind, std::string name, std::string expected, std::string got) {
        m_report.findings.push_back({kind, std::move(name), std::move(expected), std::move(got)});
    }

    void judge(const Mutant& mutant, Level level) {
        const Case* c = find_case(mutant.on);
        const auto problem = c == nullptr ? Result<Problem>{fail(ErrorKind::internal, "no case")} : problem_of(*c);
        if (!problem) return finding("missed", mutant.name, "a case " + mutant.on, problem.error().text());
        const auto report = verdict(*problem, spoilt_outputs(*problem, mutant.fault, 1, {}), level);
        const std::string name = fmt::format("{} / {}, level {}", mutant.name, mutant.on, name_of(level));
        ++m_report.mutants;
        if (!report || report->verdict != Verdict::wrong) {
            return finding("missed", name, "WRONG",
                           report ? std::string(report->verdict_name()) : report.error().text());
        }
        ++m_report.caught;
        const bool right = std::find(mutant.stages.begin(), mutant.stages.end(), report->stage) != mutant.stages.end();
        if (right) {
            ++m_report.right_stage;
        } else {
            finding("stage", name, text::join(mutant.stages, " or "), report->stage);
        }
    }

    void honest(const Problem& problem, const TensorFile& dump, const std::string& name) {
        for (const Level level : {Level::exact, Level::sampled}) {
            const auto report = verdict(problem, dump, level);
            ++m_report.variants;
            if (report && report->verdict == Verdict::ok) continue;
            ++m_report.false_alarms;
            finding("false alarm", name, "OK",
                    report ? fmt::format("{}: {}", report->verdict_name(), report->reason) : report.error().text());
        }
    }

    void variants(const Case& c) {
        const auto problem = problem_of(c);
        if (!problem) return finding("missed", c.name, "a problem", problem.error().text());
        for (const Isa isa : available_isas()) {
            for (const std::size_t block : {std::size_t{0}, std::size_t{7}, std::size_t{100}, c.vocab}) {
                honest(*problem, kernel_outputs(*problem, {m_work.threads, isa, {}, block}),
                       fmt::format("{}, {}, blocks of {}", c.name, name_of(isa), block));
            }
        }
        honest(*problem, spoilt_outputs(*problem, Fault::none, 0, {c.vocab, c.hidden, c.batch}),
               c.name + ", one block");
        for (const auto& [form, name] : {std::pair{Fault::none, "blocks of 64"},
                                         {Fault::streamed, "streamed in fp32"},
                                         {Fault::split, "halves merged in fp32"}}) {
            honest(*problem, spoilt_outputs(*problem, form, 0, {}), fmt::format("{}, {}", c.name, name));
        }
        for (const char* set : {"matmul=bf16", "matmul=tf32", "logits=bf16"}) rounding(c, set);
    }

    void rounding(const Case& c, const char* set) {
        Overrides rounded;
        const auto known = set_field(set, rounded);
        const auto problem = known ? problem_of(c, rounded) : tl::unexpected(known.error());
        if (!problem) return finding("missed", c.name, "a problem", problem.error().text());
        for (const Isa isa : available_isas()) {
            honest(*problem, kernel_outputs(*problem, {m_work.threads, isa, {}, 0}),
                   fmt::format("{}, {}, {}", c.name, set, name_of(isa)));
        }
    }

    const Work& m_work;
    SelftestReport m_report;
};

}  // namespace

TensorFile kernel_outputs(const Problem& problem, const Run& run) {
    const auto B = static_cast<std::int64_t>(problem.batch);
    std::vector<float> loss(problem.batch);
    std::vector<float> lse(problem.batch);
    std::vector<std::int64_t> argmax(problem.batch);
    const Operands operands = problem.operands();
    Out gx(problem.x.dtype, problem.x.shape);
    Out gw(problem.w.dtype, problem.w.shape);
    forward<float>(operands, {loss.data(), lse.data(), argmax.data(), nullptr}, run, gw.gradient());
    const std::vector<double> d_lse = problem.lse_cotangents({lse.begin(), lse.end()});
    gradients<float>(operands, {lse.data(), problem.d_loss.data(), d_lse.data()}, gx.gradient(), gw.gradient(),
                     {.kept = true}, run);
    TensorFile out;
    out.tensors.push_back({"loss", floats(loss, {B})});
    out.tensors.push_back({"lse", floats(lse, {B})});
    out.tensors.push_back({"argmax", from_i64(argmax, {B})});
    out.tensors.push_back({"gx", gx.take()});
    out.tensors.push_back({"gw", gw.take()});
    const double reduced = reduced_of(problem, {loss.begin(), loss.end()}, {lse.begin(), lse.end()});
    if (problem.c().reduction != Reduction::none)
        out.tensors.push_back({"reduced", floats(std::vector<double>{reduced}, {})});
    return out;
}

SelftestReport run_selftest(const Work& work) { return Selftest(work).run(); }

}  // namespace gdnctl::oracle::linear_ce
