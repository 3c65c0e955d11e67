#include "harness/gdn/run.h"

#include <fmt/format.h>

#include "core/text.h"
#include "harness/files.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::harness {

namespace {

oracle::Passes passes_of(const GdnRun& run) {
    return run.backward ? oracle::Passes::with_gradients : oracle::Passes::forward;
}

void append(oracle::TensorFile& to, oracle::TensorFile more) {
    for (oracle::NamedTensor& entry : more.tensors) to.tensors.push_back(std::move(entry));
}

oracle::GdnOutputs compute(const GdnRun& run, const oracle::GdnProblem& problem, const oracle::GdnContract& contract,
                           int threads) {
    const oracle::Storage storage = oracle::storage_of(problem);
    switch (run.method) {
        case Method::chunk:
            return oracle::run_chunk32(problem, contract,
                                       {contract.chunk, oracle::GateSum::fp64_with_resets, contract.matmul, storage},
                                       threads);
        case Method::fused: return oracle::run_fused32(problem, contract, threads, oracle::best_isa(), storage);
        case Method::recurrent32: return oracle::run_recurrent32(problem, contract, threads);
        case Method::recurrent64: break;
    }
    return oracle::run_recurrent64(problem, contract, threads);
}

// Adds the gradients, and the cotangents where the file has none. Where out has 16 bits, d_out is written as it was
// used.
Status add_gradients(const GdnRun& run, const oracle::GdnProblem& problem, const oracle::GdnContract& contract,
                     int threads, oracle::TensorFile& file) {
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::gradient;
    });
    GDNCTL_TRY_ASSIGN(auto cotangents, oracle::read_cotangents(file, problem, contract));
    const bool given = cotangents.has_value();
    if (!given) cotangents = oracle::random_cotangents(problem, static_cast<std::uint64_t>(run.seed.value_or(1)));
    const bool rounded = oracle::round_cotangent(*cotangents, oracle::out_dtype_of(contract, problem));
    if (!given || rounded) {
        oracle::TensorFile used = oracle::cotangents_file(problem, contract, *cotangents);
        if (given) used.tensors.resize(1);  // d_final_state stays as it is
        std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
            return oracle::canonical_name(entry.name).canonical == "d_out";
        });
        append(file, std::move(used));
    }
    const bool exact = backward_method(run.method) == Method::recurrent64;
    const auto gradients = exact ? oracle::run_adjoint64(problem, contract, *cotangents, threads)
                                 : oracle::run_backward32(problem, contract, *cotangents, threads, oracle::best_isa(),
                                                          oracle::storage_of(problem));
    const oracle::DType plain = exact ? oracle::DType::f64 : oracle::DType::f32;
    append(file, oracle::gradients_file(problem, contract, gradients,
                                        !exact && problem.in_bf16 ? oracle::DType::bf16 : plain, plain));
    return {};
}

}  // namespace

Method backward_method(Method forward) { return forward == Method::recurrent64 ? Method::recurrent64 : Method::chunk; }

