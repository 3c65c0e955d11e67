// A backend whose jobs live by a script over a clock that moves only when someone sleeps.
#pragma once

#include <doctest/doctest.h>

#include "core/config.h"
#include "core/log.h"
#include "jobs/run.h"
#include "support/fake_clock.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What every job of the backend does, in seconds after its submission.
struct JobScript {
    struct Turn {
        double at;
        JobState state;
        int exit_code = 0;  // of FAILED
        std::string error_type = {};
    };
    struct Piece {
        double at;
        std::string bytes;
    };
    struct Away {
        double from, to;
        Error error;
    };
    std::vector<Turn> turns = {{0, JobState::running}, {10, JobState::succeeded}};
    std::vector<Piece> log;
    std::vector<Away> away, log_away;
    double stop_takes = 1;  // negative: it does not heed
};

class ScriptedBackend final : public JobBackend {
public:
    explicit ScriptedBackend(FakeClock& clock) : m_clock(clock) {}

    JobScript script;
    std::vector<JobRequest> submitted;
    std::vector<std::string> stopped;
    std::vector<std::string> asked;  // each look at a job
    std::function<Status(const JobRequest&)> when_submitted;
    std::optional<Clock::Monotonic> deadline;
    bool ignores_stop = false;

    // A job that is there without having been submitted here.
    void begin() { m_begin = m_clock.monotonic(); }
    double now() const { return std::chrono::duration<double>(m_clock.monotonic() - m_begin).count(); }

    PlaceKind kind() const override { return PlaceKind::local; }
    std::string cluster() const override { return "local"; }
    std::string address() const override { return "here"; }
    std::string job_url(std::string_view id) const override { return "job:" + std::string(id); }
    Result<Submitted> submit(const JobRequest& request) override {
        if (when_submitted) {
            if (Status refused = when_submitted(request); !refused) return tl::unexpected(refused.error());
        }
        take(request);
        return Submitted{request.submission_id, {}};
    }
    void take(const JobRequest& request) {
        submitted.push_back(request);
        m_stopped_at.reset();
        begin();
    }
    Result<JobDetails> details(std::string_view id) override {
        asked.emplace_back(id);
        for (const auto& away : script.away) {
            if (now() >= away.from && now() < away.to) return tl::unexpected(away.error);
        }
        JobDetails job;
        job.submission_id = id;
        if (!submitted.empty()) job.metadata = submitted.back().metadata;
        for (const auto& turn : script.turns) {
            const bool cut = m_stopped_at && script.stop_takes >= 0 && turn.at > *m_stopped_at;
            if (now() < turn.at || cut) continue;
            job.state = turn.state;
            if (turn.exit_code != 0) job.driver_exit_code = turn.exit_code;
            if (!turn.error_type.empty()) job.error_type = turn.error_type;
        }
        const bool heeds = m_stopped_at && script.stop_takes >= 0 && !is_terminal(job.state);
        if (heeds && now() >= *m_stopped_at + script.stop_takes) job.state = JobState::stopped;
        return job;
    }
    Result<std::vector<JobDetails>> list(const JobFilter&) override { return std::vector<JobDetails>(); }
    Result<bool> stop(std::string_view id) override {
        GDNCTL_TRY_ASSIGN(const JobDetails job, details(id));
        if (is_terminal(job.state)) return false;
        stopped.emplace_back(id);
        m_stopped_at = now();
        return true;
    }
    Status remove(std::string_view) override { return {}; }
    Result<std::unique_ptr<JobLog>> open_log(std::string_view, const LogStart&) override {
        return std::make_unique<Log>(*this);
    }
    void set_deadline(std::optional<Clock::Monotonic> wanted) override { deadline = wanted; }
    void ignore_stop_requests() override { ignores_stop = true; }

private:
    struct Log final : JobLog {
        explicit Log(ScriptedBackend& of) : jobs(of) {}
        Result<std::size_t> pump(const Sink& sink) override {
            for (const auto& away : jobs.script.log_away) {
                if (jobs.now() >= away.from && jobs.now() < away.to) return tl::unexpected(away.error);
            }
            std::size_t count = 0;
            while (next < jobs.script.log.size() && jobs.now() >= jobs.script.log[next].at) {
                const std::string& bytes = jobs.script.log[next++].bytes;
                count += bytes.size();
                if (!sink(bytes)) break;
            }
            return count;
        }
        ScriptedBackend& jobs;
        std::size_t next = 0;
    };

    FakeClock& m_clock;
    Clock::Monotonic m_begin;
    std::optional<double> m_stopped_at;
};

struct JobFixture {
    TempDir folder;
    FakeEnv env{{"USER", "me"}};
    FakeClock clock;
    FakeTerminal terminal;
    Config config;
    FakeProcess process;
    FakeHttp http;
    std::stop_source stop;
    std::string said;  // a line each
    log::Diverted diverted{[this](std::string_view line) { (said += line) += '\n'; }};
    Context context{
        env,           clock, terminal, config, process, http, stop.get_token(), folder / "work", folder / "state",
        "/bin/gdnctl", {}};
    ScriptedBackend jobs{clock};
    JobPlan plan{"test", "t", {}, {}, {}};
    SubmitOptions options;

    JobFixture() {
        plan.command.entrypoint = "true";
        options.working_dir = "none";
    }
    Result<JobRun> run() { return run_job(plan, options, jobs, context); }
    // A request to stop comes while everybody sleeps, so many seconds after the job's submission.
    void interrupt_at(double when) {
        clock.when_asleep([this, when] {
            if (jobs.now() >= when) stop.request_stop();
        });
    }
    bool has_said(std::string_view words) const { return said.find(words) != std::string::npos; }
};

inline Error trouble(ErrorKind kind, std::string message = "no answer") { return {kind, std::move(message), {}, {}}; }

}  // namespace gdnctl::test
