#include "commands/oracle/verify.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/gdn.h"
#include "commands/oracle/kernel_options.h"
#include "commands/oracle/linear_ce_verify.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/files.h"
#include "harness/verify/items.h"
#include "harness/verify/vectors.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/gdn/under_test/metamorphic.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_verify {

using namespace harness;

namespace {

using oracle::KernelFault;
using oracle::Verdict;

constexpr std::array<cli::Choice<StoredAs>, 4> k_dtypes = {{
    {"case", StoredAs::as_listed, "as each case says: fp32, with a few exceptions"},
    {"f32", StoredAs::f32, "single precision"},
    {"bf16", StoredAs::bf16, "bfloat16; a loaded kernel without bf16 support gets the same values in fp32"},
    {"f16", StoredAs::f16, "half precision; cases whose values do not fit are skipped"},
}};

std::string_view name_of(StoredAs dtype) { return k_dtypes[static_cast<std::size_t>(dtype)].name; }

class Verifier {
public:
    Verifier(const Options& options, Context& context, int threads)
        : m_options(options), m_context(context), m_threads(threads), m_seed(seed_of(options.seed)) {}

    Status run() {
        GDNCTL_TRY_ASSIGN(const auto kernel,
                          harness::open_kernel(m_options.kernel, limits_of(m_options.limits), m_context));
        std::vector<std::pair<std::string, RecordedVector>> vectors;
        if (m_options.vectors) {
            GDNCTL_TRY_ASSIGN(vectors, find_vectors(m_context.cwd / *m_options.vectors));
        }
        GDNCTL_TRY(check_names(vectors));
        if (m_options.metamorphic) return run_relations(*kernel);
        log::info("judging {} on the generated cases{}", m_options.kernel,
                  vectors.empty() ? "" : fmt::format(" and {} recorded inputs", vectors.size()));
        GDNCTL_TRY_ASSIGN(m_passes, kernel->passes());
        for (const oracle::GdnCase& c : oracle::all_cases()) {
            if (!wanted(c.name)) continue;
            // A slow case is judged where it was asked for.
            if (c.set == "slow" && !m_options.slow && m_options.cases.empty()) continue;
            GDNCTL_TRY(run_or_skip(seeded(c), *kernel, c.set == "decode"));
        }
        note_network(*kernel);
        for (const auto& [name, vector] : vectors) {
            if (!wanted(name)) continue;
            GDNCTL_TRY(check_stop());
            GDNCTL_TRY(judge_vector(vector));
        }
        return {};
    }

    const std::vector<Item>& items() const { return m_items; }
    const std::string& network() const { return m_network; }
    int not_run() const { return m_not_run; }
    const std::optional<std::uint64_t>& seed() const { return m_seed; }
    const Skipped& skipped() const { return m_skipped; }

private:
    void note_network(const oracle::KernelUnderTest& kernel) {
        m_network = kernel.network();
        if (m_network == "none") log::warning("cannot keep the kernel from the network on this system");
    }

