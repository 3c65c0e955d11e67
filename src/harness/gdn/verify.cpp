#include "harness/gdn/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/child/library.h"
#include "harness/files.h"
#include "harness/gdn/kernel.h"
#include "harness/plain/verify.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/gdn/under_test/metamorphic.h"
#include "platform/signals.h"

namespace gdnctl::harness {

using oracle::GdnReport;
using oracle::KernelFault;
using oracle::Verdict;

namespace {

std::string plural(std::size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

}  // namespace

Item item_of(std::string kind, std::string name, const oracle::GdnReference& reference, const GdnReport& report,
             Verdict expected) {
    Item item;
    item.kind = std::move(kind);
    item.name = std::move(name);
    item.verdict = report.verdict;
    item.expected = expected;
    item.reason = report.reason;
    item.worst = report.worst;
    item.contract = reference.contract;
    note_analysis(item, reference, report);
    for (const auto& t : report.tensors) {
        item.error_over_budget = std::max(item.error_over_budget, t.error_over_budget);
        item.gradients = item.gradients || (t.canonical != "out" && t.canonical != "final_state");
    }
    if (item.gradients) item.missing_gradients = oracle_report::missing_gradients(report);
    return item;
}

void note_analysis(Item& item, const oracle::GdnReference& reference, const GdnReport& report) {
    item.stage = report.stage;
    item.diagnosis = oracle_report::diagnosis_text(reference, report);
}

std::string text_of(const Item& item) {
    std::string line = fmt::format("{:<6} {:<58} {:<14} ", item.kind, item.name, item.verdict_name());
    if (item.fault) {
        return line + fmt::format("\n       {}\n", item.fault->text) + harness::quoted_output(*item.fault);
    }
    if (item.kind == "relation") {
        line += fmt::format("{:.2g} x tolerance", item.error_over_budget);
    } else if (item.verdict == item.expected && item.verdict != Verdict::ok) {
        line += "as expected";
    } else {
        line += fmt::format("{:.2g} x budget", item.error_over_budget);
    }
    if (!item.bit_equal) line += ", not bit-identical between calls";
    if (!item.missing_gradients.empty()) {
        line += "\n       GRADIENTS MISSING: " + text::join(item.missing_gradients, ", ");
    }
    if (item.failed() && !item.reason.empty()) line += fmt::format("\n       {}", item.reason);
    if (item.failed() && item.worst && !item.worst->index.empty()) {
        line += "\n       worst: " + oracle_report::place_text(*item.worst);
    }
    return line + "\n";
}

std::string fault_text(const Item& analysed, const std::vector<std::string>& others) {
    std::string lines = alike_text(fmt::format("{} {}", analysed.kind, analysed.name), others) + "\n";
    const std::string contract = analysed.contract ? oracle_report::contract_text(*analysed.contract) : std::string();
    for (const auto& more : {analysed.diagnosis, contract}) {
        if (more.empty()) continue;
        for (const auto part : text::split(text::trim(more), '\n')) lines += fmt::format("       {}\n", part);
    }
    return lines;
}

Json json_of(const Item& item) {
    return {{"kind", item.kind},
            {"name", item.name},
            {"verdict", item.verdict_name()},
            {"expected_verdict", oracle::name_of(item.expected)},
            {"error_over_budget", oracle_report::number(item.error_over_budget)},
            {"reason", item.reason},
            {"worst", oracle_report::worst_json(item.worst)},
            {"fault", harness::fault_json(item.fault)},
            {"bit_equal", item.bit_equal},
            {"missing_gradients", item.missing_gradients},
            {"stage", item.stage.empty() ? Json(nullptr) : Json(item.stage)},
            {"contract", item.contract ? oracle_report::contract_json(*item.contract) : Json(nullptr)},
            {"same_fault_as", item.same_fault_as.empty() ? Json(nullptr) : Json(item.same_fault_as)}};
}

Verdict overall(const std::vector<Item>& items) {
    Verdict gravest = items.empty() ? Verdict::no_data : Verdict::ok;
    const auto rank = [](Verdict v) {
        switch (v) {
            case Verdict::ok: return 0;
            case Verdict::suspect: return 1;
            case Verdict::no_data: return 2;
            case Verdict::unstable_input: return 3;
            case Verdict::wrong: return 4;
        }
        return 4;
    };
    for (const Item& item : items) {
        if (!item.failed() || item.fault) continue;
        // A finite, plausible answer where none can be told is no proof of anything.
        const Verdict verdict = item.verdict == Verdict::ok ? Verdict::no_data : item.verdict;
        if (rank(verdict) > rank(gravest)) gravest = verdict;
    }
    return gravest;
}

const KernelFault* gravest_fault(const std::vector<Item>& items) {
    const KernelFault* gravest = nullptr;
    for (const Item& item : items) {
        if (item.fault && (gravest == nullptr || item.fault->kind > gravest->kind)) gravest = &*item.fault;
    }
    return gravest;
}

std::size_t count_of(const std::vector<Item>& items, std::string_view kind) {
    return static_cast<std::size_t>(
        std::count_if(items.begin(), items.end(), [&](const Item& item) { return item.kind == kind; }));
}

bool forward_only(const std::vector<Item>& items) {
    return std::none_of(items.begin(), items.end(), [](const Item& item) { return item.gradients; });
}

// "68 cases, 60 backward, 30 decode, 0 vectors"
std::string counted(const std::vector<Item>& items, bool relations) {
    if (relations) return plural(count_of(items, "relation"), "relation");
    std::string text = plural(count_of(items, "case"), "case");
    for (const std::string_view kind : {"backward", "decode"}) {
        if (const auto n = count_of(items, kind); n > 0) text += fmt::format(", {} {}", n, kind);
    }
    return text + ", " + plural(count_of(items, "vector"), "vector");
}

std::string text_of(const Skipped& skipped) {
    std::vector<std::string> parts;
    for (const auto& [count, pass] :
         {std::pair{skipped.forward, "forward"}, {skipped.backward, "backward"}, {skipped.decode, "decode"}}) {
        if (count > 0) parts.push_back(fmt::format("{} ({})", pass, plural(static_cast<std::size_t>(count), "case")));
    }
    return (parts.empty() ? std::string() : fmt::format("skipped, not in the kernel: {}\n", text::join(parts, ", "))) +
           text_of(skipped.cases);
}

Json json_of(const Skipped& skipped) {
    Json object = {{"forward", skipped.forward}, {"backward", skipped.backward}, {"decode", skipped.decode}};
    if (!skipped.cases.empty()) object["contract"] = json_of(skipped.cases);
    return object;
}

namespace {

using oracle::KernelFault;
using oracle::Verdict;

// What the analysis of a failure needs.
struct Failure {
    oracle::KernelPass pass = oracle::KernelPass::forward;
    oracle::TensorFile inputs, outputs;
    oracle::GdnReference reference;
};

// Failures with the same look probably have the same cause: the same tensors are wrong, in all heads or in some, from
// the first token, from the start of a chunk, or from inside one.
std::string look_of(const Item& item, const oracle::GdnReport& report) {
    std::string look = fmt::format("{} {}", item.kind, item.verdict_name());
    for (const auto& t : report.tensors) {
        if (t.verdict != Verdict::ok) look += " " + t.canonical;
    }
    if (!report.place || !item.contract) return look;
    const oracle::FaultPlace& place = *report.place;
    const std::int64_t chunk = item.contract->value.chunk;
    const std::int64_t token = place.first_token;
    look += place.heads.size() > 1 ? " heads" : " head";
    return look + (place.first_chunk == 0 && token == 0 ? " start" : token % chunk == 0 ? " chunk" : " inside");
}

double size_of(const oracle::GdnDims& d) {
    return static_cast<double>(d.B * d.T * d.Hv) * static_cast<double>(d.dk * d.dv);
}

class Verifier {
public:
    Verifier(const GdnRequest& request, Context& context, const std::function<void(const std::string&)>& said)
        : m_request(request), m_context(context), m_said(said) {}

