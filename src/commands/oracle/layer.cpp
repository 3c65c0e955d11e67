#include "commands/oracle/layer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/compare.h"
#include "commands/oracle/run.h"
#include "core/json.h"
#include "harness/files.h"
#include "harness/reference.h"
#include "oracle/gdn/layer_inputs/layer_inputs.h"
#include "oracle/gdn/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_layer {

namespace {

void append(oracle::TensorFile& to, oracle::TensorFile more) {
    for (oracle::NamedTensor& entry : more.tensors) to.tensors.push_back(std::move(entry));
}

Result<oracle::TensorFile> generate(const oracle_run::Options& options) {
    GDNCTL_TRY_ASSIGN(const oracle::GdnDims dims, harness::parse_shape(*options.shape));
    GDNCTL_TRY(oracle_files::check_memory(dims, static_cast<std::size_t>(dims.B)));
    if (dims.Hv % dims.Hk != 0) {
        return fail(ErrorKind::usage, fmt::format("--shape {}: Hv must be a multiple of Hk", *options.shape));
    }
    GDNCTL_TRY_ASSIGN(const auto contract,
                      oracle::resolve_layer_contract(options.contract.contract, {}, options.contract.sets));
    const auto dtype = options.dtype == oracle_run::InputDType::bf16 ? oracle::DType::bf16 : oracle::DType::f32;
    return oracle::make_layer_inputs(dims, dtype, static_cast<std::uint64_t>(options.seed.value_or(1)), contract);
}

struct Given {
    oracle::LayerContract contract;
    oracle::GdnLayer layer;
};

Result<Given> understand(const oracle::TensorFile& file, const oracle_gdn::ContractOptions& options) {
    Given given;
    GDNCTL_TRY_ASSIGN(given.contract, oracle::resolve_layer_contract(options.contract, file.metadata, options.sets));
    GDNCTL_TRY_ASSIGN(given.layer, oracle::read_layer(file, given.contract));
    GDNCTL_TRY(oracle_files::check_memory(given.layer.dims, static_cast<std::size_t>(given.layer.dims.B)));
    for (oracle::ContractField& field : given.contract.resolved.fields) {
        if (field.name == "key_heads" && !given.contract.key_heads) {
            field = {"key_heads", fmt::format("{}", given.layer.dims.Hk), "inputs tensors"};
        }
    }
    return given;
}

Status check_run(const oracle_run::Options& o) {
    if (o.case_name) return fail(ErrorKind::usage, "--case: named cases exist only for the operator", "give --shape");
    if (o.method != oracle_run::Method::recurrent64 || o.chunk) {
        return fail(ErrorKind::usage, "gdn-layer is computed in fp64 only: drop --method and --chunk");
    }
    if (o.stream && *o.stream < 1) return fail(ErrorKind::usage, "--stream must be at least one token");
    return oracle_run::check_sources(o);
}

Result<ExitCode> run(const Operator& /*op*/, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    oracle::TensorFile file;
    if (options.inputs.empty()) {
        GDNCTL_TRY_ASSIGN(file, generate(options));
    } else {
        GDNCTL_TRY_ASSIGN(file, oracle_files::read(context, options.inputs, {options.u2_as_bf16}));
    }
    GDNCTL_TRY_ASSIGN(const Given given, understand(file, options.contract));
    const auto& [contract, layer] = given;
    // Results of an earlier run in the same file are replaced.
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        const oracle::GdnRole role = oracle::layer_name(entry.name).role;
        return role == oracle::GdnRole::output || role == oracle::GdnRole::gradient;
    });
    append(file,
           oracle::layer_outputs_file(layer, contract,
                                      options.stream ? oracle::stream_layer64(layer, contract, *options.stream, threads)
                                                     : oracle::run_layer64(layer, contract, threads),
                                      options.parts));
    if (options.backward) {
        GDNCTL_TRY_ASSIGN(auto cotangents, oracle::read_layer_cotangents(file, layer, contract));
        if (!cotangents) {
            cotangents = oracle::random_layer_cotangents(layer, static_cast<std::uint64_t>(options.seed.value_or(1)));
            append(file, oracle::layer_cotangents_file(layer, contract, *cotangents));
        }
        append(file, oracle::layer_gradients_file(layer, contract,
                                                  oracle::run_layer_adjoint64(layer, contract, *cotangents, threads)));
    }
    GDNCTL_TRY(oracle_run::finish(options, contract.resolved, file, context));
    return ExitCode::ok;
}

