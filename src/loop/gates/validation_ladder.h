// Tries the tests or the profile of a candidate on one place after the other: the held TPU, the held TPU after
// allocating it again, Ray clusters in order, and the held TPU once more; then all of them again later. Pure except for
// its calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/engine/held_tpu.h"
#include "loop/engine/options.h"
#include "loop/gates/validation_jobs.h"
#include "platform/clock.h"

namespace gdnctl::loop {

struct LadderWorld {
    std::function<Result<JobEnd>(const JobSite&)> run;
    HeldTpu* held = nullptr;              // nullptr: no TPU is held
    std::function<bool()> asked_to_stop;  // before each wait
    Clock& clock;
    std::stop_token stop{};
};

class Ladder {
public:
    // `clusters` in the order in which to try them; clusters that turn out not to exist are dropped.
    Ladder(JobKind kind, std::vector<JobSite> clusters, LadderWorld world)
        : m_kind(kind), m_clusters(std::move(clusters)), m_world(std::move(world)) {}

    // Repeats until a job succeeds or fails for good; returns the last failure after `attempts` passes (negative: 30).
    // A job that reaches its time limit twice is not tried again. Errors: those of run(), interrupted.
    Result<JobEnd> climb(std::int64_t attempts, std::chrono::seconds pause);

private:
    Result<JobEnd> pass();
    Result<JobEnd> try_held();
    Result<JobEnd> try_clusters();
    bool get_back(const char* why);
    bool is_final(const JobEnd& end) const;
    Result<JobEnd> run(const JobSite& site);
    JobSite held_site() const;
    JobKind m_kind;
    std::vector<JobSite> m_clusters;
    LadderWorld m_world;
    int m_time_limits = 0;
};

// Clusters in order: the given ones; else, with `automatic`, the held one, the loop's own and the discovered ones;
// else, if a TPU is held, the first two of these; else the default of such a command.
std::vector<std::string> cluster_order(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::vector<std::string>& discovered);
// The same, discovered in the repository at `root` according to the options.
std::vector<std::string> gate_clusters(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::filesystem::path& root);

}  // namespace gdnctl::loop