    Result<GdnVerified> run() {
        GDNCTL_TRY_ASSIGN(const auto kernel, harness::open_kernel(m_request.kernel, m_request.limits, m_context));
        std::vector<std::pair<std::string, RecordedVector>> vectors;
        if (m_request.vectors) {
            GDNCTL_TRY_ASSIGN(vectors, find_vectors(*m_request.vectors));
        }
        GDNCTL_TRY(check_names(vectors));
        if (m_request.metamorphic) {
            GDNCTL_TRY(oracle::check_relations_apply(m_request.declared));
            GDNCTL_TRY(run_relations(*kernel));
            return std::move(m_done);
        }
        log::info("judging {} on the generated cases{}", m_request.kernel,
                  vectors.empty() ? "" : fmt::format(" and {} recorded inputs", vectors.size()));
        GDNCTL_TRY_ASSIGN(m_passes, oracle::passes_of(*kernel));
        if (m_request.declared.find("chunk") == nullptr) m_stated_chunk = kernel->stated_chunk();
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
        GDNCTL_TRY(analyse());
        return std::move(m_done);
    }

private:
    // Looks for the mistake in one item of each look.
    Status analyse() {
        for (auto& group : m_alike.groups()) {
            GDNCTL_TRY(check_stop());
            const Failure& f = group.kept;
            Item& analysed = m_done.items[group.analysed];
            const auto verdict =
                oracle::judge_run({f.outputs, std::nullopt}, f.inputs, f.reference, m_request.threads, f.pass);
            note_analysis(analysed, f.reference, verdict.report);
            std::vector<std::string> others;
            for (const std::size_t i : group.items) {
                if (i == group.analysed) continue;
                Item& other = m_done.items[i];
                other.same_fault_as = analysed.name;
                other.stage = analysed.stage;
                others.push_back(other.name);
            }
            if (!analysed.fault) m_said(fault_text(analysed, others));
        }
        return {};
    }

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
            auto result = oracle::check_relation(relation.name, kernel, m_request.threads, m_request.seed.value_or(1),
                                                 m_request.declared);
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
               oracle::ends_everything(*m_done.items.back().fault);
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

