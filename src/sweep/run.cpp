#include "sweep/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "jobs/hold.h"
#include "jobs/watch.h"
#include "platform/signals.h"
#include "services/job/output.h"
#include "sweep/parse.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

namespace {

constexpr double k_drop_factor = 1.3;  // of the best median of the same shape
constexpr std::size_t k_runs_to_drop = 2;
constexpr std::size_t k_told = std::size_t{32} << 10;  // the end of a log, in which a failure is looked for

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

RunEnd failed(FailureKind kind, std::string error) {
    RunEnd end;
    end.status = ResultStatus::failed;
    end.failure.kind = kind;
    end.error = std::move(error);
    return end;
}

// Times of the last result; of a result without one: why.
RunEnd measured(Record record) {
    std::vector<Warning> warnings;
    const Measured m = measure(std::move(record), warnings);
    RunEnd end;
    if (const double* steady = m.record.figure("steady_time_s"); steady != nullptr && std::isfinite(*steady)) {
        end.steady_time_s = *steady;
    }
    end.forward_s = m.forward_s;
    end.step_s = m.step_s;
    if (m.has_flag("non_finite_loss")) {
        end.status = ResultStatus::wrong;
        end.error = "the loss is not finite";
    } else if (!end.time_s()) {
        return failed(FailureKind::no_result, "the result has no time");
    }
    return end;
}

// JAX falls back to the processor where it finds no TPU. Its time is not that of the plan's device.
bool ran_elsewhere(const RunOutput& output, const Record& record, const Plan& plan) {
    const auto is_tpu = [](std::string_view kind) { return text::to_lower(kind).starts_with("tpu"); };
    if (!is_tpu(plan.device_kind)) return false;
    return !is_tpu(record.device_kind) || output.text.find("devices: [CpuDevice(") != std::string::npos;
}

std::string time_text(double seconds) { return fmt::format("{:.6g} s", seconds); }

class Sweep {
public:
    Sweep(const Plan& plan, const std::vector<Configuration>& configurations, const SweepOptions& options,
          Journal& journal, const RunPlace& place, Clock& clock)
        : m_plan(plan),
          m_configurations(configurations),
          m_options(options),
          m_journal(journal),
          m_place(place),
          m_clock(clock),
          m_start(clock.monotonic()) {}

    Result<SweepResult> run(const std::vector<std::string>& history) {
        std::set<std::string> keys;
        for (const Configuration& c : m_configurations) keys.insert(c.key);
        for (const std::string& line : history) {
            const auto event = parse_journal_event(line);
            if (!event) continue;
            // Runs of other configurations must not overlap with ours either.
            if (event->kind == JournalEvent::Kind::plan || keys.contains(event->key)) {
                read(line);
            } else if (event->kind == JournalEvent::Kind::start) {
                m_foreign[event->key] = *event;
            } else if (event->kind == JournalEvent::Kind::end) {
                m_foreign.erase(event->key);
            }
        }
        GDNCTL_TRY(settle());
        JournalEvent plan;
        plan.name = m_plan.name;
        plan.device_kind = m_plan.device_kind;
        plan.x_dtype = m_plan.x_dtype;
        plan.accum_dtype = m_plan.accum_dtype;
        plan.implementation = m_plan.implementation;
        GDNCTL_TRY(record(std::move(plan)));
        GDNCTL_TRY(prune());
        for (std::int64_t run = 0; run <= m_plan.repeats; ++run) {
            for (const Configuration& c : m_configurations) {
                if (!is_due(c, run)) continue;
                if (left_s() <= 0) return finish(SweepEnd::budget);
                GDNCTL_TRY_ASSIGN(const bool in_time, run_one(c, run));
                if (!in_time) return finish(SweepEnd::budget);
            }
        }
        return finish(SweepEnd::complete);
    }

private:
    void read(const std::string& line) { m_reader.line(line, ++m_lines); }

    Status record(JournalEvent event) {
        event.at = format_iso8601(m_clock.wall());
        const std::string line = to_line(event);
        GDNCTL_TRY(m_journal.append(line));
        read(line);
        return {};
    }

