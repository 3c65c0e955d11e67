// Submits a request: packs, uploads, and makes sure that it is accepted only once however often it is sent.
#include "services/ray/ray_jobs.h"

#include <cerrno>
#include <cstdlib>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/http_policy.h"
#include "platform/signals.h"
#include "services/job/job.h"
#include "services/ray/client.h"
#include "services/ray/jobs_api.h"
#include "services/ray/log.h"

namespace gdnctl::ray {

namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// A server keeps a package this long after being asked about it, so after a longer upload it is asked again.
constexpr seconds k_pin{600};

// An unnamed file, so that nothing is left behind however this process ends.
class Unnamed {
public:
    static Result<Unnamed> create() {
        std::error_code problem;
        const fs::path folder = fs::temp_directory_path(problem);
        if (problem) {
            return fail(ErrorKind::local_io, "no folder for temporary files: " + problem.message(), "set TMPDIR");
        }
        std::string name = (folder / "gdnctl-package-XXXXXX").string();
        UniqueFd fd(mkostemp(name.data(), O_CLOEXEC));
        if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", name, errno));
        unlink(name.c_str());
        return Unnamed(std::move(fd));
    }
    fs::path path() const { return "/proc/self/fd/" + std::to_string(m_fd.get()); }

private:
    explicit Unnamed(UniqueFd fd) : m_fd(std::move(fd)) {}
    UniqueFd m_fd;
};

std::string nonce_of(const JobRequest& request) {
    const auto it = request.metadata.find("nonce");
    return it == request.metadata.end() ? std::string() : it->second;
}

Result<bool> server_has(Client& client, const std::string& name) {
    Call call;
    call.path = "/api/packages/gcs/" + name;
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, client.send(call, Tries::patient));
    if (answer.status == 200) return true;
    // Any 404 other than the server's own "Package ... does not exist" means that nothing is served there.
    if (answer.status == 404 && answer.body.find("does not exist") != std::string::npos) return false;
    return tl::unexpected(client.refuse(call, answer));
}

Status upload(Client& client, const std::string& name, const fs::path& package, const WorkingTree& tree,
              std::uint64_t size) {
    Call call;
    call.method = "PUT";
    call.path = "/api/packages/gcs/" + name;
    call.body_file = package;
    call.first_byte = seconds(60);
    call.total = seconds(0);
    log::info("uploading the working directory ({:.1f} MB)", static_cast<double>(size) / 1e6);
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, client.send(call, Tries::patient));
    if (says_too_large(answer)) {
        Error error = package_too_large(tree, k_package_limit);
        error.message = fmt::format("the server does not accept a package of {} bytes: {}", size, gist(answer.body));
        return tl::unexpected(std::move(error));
    }
    if (answer.status != 200) return tl::unexpected(client.refuse(call, answer));
    return {};
}

// Uploads the tree as a package with its own name, because jobs that share a name would share one writable directory.
Result<std::string> provide_package(Client& client, const JobRequest& request) {
    if (!request.working_dir) return std::string();
    GDNCTL_TRY_ASSIGN(const Unnamed file, Unnamed::create());
    GDNCTL_TRY_ASSIGN(const std::uint64_t size, pack_tree(*request.working_dir, file.path(), client.config().stop));
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_file_hex(HashKind::sha1, file.path()));
    GDNCTL_TRY_ASSIGN(const std::string id_hash, hash_hex(HashKind::sha1, request.submission_id + nonce_of(request)));
    const std::string name = "_ray_pkg_" + hash + "_" + id_hash.substr(0, 8) + ".zip";
    for (int tries = 0; tries < 3; ++tries) {
        GDNCTL_TRY_ASSIGN(const bool there, server_has(client, name));
        if (there) return "gcs://" + name;
        const Clock::Monotonic start = client.clock().monotonic();
        GDNCTL_TRY(upload(client, name, file.path(), *request.working_dir, size));
        if (client.clock().monotonic() - start <= k_pin) return "gcs://" + name;
    }
    return fail(ErrorKind::infrastructure, "the server did not keep the uploaded working directory",
                "use a faster connection or a smaller working directory");
}