    Status run_or_skip(const oracle::GdnCase& listed, Kernel& kernel, bool decode) {
        GDNCTL_TRY(check_stop());
        if (given_up()) {
            ++m_done.not_run;
            return {};
        }
        oracle::GdnCase c = listed;
        if (const auto needed = oracle::declare(c, m_request.declared)) {
            skip(c, "needs " + *needed);
            return {};
        }
        oracle::TensorFile inputs = oracle::make_inputs(c);
        if (m_request.dtype && !store_as(inputs, *m_request.dtype)) {
            log::info("case {} does not fit into {}: skipped", c.name, m_request.dtype_name);
            return {};
        }
        auto done = as_given(inputs);
        if (done) done = decode ? run_decode_case(c, inputs, kernel) : run_case(c, std::move(inputs), kernel);
        if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
        return {};
    }

    void skip(const oracle::GdnCase& c, std::string reason) {
        m_done.skipped.cases.push_back({c.name, std::move(reason)});
    }

    // What is declared is not the file's to say, and a program gets canonical values as loaded kernels do.
    Status as_given(oracle::TensorFile& inputs) const {
        const oracle::Declared& declared = m_request.declared;
        if (m_stated_chunk > 0) inputs.metadata["chunk"] = fmt::format("{}", m_stated_chunk);
        for (const auto& field : declared.fields) inputs.metadata.erase(field.name);
        const auto* layout = declared.find("layout");
        if (layout != nullptr && layout->value == "B,H,T,D") oracle::store_heads_first(inputs);
        if (!is_program()) return {};
        const auto given = [&](std::string_view field) { return declared.find(field) != nullptr; };
        GDNCTL_TRY_ASSIGN(const auto contract, oracle::resolve_contract(declared.contract.value_or("marin"),
                                                                        inputs.metadata, declared.sets));
        GDNCTL_TRY_ASSIGN(inputs,
                          oracle::canonical_inputs(std::move(inputs), contract,
                                                   {given("g_kind"), given("beta_kind"), given("state_layout")}));
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
                          oracle::judge_kernel(kernel, inputs, reference, m_request.threads, c.seed, pass, false));
        const bool unstable = verdict.report.verdict == Verdict::unstable_input && c.expected == Verdict::ok;
        if (unstable && !verdict.fault && !m_request.declared.fields.empty()) {
            skip(c, "cannot be judged as declared: " + verdict.report.reason);
            return {};
        }
        Item item = item_of(std::move(kind), c.name, reference, verdict.report, c.expected);
        if (pass == oracle::KernelPass::decode_in_place) item.name += " in place";
        item.fault = std::move(verdict.fault);
        item.bit_equal = verdict.bit_equal;
        keep(item, verdict.report, {pass, inputs, std::move(verdict.outputs), reference});
        add(std::move(item));
        return {};
    }

    // Of a failure, what its analysis will need.
    void keep(const Item& item, const oracle::GdnReport& report, Failure failure) {
        if (!item.failed() || failure.outputs.tensors.empty()) return;
        const double size = size_of(failure.reference.problem.dims);
        m_alike.add(look_of(item, report), m_done.items.size(), size, std::move(failure));
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
            oracle::CompareOptions options;
            options.hints = false;
            auto report = oracle::judge(with_truth, outputs, options);
            if (!report) return tl::unexpected(std::move(report).error().within(path.string()));
            Item item = item_of("vector", path.filename().string(), *reference, *report, Verdict::ok);
            keep(item, *report, {oracle::KernelPass::forward, inputs, outputs, *reference});
            add(std::move(item));
        }
        return {};
    }

    void add(Item item) {
        m_said(text_of(item));
        m_done.items.push_back(std::move(item));
    }

    const GdnRequest& m_request;
    Context& m_context;
    const std::function<void(const std::string&)>& m_said;
    std::int64_t m_stated_chunk = 0;  // by the kernel, where nothing else is declared; 0: none
    Alike<Failure> m_alike;
    std::vector<oracle::KernelPass> m_passes;  // of the kernel
    GdnVerified m_done;
};

}  // namespace

Result<GdnVerified> verify_gdn(const GdnRequest& request, Context& context,
                               const std::function<void(const std::string&)>& said) {
    return Verifier(request, context, said).run();
}

}  // namespace gdnctl::harness