    const ConfigHistory* history(const Configuration& c) const {
        const auto at = m_reader.configs().find(c.key);
        return at == m_reader.configs().end() ? nullptr : &at->second;
    }

    Status settle() {
        for (const auto& [key, config] : m_reader.configs()) {
            if (config.open) GDNCTL_TRY(m_place.settle(*config.open));
        }
        for (const auto& [key, start] : m_foreign) GDNCTL_TRY(m_place.settle(start));
        return {};
    }

    Status prune() {
        if (!m_options.prune_vmem) return {};
        const double limit = scoped_vmem_limit_bytes(m_options.libtpu_init_args);
        for (const Configuration& c : m_configurations) {
            const double estimate = c.sizes ? estimated_vmem_bytes(m_plan, *c.sizes) : 0;
            if (estimate <= limit || history(c) != nullptr) continue;
            constexpr double k_mib = 1 << 20;
            log::info("{}: skipped, an estimated {:.1f} MiB of VMEM is more than {:.1f}", name(c), estimate / k_mib,
                      limit / k_mib);
            m_skipped.insert(c.key);
            JournalEvent event = event_of(c, JournalEvent::Kind::skip);
            GDNCTL_TRY(record(std::move(event)));
        }
        return {};
    }

    std::string name(const Configuration& c) const {
        const std::string label = c.sizes || c.infer ? c.label : "no block sizes";
        if (m_plan.shapes.size() == 1) return label;
        return fmt::format("{} at {} x {} x {}", label, c.shape.batch, c.shape.hidden, c.shape.vocab);
    }

    static JournalEvent event_of(const Configuration& c, JournalEvent::Kind kind) {
        JournalEvent event;
        event.kind = kind;
        event.key = c.key;
        event.label = c.label;
        event.shape = c.shape;
        event.sizes = c.sizes;
        return event;
    }

    const RunEnd* verdict(const Configuration& c) const {
        const ConfigHistory* past = history(c);
        return past == nullptr ? nullptr : past->verdict(m_plan.time_limit_s);
    }

    bool is_due(const Configuration& c, std::int64_t run) {
        if (m_skipped.contains(c.key) || m_given_up.contains(c.key) || verdict(c) != nullptr) return false;
        const ConfigHistory* past = history(c);
        if (past == nullptr) return true;
        return !past->has_run(run) && !is_dropped(c, *past);
    }

    bool is_dropped(const Configuration& c, const ConfigHistory& past) {
        const auto own = spread_of(past.kept_times());
        if (!own || own->runs < static_cast<std::int64_t>(k_runs_to_drop)) return false;
        double best = own->median_s;
        for (const Configuration& other : m_configurations) {
            const ConfigHistory* h = other.shape == c.shape ? history(other) : nullptr;
            const auto spread = h != nullptr ? spread_of(h->kept_times()) : std::nullopt;
            if (spread && spread->runs >= static_cast<std::int64_t>(k_runs_to_drop)) {
                best = std::min(best, spread->median_s);
            }
        }
        if (own->median_s <= k_drop_factor * best) return false;
        if (m_dropped.insert(c.key).second) {
            log::info("{}: dropped, {} is {:.2f} times the best", name(c), time_text(own->median_s),
                      own->median_s / best);
        }
        return true;
    }

    double left_s() const {
        if (!m_options.budget_s) return 1e18;
        const std::chrono::duration<double> spent = m_clock.monotonic() - m_start;
        return *m_options.budget_s - spent.count();
    }

