// Holding a development TPU on any backend: allocate or adopt, keep, find, list, release. The one way for commands and
// the loop.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "jobs/place.h"
#include "platform/context.h"
#include "services/devtpu/holds.h"
#include "services/devtpu/road.h"
#include "services/job/job.h"

namespace gdnctl {

struct HoldPlan {
    std::string tpu_name;
    std::string tpu_type;             // empty: the cluster's own; on this machine none
    std::filesystem::path sync_path;  // absolute
    std::string ssh_user;
    bool sync = true, setup = true;
    devtpu::Terms terms;
    std::chrono::milliseconds ready_timeout{900'000};
    std::chrono::milliseconds stop_timeout{60'000};  // of a release; after that the lease ends the hold
};

// Renews a lease from a thread of its own for as long as it lives. The first failure of a row is a warning.
class Heart;

// A TPU that is held and ready, and is kept so for as long as the object lives. Destroying it does not release.
class Holding {
public:
    Holding(devtpu::HoldRecord record, std::unique_ptr<JobBackend> backend, Context& context);
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

    const devtpu::HoldRecord& record() const { return m_record; }
    const JobBackend& backend() const { return *m_backend; }
    bool adopted() const { return m_adopted; }

    // Asks the backend once. nullopt: still held, or no answer. Else why not: an error that says so.
    std::optional<Error> lost();
    // Returns when the hold is over (its error) or a stop was requested (interrupted, terminated).
    Error wait();
    // Gives the TPU back and forgets it. Error infrastructure: it could not be told; its lease will end it.
    Status release(std::chrono::milliseconds limit);

private:
    friend class Allocation;
    devtpu::HoldRecord m_record;
    std::unique_ptr<JobBackend> m_backend;
    Context& m_context;
    std::unique_ptr<Heart> m_heart;
    bool m_adopted = false;
};

// Holds a TPU at this place, or takes over the one that this user already holds under the name. Says on stderr how it
// goes, in the words that scripts know. Errors: usage (bad name or type; the name is somebody else's, or waits
// already), timeout (not ready in time), infrastructure, authentication, interrupted, terminated; the TPU is released
// then.
Result<std::unique_ptr<Holding>> hold_tpu(const Place& place, const PlaceOptions& options, const HoldPlan& plan,
                                          Context& context);

// ---- holds that exist

// What a command acts on: the hold, and how to ask its backend.
struct FoundHold {
    devtpu::HoldRecord record;
    PlaceOptions place;
};
// By name: what this machine remembers, else what the cluster runs for this user. Error infrastructure: nobody holds
// it (in the words of upstream).
Result<FoundHold> find_hold(const std::string& name, const PlaceOptions& options, Context& context);

// Where a remembered hold is.
PlaceOptions place_of_hold(const devtpu::HoldRecord& record, const PlaceOptions& options);

bool is_hold(const JobDetails& job);                            // a holder that has not ended
std::string hold_word(const JobDetails& job, const char* key);  // of its metadata
devtpu::HoldRecord hold_of(const JobDetails& job, const JobBackend& backend);
// The holder's log as far as it goes; empty where it cannot be read.
devtpu::HolderLog read_holder(JobBackend& backend, std::string_view id);

// Why a hold is over: preempted, its lease or cap ran out, released by someone, or its job is gone.
Error hold_over(const devtpu::HoldRecord& record, const JobDetails& job, const std::optional<devtpu::HoldEnd>& end);

// The way to the host; nullopt: only through jobs beside the holder.
std::optional<devtpu::Road> road_of(const devtpu::HoldRecord& record, const Context& context);

// Stops the holder and what runs on its host, waits for its end, removes what this machine keeps of it.
Status release_hold(const devtpu::HoldRecord& record, JobBackend& backend, std::chrono::milliseconds limit,
                    Context& context);

// The same context without the stop request that is behind us: for cleaning up.
Context without_stop(const Context& context);

// ---- what people and scripts are told

// tpu_name, cluster, address, submission_id, status, tpu_type, host, ip, user, owner, created, lease_ends, cap_ends
// (ISO 8601, or null), ssh_ok: appended in that order.
struct HoldView {
    devtpu::HoldRecord record;
    std::string status;  // as the backend spells it; "UNKNOWN": it does not answer
    bool mine = true;
    std::optional<WallTime> lease_ends;
};
Json hold_view_json(const HoldView& view);

}  // namespace gdnctl
