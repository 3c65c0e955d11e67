// What a candidate has to pass, one stage after the other, cheap ones first: protected paths, post-checks, tests on the
// device, profile, performance policy. The engine runs them in order, writes a `stage` record after each, and goes on
// with the decision; a stage that has its record is not run again after a kill.
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
    const std::filesystem::path& tree;  // holds the candidate's files and nothing else; in place: the user's checkout
    const Artefacts& artefacts;
    std::string run;  // its name
    std::stop_token stop{};
};

struct StageResult {
    StageVerdict verdict = StageVerdict::pass;
    Outcome outcome = Outcome::rejected;  // of a failure
    std::string reason{};                 // one line for people; empty when it passed without a word
    std::string sign{};                   // see Failure::sign
    int exit_status = 0;                  // what the loop ends with when its policy is `fail`
    // Instead of the stage's own policy: a candidate that cannot be told from the champion is taken back, and nobody's
    // failure (`continue`).
    std::optional<Policy> policy{};
    bool promoted = false;  // the candidate is the new champion
    std::int64_t tpu_ms = 0;
    // Facts for the record: gate names to "pass 4.1 <= 5.0", metric names to values as text.
    std::map<std::string, std::string> facts{};
};

class Stage {
public:
    virtual ~Stage() = default;
    virtual std::string_view name() const = 0;  // [a-z-]+, unique in a run
    // What becomes of an iteration that fails here.
    virtual Policy policy() const = 0;
    // Whether it is spent on a candidate that changes nothing (first-version post-checks are not).
    virtual bool wants(DiffClass diff) const = 0;
    // Errors: what is not the candidate's fault and not a known trouble of the surroundings.
    virtual Result<StageResult> run(const StageContext& context) = 0;
};

}  // namespace gdnctl::loop
