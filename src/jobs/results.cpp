#include "jobs/results.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "jobs/submit.h"

namespace gdnctl {

namespace {}  // namespace

Json tests_json(const std::optional<PytestCounts>& counts) {
    if (!counts) return nullptr;
    Json out;
    out["passed"] = counts->passed;
    out["failed"] = counts->failed;
    out["errors"] = counts->errors;
    out["skipped"] = counts->skipped;
    out["deselected"] = counts->deselected;
    out["xfailed"] = counts->xfailed;
    out["xpassed"] = counts->xpassed;
    out["seconds"] = json::or_null(counts->seconds);
    return out;
}

Json device_json(const std::optional<DeviceReport>& device) {
    if (!device) return nullptr;
    return Json{{"backend", device->backend}, {"count", device->count}};
}

Json verdict_json(const OracleVerdicts& verdicts) {
    if (verdicts.overall.empty()) return nullptr;
    Json out;
    out["overall"] = verdicts.overall;
    out["cases"] = verdicts.cases;
    out["vectors"] = verdicts.vectors;
    out["counts"] = verdicts.counts;
    if (!verdicts.kernel.empty()) out["kernel"] = verdicts.kernel;
    return out;
}

Json profile_json(const ProfileReport& profile) {
    if (profile.empty()) return nullptr;
    Json out;
    out["mfu"] = json::or_null(profile.mfu);
    out["tokens_per_second"] = json::or_null(profile.tokens_per_second);
    out["duration_s"] = json::or_null(profile.duration);
    out["run_url"] = json::or_null(profile.run_url);
    out["ce_implementation"] = json::or_null(profile.ce_implementation);
    out["model"] = profile.model;
    return out;
}

void put_command(Json& object, const JobRequest& request) {
    object["entrypoint"] = own_command(request.entrypoint);
    object["env_names"] = names_of(request.env);
    object["resources"] = request.resources;
}

bool is_tpu_evidence(const JobPlace& place, const JobVerdict& verdict, const JobDetails& details,
                     const JobOutput& output) {
    if (place.backend == "local" || details.state != JobState::succeeded || verdict.exit != ExitCode::ok) return false;
    if (const auto& device = output.device()) return device->backend == "tpu" && device->count > 0;
    return output.profile().mfu.has_value();
}

}  // namespace gdnctl
