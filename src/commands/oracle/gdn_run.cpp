#include <fmt/format.h>

#include "commands/oracle/gdn.h"
#include "commands/oracle/run.h"
#include "core/text.h"
#include "harness/files.h"
#include "harness/reference.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::commands::oracle_gdn {

namespace {

oracle::Passes passes_of(const oracle_run::Options& options) {
    return options.backward ? oracle::Passes::with_gradients : oracle::Passes::forward;
}

Result<oracle::TensorFile> generate(const oracle_run::Options& options) {
    oracle::GdnCase c;
    if (options.case_name) {
        const oracle::GdnCase* found = oracle::find_gdn_case(*options.case_name);
        if (found == nullptr) {
            const auto near = text::nearest(*options.case_name, oracle::gdn_case_names());
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", *options.case_name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases gdn lists them");
        }
        c = *found;
        if (c.set == "golden" && (options.seed || options.dtype != oracle_run::InputDType::f32)) {
            return fail(ErrorKind::usage,
                        fmt::format("--seed and --dtype cannot be combined with the golden case {}", c.name),
                        "its inputs are formulas in float64");
        }
    } else {
        GDNCTL_TRY_ASSIGN(c.dims, harness::parse_shape(*options.shape));
        GDNCTL_TRY(oracle_files::check_memory(c.dims, static_cast<std::size_t>(c.dims.B), passes_of(options)));
        c.name = "shape " + *options.shape;
        c.state_scale = 0.1;
        // Unnormalised keys let the state explode unless the operator normalises them.
        GDNCTL_TRY_ASSIGN(const auto contract,
                          oracle::resolve_contract(options.contract.contract, {}, options.contract.sets));
        if (contract.value.l2norm == oracle::L2Norm::off) c.keys = oracle::KeyRecipe::unit;
        if (contract.value.g_kind == oracle::GateKind::raw) c.gate = oracle::GateRecipe::raw;
        const auto fields = contract.as_metadata();
        for (const char* field : {"state_layout", "g_kind", "beta_kind"}) {
            c.contract.push_back(fmt::format("{}={}", field, fields.at(field)));
        }
    }
    if (options.seed) c.seed = static_cast<std::uint64_t>(*options.seed);
    if (options.dtype == oracle_run::InputDType::bf16) c.dtype = oracle::DType::bf16;
    oracle::TensorFile file = oracle::make_inputs(c);
    if (options.backward) {
        oracle::TensorFile cotangents = oracle::make_cotangents(c);
        for (oracle::NamedTensor& entry : cotangents.tensors) file.tensors.push_back(std::move(entry));
    }
    return file;
}

oracle::GdnOutputs compute(const oracle_run::Options& options, const oracle::GdnProblem& problem,
                           const oracle::GdnContract& contract, int threads) {
    const oracle::Storage storage = oracle::storage_of(problem);
    switch (options.method) {
        case oracle_run::Method::chunk:
            return oracle::run_chunk32(problem, contract,
                                       {contract.chunk, oracle::GateSum::fp64_with_resets, contract.matmul, storage},
                                       threads);
        case oracle_run::Method::fused:
            return oracle::run_fused32(problem, contract, threads, oracle::best_isa(), storage);
        case oracle_run::Method::recurrent32: return oracle::run_recurrent32(problem, contract, threads);
        case oracle_run::Method::recurrent64: break;
    }
    return oracle::run_recurrent64(problem, contract, threads);
}

// Adds the gradients, and the cotangents where the file has none. Where out has 16 bits, d_out is written as it was
// used.
Status add_gradients(const oracle_run::Options& options, const oracle::GdnProblem& problem,
                     const oracle::GdnContract& contract, int threads, oracle::TensorFile& file) {
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::gradient;
    });
    GDNCTL_TRY_ASSIGN(auto cotangents, oracle::read_cotangents(file, problem, contract));
    const auto append = [&file](oracle::TensorFile more) {
        for (oracle::NamedTensor& entry : more.tensors) file.tensors.push_back(std::move(entry));
    };
    const bool given = cotangents.has_value();
    if (!given) cotangents = oracle::random_cotangents(problem, static_cast<std::uint64_t>(options.seed.value_or(1)));
    const bool rounded = oracle::round_cotangent(*cotangents, oracle::out_dtype_of(contract, problem));
    if (!given || rounded) {
        oracle::TensorFile used = oracle::cotangents_file(problem, contract, *cotangents);
        if (given) used.tensors.resize(1);  // d_final_state stays as it is
        std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
            return oracle::canonical_name(entry.name).canonical == "d_out";
        });
        append(std::move(used));
    }
    const bool exact = oracle_run::backward_method(options) == oracle_run::Method::recurrent64;
    const auto gradients = exact ? oracle::run_adjoint64(problem, contract, *cotangents, threads)
                                 : oracle::run_backward32(problem, contract, *cotangents, threads, oracle::best_isa(),
                                                          oracle::storage_of(problem));
    const oracle::DType plain = exact ? oracle::DType::f64 : oracle::DType::f32;
    append(oracle::gradients_file(problem, contract, gradients, !exact && problem.in_bf16 ? oracle::DType::bf16 : plain,
                                  plain));
    return {};
}

}  // namespace

Status check_run(const oracle_run::Options& o) {
    if (o.parts || o.stream) return fail(ErrorKind::usage, "--parts and --stream are for gdn-layer");
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
    GDNCTL_TRY_ASSIGN(auto contract,
                      oracle::resolve_contract(options.contract.contract, file.metadata, options.contract.sets));
    if (options.chunk) GDNCTL_TRY(oracle::set_field(contract, "chunk", fmt::format("{}", *options.chunk), "--chunk"));
    GDNCTL_TRY_ASSIGN(const auto problem, oracle::read_problem(file, contract));
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes_of(options)));
    // Results of an earlier run in the same file are replaced.
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::output;
    });
    const bool exact = options.method == oracle_run::Method::recurrent64;
    const oracle::DType out = exact ? oracle::DType::f64 : oracle::out_dtype_of(contract.value, problem);
    oracle::TensorFile results =
        oracle::outputs_file(problem, contract.value, compute(options, problem, contract.value, threads), out,
                             exact ? oracle::DType::f64 : oracle::DType::f32);
    for (oracle::NamedTensor& entry : results.tensors) file.tensors.push_back(std::move(entry));
    if (options.backward) GDNCTL_TRY(add_gradients(options, problem, contract.value, threads, file));
    GDNCTL_TRY(oracle_run::finish(options, contract, file, context));
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_gdn
