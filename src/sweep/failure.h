// Why a configuration has no time, by what its messages say. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::sweep {

// The first four are properties of the configuration, and so are the last three; `environment` is a matter of set-up,
// `infra` of the machines.
enum class FailureKind { vmem_oom, hbm_oom, lowering, unsupported, environment, infra, crashed, timed_out, no_result };
std::string_view to_text(FailureKind kind);
std::optional<FailureKind> parse_failure_kind(std::string_view text);
// Whether another run would end the same way.
bool is_own(FailureKind kind);

struct Failure {
    std::optional<FailureKind> kind;
    std::optional<double> vmem_used_bytes, vmem_limit_bytes;
};

// nullopt in `kind`: none of the known messages. A message of the kernel compiler stays `lowering` whatever words
// about memory it holds: smaller tiles would not mend it.
Failure classify_failure(std::string_view message);

}  // namespace gdnctl::sweep
