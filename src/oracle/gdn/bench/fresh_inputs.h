// New inputs for every timed run of a user's kernel, and the results that it must give.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

enum class Pass { forward, backward, decode };
std::string_view name_of(Pass pass);

class FreshInputs {
public:
    virtual ~FreshInputs() = default;

    // Replaces all values by others of the same kind, independent of the previous ones.
    virtual Status draw(std::uint64_t seed) = 0;
    // In the form of a kernel's call (decays as logarithms, states as [N,Hv,dk,dv]), with cotangents.
    virtual const TensorFile& file() const = 0;
    virtual TensorFile with_cotangents() const = 0;
    // How far outputs (of a backward: gradients) are from those of our fp32 kernels. Up to 1, two correct fp32 results
    // may differ; beyond that, only the truth can decide. Infinity: something is missing or not finite.
    virtual double distance(const TensorFile& outputs, Pass pass, int threads) = 0;
    // Truth and budget; slow.
    virtual Result<GdnReference> reference(int threads) const = 0;
};

}  // namespace gdnctl::oracle
