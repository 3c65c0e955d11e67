#include "services/ray/ray_jobs.h"

#include <map>

#include "core/log.h"
#include "core/percent.h"
#include "core/text.h"
#include "platform/signals.h"
#include "services/ray/client.h"
#include "services/ray/dashboard.h"
#include "services/ray/log_reader.h"
#include "services/ray/submit.h"

namespace gdnctl {

namespace {

using namespace std::chrono_literals;

class RayJobs final : public JobBackend {
public:
    explicit RayJobs(RayJobsConfig config) : m_dashboard(std::make_shared<ray::Dashboard>(std::move(config))) {}

    std::string name() const override { return "ray"; }
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
    Result<std::vector<JobDetails>> list() override { return m_dashboard->list(); }
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
