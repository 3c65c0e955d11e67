// The job that holds a TPU: how long it does (the lease that users renew, the grace period before the first renewal,
// the cap), what it tells about its host, and the job itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

inline constexpr std::int64_t k_detached_lease_s = 3600;

struct Terms {
    std::int64_t lease_s = 600;       // after this long without a renewal, the TPU is released
    std::int64_t grace_s = 1200;      // until the first renewal
    std::int64_t max_hold_s = 28800;  // in any case
};

// Error: usage (a term outside 1 s to one year).
Status check_terms(const Terms& terms);

// How often a client renews the lease: min(30 s, lease / 4).
std::chrono::milliseconds heartbeat_interval(const Terms& terms);

// Converts the terms to strings for the job's metadata, and back. Missing or invalid ones are the defaults.
void put_terms(std::map<std::string, std::string>& metadata, const Terms& terms);
Terms terms_of(const std::map<std::string, std::string>& metadata);

// When the lease ends without another renewal. `renewed`: the last renewal; nullopt: none yet.
WallTime lease_end(const Terms& terms, WallTime created, std::optional<WallTime> renewed);
WallTime cap_end(const Terms& terms, WallTime created);

enum class HoldEnd { stop, lease, max_hold, preempted };
std::string_view to_text(HoldEnd end);  // "stop", "lease", "max-hold", "preempted"
std::optional<HoldEnd> parse_hold_end(std::string_view text);

// The holder's decision, on the monotonic clock, so that setting the clock has no effect. The lease file's time counts
// when it changes, unless it is more than five minutes ahead.
class LeaseWatch {
public:
    LeaseWatch(const Terms& terms, Clock::Monotonic start) : m_terms(terms), m_start(start) {}

    // The lease file's time, which the holder itself sets at the start; nullopt: it cannot be read now.
    void see(std::optional<WallTime> modified, WallTime wall, Clock::Monotonic now);
    std::optional<HoldEnd> over(Clock::Monotonic now) const;

private:
    Terms m_terms;
    Clock::Monotonic m_start;
    std::optional<WallTime> m_modified;         // last seen value
    std::optional<Clock::Monotonic> m_renewed;  // nullopt: never
};

// What the holder of a TPU reports about its host, and the two significant lines of its log.

inline constexpr std::string_view k_host_marker = "GDNCTL_HOST_INFO ";
inline constexpr std::string_view k_released_marker = "GDNCTL_RELEASED ";

// Facts that the holder could not determine are empty, and `error` says why.
struct HostInfo {
    std::string hostname, ip_address, username, tpu_name, gcloud_tpu_name, gcloud_zone, gcloud_region, gcloud_project,
        tpu_type, error, node_ip;
    std::int64_t pid = 0, accel_count = 0;

    bool operator==(const HostInfo&) const = default;
    // The address for ssh; empty: none.
    const std::string& reachable_ip() const { return ip_address.empty() ? node_ip : ip_address; }
};

Json host_info_json(const HostInfo& host);
HostInfo host_info_of(const Json& object);

// Both markers must be at the start of the line, since a scheduler may repeat the holder's text within a line. Pure.
std::optional<HostInfo> parse_host_line(std::string_view line);
std::optional<HoldEnd> parse_released_line(std::string_view line);

// Reads a holder's log from pieces of any size.
class HolderLog {
public:
    void feed(std::string_view bytes);
    const std::optional<HostInfo>& host() const { return m_host; }
    const std::optional<HoldEnd>& end() const { return m_end; }

private:
    std::string m_partial;  // cut at 64 KiB
    std::optional<HostInfo> m_host;
    std::optional<HoldEnd> m_end;
};

// "0" to "projects/1/zones/us-central1-a", split into the parts that gcloud needs; empty for other text. Pure.
struct Zone {
    std::string zone, region;
};
Zone parse_zone(std::string_view metadata_value);

// The holder for clusters, as Python text.

extern const std::string_view k_holder_script;

// The holder: a job that occupies a TPU while its lease is renewed. It knows no scheduler. Outside of its process it
// reads only the lease file and its machine's metadata server.

inline constexpr std::string_view k_metadata_variable = "GDNCTL_METADATA_BASE";
inline constexpr std::string_view k_hold_kind = "hold";
inline constexpr std::string_view k_hold_part = "gdnctl-hold-";  // of every holder's id
inline constexpr const char* k_local_holder_word = "__dev-tpu-holder";

struct HolderRequest {
    std::string submission_id;
    std::string tpu_name, tpu_type;  // the type may be empty if none is requested
    std::string user, host, nonce;
    std::string ssh_user;  // login name for ssh
    Terms terms;
    std::map<std::string, double> resources;
    std::optional<std::string> metadata_base;  // GDNCTL_METADATA_BASE, if set
};

// The job for a cluster: `python3 -c` with only Python's standard library, in one argument below 128 KiB.
JobRequest holder_job(const HolderRequest& request);
// The same for this machine: the binary `self` is the holder, and the lease is a file of our own.
JobRequest local_holder_job(const HolderRequest& request, std::string_view self, const std::filesystem::path& lease);

// A job without resources that renews the lease on the holder's host. `record`: see run_record().
JobRequest heartbeat_job(std::string_view submission_id, std::string_view heartbeat_id, std::string_view record);

// The body of the local holder. Returns when the hold has ended, and writes to `out` what a cluster's holder prints.
// Its settings come from the environment set by local_holder_job().
int run_local_holder(const Env& env, Http& http, Clock& clock, std::ostream& out, std::stop_token stop);

}  // namespace gdnctl::devtpu
