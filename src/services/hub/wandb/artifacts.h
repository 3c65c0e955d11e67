// The profile that a run stored at Weights & Biases as an artifact.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/hub/transfer/selection.h"
#include "services/hub/transfer/wire.h"
#include "services/hub/wandb/artifact.h"

namespace gdnctl::wandb {

struct ArtifactListing {
    Artifact artifact;
    std::vector<hub::Wanted> files;   // the selected ones, sorted
    std::vector<std::string> others;  // all other paths
};

class RunArtifacts {
public:
    // `wire` sends requests to access.url with its key; it must outlive this.
    RunArtifacts(WandbAccess access, WandbPath path, hub::Wire& wire)
        : m_access(std::move(access)), m_path(std::move(path)), m_wire(wire) {}

    // `name`: "NAME[:ALIAS]" of an artifact; nullopt: the run's profile. Errors: those of the queries; nothing_done if
    // the run has no profile, with the places that its configuration names.
    hub::Outcome<ArtifactListing> list(const std::optional<std::string>& name, const std::optional<std::string>& alias,
                                       const hub::Selection& selection);
    hub::Failure explain(const std::string& url, int status, const HttpHeaders& headers, std::string_view body) const;

private:
    hub::Outcome<std::string> ask(const std::string& question);
    hub::Outcome<Artifact> find(const std::optional<std::string>& name, const std::optional<std::string>& alias);
    hub::Outcome<Artifact> of_run(const std::optional<std::string>& alias);
    hub::Outcome<Manifest> manifest_of(const Artifact& artifact);
    hub::Outcome<std::vector<FileUrl>> urls_of(const Artifact& artifact);

    const WandbAccess m_access;
    const WandbPath m_path;
    hub::Wire& m_wire;
};

}  // namespace gdnctl::wandb
