// oracle run for gdn and its layer: inputs of a shape or case, and what the operator makes of inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/gdn/read.h"

namespace gdnctl::harness {

enum class Method { recurrent64, chunk, fused, recurrent32 };

// There are two backwards: the exact adjoint, and the chunked one in fp32, which is that of every fp32 forward.
Method backward_method(Method forward);

struct GdnRun {
    std::optional<std::string> shape, case_name;  // one of them, for generated inputs
    std::optional<std::int64_t> seed;             // nullopt: the case's, or 1
    oracle::DType dtype = oracle::DType::f32;     // of generated inputs; f32: as the case says
    ContractChoice contract;
    Method method = Method::recurrent64;  // gdn
    bool backward = false;
    bool parts = false;                  // layer: also its intermediate results
    std::optional<std::int64_t> stream;  // layer: tokens at a time
};

// With cotangents, if there is to be a backward. Usage errors: no such case or shape, too large a one.
Result<oracle::TensorFile> generate_gdn(const GdnRun& run);
Result<oracle::TensorFile> generate_layer(const GdnRun& run);

// Adds results to the file of inputs that was read, in place of those of an earlier run, and gradients and the
// cotangents that they are of.
Status add_gdn_results(const GdnReading& reading, const GdnRun& run, int threads, oracle::TensorFile& file);
Status add_layer_results(const LayerReading& reading, const GdnRun& run, int threads, oracle::TensorFile& file);

}  // namespace gdnctl::harness
