// Profiles as artifacts of Weights & Biases: queries, answers, manifests. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/retrying_client.h"
#include "services/hub/transfer/selection.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::wandb {

inline constexpr std::string_view k_profile_type = "jax_profile";

struct Artifact {
    std::string id, state, type, collection, updated;
    std::int64_t version = 0;
    std::vector<std::string> aliases;

    std::string version_name() const;  // "v3"
    bool has_alias(std::string_view alias) const;
};

// Request bodies, with the same operations as the official client.
std::string run_artifacts_question(const WandbPath& path, const std::string& cursor);
std::string artifact_question(const WandbPath& path, const std::string& name_and_alias);
std::string manifest_question(const std::string& artifact_id);
std::string file_urls_question(const WandbPath& path, const Artifact& artifact, const std::string& cursor);
std::string config_question(const WandbPath& path);

// A page of a list, and the cursor of the next one; empty: none.
template <class T>
struct Page {
    std::vector<T> items;
    std::string next;
};
struct FileUrl {
    std::string name, url;
};

// Parse answers with status 200. Errors: remote_missing (null), authentication and infrastructure (from `errors`).
Result<Page<Artifact>> parse_run_artifacts(std::string_view body, const WandbPath& path);
Result<Artifact> parse_artifact(std::string_view body, const std::string& name_and_alias);
Result<std::string> parse_manifest_url(std::string_view body);
Result<Page<FileUrl>> parse_file_urls(std::string_view body);
// Places of profiles in a run's configuration, at any depth: "trainer.log_dir: gs://...".
std::vector<std::string> parse_profile_places(std::string_view body);

// The artifact with `alias`, or without one the last updated. Considers only committed artifacts of the profile type.
// Errors: nothing_done (there is none; names the types that exist), remote_missing (no such alias).
Result<Artifact> choose_artifact(const std::vector<Artifact>& artifacts, const std::optional<std::string>& alias);

struct ManifestEntry {
    std::string path;
    std::int64_t size = 0;
    std::string md5;  // hex
    std::string birth_artifact;
    std::string ref;  // stored elsewhere: "gs://..."; empty: at W&B
};
struct Manifest {
    std::string region;  // of storage; "default" if not given
    bool second_layout = false;
    std::vector<ManifestEntry> entries;
};
// Errors: infrastructure (invalid manifest).
Result<Manifest> parse_manifest(std::string_view json);
// The address of a file, which requires the key.
std::string file_address(const std::string& base, const WandbPath& path, const Artifact& artifact,
                         const Manifest& manifest, const ManifestEntry& entry);

// "entity/project/run", a web address of a run, or a run's id with the other two as arguments. Errors: usage.
Result<WandbPath> parse_run_target(std::string_view text, const std::optional<std::string>& entity,
                                   const std::optional<std::string>& project);

// The profile that a run stored at Weights & Biases as an artifact.

struct ArtifactListing {
    Artifact artifact;
    std::vector<hub::Wanted> files;   // the selected ones, sorted
    std::vector<std::string> others;  // all other paths
};

class RunArtifacts {
public:
    // `client` sends requests to access.url with its key; it must outlive this.
    RunArtifacts(WandbAccess access, WandbPath path, hub::RetryingClient& client)
        : m_access(std::move(access)), m_path(std::move(path)), m_client(client) {}

    // `name`: "NAME[:ALIAS]" of an artifact; nullopt: the run's profile. Errors: those of the queries; nothing_done if
    // the run has no profile, with the places that its configuration names.
    Result<ArtifactListing> list(const std::optional<std::string>& name, const std::optional<std::string>& alias,
                                 const hub::Selection& selection);
    Error explain(const std::string& url, int status, const HttpHeaders& headers, std::string_view body) const;

private:
    Result<std::string> ask(const std::string& question);
    Result<Artifact> find(const std::optional<std::string>& name, const std::optional<std::string>& alias);
    Result<Artifact> of_run(const std::optional<std::string>& alias);
    Result<Manifest> manifest_of(const Artifact& artifact);
    Result<std::vector<FileUrl>> urls_of(const Artifact& artifact);

    const WandbAccess m_access;
    const WandbPath m_path;
    hub::RetryingClient& m_client;
};

}  // namespace gdnctl::wandb
