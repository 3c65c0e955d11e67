// Profiles as artifacts of Weights & Biases: questions, answers, manifests. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/hub/transfer/download.h"
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

// Bodies of requests, with the operations that the official client asks.
std::string run_artifacts_question(const WandbPath& path, const std::string& cursor);
std::string artifact_question(const WandbPath& path, const std::string& name_and_alias);
std::string manifest_question(const std::string& artifact_id);
std::string file_urls_question(const WandbPath& path, const Artifact& artifact, const std::string& cursor);
std::string config_question(const WandbPath& path);

// A part of a list, and where the next one begins; empty: nowhere.
template <class T>
struct Page {
    std::vector<T> items;
    std::string next;
};
struct FileUrl {
    std::string name, url;
};

// What answers with status 200 say. Errors: remote_missing (null), authentication and infrastructure (as `errors` say).
Result<Page<Artifact>> parse_run_artifacts(std::string_view body, const WandbPath& path);
Result<Artifact> parse_artifact(std::string_view body, const std::string& name_and_alias);
Result<std::string> parse_manifest_url(std::string_view body);
Result<Page<FileUrl>> parse_file_urls(std::string_view body);
// Places that a run's configuration names for its profiles: "trainer.log_dir: gs://..."; as deep as they are.
std::vector<std::string> parse_profile_places(std::string_view body);

// What was meant: with `alias` the one that has it; else the one that was updated last. Committed ones of the type of
// profiles only. Errors: nothing_done (there is none; names the types that there are), remote_missing (no such alias).
Result<Artifact> choose_artifact(const std::vector<Artifact>& artifacts, const std::optional<std::string>& alias);

struct ManifestEntry {
    std::string path;
    std::int64_t size = 0;
    std::string md5;  // hex
    std::string birth_artifact;
    std::string ref;  // elsewhere: "gs://..."; empty: at W&B
};
struct Manifest {
    std::string region;  // of storage; "default" where it is not said
    bool second_layout = false;
    std::vector<ManifestEntry> entries;
};
// Errors: infrastructure (no such manifest).
Result<Manifest> parse_manifest(std::string_view json);
// Where a file is given out to who has the key.
std::string file_address(const std::string& base, const WandbPath& path, const Artifact& artifact,
                         const Manifest& manifest, const ManifestEntry& entry);

// "entity/project/run", a web address of a run, or a run's id with the other two beside it. Errors: usage.
Result<WandbPath> parse_run_target(std::string_view text, const std::optional<std::string>& entity,
                                   const std::optional<std::string>& project);

}  // namespace gdnctl::wandb