    Status run_relations(oracle::KernelUnderTest& kernel) {
        log::info("checking relations between results of {}", m_options.kernel);
        for (const oracle::Relation& relation : oracle::relations()) {
            if (!wanted(relation.name)) continue;
            GDNCTL_TRY(check_stop());
            if (given_up()) {
                ++m_not_run;
                continue;
            }
            auto result = oracle::check_relation(relation.name, kernel, m_threads, m_seed.value_or(1));
            if (!result) return tl::unexpected(std::move(result).error().within("relation " + relation.name));
            if (!result->applies) {
                log::info("{} has no gradients: skipping {}", m_options.kernel, relation.name);
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

    // The same case with other random numbers; a golden case is made of formulas.
    oracle::GdnCase seeded(oracle::GdnCase c) const {
        if (m_seed && c.set != "golden") c.seed = *m_seed;
        return c;
    }

    // A kernel that hangs or does not load is not tried again on all other cases.
    bool given_up() const {
        return !m_items.empty() && m_items.back().fault && oracle::ends_everything(m_items.back().fault->kind);
    }

    bool wanted(const std::string& name) const {
        return m_options.cases.empty() ||
               std::find(m_options.cases.begin(), m_options.cases.end(), name) != m_options.cases.end();
    }

    Status check_names(const std::vector<std::pair<std::string, RecordedVector>>& vectors) const {
        std::vector<std::string> known = oracle::gdn_case_names();
        for (const auto& [name, vector] : vectors) known.push_back(name);
        if (m_options.metamorphic) {
            known.clear();
            for (const oracle::Relation& relation : oracle::relations()) known.push_back(relation.name);
        }
        for (const std::string& name : m_options.cases) {
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

    bool is_program() const { return m_options.kernel.starts_with("cmd:"); }

    bool can(oracle::KernelPass pass) const {
        return std::find(m_passes.begin(), m_passes.end(), pass) != m_passes.end();
    }

    Status run_or_skip(const oracle::GdnCase& c, oracle::KernelUnderTest& kernel, bool decode) {
        GDNCTL_TRY(check_stop());
        if (given_up()) {
            ++m_not_run;
            return {};
        }
        oracle::TensorFile inputs = oracle::make_inputs(c);
        if (m_options.dtype != StoredAs::as_listed && !store_as(inputs, dtype())) {
            log::info("case {} does not fit into {}: skipped", c.name, name_of(m_options.dtype));
            return {};
        }
        auto done = decode ? run_decode_case(c, inputs, kernel) : run_case(c, std::move(inputs), kernel);
        if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
        return {};
    }

    oracle::DType dtype() const {
        return m_options.dtype == StoredAs::bf16  ? oracle::DType::bf16
               : m_options.dtype == StoredAs::f16 ? oracle::DType::f16
                                                  : oracle::DType::f32;
    }

    Status run_case(const oracle::GdnCase& c, oracle::TensorFile inputs, oracle::KernelUnderTest& kernel) {
        // Gradients are of something where the forward is, and there are tokens.
        const bool backward = c.expected == Verdict::ok && c.dims.T > 0;
        const bool with_gradients = backward && can(oracle::KernelPass::backward);
        if (!can(oracle::KernelPass::forward)) ++m_skipped.forward;
        if (!can(oracle::KernelPass::forward) && !with_gradients) {
            m_skipped.backward += backward ? 1 : 0;
            return {};
        }
        GDNCTL_TRY_ASSIGN(const auto reference, oracle_gdn::make_reference(inputs, {}, m_threads));
        if (backward) inputs = oracle::with_cotangents(inputs, reference, c.seed);
        if (can(oracle::KernelPass::forward)) {
            GDNCTL_TRY(run_pass(oracle::KernelPass::forward, "case", c, inputs, reference, kernel));
            if (given_up()) return {};
            // A program gives gradients along with its outputs; one that fails may have them.
            const bool none = !m_items.back().gradients && !(m_items.back().fault && is_program());
            m_skipped.backward += backward && !with_gradients && none ? 1 : 0;
        }
        if (!with_gradients) return {};
        return run_pass(oracle::KernelPass::backward, "backward", c, inputs, reference, kernel);
    }

    Status run_decode_case(const oracle::GdnCase& c, const oracle::TensorFile& inputs,
                           oracle::KernelUnderTest& kernel) {
        if (!can(oracle::KernelPass::decode)) {
            ++m_skipped.decode;
            return {};
        }
        GDNCTL_TRY_ASSIGN(const auto reference, oracle_gdn::make_reference(inputs, {}, m_threads));
        for (const auto pass : {oracle::KernelPass::decode, oracle::KernelPass::decode_in_place}) {
            if (can(pass) && !given_up()) GDNCTL_TRY(run_pass(pass, "decode", c, inputs, reference, kernel));
        }
        return {};
    }

    Status run_pass(oracle::KernelPass pass, std::string kind, const oracle::GdnCase& c,
                    const oracle::TensorFile& inputs, const oracle::GdnReference& reference,
                    oracle::KernelUnderTest& kernel) {
        GDNCTL_TRY_ASSIGN(auto verdict, oracle::judge_kernel(kernel, inputs, reference, m_threads, c.seed, pass));
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
        if (op != inputs.metadata.end() && op->second != m_options.op) {
            log::info("{} is for {}: skipped", vector.inputs.filename().string(), op->second);
            return {};
        }
        auto reference = oracle_gdn::make_reference(inputs, {}, m_threads);
        if (!reference) return tl::unexpected(std::move(reference).error().within(vector.inputs.string()));
        for (const auto& path : vector.outputs) {
            GDNCTL_TRY_ASSIGN(const auto outputs, oracle_files::read(m_context, {path.string()}, {}));
            oracle::GdnReference with_truth = *reference;
            GDNCTL_TRY(oracle::add_backward(with_truth, inputs, outputs, m_threads));
            auto report = oracle::judge(with_truth, outputs, {});
            if (!report) return tl::unexpected(std::move(report).error().within(path.string()));
            add(item_of("vector", path.filename().string(), *reference, *report, Verdict::ok));
        }
        return {};
    }

    void add(Item item) {
        if (!m_context.global.json) m_context.terminal.out(text_of(item));
        m_items.push_back(std::move(item));
    }

    const Options& m_options;
    Context& m_context;
    int m_threads;
    std::optional<std::uint64_t> m_seed;  // of all generated inputs, instead of each case's own
    std::vector<Item> m_items;
    std::vector<oracle::KernelPass> m_passes;  // of the kernel
    Skipped m_skipped;
    std::string m_network;
    int m_not_run = 0;
};

Json json_of(const Options& options, const Verifier& verifier, std::string_view verdict) {
    const std::vector<Item>& items = verifier.items();
    Json report = {{"schema", "gdnctl.oracle-verify/1"}, {"op", options.op}, {"kernel", options.kernel}};
    report["dtype"] = name_of(options.dtype);
    report["seed"] = verifier.seed() ? Json(*verifier.seed()) : Json(nullptr);
    report["verdict"] = verdict;
    report["forward_only"] = forward_only(items);
    report["cases"] = count_of(items, "case");
    report["backward"] = count_of(items, "backward");
    report["decode"] = count_of(items, "decode");
    report["vectors"] = count_of(items, "vector");
    report["relations"] = count_of(items, "relation");
    report["failed"] = std::count_if(items.begin(), items.end(), [](const Item& i) { return i.failed(); });
    report["not_run"] = verifier.not_run();
    report["skipped"] = json_of(verifier.skipped());
    report["network_barrier"] = verifier.network().empty() ? Json(nullptr) : Json(verifier.network());
    report["items"] = Json::array();
    for (const Item& item : items) report["items"].push_back(json_of(item));
    return report;
}

Status check(const Options& options) {
    GDNCTL_TRY(linear_ce::check_verify(options.op, options.metamorphic || options.slow || options.vectors ||
                                                       options.allow_suspect || options.dtype == StoredAs::f16));
    GDNCTL_TRY(check_seed(options.seed));
    if (options.metamorphic && options.dtype != StoredAs::as_listed) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --dtype: its inputs are fp32");
    }
    if (options.metamorphic && options.slow) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --slow: relations have their own inputs");
    }
    if (options.metamorphic && options.vectors) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --vectors: it needs to call the kernel");
    }
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Runs a kernel on every generated case and judges its results. A kernel that is not built in runs in a child "
        "process without network. Each call gets new arrays between inaccessible pages, with poisoned outputs, and "
        "each case runs three times. Forward, backward (gradients of every case) and decode (steps of 1 to 8 tokens, "
        "in place and not) are judged if the kernel has them; other cases are skipped and counted. With --vectors, "
        "recorded outputs of real implementations are judged too: each NAME.*.outputs.safetensors against "
        "NAME.inputs.safetensors beside it. The last line is the overall verdict.");
    oracle_gdn::describe_all_ops(args, options.op);
    args.option(options.kernel, {.names = "--kernel",
                                 .value = "KERNEL",
                                 .help = kernel_help(),
                                 .complete = cli::Complete::kernel,
                                 .required = true});
    args.option(options.vectors, {.names = "--vectors",
                                  .value = "DIR",
                                  .help = "folder of recorded inputs and outputs",
                                  .complete = cli::Complete::directory});
    args.option(options.cases, {.names = "--case",
                                .value = "NAME",
                                .help = "run only this case, vector or relation",
                                .complete = cli::Complete::oracle_case});
    args.option(options.dtype, std::span<const cli::Choice<StoredAs>>(k_dtypes),
                {.names = "--dtype",
                 .value = "DTYPE",
                 .help = "how q, k and v of the generated cases, and the outputs, are stored"});
    args.option(options.seed, {.names = "--seed",
                               .value = "N",
                               .help = "generate all inputs from this seed; `random`: from a new random one",
                               .default_text = "each case has its own"});
    args.flag(options.slow, {.names = "--slow", .help = "also run the case of 65,537 tokens (takes seconds)"});
    args.flag(options.metamorphic, {.names = "--metamorphic",
                                    .help = "check relations between the kernel's own results, without any reference"});
    args.check([&options] { return check(options); });
    oracle_gdn::describe_threads(args, options.threads);
    describe_limits(args, options.limits);
    args.flag(options.allow_suspect, {.names = "--allow-suspect", .help = "exit 0 for SUSPECT too"});
    args.example("gdnctl oracle verify gdn --kernel builtin:chunk", "the chunked fp32 kernel on every case");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c", "a kernel of your own (docs/writing-a-kernel.md)");
    args.example("gdnctl oracle verify gdn --kernel 'cmd:python run.py' --case g1", "a program over tensor files");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c --dtype bf16", "the same cases stored in bf16");
    args.example("gdnctl oracle verify gdn --kernel lib:./mine.so --seed random",
                 "inputs that the kernel cannot have seen");
    args.example("gdnctl oracle verify gdn --kernel lib:./mine.so --metamorphic", "relations between its results");
    args.example("gdnctl oracle verify gdn --kernel builtin:chunk --vectors vectors --json", "with recorded vectors");
    args.exit_code(1,
                   "WRONG, or SUSPECT without --allow-suspect; or the kernel crashed, used too much memory, wrote "
                   "outside its arrays, left outputs unwritten, or depends on more than its inputs");
    args.exit_code(8, "a file cannot be read or written, or there is no compiler for src:");
    args.exit_code(9,
                   "a vector cannot be read or judged; the source does not compile, the library is not a kernel, or a "
                   "program's outputs have the wrong shape");
    args.exit_code(124, "the kernel reached --time-limit");
    args.see_also("oracle cases");
    args.see_also("oracle compare");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.op == linear_ce::k_op) {
        return linear_ce::verify({options.kernel, options.cases, seed_of(options.seed), options.dtype == StoredAs::bf16,
                                  options.threads, limits_of(options.limits)},
                                 context);
    }
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    Verifier verifier(options, context, threads);
    GDNCTL_TRY(verifier.run());
    const std::vector<Item>& items = verifier.items();
    const Verdict verdict = overall(items);
    const KernelFault* fault = gravest_fault(items);
    const std::string_view name = fault != nullptr ? oracle::name_of(fault->kind) : oracle::name_of(verdict);
    if (context.global.json) {
        context.terminal.out(to_text(json_of(options, verifier, name), 2) + "\n");
    } else {
        const auto failed = std::count_if(items.begin(), items.end(), [](const Item& i) { return i.failed(); });
        if (!verifier.network().empty()) {
            context.terminal.out(fmt::format("network blocked by: {}\n", verifier.network()));
        }
        context.terminal.out(text_of(verifier.skipped()));
        if (verifier.seed()) context.terminal.out(fmt::format("inputs: --seed {}\n", *verifier.seed()));
        if (forward_only(items)) {
            const bool decode_only = count_of(items, "case") == 0 && count_of(items, "decode") > 0;
            context.terminal.out(
                fmt::format("{} ONLY: no gradient was compared\n", decode_only ? "DECODE" : "FORWARD"));
        }
        context.terminal.out(
            fmt::format("verdict: {} ({}{}{})\n", name, counted(items, options.metamorphic),
                        failed == 0 ? "" : fmt::format("; {} failed", failed),
                        verifier.not_run() == 0 ? "" : fmt::format(", {} not run", verifier.not_run())));
    }
    return fault != nullptr ? harness::exit_code_of(fault->kind)
                            : oracle_report::exit_code_of(verdict, options.allow_suspect);
}

}  // namespace gdnctl::commands::oracle_verify
