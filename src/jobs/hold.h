// Holds a development TPU on any backend: allocate or adopt, keep, find, list, release. Used by commands and the loop.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "jobs/job_destination.h"
#include "platform/context.h"
#include "services/devtpu/holds.h"
#include "services/devtpu/host_connection.h"
#include "services/job/job.h"

namespace gdnctl {

struct HoldPlan {
    std::string tpu_name;
    std::string tpu_type;             // empty: the cluster's own; none on this machine
    std::filesystem::path sync_path;  // absolute
    std::string ssh_user;
    bool sync = true, setup = true;
    bool replaces_tree = false;  // on the host of a hold that is taken over: also the tree of another repository
    devtpu::Terms terms;
    std::chrono::milliseconds ready_timeout{900'000};
    std::chrono::milliseconds stop_timeout{60'000};  // for a release; after that, the end of the lease releases it
};

// Renews a lease from its own thread while it lives. The first of several failures in a row is logged as a warning.
class LeaseRenewer;

// A TPU that is held and ready, and stays so while the object lives. The destructor does not release it.
class Holding {
public:
    Holding(devtpu::HoldRecord record, std::unique_ptr<JobBackend> backend, Context& context);
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

    const devtpu::HoldRecord& record() const { return m_record; }
    const JobBackend& backend() const { return *m_backend; }
    bool adopted() const { return m_adopted; }

    // Asks the backend once. nullopt: still held, or no answer. Otherwise an error that says why it is no longer held.
    std::optional<Error> lost();
    // Returns when the hold has ended (with its error) or a stop was requested (interrupted, terminated).
    Error wait();
    // Releases the TPU and forgets the hold. Error infrastructure: the backend could not be reached; the end of the
    // lease will release it.
    Status release(std::chrono::milliseconds limit);

private:
    friend class Allocation;
    devtpu::HoldRecord m_record;
    std::unique_ptr<JobBackend> m_backend;
    Context& m_context;
    std::unique_ptr<LeaseRenewer> m_renewer;
    bool m_adopted = false;
};

// Holds a TPU at this place, or takes over the one that this user already holds under the name. Reports progress on
// stderr in the wording that scripts match. Errors: usage (bad name or type; somebody else uses the name, or a hold
// with it is already waiting), timeout (not ready in time), infrastructure, authentication, interrupted, terminated;
// the TPU is then released.
Result<std::unique_ptr<Holding>> hold_tpu(const JobDestination& place, const DestinationOptions& options,
                                          const HoldPlan& plan, Context& context);

// ---- existing holds

// The tree that a command has synced to the host.
struct SyncedTree {
    std::filesystem::path root;
    bool replaces_other = false;  // also a tree that came from another repository
    std::string mark;             // devtpu::tree_mark()
};

// The hold that a command acts on, and how to reach its backend.
struct FoundHold {
    devtpu::HoldRecord record;
    DestinationOptions place;
    std::optional<SyncedTree> synced = std::nullopt;
};
// Finds a hold by name, in this machine's records or else among this user's jobs on the cluster. Error infrastructure:
// not held (in upstream's wording).
Result<FoundHold> find_hold(const std::string& name, const DestinationOptions& options, Context& context);

// The place of a recorded hold.
DestinationOptions destination_of_hold(const devtpu::HoldRecord& record, const DestinationOptions& options);

bool is_hold(const JobDetails& job);                            // a holder that has not ended
std::string hold_word(const JobDetails& job, const char* key);  // of its metadata
devtpu::HoldRecord hold_of(const JobDetails& job, const JobBackend& backend);
// The holder's log so far; empty if it cannot be read.
devtpu::HolderLog read_holder(JobBackend& backend, std::string_view id);

// Why a hold has ended: preempted, its lease or cap ran out, it was released, or its job no longer exists.
Error hold_over(const devtpu::HoldRecord& record, const JobDetails& job, const std::optional<devtpu::HoldEnd>& end);

// The same where its place no longer knows the job.
Error hold_vanished(const devtpu::HoldRecord& record);

// The way to the host; nullopt: only through jobs next to the holder.
std::optional<devtpu::HostConnection> connection_of(const devtpu::HoldRecord& record, const Context& context);

// Stops the holder and everything that runs on its host, waits for its end, and removes this machine's records of it.
Status release_hold(const devtpu::HoldRecord& record, JobBackend& backend, std::chrono::milliseconds limit,
                    Context& context);

// The same context without the stop request that has already arrived, for cleaning up.
Context without_stop(const Context& context);

// ---- output for people and scripts

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