    // False: the budget ran out within the run, which then counts for nothing.
    Result<bool> run_one(const Configuration& c, std::int64_t run) {
        const std::string outputs = (std::filesystem::path(m_options.outputs) / (c.key + ".safetensors")).string();
        const std::vector<std::string> argv = command_of(m_plan, c, outputs, m_options.inputs);
        for (std::int64_t attempt = 0;; ++attempt) {
            std::error_code ignored;
            if (m_plan.check != Check::none) std::filesystem::remove(outputs, ignored);
            const double left = left_s();
            const double limit = std::min(m_plan.time_limit_s, std::max(left, 0.001));
            GDNCTL_TRY_ASSIGN(const RunOutput output, m_place.run(argv, limit, [&](JournalEvent where) {
                JournalEvent start = event_of(c, JournalEvent::Kind::start);
                start.run = run;
                start.submission_id = std::move(where.submission_id);
                start.cluster = std::move(where.cluster);
                start.tpu_name = std::move(where.tpu_name);
                return record(std::move(start));
            }));
            if (output.timed_out && limit < m_plan.time_limit_s) return false;
            JournalEvent end = event_of(c, JournalEvent::Kind::end);
            end.run = run;
            end.end = judge_output(output, m_plan);
            end.end.wall_s = output.wall_s;
            end.end.time_limit_s = m_plan.time_limit_s;
            GDNCTL_TRY(check(outputs, end.end));
            tell(c, run, end.end);
            const auto kind = end.end.status == ResultStatus::failed ? end.end.failure.kind : std::nullopt;
            GDNCTL_TRY(record(std::move(end)));
            if (!kind || is_own(*kind)) return true;
            if (*kind == FailureKind::environment || attempt >= m_plan.retries) {
                m_given_up.insert(c.key);
                return true;
            }
            log::warning("{}: run {} was lost by the infrastructure; trying again ({} of {})", name(c), run,
                         attempt + 1, m_plan.retries);
            // Whoever holds the device may be about to end.
            constexpr std::int64_t k_most_doublings = 4;
            const std::chrono::milliseconds pause(2000 << std::min(attempt, k_most_doublings));
            if (m_place.rest) GDNCTL_TRY(m_place.rest(pause));
        }
    }

    Status check(const std::string& outputs, RunEnd& end) {
        if (m_plan.check == Check::none || end.status != ResultStatus::ok) return {};
        GDNCTL_TRY_ASSIGN(std::string why, m_place.check(outputs));
        std::error_code ignored;
        std::filesystem::remove(outputs, ignored);
        if (why.empty()) return {};
        const RunEnd timed = std::move(end);
        end = {};
        end.status = ResultStatus::wrong;
        end.error = std::move(why);
        end.wall_s = timed.wall_s;
        end.time_limit_s = timed.time_limit_s;
        return {};
    }

    void tell(const Configuration& c, std::int64_t run, const RunEnd& end) const {
        const std::string which = run == 0 ? "first run, discarded" : fmt::format("run {} of {}", run, m_plan.repeats);
        if (end.status == ResultStatus::ok) {
            log::info("{}: {}: {}", name(c), which, time_text(end.time_s().value_or(0)));
        } else {
            const std::string kind(end.failure.kind ? to_text(*end.failure.kind) : to_text(end.status));
            log::info("{}: {}: {}{}{}", name(c), which, kind, end.error.empty() ? "" : ": ", text::visible(end.error));
        }
    }

    SweepResult finish(SweepEnd ended) {
        SweepResult result;
        result.ended = ended;
        result.records = m_reader.finish();
        for (Record& r : result.records) {
            if (r.status == ResultStatus::ok) result.any_ok = true;
        }
        for (const Configuration& c : m_configurations) {
            if (m_skipped.contains(c.key) || verdict(c) != nullptr) continue;
            const ConfigHistory* past = history(c);
            const bool outcome = past != nullptr && !past->kept_times().empty();
            if (outcome) continue;
            result.all_have_outcomes = false;
            if (past != nullptr && !past->ends.empty() && past->ends.back().second.failure.kind == FailureKind::infra) {
                result.infra_only = true;
            }
        }
        return result;
    }

    const Plan& m_plan;
    const std::vector<Configuration>& m_configurations;
    const SweepOptions& m_options;
    Journal& m_journal;
    const RunPlace& m_place;
    Clock& m_clock;
    Clock::Monotonic m_start;
    JournalReader m_reader;
    std::int64_t m_lines = 0;
    std::map<std::string, JournalEvent> m_foreign;
    std::set<std::string> m_skipped, m_given_up, m_dropped;
};

constexpr std::chrono::seconds k_stop_patience{60};
constexpr std::size_t k_kept_log = std::size_t{32} << 20;  // of one run; the end of a longer one

class Jobs {
public:
    Jobs(JobBackend& backend, const JobRunOptions& options, Context& context)
        : m_backend(backend), m_options(options), m_context(context) {}