Result<oracle::TensorFile> generate_gdn(const GdnRun& run) {
    oracle::GdnCase c;
    if (run.case_name) {
        const oracle::GdnCase* found = oracle::find_gdn_case(*run.case_name);
        if (found == nullptr) {
            const auto near = text::nearest(*run.case_name, oracle::gdn_case_names());
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", *run.case_name),
                        near ? fmt::format("did you mean '{}'?", *near) : "`gdnctl oracle cases gdn` lists them");
        }
        c = *found;
        if (c.set == "golden" && (run.seed || run.dtype != oracle::DType::f32)) {
            return fail(ErrorKind::usage,
                        fmt::format("--seed and --dtype cannot be combined with the golden case {}", c.name),
                        "its inputs are formulas in float64");
        }
    } else {
        GDNCTL_TRY_ASSIGN(c.dims, parse_shape(*run.shape));
        GDNCTL_TRY(oracle_files::check_memory(c.dims, static_cast<std::size_t>(c.dims.B), passes_of(run)));
        c.name = "shape " + *run.shape;
        c.state_scale = 0.1;
        // Unnormalised keys let the state explode unless the operator normalises them.
        GDNCTL_TRY_ASSIGN(const auto contract, oracle::resolve_contract(run.contract.contract, {}, run.contract.sets));
        if (contract.value.l2norm == oracle::L2Norm::off) c.keys = oracle::KeyRecipe::unit;
        if (contract.value.g_kind == oracle::GateKind::raw) c.gate = oracle::GateRecipe::raw;
        const auto fields = contract.as_metadata();
        for (const char* field : {"state_layout", "g_kind", "beta_kind"}) {
            c.contract.push_back(fmt::format("{}={}", field, fields.at(field)));
        }
    }
    if (run.seed) c.seed = static_cast<std::uint64_t>(*run.seed);
    if (run.dtype != oracle::DType::f32) c.dtype = run.dtype;
    oracle::TensorFile file = oracle::make_inputs(c);
    if (run.backward) append(file, oracle::make_cotangents(c));
    GDNCTL_TRY_ASSIGN(const auto declared,
                      oracle::resolve_contract(run.contract.contract, file.metadata, run.contract.sets));
    if (declared.value.layout == oracle::TokenLayout::heads_first) oracle::store_heads_first(file);
    return file;
}

Result<oracle::TensorFile> generate_layer(const GdnRun& run) {
    GDNCTL_TRY_ASSIGN(const oracle::GdnDims dims, parse_shape(*run.shape));
    GDNCTL_TRY(oracle_files::check_memory(dims, static_cast<std::size_t>(dims.B)));
    if (dims.Hv % dims.Hk != 0) {
        return fail(ErrorKind::usage, fmt::format("--shape {}: Hv must be a multiple of Hk", *run.shape));
    }
    GDNCTL_TRY_ASSIGN(const auto contract,
                      oracle::resolve_layer_contract(run.contract.contract, {}, run.contract.sets));
    return oracle::make_layer_inputs(dims, run.dtype, static_cast<std::uint64_t>(run.seed.value_or(1)), contract);
}

Status add_gdn_results(const GdnReading& reading, const GdnRun& run, int threads, oracle::TensorFile& file) {
    const oracle::GdnProblem& problem = reading.problem();
    const oracle::GdnContract& contract = reading.contract().value;
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes_of(run)));
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::output;
    });
    const bool exact = run.method == Method::recurrent64;
    const oracle::DType out = exact ? oracle::DType::f64 : oracle::out_dtype_of(contract, problem);
    append(file, oracle::outputs_file(problem, contract, compute(run, problem, contract, threads), out,
                                      exact ? oracle::DType::f64 : oracle::DType::f32));
    return run.backward ? add_gradients(run, problem, contract, threads, file) : Status{};
}

Status add_layer_results(const LayerReading& reading, const GdnRun& run, int threads, oracle::TensorFile& file) {
    const oracle::GdnLayer& layer = reading.layer();
    const oracle::LayerContract& contract = reading.contract();
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        const oracle::GdnRole role = oracle::layer_name(entry.name).role;
        return role == oracle::GdnRole::output || role == oracle::GdnRole::gradient;
    });
    append(file, oracle::layer_outputs_file(layer, contract,
                                            run.stream ? oracle::stream_layer64(layer, contract, *run.stream, threads)
                                                       : oracle::run_layer64(layer, contract, threads),
                                            run.parts));
    if (run.backward) {
        GDNCTL_TRY_ASSIGN(auto cotangents, oracle::read_layer_cotangents(file, layer, contract));
        if (!cotangents) {
            cotangents = oracle::random_layer_cotangents(layer, static_cast<std::uint64_t>(run.seed.value_or(1)));
            append(file, oracle::layer_cotangents_file(layer, contract, *cotangents));
        }
        append(file, oracle::layer_gradients_file(layer, contract,
                                                  oracle::run_layer_adjoint64(layer, contract, *cotangents, threads)));
    }
    return {};
}

}  // namespace gdnctl::harness
