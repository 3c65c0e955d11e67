#include "loop/codex_loop.h"

#include <csignal>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/codex_loop_plan.h"
#include "loop/engine/earlier_run.h"
#include "loop/engine/engine.h"
#include "loop/engine/lock.h"
#include "loop/engine/loop_agent.h"
#include "loop/engine/messages.h"
#include "loop/engine/own_hold.h"
#include "loop/engine/room.h"
#include "loop/engine/sync_main.h"
#include "loop/engine/tpu_hold.h"
#include "loop/gates/post_checks.h"
#include "loop/gates/validation_gate.h"
#include "loop/memory/context_pack.h"
#include "loop/memory/idea_stage.h"
#include "loop/memory/ledger_keep.h"
#include "loop/memory/log_entry.h"
#include "loop/memory/log_stage.h"
#include "loop/prompt/presets.h"
#include "loop/prompt/prompt.h"
#include "loop/report/report.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "services/job/job.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

class Session {
public:
    Session(const CodexLoopRequest& request, LoopPlan plan, Context& context)
        : m_request(request), m_plan(std::move(plan)), m_context(context), m_jobs(request.config, context) {}

    ~Session() { forget_home(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Result<CodexLoopReport> run() {
        GDNCTL_TRY_ASSIGN(GitCheckout repository,
                          GitCheckout::open(m_plan.workdir, m_context.process, m_context.clock));
        // A run that cannot start leaves nothing behind. The name of a run that continues is in its journal.
        const bool anew = !m_plan.options.resume;
        if (anew) GDNCTL_TRY(make_agent());
        GDNCTL_TRY(repository.exclude(m_plan.log_dir));  // before it exists: it may be rejected
        GDNCTL_TRY_ASSIGN(Artefacts artefacts, Artefacts::open(m_plan.log_dir));
        const fs::path& common = repository.common_dir();
        GDNCTL_TRY_ASSIGN(const LoopLock lock, LoopLock::acquire(m_plan.log_dir, common, m_context.clock.wall()));
        GDNCTL_TRY(read_state(artefacts.folder() / "state.json"));
        GDNCTL_TRY_ASSIGN(std::optional<ResumePoint> point, resumed_run(artefacts));
        if (point) GDNCTL_TRY(repository.clear_stale_locks(killed_session(m_journal->records(), m_plan.alive)));
        GDNCTL_TRY_ASSIGN(const fs::path slot, slot_folder(m_context.state_dir, common));
        const auto trusted = point ? std::optional(point->trusted) : std::nullopt;
        if (!anew) GDNCTL_TRY(make_agent());
        GDNCTL_TRY_ASSIGN(Transactions git,
                          Transactions::open(m_plan.workdir, transaction_settings(m_plan, m_request, slot), artefacts,
                                             trusted, m_context.process, m_context.clock));
        m_plan.subfolder = m_plan.workdir.lexically_relative(repository.root());
        if (m_plan.subfolder == ".") m_plan.subfolder.clear();
        GDNCTL_TRY_ASSIGN(m_gates, GateStages::create(gate_setup(git, slot.string() + "-measure")));
        if (anew && artefacts.stop_requested()) {
            log::warning("{}", message::stop_file(artefacts.folder() / "STOP"));
            return not_begun({"stop-file", 0, 0});
        }
        GDNCTL_TRY(check_gates_can_judge(m_plan, m_request, m_context, m_plan.options.hold.on));
        if (anew) {
            GDNCTL_TRY_ASSIGN(const auto refused, begin_anew(artefacts, git));
            if (refused) return not_begun(*refused);
        }
        return work(artefacts, git, point.has_value());
    }

private:
    GateSetup gate_setup(Transactions& git, fs::path measure_folder) {
        return GateSetup{m_request.target,
                         m_plan.gates,
                         m_plan.options.hold,
                         nullptr,
                         git.repository(),
                         std::move(measure_folder),
                         transaction_settings(m_plan, m_request, {}).log_paths,
                         m_plan.options.worktree_links,
                         m_context.cwd,
                         m_plan.log_dir,
                         m_jobs,
                         m_context.process,
                         m_context.clock,
                         m_context.http,
                         m_context.env,
                         [this](const JobOrder& order) { return name_job(order); }};
    }

    Status make_agent() {
        const fs::path home = m_context.state_dir / "loops" / m_plan.run / "codex-home";
        GDNCTL_TRY_ASSIGN(m_agent, make_loop_agent(m_plan.options, m_plan.loop_id, home, false, m_context));
        return {};
    }

    void forget_home() const {
        std::error_code ignored;
        if (!m_agent.codex_home.empty()) fs::remove_all(m_agent.codex_home.parent_path(), ignored);
    }

    // The run that --resume continues; nullopt: none.
    Result<std::optional<ResumePoint>> resumed_run(const Artefacts& artefacts) {
        if (!m_plan.options.resume) return std::optional<ResumePoint>();
        GDNCTL_TRY_ASSIGN(m_journal, LoopJournal::open(artefacts.folder() / "journal.jsonl"));
        GDNCTL_TRY_ASSIGN(auto point, resume_point(m_journal->records()));
        if (!point) {
            log::info("no run to continue in {}: starting a new one", artefacts.folder().string());
            return point;
        }
        GDNCTL_TRY(check_resumed(m_journal->records().front(), m_plan, m_request));
        log::info("continuing run {}", point->run);
        m_plan.run = point->run;
        m_plan.loop_id = point->loop_id;
        m_plan.isolation = point->isolation;
        for (const auto& left : sweep_loop(point->loop_id, m_context.clock)) {
            log::warning("ended a process of the interrupted run: {} ({})", left.command, left.id.pid);
        }
        GDNCTL_TRY(stop_job_of(m_journal->records(), job_stopper()));
        return point;
    }

    // Files of an earlier run are moved only once it is certain that this one can start: a run whose first iteration
    // would end it at a dirty tree ends here.
    Result<std::optional<RunEnd>> begin_anew(const Artefacts& artefacts, const Transactions& git) {
        GDNCTL_TRY(warn_of_detached(git.repository()));
        const fs::path file = artefacts.folder() / "journal.jsonl";
        GDNCTL_TRY_ASSIGN(const auto broken_off, broken_off_run(file));
        const LoopOptions& options = m_plan.options;
        std::error_code problem;
        if (m_plan.isolation == Isolation::inplace && !options.allow_dirty && fs::exists(file, problem) &&
            options.dirty_policy == DirtyPolicy::fail &&
            (broken_off || options.iteration_error_policy == Policy::fail)) {
            const Status clean = git.check_clean();
            if (!clean && broken_off) return fail(ErrorKind::config, clean.error().message, broken_off->advice());
            if (!clean) return std::optional(refused_at_once(clean.error()));
        }
        GDNCTL_TRY(look_at_earlier_run(file, m_context.clock, job_stopper()));
        const std::string name = earlier_name(file, m_plan.run);
        GDNCTL_TRY_ASSIGN(const int moved, artefacts.set_earlier_aside(name));
        if (moved > 0) {
            log::info("{} file(s) of an earlier run are in {}", moved, (artefacts.folder() / "previous").string());
        }
        if (broken_off) log::warning("{}", broken_off->farewell());
        GDNCTL_TRY_ASSIGN(m_journal, LoopJournal::open(file));
        return std::optional<RunEnd>();
    }

    // Nothing was changed.
    CodexLoopReport not_begun(const RunEnd& end) const {
        RunState none;
        none.total = static_cast<int>(m_plan.options.iterations);
        return report_of(m_plan, end, none, {});
    }

    StopJob job_stopper() {
        return [this](const std::string& id, const std::string& cluster) {
            return m_jobs.stop(id, {cluster, {}, {}}, m_context.cwd, true);
        };
    }

    // A job is recorded before it is submitted, so that the next start after a kill can stop it.
    Result<std::string> name_job(const JobOrder& order) {
        std::random_device random;
        const std::string kind = order.kind == JobKind::tests ? "test" : "profile";
        std::string id = make_submission_id(kind, m_plan.run, m_context.clock.wall(), random());
        GDNCTL_TRY(note(RecordType::job, {{"kind", kind}, {"cluster", order.site.cluster}, {"job", id}}));
        return id;
    }

    // A record of the iteration that is under way.
    Status note(RecordType type, std::map<std::string, std::string> words) {
        const Record* iteration = last_of(m_journal->records(), RecordType::iteration);
        Record record{type, iteration == nullptr ? 0 : iteration->iteration};
        record.text = std::move(words);
        return m_journal->append(std::move(record), m_context.clock.wall());
    }

    EngineSettings engine_settings() const {
        const LoopOptions& options = m_plan.options;
        EngineSettings settings;
        settings.options = options;
        settings.run = m_plan.run;
        settings.loop_id = m_plan.loop_id;
        settings.isolation = m_plan.isolation;
        settings.config = config_of(m_plan, m_request);
        settings.words = to_text(m_request.words);
        if (const auto modes = resolve_modes(m_plan.gates); m_gates && modes && modes->perf) {
            const std::string& file = m_plan.gates.perf.state_file;
            settings.perf_state =
                file.empty() ? std::string(k_perf_state) : (m_context.cwd / file).lexically_normal().string();
        }
        settings.prompt_template = m_plan.prompt.text;
        settings.directives = m_plan.directives;
        settings.environment = m_agent.environment;
        settings.limits = m_agent.limits;
        settings.budget = budget_of(options);
        settings.longest_wait_s = options.codex_max_wait_s;
        settings.protected_policy = options.protected_policy;
        settings.gates = m_gates != nullptr;
        settings.fail_if_no_win = options.fail_if_no_win;
        settings.keep_background = options.keep_background;
        settings.subfolder = m_plan.subfolder;
        return settings;
    }

    PostChecks post_checks() const {
        const LoopOptions& options = m_plan.options;
        PostChecks checks;
        checks.commands = options.post_checks;
        checks.policy = options.post_check_policy;
        checks.retries = options.post_check_retries;
        checks.retry_sleep_s = options.retry_sleep_seconds;
        checks.timeout_s = options.post_check_timeout_s;
        checks.environment = {{std::string(k_loop_id_variable), m_plan.loop_id}};
        checks.subfolder = m_plan.subfolder;
        checks.program = m_context.program;
        checks.private_tree = m_plan.isolation == Isolation::worktree;
        checks.show = shower();
        return checks;
    }

    // What the target wants to see before it spends a device.
    PostChecks target_checks() const {
        PostChecks checks = post_checks();
        checks.name = "validate";
        checks.only_changes = true;
        checks.commands = m_request.target.validate;
        checks.policy = policy_of_gate(m_plan.gates.validation.policy);
        checks.retries = 0;
        return checks;
    }

    std::function<void(std::string_view)> shower() const {
        return [&terminal = m_context.terminal, quiet = m_context.global.quiet](std::string_view line) {
            if (!quiet || !line.empty()) terminal.err(text::visible_line(redact(line)) + "\n");
        };
    }

    std::unique_ptr<LoopHold> hold() const {
        const HoldOptions& options = m_plan.options.hold;
        if (!options.on) return nullptr;
        HoldSettings settings;
        settings.options = options;
        settings.allocator = m_request.allocator;
        settings.log =
            options.allocate_log.empty() ? m_plan.log_dir / "dev_tpu_allocate.log" : m_plan.root / options.allocate_log;
        settings.cwd = m_plan.root;
        settings.environment = {{std::string(k_loop_id_variable), m_plan.loop_id}};
        settings.reacquire_pause =
            std::max(settings.reacquire_pause, std::chrono::seconds(m_plan.gates.validation.retry_sleep_s));
        if (settings.allocator.empty()) return std::make_unique<OwnHold>(std::move(settings), m_context);
        return std::make_unique<TpuHold>(std::move(settings), m_context.process, m_context.clock, m_context.stop);
    }

    // false: a required one is not available.
    bool acquire(std::unique_ptr<LoopHold>& tpu) const {
        if (!tpu) return true;
        const HoldOptions& options = m_plan.options.hold;
        if (const Status held = tpu->acquire(); !held) {
            const bool required = options.policy == HoldPolicy::required;
            log::error("{}{}", held.error().text(), required ? "" : "; continuing without one");
            if (!held.error().hint.empty()) log::warning("hint: {}", held.error().hint);
            tpu.reset();
            const Status clusters = required ? held : check_gates_can_judge(m_plan, m_request, m_context, false);
            if (!clusters && !required) log::error("{}", clusters.error().text());
            return clusters.has_value();
        }
        for (const auto& warning : post_check_warnings(m_plan.options.post_checks, tpu->cluster(), tpu->name())) {
            log::write_as_it_is(log::Level::warning, warning);
        }
        return true;
    }

    Status tidy_up(const Artefacts& artefacts, Transactions& git, int iteration) const {
        if (Status kept = keep_in_ledger(m_plan.log_dir, git.repository(), m_journal->records(), iteration); !kept) {
            // --resume does it again.
            if (kept.error().kind == ErrorKind::local_io) return kept;
            log::warning("not in the ledger: {}", kept.error().text());
        }
        return tidy(artefacts, iteration, m_plan.options.keep_iterations, m_agent.codex_home);
    }

    std::vector<std::unique_ptr<Stage>> stages_before_gates(Transactions& git) const {
        std::vector<std::unique_ptr<Stage>> stages;
        if (m_gates && !m_plan.log.empty()) stages.push_back(make_log_stage(m_plan.log, git.repository()));
        if (const IdeaPolicy ideas = idea_policy_of(m_plan.options, m_gates != nullptr); ideas != IdeaPolicy::off) {
            stages.push_back(make_idea_stage(ideas, git.repository()));
        }
        stages.push_back(make_post_checks(post_checks(), m_context.process, m_context.clock));
        return stages;
    }

    std::vector<std::string> tpu_directive(LoopHold& tpu) const {
        // An allocator is left to the gates.
        if (!tpu.active() && m_request.allocator.empty()) tpu.reacquire("it was lost");
        if (!tpu.active()) return {};
        return {
            managed_tpu_directive(m_plan.options.self_command, tpu.cluster(), tpu.name(), m_plan.options.hold.type)};
    }

    Result<CodexLoopReport> work(const Artefacts& artefacts, Transactions& git, bool resumed) {
        const auto begun = m_context.clock.monotonic();
        std::vector<std::unique_ptr<Stage>> stages = stages_before_gates(git);
        const std::stop_callback said(m_context.stop, [this] {
            log::warning("{}", message::ending(m_doing.load(), received_signal().value_or(SIGINT)));
        });
        std::unique_ptr<LoopHold> tpu = hold();
        if (tpu) m_doing = "no longer waiting for the dev TPU; releasing it";
        const bool can_begin = acquire(tpu);
        if (m_gates) {
            stages.push_back(make_post_checks(target_checks(), m_context.process, m_context.clock));
            m_gates->set_held(tpu.get());
            for (auto& stage : m_gates->stages()) stages.push_back(std::move(stage));
        }
        SyncMain sync(m_plan.options, git.repository(), m_context.stop,
                      [&](auto words) { return note(RecordType::merge_intent, std::move(words)); });
        EngineParts parts{*m_agent.agent, git, artefacts, *m_journal, m_context.clock};
        parts.stop = m_context.stop;
        parts.doing = &m_doing;
        parts.stages = stages;
        parts.prepare = [&](const std::string& branch, std::span<const Record> records) {
            return sync.run(branch, records);
        };
        RunningLog running_log(git.repository(), m_plan.log_dir, m_plan.log, m_plan.stamps);
        if (m_plan.stamps != StampMode::off) {
            parts.log_entry = [&](int iteration, std::span<const Record>) {
                return running_log.entry(m_journal->records(), iteration);
            };
        }
        parts.show = shower();
        parts.command = [&](const AgentRequest& request) { return text::shell_join(m_agent.words(request)); };
        parts.tidy = [&](int iteration) { return tidy_up(artefacts, git, iteration); };
        parts.room = [places = std::vector<fs::path>{m_plan.log_dir, git.repository().common_dir(), git.workdir(),
                                                     m_context.state_dir}] { return check_room(places); };
        if (tpu) {
            parts.held_ms = [&] { return tpu->held().count(); };
            parts.directives.emplace_back([&](std::span<const Record>) { return tpu_directive(*tpu); });
        }
        const auto gate = gate_directive(m_plan.gates, m_request.target, m_context.cwd, m_plan.log_dir);
        if (gate) parts.directives.emplace_back([&](std::span<const Record>) { return std::vector{*gate}; });
        if (m_plan.isolation == Isolation::worktree) {  // in place the prompt is the recipe's, byte for byte
            parts.directives.emplace_back(
                [&](std::span<const Record> records) { return context_directive(m_plan.log_dir, records); });
        }
        log::write_as_it_is(log::Level::info,
                            message::directives_loaded(m_plan.directives.size() + (tpu ? 1 : 0) + (gate ? 1 : 0)));
        m_doing = "the run ends here";
        Engine engine(engine_settings(), std::move(parts));
        const RunEnd end = can_begin ? engine.run(resumed) : without_tpu();
        if (tpu) tpu->release();
        for (const auto& left : sweep_loop(m_plan.loop_id, m_context.clock)) {
            log::warning("ended a process that outlived the run: {} ({})", left.command, left.id.pid);
        }
        forget_home();
        return report_of(m_plan, end, engine.state(), m_context.clock.monotonic() - begun);
    }

    RunEnd without_tpu() const {
        if (!m_context.stop.stop_requested()) return {"dev-tpu-hold", 0, 1};
        return end_by_signal(stopped_error().kind, 0);
    }

    const CodexLoopRequest& m_request;
    LoopPlan m_plan;
    Context& m_context;
    OwnJobs m_jobs;
    LoopAgent m_agent;
    std::unique_ptr<GateStages> m_gates;
    std::optional<LoopJournal> m_journal;
    std::atomic<const char*> m_doing{"nothing has started yet"};  // what a signal would end
};

}  // namespace

Result<CodexLoopReport> run_codex_loop(const CodexLoopRequest& request, Context& context) {
    GDNCTL_TRY_ASSIGN(LoopPlan plan, make_loop_plan(request, context));
    if (request.dry_run) return preview_loop(request, plan, context);
    return Session(request, std::move(plan), context).run();
}

}  // namespace gdnctl::loop
