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

    // Other values everywhere, of the same kind as before, and as independent of the last ones as of any.
    virtual Status draw(std::uint64_t seed) = 0;
    // As a kernel's call has them (decays as logarithms, states as [N,Hv,dk,dv]), and with cotangents.
    virtual const TensorFile& file() const = 0;
    virtual TensorFile with_cotangents() const = 0;
    // How far outputs (gradients, of a backward) are from what our fp32 kernels make of these inputs. Up to 1, two
    // honest fp32 results may differ; beyond, only the truth can tell. Infinity: something is missing or not finite.
    virtual double distance(const TensorFile& outputs, Pass pass, int threads) = 0;
    // Truth and budget: takes a while.
    virtual Result<GdnReference> reference(int threads) const = 0;
};

}  // namespace gdnctl::oracle
