#include "harness/verify/verifier.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "harness/files.h"
#include "harness/gdn/kernel.h"
#include "harness/verify/vectors.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/gdn/under_test/metamorphic.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelFault;
using oracle::Verdict;

class Verifier {
public:
    Verifier(const GdnRequest& request, Context& context, const std::function<void(const Item&)>& judged)
        : m_request(request), m_context(context), m_judged(judged) {}

    Result<GdnVerified> run() {
        GDNCTL_TRY_ASSIGN(const auto kernel, harness::open_kernel(m_request.kernel, m_request.limits, m_context));
        std::vector<std::pair<std::string, RecordedVector>> vectors;
        if (m_request.vectors) {
            GDNCTL_TRY_ASSIGN(vectors, find_vectors(*m_request.vectors));
        }
        GDNCTL_TRY(check_names(vectors));
        if (m_request.metamorphic) {
            GDNCTL_TRY(run_relations(*kernel));
            return std::move(m_done);
        }
        log::info("judging {} on the generated cases{}", m_request.kernel,
                  vectors.empty() ? "" : fmt::format(" and {} recorded inputs", vectors.size()));
        GDNCTL_TRY_ASSIGN(m_passes, oracle::passes_of(*kernel));
        for (const oracle::GdnCase& c : oracle::all_cases()) {
            if (!wanted(c.name)) continue;
            // A slow case is judged only on request.
            if (c.set == "slow" && !m_request.slow && m_request.cases.empty()) continue;
            GDNCTL_TRY(run_or_skip(seeded(c), *kernel, c.set == "decode"));
        }
        note_network(*kernel);
        for (const auto& [name, vector] : vectors) {
            if (!wanted(name)) continue;
            GDNCTL_TRY(check_stop());
            GDNCTL_TRY(judge_vector(vector));
        }
        return std::move(m_done);
    }

private:
    void note_network(const Kernel& kernel) {
        m_done.network = kernel.network();
        if (m_done.network == "none") log::warning("cannot block the kernel's network access on this system");
    }

    Status run_relations(Kernel& kernel) {
        log::info("checking relations between results of {}", m_request.kernel);
        for (const oracle::Relation& relation : oracle::relations()) {
            if (!wanted(relation.name)) continue;
            GDNCTL_TRY(check_stop());
            if (given_up()) {
                ++m_done.not_run;
                continue;
            }
            auto result = oracle::check_relation(relation.name, kernel, m_request.threads, m_request.seed.value_or(1));
            if (!result) return tl::unexpected(std::move(result).error().within("relation " + relation.name));
            if (!result->applies) {
                log::info("{} has no gradients: skipping {}", m_request.kernel, relation.name);
                continue;
            }
            Item item;
            item.kind = "relation";
            item.name = relation.name;
            item.gradients = relation.name == "gradient";
            item.verdict = result->held() ? Verdict::ok : Verdict::wrong;
            item.error_over_budget = result->error == 0 ? 0 : result->error / result->tolerance;
            if (!result->held()) {
                item.reason = fmt::format("does not hold: {}; {} (off by {:.2g} of its size)", relation.about,
                                          result->worst, result->error);
            }
            item.fault = std::move(result->fault);
            add(std::move(item));
        }
        note_network(kernel);
        return {};
    }

    // The same case with other random numbers, or longer; a golden case is made of formulas.
    oracle::GdnCase seeded(oracle::GdnCase c) const {
        if (c.set == "golden") return c;
        if (m_request.seed) c.seed = *m_request.seed;
        const bool resizable = c.cu_seqlens.empty() && c.dims.T > 0 && c.expected == Verdict::ok;
        if (m_request.unseen && resizable) c.dims.T += 1 + static_cast<std::int64_t>(c.seed % 5);
        return c;
    }

    // A kernel that hangs or does not load is not tried again on all other cases.
    bool given_up() const {
        return !m_done.items.empty() && m_done.items.back().fault &&
               oracle::ends_everything(m_done.items.back().fault->kind);
    }

    bool wanted(const std::string& name) const {
        return m_request.cases.empty() ||
               std::find(m_request.cases.begin(), m_request.cases.end(), name) != m_request.cases.end();
    }

    Status check_names(const std::vector<std::pair<std::string, RecordedVector>>& vectors) const {
        std::vector<std::string> known = oracle::gdn_case_names();
        for (const auto& [name, vector] : vectors) known.push_back(name);
        if (m_request.metamorphic) {
            known.clear();
            for (const oracle::Relation& relation : oracle::relations()) known.push_back(relation.name);
        }
        for (const std::string& name : m_request.cases) {
            if (std::find(known.begin(), known.end(), name) != known.end()) continue;
            const auto near = text::nearest(name, known);
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases gdn lists them");
        }
        return {};
    }

    Status check_stop() const {
        if (m_context.stop.stop_requested()) return fail(stopped_error().kind, "stopped before all cases were judged");
        return {};
    }

    bool is_program() const { return m_request.kernel.starts_with("cmd:"); }

