#include "loop/gates/cluster_preflight.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/gates/validation_ladder.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/cluster/cluster.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_longest_look{60};

// Why jobs of this kind would wait forever on every one of these clusters; nullopt: one accepts them, or does not say.
std::optional<Error> nowhere_for(std::string_view option, const std::string& tpu,
                                 const std::vector<ClusterFile>& files) {
    if (tpu.empty()) return std::nullopt;
    std::vector<std::string> offered;
    for (const ClusterFile& file : files) {
        const auto types = tpu_types(file);
        if (types.empty() || (tpu == "auto" ? infer_tpu(file).has_value() : offers_tpu(file, tpu))) return std::nullopt;
        offered.push_back(fmt::format("{} offers {}", file.cluster_name, text::join(types, ", ")));
    }
    if (offered.empty()) return std::nullopt;
    return Error{ErrorKind::usage,
                 fmt::format("no cluster offers {} {}: jobs would wait forever", option, tpu),
                 text::join(offered, "; "),
                 {}};
}

// nullopt: it answers. Errors: interrupted, terminated.
Result<std::optional<Error>> look_at(const ClusterPreflight& p, const std::string& name) {
    const Status answers = p.jobs.check(name, k_longest_look);
    if (p.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (answers) return std::optional<Error>();
    const ExitCode exit = exit_code_of(answers.error().kind);
    const ErrorKind kind = exit == ExitCode::usage            ? ErrorKind::usage
                           : exit == ExitCode::authentication ? ErrorKind::authentication
                                                              : ErrorKind::infrastructure;
    const std::string where = name.empty() ? "the default cluster" : name;
    return std::optional(Error{kind, where + ": " + text::visible(answers.error().text()), {}, {}});
}

}  // namespace

Status check_cluster_files(const ValidationOptions& options, const Target& target, const fs::path& cwd) {
    const fs::path root = find_repository_root(cwd).value_or(cwd);
    std::vector<ClusterFile> files;
    std::optional<Error> problem;
    for (const auto& name : options.clusters) {
        if (name == "local") return {};
        const auto path = find_cluster_file(root, cwd, name);
        auto file = path ? read_cluster_file(*path, {}) : Result<ClusterFile>(tl::unexpected(path.error()));
        if (file) {
            files.push_back(std::move(*file));
        } else if (!problem) {
            problem = file.error();
        }
    }
    if (files.empty()) return problem ? Status(tl::unexpected(*problem)) : Status();
    if (!options.cross_tpu_tests && options.mode != ValidationMode::profile_only) {
        problem = nowhere_for("--validation-ray-tpu", options.tpu, files);
        if (problem) return tl::unexpected(*problem);
    }
    const bool takes_settings = target.style == TargetStyle::levanter;
    problem = takes_settings ? nowhere_for("--validation-profile-tpu", options.profile.tpu, files) : std::nullopt;
    return problem ? Status(tl::unexpected(*problem)) : Status();
}

Status check_clusters_answer(const ClusterPreflight& p) {
    std::optional<Error> away, refused;
    std::vector<std::string> said;
    for (const std::string& name : gate_clusters(p.options, p.hold, {}, p.root)) {
        if (name == "local") return {};
        GDNCTL_TRY_ASSIGN(const std::optional<Error> error, look_at(p, name));
        if (!error) return {};
        said.push_back(error->message);
        (error->kind == ErrorKind::infrastructure ? away : refused) = error;
    }
    if (said.empty()) return {};
    Error error = away ? *away : *refused;
    error.message = "no cluster that validation needs can be used: " + text::join(said, "; ");
    if (away && p.patient) {
        log::warning("{}; continuing, since it may come back", error.message);
        return {};
    }
    error.hint = away ? "run gdnctl cluster check NAME; with --resilient the run starts anyway"
                      : "run gdnctl cluster check NAME";
    return tl::unexpected(std::move(error));
}

}  // namespace gdnctl::loop