// The nonce of the job that the server has under this id. nullopt: none, or no answer.
std::optional<std::string> nonce_there(Client& client, const std::string& id) {
    Call call;
    call.path = "/api/jobs/" + text::percent_encode(id);
    const auto answer = client.send(call, Tries::one);
    if (!answer || answer->status != 200) return std::nullopt;
    const auto job = parse_job_details(text::repair_utf8(answer->body));
    if (!job) return std::nullopt;
    const auto it = job->metadata.find("nonce");
    return it == job->metadata.end() ? std::string() : it->second;
}

Result<std::string> read_submitted(const Call& call, const HttpResponse& answer) {
    const auto json = parse_json(answer.body, "answer");
    if (json && json->is_object()) {
        for (const char* key : {"submission_id", "job_id"}) {
            if (auto id = json::maybe_text(*json, key)) return std::move(*id);
        }
    }
    return fail(ErrorKind::infrastructure, call.name() + " returned no id: " + gist(answer.body),
                "a proxy or a login page may be in between");
}

// Sends the same job by any number of POSTs. The server accepts only one of them, even if answers are lost.
class Submission {
public:
    Submission(Client& client, const JobRequest& request, std::string body)
        : m_client(client), m_id(request.submission_id), m_nonce(nonce_of(request)) {
        m_call.method = "POST";
        m_call.path = "/api/jobs/";
        m_call.body = std::move(body);
        m_call.first_byte = seconds(30);
    }

    Result<std::string> run() {
        Patience patience = m_client.patience();
        for (;;) {
            auto answer = m_client.send(m_call, Tries::one);
            if (answer && answer->status == 200) return read_submitted(m_call, *answer);
            if (answer && says_already_exists(*answer)) return taken();
            if (!answer && !is_out_of_reach(answer.error())) return tl::unexpected(in_doubt_about(answer.error()));
            const bool passing =
                !answer || http::is_worth_retrying(retry_policy(), "POST", answer->status, answer->body);
            // A server in trouble may have accepted the job before it failed.
            const bool in_doubt = passing || answer->status >= 500;
            Error error = answer ? m_client.refuse(m_call, *answer) : std::move(answer).error();
            if (!in_doubt) return tl::unexpected(std::move(error));
            if (const auto nonce = nonce_there(m_client, m_id)) return judge(*nonce);
            // A missing job proves nothing, since the server may still be working on it. Retrying is safe: an id is
            // accepted only once.
            if (passing && m_client.wait(patience, error)) continue;
            return tl::unexpected(in_doubt_about(patience.stopped() ? stopped_error() : std::move(error)));
        }
    }

private:
    Error in_doubt_about(Error error) const {
        error.hint = fmt::format("check whether the job was accepted: `gdnctl ray-wait {}`", m_id);
        return error;
    }

    Result<std::string> judge(const std::string& nonce) const {
        if (!m_nonce.empty() && nonce == m_nonce) return m_id;
        return fail(ErrorKind::usage, job_message::already_exists(m_id));
    }

    // The id is taken: by us, if an earlier attempt got through. There may be one that we did not make ourselves:
    // libcurl resends a request if its kept-alive connection dies without an answer.
    Result<std::string> taken() {
        Patience patience = m_client.patience();
        for (;;) {
            if (const auto nonce = nonce_there(m_client, m_id)) return judge(*nonce);
            if (patience.wait("no answer about the owner of job " + m_id)) continue;
            if (patience.stopped()) return tl::unexpected(stopped_error());
            return fail(ErrorKind::infrastructure, "job " + m_id + " exists, but its owner could not be determined",
                        fmt::format("`gdnctl ray-wait {}`", m_id));
        }
    }

    Client& m_client;
    std::string m_id, m_nonce;
    Call m_call;
};

// Places the job on the node of another one: requests a sliver of the resource that is unique to that node and, from
// version 2.54 on, its id.
Status put_beside(Client& client, JobRequest& request, const ServerVersion& version) {
    if (request.beside.empty()) return {};
    Call call;
    call.path = "/api/jobs/" + text::percent_encode(request.beside);
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, client.send(call, Tries::patient));
    if (answer.status != 200) return tl::unexpected(client.refuse(call, answer));
    GDNCTL_TRY_ASSIGN(const JobDetails other, parse_job_details(text::repair_utf8(answer.body)));
    std::string address = other.driver_agent_http_address.value_or("");  // "http://10.0.0.7:52365"
    if (const std::size_t slashes = address.find("//"); slashes != std::string::npos) address.erase(0, slashes + 2);
    address = address.substr(0, address.rfind(':'));
    if (other.state != JobState::running || address.empty()) {
        return fail(ErrorKind::infrastructure, fmt::format("job {} is not running ({}): no command can run on its host",
                                                           request.beside, status_of(other)));
    }
    constexpr double k_sliver = 0.001;
    request.resources["node:" + address] = k_sliver;
    if (version.at_least(2, 54) && other.driver_node_id) request.node_labels["ray.io/node-id"] = *other.driver_node_id;
    return {};
}

