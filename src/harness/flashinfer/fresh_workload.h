// Inputs like those of a FlashInfer-Bench workload, but other ones: what its solutions are timed on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/result.h"
#include "oracle/flashinfer/flashinfer.h"
#include "oracle/gdn/bench/fresh_inputs.h"
#include "oracle/gdn/contract/contract.h"

namespace gdnctl::oracle {

// Random inputs are drawn again. Recorded values get a factor between 3/4 and 5/4 each, and head dimensions get other
// signs; rows of q and k keep their length. Offsets, indices and the scale stay.
class FreshWorkload : public FreshInputs {
public:
    // `definition` and `workload` must outlive it. `contract` is `flashinfer`. Errors: as make_workload_inputs and
    // read_problem.
    static Result<FreshWorkload> make(const flashinfer::GdnDefinition& definition, const flashinfer::Workload& workload,
                                      std::map<std::string, Tensor> loaded, ResolvedContract contract);

    Status draw(std::uint64_t seed) override;
    const TensorFile& file() const override;
    TensorFile with_cotangents() const override { return file(); }  // solutions have no backward
    // `outputs` by the names of a call: out, and final_state as [N,Hv,dk,dv].
    double distance(const TensorFile& outputs, Pass pass, int threads) override;
    // Outputs that it judges are those of a call.
    Result<GdnReference> reference(int threads) const override;

    // The same inputs by the definition's names, and what they mean.
    const TensorFile& as_workload() const;
    const GdnProblem& problem() const;
    const ResolvedContract& contract() const;

private:
    struct Parts;
    std::shared_ptr<Parts> m_parts;
};

}  // namespace gdnctl::oracle