    Result<RunOutput> run(const std::vector<std::string>& argv, double limit_s,
                          const std::function<Status(JournalEvent)>& on_start) {
        GDNCTL_TRY_ASSIGN(const JobRequest request, request_of(argv));
        JournalEvent where;
        where.submission_id = request.submission_id;
        where.cluster = m_backend.cluster();
        where.tpu_name = m_options.tpu_name;
        GDNCTL_TRY(on_start(std::move(where)));
        const auto start = m_context.clock.monotonic();
        RunOutput output;
        const auto submitted = m_backend.submit(request);
        if (!submitted) {
            if (submitted.error().kind != ErrorKind::infrastructure) return tl::unexpected(submitted.error());
            output.lost = true;
            output.lost_because = submitted.error().text();
        } else {
            GDNCTL_TRY(follow(request.submission_id, limit_s, output));
        }
        output.wall_s = std::chrono::duration<double>(m_context.clock.monotonic() - start).count();
        return output;
    }

    Status settle(const JournalEvent& start) {
        if (start.submission_id.empty()) return {};
        std::unique_ptr<JobBackend> other;
        if (start.cluster != m_backend.cluster()) {
            DestinationOptions place;
            place.cluster = start.cluster;
            GDNCTL_TRY_ASSIGN(other, open_backend(place, false, m_context));
        }
        JobBackend& backend = other ? *other : m_backend;
        const auto details = backend.details(start.submission_id);
        if (!details && details.error().kind == ErrorKind::remote_missing) return {};
        if (!details) return tl::unexpected(details.error());
        if (is_terminal(details->state)) return {};
        log::info("run {} of {} was still running: stopping job {}", start.run, start.label, start.submission_id);
        return end(backend, start.submission_id, m_context);
    }

private:
    Result<JobRequest> request_of(const std::vector<std::string>& argv) {
        std::vector<std::string> words = argv;
        if (words.front() == "gdnctl" && m_backend.name() == "local") words.front() = m_context.program;
        JobPlan plan;
        plan.kind = "sweep";
        plan.target = m_options.name;
        plan.command.entrypoint = text::shell_join(words);
        const auto root = project_root(m_context);
        const auto folder = m_context.cwd.lexically_normal().lexically_relative(root.lexically_normal());
        if (!folder.empty() && folder != "." && *folder.begin() != "..") {
            plan.command.workdir = folder.string();
            plan.command.entrypoint = "cd " + text::shell_quote(folder.string()) + " && " + plan.command.entrypoint;
        }
        if (m_backend.name() != "local") plan.command.env.assign(m_options.switches.begin(), m_options.switches.end());
        plan.command.resources = m_options.resources;
        plan.beside = m_options.beside;
        return request_for(plan, {}, m_backend.name() != "local", m_context);
    }

    // Stops it and waits until it has ended.
    static Status end(JobBackend& backend, const std::string& id, Context& context) {
        GDNCTL_TRY(backend.stop(id));
        WatchOptions watch;
        watch.poll = std::chrono::milliseconds(100);
        watch.timeout = k_stop_patience;
        watch.submitted = true;
        watch.quiet = true;
        GDNCTL_TRY_ASSIGN(const Watched ended, wait_for_job(backend, id, watch, context));
        if (!ended.timed_out) return {};
        return fail(
            ErrorKind::infrastructure, fmt::format("job {} does not end", id),
            "stop it with `" + job_command(backend, "stop") + "`, then run the sweep again: two runs must not overlap");
    }