// Packs and uploads the working tree, if there is one, and submits. `version` is the server's. Errors: usage (rejected
// by the server, or the id is taken), authentication, infrastructure, local_io, interrupted.
Result<Submitted> submit_job(Client& client, const JobRequest& wanted, const ServerVersion& version) {
    GDNCTL_TRY(check_submission_id(wanted.submission_id));
    JobRequest request = wanted;
    GDNCTL_TRY(put_beside(client, request, version));
    if (request.keep_workdir) {
        return fail(ErrorKind::usage, "--keep-workdir is supported on the local backend only");
    }
    // Finds invalid requests before anything is uploaded.
    GDNCTL_TRY(submission_body(request, {}, version));
    GDNCTL_TRY_ASSIGN(const std::string package, provide_package(client, request));
    GDNCTL_TRY_ASSIGN(std::string body, submission_body(request, package, version));
    GDNCTL_TRY_ASSIGN(std::string id, Submission(client, request, std::move(body)).run());
    return Submitted{std::move(id), {}, version.session};
}

}  // namespace

}  // namespace gdnctl::ray

namespace gdnctl {

namespace {

using namespace std::chrono_literals;

class RayJobs final : public JobBackend {
public:
    explicit RayJobs(RayJobsConfig config) : m_dashboard(std::make_shared<ray::Dashboard>(std::move(config))) {}

    PlaceKind kind() const override { return PlaceKind::ray; }
    std::string cluster() const override { return config().cluster; }
    std::string address() const override { return config().address; }
    std::string job_url(std::string_view id) const override {
        return address() + "/#/jobs/" + text::percent_encode(id);
    }

    Result<Submitted> submit(const JobRequest& request) override {
        GDNCTL_TRY(check_submission_id(request.submission_id));
        GDNCTL_TRY_ASSIGN(const ray::ServerVersion version, m_dashboard->version());
        return ray::submit_job(m_dashboard->client(), request, version);
    }
    Result<JobDetails> details(std::string_view id) override { return m_dashboard->details(id, ray::Tries::patient); }
    Result<JobDetails> poll(std::string_view id) override { return m_dashboard->details(id, ray::Tries::one); }
    Result<std::string> session() override {
        GDNCTL_TRY_ASSIGN(const ray::ServerVersion version, m_dashboard->version());
        return version.session;
    }
    bool has_answered() const override { return m_dashboard->client().has_answered(); }
    FollowPace pace() const override { return {900ms, 1800ms}; }
    Result<std::vector<JobDetails>> list(const JobFilter& filter) override {
        GDNCTL_TRY_ASSIGN(std::vector<JobDetails> jobs, m_dashboard->list());
        keep_filtered(jobs, filter);
        return jobs;
    }
    Result<bool> stop(std::string_view id) override { return m_dashboard->stop(id); }
    Status remove(std::string_view id) override { return m_dashboard->remove(id); }
    Result<std::unique_ptr<JobLog>> open_log(std::string_view id, const LogStart& start) override {
        if (!m_dashboard->known(id)) GDNCTL_TRY(m_dashboard->details(id, ray::Tries::patient));
        return ray::make_log_reader(m_dashboard, std::string(id), start);
    }

    void set_deadline(std::optional<Clock::Monotonic> deadline) override {
        m_dashboard->client().set_deadline(deadline);
    }
    void ignore_stop_requests() override { m_dashboard->client().ignore_stop_requests(); }

private:
    const RayJobsConfig& config() const { return m_dashboard->client().config(); }

    std::shared_ptr<ray::Dashboard> m_dashboard;
};

}  // namespace

std::unique_ptr<JobBackend> make_ray_jobs(RayJobsConfig config) { return std::make_unique<RayJobs>(std::move(config)); }

}  // namespace gdnctl
