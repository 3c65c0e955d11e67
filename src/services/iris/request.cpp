#include "services/iris/request.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::iris {

namespace {

constexpr std::size_t k_word_limit = 131'071;  // of one argument on Linux; 128 KiB with its final NUL

std::string meta_name(std::string_view key) {
    std::string name(k_metadata_prefix);
    for (const char c : key) name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return name;
}

tl::unexpected<Error> unsupported(std::string_view what, std::string hint) {
    return fail(ErrorKind::usage, std::string(what) + " is not supported on iris", std::move(hint));
}

// Later entries win.
Result<std::map<std::string, std::string>> values_of(const std::vector<JobEnv>& env) {
    std::map<std::string, std::string> values;
    for (const JobEnv& item : env) {
        if (!text::is_valid_utf8(item.value) || item.value.find('\0') != std::string::npos) {
            return fail(ErrorKind::usage,
                        "the value of " + item.name + " is not UTF-8 text and cannot be sent to a job",
                        "put it into a file in the working directory");
        }
        values[item.name] = item.value;
    }
    return values;
}

std::string whole(double amount) { return std::to_string(static_cast<std::int64_t>(std::min(amount, 9e18))); }

// The resources of a job limit its container, so there are always some.
Result<Json> resources_json(const std::map<std::string, double>& asked) {
    std::string type;
    std::map<std::string, double> amounts;
    for (const auto& [name, amount] : asked) {
        if (!(amount > 0)) continue;
        if (name.starts_with("TPU-") && name.ends_with("-head")) {
            type = name.substr(4, name.size() - 9);
        } else if (name == "CPU" || name == "TPU" || name == "memory" || name == "disk") {
            amounts[name] = amount;
        } else {
            return unsupported("the resource " + name, "CPU, memory, disk and a TPU are");
        }
    }
    const bool tpu = !type.empty() && amounts.contains("TPU");
    if (!tpu && (!type.empty() || amounts.contains("TPU"))) {
        return fail(ErrorKind::usage, "a TPU on iris needs a type and a number of chips",
                    R"(such as resources = { "TPU-v5p-8-head" = 1, TPU = 4 })");
    }
    constexpr double k_gb = 1e9;
    const auto amount = [&](const char* name, double with_tpu, double without) {
        const auto it = amounts.find(name);
        return it != amounts.end() ? it->second : tpu ? with_tpu : without;
    };
    Json out;
    out["cpuMillicores"] = static_cast<std::int64_t>(std::ceil(std::min(amount("CPU", 32, 1), 1e6) * 1000));
    out["memoryBytes"] = whole(amount("memory", 128 * k_gb, 4 * k_gb));
    out["diskBytes"] = whole(amount("disk", 50 * k_gb, 20 * k_gb));
    if (tpu) {
        Json device{{"variant", type}, {"count", static_cast<std::int64_t>(amounts.at("TPU"))}};
        out["device"] = Json::object({{"tpu", std::move(device)}});
    }
    return out;
}

}  // namespace

Status check_servable(const JobRequest& request) {
    GDNCTL_TRY(check_submission_id(request.submission_id));
    const std::string& id = request.submission_id;
    if (std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        return fail(ErrorKind::usage, "not a submission id on iris: '" + id + "'", "use at least one letter");
    }
    if (!request.working_dir_uri.empty()) return unsupported("--working-dir URI", "pass a folder, or `none`");
    if (!request.pip.empty()) return unsupported("--pip-requirements", "let the job's command install them");
    if (request.keep_workdir) return unsupported("--keep-workdir", "copy what you need to $GDNCTL_OUTPUT_DIR");
    if (!request.node_labels.empty()) return unsupported("a node label", "leave it out");
    return {};
}

Result<Json> launch_json(const JobRequest& request, std::string_view name, std::chrono::milliseconds start_timeout) {
    const std::string command = std::string(k_prologue) + request.entrypoint;
    if (command.size() > k_word_limit) {
        return fail(ErrorKind::usage,
                    fmt::format("the job's command has {} bytes; a container's shell accepts at most {}",
                                request.entrypoint.size(), k_word_limit - k_prologue.size()),
                    "put it into a script in the working directory");
    }
    if (!text::is_valid_utf8(command)) {
        return fail(ErrorKind::usage, "the job's command is not UTF-8 text",
                    "put it into a script in the working directory");
    }
    GDNCTL_TRY_ASSIGN(auto env, values_of(request.env));
    env.emplace("PYTHONUNBUFFERED", "1");
    for (const auto& [key, value] : request.metadata) env[meta_name(key)] = text::repair_utf8(value);
    GDNCTL_TRY_ASSIGN(Json resources, resources_json(request.resources));
    Json out;
    out["name"] = std::string(name);
    out["entrypoint"]["runCommand"]["argv"] = Json::array({"bash", "-c", command});
    out["entrypoint"]["setupCommands"] = Json::array();
    out["resources"] = std::move(resources);
    out["environment"]["envVars"] = Json::object();
    for (const auto& [variable, value] : env) out["environment"]["envVars"][variable] = value;
    out["replicas"] = 1;
    out["maxRetriesPreemption"] = 0;
    out["schedulingTimeout"]["milliseconds"] = std::to_string(start_timeout.count());
    out["existingJobPolicy"] = "EXISTING_JOB_POLICY_ERROR";
    return out;
}

Result<std::string> export_lines(const std::vector<JobEnv>& env) {
    GDNCTL_TRY_ASSIGN(const auto values, values_of(env));
    std::string lines = "export PYTHONUNBUFFERED=1\n";
    for (const auto& [name, value] : values) lines += fmt::format("export {}={}\n", name, text::shell_quote(value));
    return lines;
}

}  // namespace gdnctl::iris
