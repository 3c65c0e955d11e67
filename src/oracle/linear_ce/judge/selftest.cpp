#include "oracle/linear_ce/judge/selftest.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/diagnose.h"

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::string_view k_cases[] = {"unit_normal", "cap_penalty_weights", "zero_weights"};

class Selftest {
public:
    Selftest(const Case& c, const Work& work, SelftestReport& report)
        : m_case(c), m_work(work), m_report(report), m_problem(problem_of(c)) {}

    void run() {
        const TensorFile right = kernel_outputs(m_problem, {m_work.threads, best_isa(), {}, 0});
        const Dump dump = read_dump(m_problem, right).value();
        Findings f{m_problem, dump, {}, {}, {}, {}, {}, false, false, false, false, false, false, {}, {}, m_work};
        f.rows = truth_of_rows(m_problem, all_of(m_problem.batch), true, m_work);
        f.columns = all_of(m_problem.vocab);
        f.loss = f.rows.loss;
        f.lse = f.rows.lse;
        f.gw = truth_of_columns(m_problem, f.columns, f.lse, m_work);
        f.gx_limit = gx_limit(m_problem, dump, f.rows, f.lse);
        f.gw_limit = gw_limit(m_problem, dump, f.rows, f.lse, f.gw);
        for (const auto& list : {known_row_mistakes(f), known_gradient_mistakes(f)}) {
            for (const KnownMistake& m : list) {
                if (!stopped()) judge(f, right, m);
            }
        }
        for (const Isa isa : available_isas()) {
            for (const std::size_t block : {std::size_t{0}, std::size_t{7}, m_problem.vocab}) {
                if (stopped()) return;
                const TensorFile x = kernel_outputs(m_problem, {m_work.threads, isa, {}, block});
                const Report report = verdict(x);
                count_variant(fmt::format("{}, {}, blocks of {}", m_case.name, name_of(isa), block), report.verdict,
                              report.reason, m_report.totals, m_report);
            }
        }
    }

private:
    // Our own cases are well-formed: a failure here is a defect of this program, which value() exposes.
    static Problem problem_of(const Case& c) {
        const TensorFile inputs = make_inputs(c);
        return read_problem(inputs, resolve(inputs.metadata, {}).value()).value();
    }

    bool stopped() const { return m_work.stop && m_work.stop(); }

    Report verdict(const TensorFile& dump) const {
        CompareOptions options;
        options.level = Level::exact;
        options.work = m_work;
        return compare(m_problem, dump, options).value();
    }

    void judge(const Findings& f, const TensorFile& right, const KnownMistake& m) {
        const std::vector<std::string> wrong = changed_by(f, m);
        if (wrong.empty()) return;  // makes no difference on these inputs
        TensorFile dump = right;
        for (NamedTensor& t : dump.tensors) {
            const std::vector<double>* values = t.name == "loss"  ? &m.loss
                                                : t.name == "lse" ? &m.lse
                                                : t.name == "gx"  ? &m.gx
                                                : t.name == "gw"  ? &m.gw
                                                                  : nullptr;
            if (values != nullptr && !values->empty()) t.tensor = from_f64(*values, t.tensor.shape, t.tensor.dtype);
            if (t.name == "reduced" && m.reduced)
                t.tensor = from_f64(std::vector<double>{*m.reduced}, t.tensor.shape, t.tensor.dtype);
        }
        const Report report = verdict(dump);
        const bool named = std::any_of(report.hints.begin(), report.hints.end(),
                                       [&](const Hint& hint) { return hint.text.find(m.text) != std::string::npos; });
        const bool right_stage =
            named || std::find(report.stages.begin(), report.stages.end(), m.stage) != report.stages.end();
        const std::string hint = report.hints.empty() ? "" : report.hints.front().text;
        const std::string place = report.place ? report.place->tensor : "nowhere";
        // A dump that is right under another contract has no place.
        const bool right_place = std::find(wrong.begin(), wrong.end(), place) != wrong.end() || !report.declare.empty();
        count_mistake({fmt::format("{} / {}", m.text, m_case.name), report.verdict, right_stage, right_place, m.stage,
                       fmt::format("{} ({})", report.stage, hint), wrong.front(), place},
                      m_report.totals, m_report);
    }

    // The tensors that a judge must reject, each with room for the rounding of fp32.
    static std::vector<std::string> changed_by(const Findings& f, const KnownMistake& m) {
        constexpr double k_room = 1.5;
        std::vector<std::string> wrong;
        const auto rows = [&](const char* name, const Tensor& tensor, const std::vector<double>& got,
                              const std::vector<double>& want) {
            for (std::size_t i = 0; i < got.size(); ++i) {
                if (std::fabs(got[i] - want[i]) <= k_room * row_limit_of(f, tensor, i)) continue;
                wrong.emplace_back(name);
                return;
            }
        };
        rows("lse", *f.dump.lse, m.lse, f.rows.lse);
        rows("loss", *f.dump.loss, m.loss, f.rows.loss);
        const std::size_t H = f.problem.hidden;
        const bool hv = f.problem.c().layout == Layout::hv;
        for (const bool of_gw : {false, true}) {
            const std::vector<double>& got = of_gw ? m.gw : m.gx;
            const std::vector<double>& want = of_gw ? f.gw : f.rows.gx;
            const GradientLimit& limit = of_gw ? f.gw_limit : f.gx_limit;
            for (std::size_t i = 0; i < got.size(); ++i) {
                const double x = got[of_gw && hv ? i % H * f.problem.vocab + i / H : i];
                if (std::fabs(x - want[i]) <= k_room * limit.at(i / H, want[i])) continue;
                wrong.emplace_back(of_gw ? "gw" : "gx");
                break;
            }
        }
        if (m.reduced) {
            const double want = reduced_of(f.problem, f.loss, f.lse);
            const double limit = reduced_limit(f.problem, f.dump, want, f.loss, f.lse, {});
            if (std::fabs(*m.reduced - want) > k_room * limit) wrong.emplace_back("reduced");
        }
        return wrong;
    }

    const Case& m_case;
    const Work& m_work;
    SelftestReport& m_report;
    Problem m_problem;
};

}  // namespace

SelftestReport run_selftest(const Work& work) {
    SelftestReport report;
    for (const std::string_view name : k_cases) {
        if (!(work.stop && work.stop())) Selftest(*find_case(name), work, report).run();
    }
    return report;
}

}  // namespace gdnctl::oracle::linear_ce
