#include <fmt/format.h>

#include "core/text.h"
#include "services/devtpu/holder.h"
#include "services/devtpu/holder_script.h"
#include "services/devtpu/names.h"
#include "services/devtpu/road.h"

namespace gdnctl::devtpu {

namespace {

std::string base64_of(std::string_view bytes) {
    constexpr std::string_view k_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    constexpr unsigned k_six_bits = 63;
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
        unsigned group = 0;
        for (std::size_t k = 0; k < 3; ++k) {
            group = group << 8U | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0U);
        }
        for (std::size_t k = 0; k < 4; ++k) {
            out += k <= n ? k_digits[group >> (18 - 6 * k) & k_six_bits] : '=';
        }
    }
    return out;
}

std::string python(std::string_view script) {
    return fmt::format("exec python3 -c \"import base64;exec(base64.b64decode('{}').decode())\"", base64_of(script));
}

JobRequest common_job(const HolderRequest& request) {
    JobRequest job;
    job.submission_id = request.submission_id;
    job.resources = request.resources;
    job.metadata = {{"kind", std::string(k_hold_kind)},
                    {"tpu_name", request.tpu_name},
                    {"tpu_type", request.tpu_type},
                    {"user", request.user},
                    {"host", request.host},
                    {"nonce", request.nonce}};
    put_terms(job.metadata, request.terms);
    job.env = {{"GDNCTL_HOLD_ID", request.submission_id},
               {"GDNCTL_HOLD_NAME", request.tpu_name},
               {"GDNCTL_HOLD_TYPE", request.tpu_type},
               {"GDNCTL_HOLD_USER", request.ssh_user},
               {"GDNCTL_HOLD_LEASE_S", std::to_string(request.terms.lease_s)},
               {"GDNCTL_HOLD_GRACE_S", std::to_string(request.terms.grace_s)},
               {"GDNCTL_HOLD_MAX_S", std::to_string(request.terms.max_hold_s)},
               {"RAY_JOB_STOP_WAIT_TIME_S", "10"}};
    if (request.metadata_base) job.env.push_back({std::string(k_metadata_variable), *request.metadata_base});
    return job;
}

}  // namespace

JobRequest holder_job(const HolderRequest& request) {
    JobRequest job = common_job(request);
    job.entrypoint = python(k_holder_script);
    return job;
}

JobRequest local_holder_job(const HolderRequest& request, std::string_view self, const std::filesystem::path& lease) {
    JobRequest job = common_job(request);
    job.entrypoint = fmt::format("exec {} {}", text::shell_quote(self), k_local_holder_word);
    job.env.push_back({"GDNCTL_HOLD_FILE", lease.string()});
    return job;
}

JobRequest heartbeat_job(std::string_view submission_id, std::string_view heartbeat_id, std::string_view record) {
    JobRequest job;
    job.submission_id = heartbeat_id;
    job.beside = submission_id;
    job.metadata = {{"kind", "beat"}, {"hold", std::string(submission_id)}};
    job.entrypoint = touch_line(lease_path(submission_id), record);
    return job;
}

}  // namespace gdnctl::devtpu
