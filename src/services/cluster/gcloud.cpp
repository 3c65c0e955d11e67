#include "services/cluster/gcloud.h"

#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/signals.h"

namespace gdnctl::cluster {

namespace {

bool has_any(std::string_view text, std::initializer_list<std::string_view> signs) {
    for (const std::string_view sign : signs) {
        if (text.find(sign) != std::string_view::npos) return true;
    }
    return false;
}

// The error itself, without the notices before it and the advice after it.
std::string reason(std::string_view text) {
    const auto lines = text::split(text::trim(text), '\n');
    for (const std::string_view line : lines) {
        if (line.starts_with("ERROR:")) return text::repair_utf8(text::trim(line.substr(line.find(':') + 1)));
    }
    return text::repair_utf8(text::trim(lines.back()));
}

bool is_ip(std::string_view word) {
    return !word.empty() && word.find_first_not_of("0123456789abcdefABCDEF.:") == std::string_view::npos;
}

}  // namespace

Result<std::string> run_gcloud(const GcloudAccess& gcloud, std::vector<std::string> words, std::string_view what) {
    ProcessSpec spec;
    spec.argv = {"gcloud"};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.env["CLOUDSDK_CORE_DISABLE_PROMPTS"] = "1";
    spec.wall_limit = gcloud.limit;
    spec.stop = gcloud.stop;
    auto result = gcloud.process->run(spec);
    if (!result) {
        return fail(ErrorKind::infrastructure, fmt::format("cannot {}: {}", what, result.error().text()),
                    "install gcloud, or pass the dashboard's address with --ray-address");
    }
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result->ok()) return std::move(result->out);
    const std::string& said = result->err;
    const std::string why = text::trim(said).empty() ? "gcloud " + describe_end(*result, spec) : reason(said);
    std::string message = fmt::format("cannot {}: {}", what, why);
    if (has_any(said, {"not currently have an active account", "gcloud auth login", "Reauthentication", "invalid_grant",
                       "UNAUTHENTICATED"})) {
        return fail(ErrorKind::authentication, std::move(message), "gcloud auth login");
    }
    if (has_any(said, {"PERMISSION_DENIED", "does not have permission", "Required '"})) {
        return fail(ErrorKind::authentication, std::move(message), "ask for access to the project");
    }
    if (said.find("NOT_FOUND") != std::string::npos) return fail(ErrorKind::remote_missing, std::move(message));
    return fail(ErrorKind::infrastructure, std::move(message), "run it by hand: gcloud " + text::shell_join(words));
}

Result<HeadNode> parse_head_node(std::string_view line, std::string_view cluster_name) {
    line = text::trim(line.substr(0, line.find('\n')));
    const auto parts = text::split(line, '\t');
    const std::string_view internal = text::trim(parts.front());
    const std::string_view external = parts.size() > 1 ? text::trim(parts[1]) : std::string_view();
    if (internal.empty()) {
        return fail(ErrorKind::infrastructure, fmt::format("No head node found for cluster {}", cluster_name),
                    "check whether it is running: gcloud compute instances list");
    }
    if (!is_ip(internal) || (!external.empty() && !is_ip(external))) {
        return fail(ErrorKind::infrastructure, fmt::format("gcloud returned no address for the head node of {}: {}",
                                                           cluster_name, text::repair_utf8(line.substr(0, 100))));
    }
    return HeadNode{std::string(internal), std::string(external.empty() ? internal : external)};
}

Result<HeadNode> find_head_node(const GcloudAccess& gcloud, const ClusterFile& cluster) {
    if (cluster.cluster_name.empty()) {
        return fail(ErrorKind::config, cluster.path.string() + " has no cluster_name",
                    "pass the dashboard's address with --ray-address");
    }
    std::vector<std::string> words = {
        "compute",
        "instances",
        "list",
        "--filter",
        fmt::format("labels.ray-cluster-name={} AND labels.ray-node-type=head", cluster.cluster_name),
        "--format",
        "value(networkInterfaces[0].networkIP,networkInterfaces[0].accessConfigs[0].natIP)",
        "--limit",
        "1"};
    // Without it, gcloud looks in the user's own default project.
    if (!cluster.project.empty()) words.push_back("--project=" + cluster.project);
    GDNCTL_TRY_ASSIGN(const std::string out,
                      run_gcloud(gcloud, std::move(words), "find the head node of " + cluster.cluster_name));
    auto head = parse_head_node(out, cluster.cluster_name);
    if (!head && !cluster.project.empty() && head.error().hint.ends_with("instances list")) {
        head.error().hint += " --project=" + cluster.project;
    }
    return head;
}

}  // namespace gdnctl::cluster