bool is_gradient(const std::string& name) { return oracle::layer_name(name).role == oracle::GdnRole::gradient; }

struct Gradients {
    bool some = false;                 // were compared
    std::vector<std::string> missing;  // the others
};

Gradients gradients_of(const oracle::LayerReport& report) {
    Gradients found;
    for (const auto& t : report.tensors) found.some = found.some || is_gradient(t.canonical);
    for (const auto& item : report.not_compared) {
        if (is_gradient(item.tensor)) found.missing.push_back(item.tensor);
    }
    return found;
}

Status check_compare(const oracle_compare::Options& options) {
    if (options.heatmap || options.html || options.rtol || oracle_flashinfer::wanted(options.flashinfer)) {
        return fail(ErrorKind::usage,
                    "--heatmap, --html, --rtol, --atol, --flashinfer and --definition are for the operator, not for "
                    "gdn-layer");
    }
    return {};
}

Result<ExitCode> compare(const Operator& op, const oracle_compare::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(const auto dump, oracle_compare::read(options, context));
    const auto& [inputs, outputs] = dump;
    GDNCTL_TRY_ASSIGN(const Given given, understand(inputs, options.contract));
    GDNCTL_TRY_ASSIGN(const auto report, oracle::judge_layer(given.layer, given.contract, inputs, outputs, threads));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.oracle-compare/1"}, {"op", op.name}};
        object["verdict"] = oracle::name_of(report.verdict);
        object["reason"] = report.reason;
        object["stage"] = report.stage.empty() ? Json() : Json(report.stage);
        object["worst"] = oracle_report::worst_json(report.worst);
        object["tensors"] = Json::array();
        for (const auto& t : report.tensors) object["tensors"].push_back(oracle_report::tensor_json(t));
        object["not_compared"] = Json::array();
        for (const auto& item : report.not_compared) {
            object["not_compared"].push_back({{"tensor", item.tensor}, {"reason", item.reason}});
        }
        oracle_report::add_left_alone(object, report.unknown, report.unread);
        object["forward_only"] = !gradients_of(report).some;
        object["bands"] = {{"ok", oracle::k_ok_band}, {"wrong", oracle::k_wrong_band}};
        object["contract"] = oracle_report::contract_json(given.contract.resolved);
        context.terminal.out(to_text(object, 2) + "\n");
    } else {
        std::string text;
        for (const auto& t : report.tensors) text += oracle_report::tensor_text(t);
        text += oracle_report::not_compared_text(report.not_compared);
        const Gradients gradients = gradients_of(report);
        text += oracle_report::missing_gradients_text(gradients.some, gradients.missing);
        text += oracle_report::left_alone_text(report.unknown, report.unread);
        text += oracle_report::contract_text(given.contract.resolved);
        if (report.worst && !report.worst->index.empty()) {
            text += "worst: " + oracle_report::place_text(*report.worst) + "\n";
        }
        if (!report.stage.empty()) text += fmt::format("stage: {}\n", report.stage);
        text += fmt::format("verdict: {}{}{}\n", oracle::name_of(report.verdict), report.reason.empty() ? "" : ": ",
                            report.reason);
        context.terminal.out(text);
    }
    return oracle_report::exit_code_of(report.verdict, options.allow_suspect);
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn-layer",
                                       .what = "its layer (convolution, gates, norm)",
                                       .run = {&run, &check_run},
                                       .compare = {&compare, &check_compare}};

}  // namespace gdnctl::commands::oracle_layer
