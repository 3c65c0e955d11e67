#include "commands/oracle/linear_ce_run.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/run.h"
#include "core/json.h"
#include "core/text.h"
#include "core/version.h"
#include "harness/files.h"
#include "harness/linear_ce/operator.h"
#include "harness/linear_ce/report.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/truth.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace hce = harness::linear_ce;
namespace lce = oracle::linear_ce;

Result<lce::Case> shape_case(const RunOptions& options) {
    lce::Case c;
    c.name = "shape";
    const struct {
        const char* name;
        const std::optional<std::int64_t>& given;
        std::size_t& to;
    } sizes[] = {{"--batch", options.batch, c.batch},
                 {"--hidden", options.hidden, c.hidden},
                 {"--vocab", options.vocab, c.vocab}};
    for (const auto& size : sizes) {
        if (!size.given) {
            return fail(ErrorKind::usage, fmt::format("{} is missing", size.name),
                        "give --batch, --hidden and --vocab, or --case, or --inputs");
        }
        if (*size.given < 1 || *size.given >= std::int64_t{1} << 31U) {
            return fail(ErrorKind::usage, fmt::format("{} {}: expected 1 to 2147483647", size.name, *size.given));
        }
        size.to = static_cast<std::size_t>(*size.given);
    }
    GDNCTL_TRY(hce::check_memory(c.batch, c.hidden, c.vocab, true));
    return c;
}

Status set_weights(const std::string& text, lce::Case& c) {
    constexpr std::string_view k_prefix = "zero-every=";
    const auto every =
        std::string_view(text).starts_with(k_prefix) ? text::parse_int(text.substr(k_prefix.size())) : std::nullopt;
    if (!every || *every < 1) {
        return fail(ErrorKind::usage, fmt::format("--weights {}: expected zero-every=K, K at least 1", text));
    }
    c.weights = lce::Weights::zero_every;
    c.zero_every = static_cast<std::size_t>(*every);
    return {};
}