    Status follow(const std::string& id, double limit_s, RunOutput& output) {
        GDNCTL_TRY_ASSIGN(const auto log, m_backend.open_log(id, {.follow = true}));
        WatchOptions watch;
        watch.submitted = true;
        watch.quiet = true;
        watch.needs_log = true;
        watch.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(limit_s * 1000));
        const auto keep = [&](std::string_view bytes) {
            output.text += bytes;
            if (output.text.size() > 2 * k_kept_log) output.text.erase(0, output.text.size() - k_kept_log);
        };
        auto watched = follow_job(m_backend, id, *log, watch, keep, m_context);
        if (!watched) {
            Error error = std::move(watched).error();
            if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated) {
                m_backend.ignore_stop_requests();
                Context patient = without_stop(m_context);
                if (const Status ended = end(m_backend, id, patient); !ended) log::warning("{}", ended.error().text());
                return tl::unexpected(std::move(error));
            }
            if (error.kind != ErrorKind::infrastructure) return tl::unexpected(std::move(error));
            output.lost = true;
            output.lost_because = error.text();
            // What cannot be heard of may still run.
            if (const Status ended = end(m_backend, id, m_context); !ended) log::warning("{}", ended.error().text());
            return {};
        }
        if (watched->timed_out) {
            output.timed_out = true;
            // Machines that are not to be had say nothing of a configuration.
            output.lost = watched->details.state == JobState::pending;
            output.lost_because = "PENDING until the time limit";
            return end(m_backend, id, m_context);
        }
        const JobVerdict verdict = classify(watched->details, output.text);
        const auto code = watched->details.driver_exit_code;
        output.lost = verdict.failure == FailureClass::infra || verdict.failure == FailureClass::stopped;
        if (output.lost) output.lost_because = watched->details.message;
        // A failure is classified by its log; without one, nothing is known of the configuration.
        if (!output.lost && !watched->log_complete) {
            output.lost = true;
            output.lost_because = "its log could not be read";
        }
        if (watched->details.state == JobState::succeeded) {
            output.exit_code = 0;
        } else if (code && *code > 0) {
            output.exit_code = *code;
        }
        return {};
    }

    JobBackend& m_backend;
    const JobRunOptions m_options;
    Context& m_context;
};

}  // namespace

RunEnd judge_output(const RunOutput& output, const Plan& plan) {
    if (output.lost) return failed(FailureKind::infra, first_line(output.lost_because));
    if (output.timed_out) return failed(FailureKind::timed_out, "reached its time limit");
    std::vector<Record> records = parse_results(output.text, "", {plan.device_kind, plan.x_dtype, {}});
    const std::string_view told =
        std::string_view(output.text).substr(output.text.size() - std::min(output.text.size(), k_told));
    if (!records.empty() && records.back().status == ResultStatus::failed && !records.back().truncated) {
        const Record& last = records.back();
        RunEnd end = failed(last.failure.kind.value_or(FailureKind::crashed), first_line(last.error));
        end.failure = last.failure;
        return end;
    }
    if (output.exit_code != 0) {
        const std::string how = output.exit_code ? fmt::format("exited with code {}", *output.exit_code)
                                                 : std::string("did not end by itself");
        const Failure failure = classify_failure(told);
        RunEnd end = failed(failure.kind.value_or(FailureKind::crashed), how);
        if (failure.kind) end.failure = failure;
        return end;
    }
    if (!records.empty() && ran_elsewhere(output, records.back(), plan)) {
        return failed(FailureKind::infra, "the run was not on a TPU");
    }
    if (!records.empty()) return measured(std::move(records.back()));
    const Failure failure = classify_failure(told);
    RunEnd end = failed(failure.kind.value_or(FailureKind::no_result), "it printed no result");
    if (failure.kind) end.failure = failure;
    return end;
}

Result<SweepResult> run_sweep(const Plan& plan, const std::vector<Configuration>& configurations,
                              const SweepOptions& options, const std::vector<std::string>& history, Journal& journal,
                              const RunPlace& place, Clock& clock) {
    return Sweep(plan, configurations, options, journal, place, clock).run(history);
}

RunPlace run_as_jobs(JobBackend& backend, const JobRunOptions& options, Context& context) {
    const auto jobs = std::make_shared<Jobs>(backend, options, context);
    RunPlace place;
    place.run = [jobs](const std::vector<std::string>& argv, double limit_s,
                       const std::function<Status(JournalEvent)>& on_start) {
        return jobs->run(argv, limit_s, on_start);
    };
    place.rest = [&context](std::chrono::milliseconds pause) -> Status {
        if (!context.clock.sleep_for(pause, context.stop)) return tl::unexpected(stopped_error());
        return {};
    };
    place.settle = [jobs](const JournalEvent& start) { return jobs->settle(start); };
    return place;
}

}  // namespace gdnctl::sweep