    bool can(oracle::KernelPass pass) const {
        return std::find(m_passes.begin(), m_passes.end(), pass) != m_passes.end();
    }

    Status run_or_skip(const oracle::GdnCase& c, Kernel& kernel, bool decode) {
        GDNCTL_TRY(check_stop());
        if (given_up()) {
            ++m_done.not_run;
            return {};
        }
        oracle::TensorFile inputs = oracle::make_inputs(c);
        if (m_request.dtype && !store_as(inputs, *m_request.dtype)) {
            log::info("case {} does not fit into {}: skipped", c.name, m_request.dtype_name);
            return {};
        }
        auto done = decode ? run_decode_case(c, inputs, kernel) : run_case(c, std::move(inputs), kernel);
        if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
        return {};
    }

    Status run_case(const oracle::GdnCase& c, oracle::TensorFile inputs, Kernel& kernel) {
        // Gradients are of something where the forward is, and there are tokens.
        const bool backward = c.expected == Verdict::ok && c.dims.T > 0;
        const bool with_gradients = backward && can(oracle::KernelPass::backward);
        if (!can(oracle::KernelPass::forward)) ++m_done.skipped.forward;
        if (!can(oracle::KernelPass::forward) && !with_gradients) {
            m_done.skipped.backward += backward ? 1 : 0;
            return {};
        }
        GDNCTL_TRY_ASSIGN(const auto reference, m_request.truth_of(inputs, m_request.threads));
        if (backward) inputs = oracle::with_cotangents(inputs, reference, c.seed);
        if (can(oracle::KernelPass::forward)) {
            GDNCTL_TRY(run_pass(oracle::KernelPass::forward, "case", c, inputs, reference, kernel));
            if (given_up()) return {};
            // A program gives gradients along with its outputs; one that fails may have them.
            const bool none = !m_done.items.back().gradients && !(m_done.items.back().fault && is_program());
            m_done.skipped.backward += backward && !with_gradients && none ? 1 : 0;
        }
        if (!with_gradients) return {};
        return run_pass(oracle::KernelPass::backward, "backward", c, inputs, reference, kernel);
    }

    Status run_decode_case(const oracle::GdnCase& c, const oracle::TensorFile& inputs, Kernel& kernel) {
        if (!can(oracle::KernelPass::decode)) {
            ++m_done.skipped.decode;
            return {};
        }
        GDNCTL_TRY_ASSIGN(const auto reference, m_request.truth_of(inputs, m_request.threads));
        for (const auto pass : {oracle::KernelPass::decode, oracle::KernelPass::decode_in_place}) {
            if (can(pass) && !given_up()) GDNCTL_TRY(run_pass(pass, "decode", c, inputs, reference, kernel));
        }
        return {};
    }

    Status run_pass(oracle::KernelPass pass, std::string kind, const oracle::GdnCase& c,
                    const oracle::TensorFile& inputs, const oracle::GdnReference& reference, Kernel& kernel) {
        GDNCTL_TRY_ASSIGN(auto verdict,
                          oracle::judge_kernel(kernel, inputs, reference, m_request.threads, c.seed, pass));
        Item item = item_of(std::move(kind), c.name, reference, verdict.report, c.expected);
        if (pass == oracle::KernelPass::decode_in_place) item.name += " in place";
        item.fault = std::move(verdict.fault);
        item.bit_equal = verdict.bit_equal;
        add(std::move(item));
        return {};
    }

    Status judge_vector(const RecordedVector& vector) {
        GDNCTL_TRY_ASSIGN(const auto inputs, oracle_files::read(m_context, {vector.inputs.string()}, {}));
        const auto op = inputs.metadata.find("op");
        if (op != inputs.metadata.end() && op->second != "gdn") {
            log::info("{} is for {}: skipped", vector.inputs.filename().string(), op->second);
            return {};
        }
        auto reference = m_request.truth_of(inputs, m_request.threads);
        if (!reference) return tl::unexpected(std::move(reference).error().within(vector.inputs.string()));
        for (const auto& path : vector.outputs) {
            GDNCTL_TRY_ASSIGN(const auto outputs, oracle_files::read(m_context, {path.string()}, {}));
            oracle::GdnReference with_truth = *reference;
            GDNCTL_TRY(oracle::add_backward(with_truth, inputs, outputs, m_request.threads));
            auto report = oracle::judge(with_truth, outputs, {});
            if (!report) return tl::unexpected(std::move(report).error().within(path.string()));
            add(item_of("vector", path.filename().string(), *reference, *report, Verdict::ok));
        }
        return {};
    }

    void add(Item item) {
        m_judged(item);
        m_done.items.push_back(std::move(item));
    }

    const GdnRequest& m_request;
    Context& m_context;
    const std::function<void(const Item&)>& m_judged;
    std::vector<oracle::KernelPass> m_passes;  // of the kernel
    GdnVerified m_done;
};

}  // namespace

Result<GdnVerified> verify_gdn(const GdnRequest& request, Context& context,
                               const std::function<void(const Item&)>& judged) {
    return Verifier(request, context, judged).run();
}

}  // namespace gdnctl::harness