Result<oracle::TensorFile> generate(const oracle_run::Options& options) {
    lce::Case c;
    if (options.case_name) {
        const lce::Case* found = lce::find_case(*options.case_name);
        if (found == nullptr) {
            const auto near = text::nearest(*options.case_name, lce::case_names());
            return fail(ErrorKind::usage, fmt::format("case '{}' is not known", *options.case_name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases linear-ce lists them");
        }
        c = *found;
    } else {
        GDNCTL_TRY_ASSIGN(c, shape_case(options.ce));
    }
    if (options.seed) c.seed = static_cast<std::uint64_t>(*options.seed);
    if (options.dtype == oracle_run::InputDType::bf16) c.dtype = oracle::DType::bf16;
    if (options.ce.weights) GDNCTL_TRY(set_weights(*options.ce.weights, c));
    // Written as w lies in the file.
    if (options.ce_contract.layout) c.layout = *options.ce_contract.layout == "vh" ? lce::Layout::vh : lce::Layout::hv;
    return lce::make_inputs(c);
}

void add(oracle::TensorFile& file, const char* name, oracle::Tensor tensor) {
    file.tensors.push_back({name, std::move(tensor)});
}

// [columns, H] as the layout has it.
oracle::Tensor gw_tensor(const lce::Problem& p, std::vector<double> gw) {
    const auto H = static_cast<std::int64_t>(p.hidden);
    const auto V = static_cast<std::int64_t>(p.vocab);
    if (p.c().layout == lce::Layout::vh) return oracle::from_f64(gw, {V, H}, oracle::DType::f64);
    std::vector<double> turned(gw.size());
    for (std::size_t v = 0; v < p.vocab; ++v) {
        for (std::size_t h = 0; h < p.hidden; ++h) turned[h * p.vocab + v] = gw[v * p.hidden + h];
    }
    return oracle::from_f64(turned, {H, V}, oracle::DType::f64);
}

void add_results(const lce::Problem& p, const lce::Work& work, oracle::TensorFile& file) {
    const auto B = static_cast<std::int64_t>(p.batch);
    const lce::RowTruth rows = lce::truth_of_rows(p, lce::all_of(p.batch), true, work);
    std::vector<double> gw = lce::truth_of_columns(p, lce::all_of(p.vocab), rows.lse, work);
    const oracle::DType exact = oracle::DType::f64;
    add(file, "loss", oracle::from_f64(rows.loss, {B}, exact));
    add(file, "lse", oracle::from_f64(rows.lse, {B}, exact));
    add(file, "gx", oracle::from_f64(rows.gx, {B, static_cast<std::int64_t>(p.hidden)}, exact));
    add(file, "gw", gw_tensor(p, std::move(gw)));
    add(file, "argmax", oracle::from_i64(rows.argmax, {B}));
    if (p.c().reduction == lce::Reduction::none) return;
    add(file, "reduced", oracle::from_f64(std::vector<double>{lce::reduced_of(p, rows.loss, rows.lse)}, {}, exact));
}

void print(const oracle::TensorFile& file, const lce::Problem& p, const std::string& out, Context& context) {
    if (!context.global.json) {
        for (const auto& [name, tensor] : file.tensors) {
            context.terminal.out(
                fmt::format("{:<8} {:<9} {}\n", name, oracle::name_of(tensor.dtype), oracle::text_of(tensor.shape)));
        }
        context.terminal.out(hce::contract_text(p.contract) + fmt::format("wrote {}\n", out));
        return;
    }
    Json report = {{"schema", "gdnctl.oracle-run/1"}, {"op", hce::k_op}, {"path", out}, {"method", "exact64"}};
    report["tensors"] = Json::array();
    for (const auto& [name, tensor] : file.tensors) {
        report["tensors"].push_back(
            {{"name", name}, {"dtype", oracle::name_of(tensor.dtype)}, {"shape", tensor.shape}});
    }
    report["contract"] = hce::contract_json(p.contract);
    context.terminal.out(to_text(report, 2) + "\n");
}

}  // namespace

void describe_run(cli::Args& args, RunOptions& options) {
    const char* group = "linear-ce";
    args.option(options.batch,
                {.names = "--batch", .value = "B", .help = "linear-ce: rows of generated inputs", .group = group});
    args.option(options.hidden, {.names = "--hidden", .value = "H", .help = "linear-ce: columns of x", .group = group});
    args.option(options.vocab,
                {.names = "--vocab", .value = "V", .help = "linear-ce: size of the vocabulary", .group = group});
    args.option(options.weights, {.names = "--weights",
                                  .value = "zero-every=K",
                                  .help = "linear-ce: weight 0 for every K-th row, 1 for the others",
                                  .group = group});
}

Status check_run(const oracle_run::Options& o) {
    const bool shape = o.ce.batch || o.ce.hidden || o.ce.vocab;
    const int sources = (shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    if (sources != 1) {
        return fail(ErrorKind::usage, "give one of --case, --inputs, and --batch with --hidden and --vocab");
    }
    const bool contract = o.contract.contract != oracle_gdn::ContractOptions{}.contract || !o.contract.sets.empty();
    const bool method = o.method != oracle_run::Method::recurrent64 || o.chunk;
    if (contract || o.shape || method || o.backward || o.parts || o.stream) {
        return fail(ErrorKind::usage,
                    "linear-ce takes none of --contract, --set, --shape, --method, --chunk, --backward, --parts and "
                    "--stream",
                    "results and gradients are always exact");
    }
    return {};
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    oracle::TensorFile file;
    if (options.inputs.empty()) {
        GDNCTL_TRY_ASSIGN(file, generate(options));
    } else {
        GDNCTL_TRY_ASSIGN(file, oracle_files::read(context, options.inputs, {options.u2_as_bf16}));
    }
    GDNCTL_TRY_ASSIGN(const lce::Problem problem, hce::read_problem(file, options.ce_contract));
    GDNCTL_TRY(hce::check_memory(problem.batch, problem.hidden, problem.vocab, true));
    if (!problem.unstable_reason.empty()) return fail(ErrorKind::bad_input, problem.unstable_reason);
    std::erase_if(file.tensors, [](const oracle::NamedTensor& t) { return lce::is_output_name(t.name); });
    add_results(problem, {threads, [&] { return context.stop.stop_requested(); }}, file);
    for (auto& [field, value] : problem.contract.as_metadata()) file.metadata[field] = value;
    file.metadata["op"] = op.name;
    file.metadata["method"] = "exact64";
    file.metadata["loss"] = "lse - label logit, before penalty and weight";
    file.metadata["version"] = fmt::format("gdnctl {}", gdnctl::version());
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY(oracle_files::write(context, options.out, file));
    print(file, problem, options.out, context);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::linear_ce
