// The checks that a candidate must pass, one after the other, cheap ones first: protected paths, post-checks, tests on
// the device, profile, performance policy. The engine runs them in order, writes a `stage` record after each, and
// continues with the decision. A stage with a record is not run again after a kill.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/engine/artefacts.h"
#include "loop/engine/journal.h"
#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/engine/transaction.h"

namespace gdnctl::loop {

enum class StageVerdict { pass, fail, skip };
std::string_view to_text(StageVerdict verdict);

struct StageContext {
    int iteration = 0;
    const Base& base;
    const Candidate& candidate;
    const std::filesystem::path& tree;  // contains exactly the candidate's files; in place: the user's checkout
    const Artefacts& artefacts;
    std::string run;  // its name
    std::stop_token stop{};
};

struct StageResult {
    StageVerdict verdict = StageVerdict::pass;
    Outcome outcome = Outcome::rejected;  // of a failure
    std::string reason{};                 // one line for people; empty if it passed without comment
    std::string sign{};                   // see Failure::sign
    int exit_status = 0;                  // the loop's exit code if the policy is `fail`
    // Overrides the stage's own policy: a candidate that cannot be distinguished from the champion is removed without
    // counting a failure (`continue`).
    std::optional<Policy> policy{};
    bool promoted = false;  // the candidate is the new champion
    std::int64_t tpu_ms = 0;
    // Facts for the record: gate names with "pass 4.1 <= 5.0", metric names with values as text.
    std::map<std::string, std::string> facts{};
};

class Stage {
public:
    virtual ~Stage() = default;
    virtual std::string_view name() const = 0;  // [a-z-]+, unique within a run
    // What to do with an iteration that fails here.
    virtual Policy policy() const = 0;
    // Whether the stage also runs for a candidate that changes nothing (post-checks of the first version do not).
    virtual bool wants(DiffClass diff) const = 0;
    // Errors: problems that are neither the candidate's fault nor a known environment failure.
    virtual Result<StageResult> run(const StageContext& context) = 0;
};

}  // namespace gdnctl::loop
