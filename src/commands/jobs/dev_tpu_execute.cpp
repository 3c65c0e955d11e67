// gdnctl dev-tpu-setup, dev-tpu-connect, dev-tpu-execute and dev-tpu-watch: work on the host of a held TPU.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/held_job.h"
#include "jobs/hold_host.h"
#include "jobs/lease_renewer.h"
#include "jobs/run.h"
#include "jobs/tree.h"
#include "platform/clock.h"
#include "platform/file_watch.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::dev_tpu_setup {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
};

void describe(cli::Args& args, Options& options) {
    args.about("Syncs the tree and sets up the TPU's host again: uv, and the checkout's environment.");
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(1, "the setup failed");
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-setup --tpu-name \"$USER-gdn\"");
    args.see_also("dev-tpu-allocate");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_has_ssh(options.name.tpu_name, options.name.place,
                             "dev-tpu-setup is not supported on iris: commands set up their own environment (uv sync)",
                             context));
    Via via = Via::ssh;
    GDNCTL_TRY_ASSIGN(FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    const auto renewer = start_renewing(hold.record, hold.place, context);
    hold.record.setup_ok = set_up_host(hold.record, context);
    GDNCTL_TRY(devtpu::HoldStore(context.state_dir).put(hold.record));
    return *hold.record.setup_ok ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::dev_tpu_setup

// gdnctl dev-tpu-connect: a shell on the host of a held TPU.
namespace gdnctl::commands::dev_tpu_connect {

struct Options {
    devtpu_options::Name name;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Opens a login shell in the synced tree on the TPU's host, with the environment that dev-tpu-execute gives its "
        "commands. The hold is renewed while the shell is open.");
    devtpu_options::describe_name(args, options.name);
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-connect --tpu-name \"$USER-gdn\"");
    args.see_also("dev-tpu-execute");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_has_ssh(
        options.name.tpu_name, options.name.place,
        "dev-tpu-connect is not supported on iris: its containers have no terminal; use dev-tpu-execute", context));
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(options.name.tpu_name, options.name.place, context));
    GDNCTL_TRY(choose_via(hold, Via::ssh, context));
    HostRun shell;
    shell.interactive = true;
    GDNCTL_TRY_ASSIGN(shell.env, host_environment(hold, {}, false, context));
    shell.line = "\"${SHELL:-/bin/sh}\" -l";
    GDNCTL_TRY_ASSIGN(const int code, run_on_host(hold, shell, context));
    return static_cast<ExitCode>(code);
}

}  // namespace gdnctl::commands::dev_tpu_connect

namespace gdnctl::commands::dev_tpu_execute {

// gdnctl dev-tpu-execute: run a command on the host of a held TPU.

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    std::vector<std::string> command;
    bool passes_input = true;  // standard input is the command's
};

namespace {

constexpr int k_byte = 256, k_ssh_failed = 255, k_for_255 = 254;

// Over the connection, with this terminal if there is one.
Result<int> over_connection(const Options& options, const FoundHold& hold, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto extra, extra_env(options.run, context));
    HostRun run;
    run.line = text::shell_join(options.command);
    GDNCTL_TRY_ASSIGN(run.env, host_environment(hold, extra, options.run.forward_all_env, context));
    run.wall_limit = limit_of(options.run.timeout_s);
    run.idle_limit = limit_of(options.run.idle_timeout_s);
    const bool limited = run.wall_limit.count() > 0 || run.idle_limit.count() > 0;
    run.interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0 && !limited && !context.global.json;
    if (options.passes_input && isatty(STDIN_FILENO) == 0) run.stdin_fd = STDIN_FILENO;
    Terminal& terminal = context.terminal;
    const bool json = context.global.json;
    run.on_out = [&terminal, json](std::string_view bytes) {
        if (json) return terminal.err(bytes);
        terminal.out(bytes);
        if (const Status flushed = terminal.flush(); !flushed) log::debug("{}", flushed.error().text());
    };
    run.on_err = [&terminal](std::string_view bytes) { terminal.err(bytes); };
    return run_on_host(hold, run, context);
}

// Whether there is input that a job cannot get.
bool has_input() {
    struct stat facts{};
    if (isatty(STDIN_FILENO) != 0 || fstat(STDIN_FILENO, &facts) != 0) return false;
    if (S_ISREG(facts.st_mode)) return facts.st_size > lseek(STDIN_FILENO, 0, SEEK_CUR);
    int waiting = 0;
    return ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0;
}

struct JobEnd {
    int code = 0;
    bool of_command = true;  // false: the job failed without a result of the command
};

// As a job next to the holder.
Result<JobEnd> by_job(const Options& options, const FoundHold& hold, Context& context) {
    if (options.passes_input && has_input()) {
        const bool asked = options.run.via == Via::ray;
        return fail(asked ? ErrorKind::usage : ErrorKind::infrastructure,
                    "a job on the holder's host cannot read the standard input of this command",
                    asked ? "use --via ssh, or add </dev/null" : "add </dev/null if the command does not need it");
    }
    JobPlan plan{"execute", "", {}, {}, {}};
    plan.command.entrypoint = text::shell_join(options.command);
    GDNCTL_TRY_ASSIGN(const JobRun run, run_beside(hold, plan, {options.sync, options.run}, context));
    if (run.cut_short) return tl::unexpected(*run.cut_short);
    if (run.verdict.failure == FailureClass::infra || !run.details.driver_exit_code) {
        report_end(run);
        return JobEnd{static_cast<int>(run.verdict.exit), run.verdict.exit == ExitCode::ok};
    }
    constexpr int k_by_signal = 128;
    const int code = *run.details.driver_exit_code;
    return JobEnd{code < 0 ? k_by_signal - code : code};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree and runs a command in it on the TPU's host. The command's arguments are passed "
        "unchanged, it reads this command's standard input, its output is streamed, and its exit code becomes this "
        "command's (254 for a remote 255).");
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_run(args, options.run);
    devtpu_options::describe_name(args, options.name);
    args.command_line(options.command, true, {"COMMAND", "the command and its arguments"});
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-execute --tpu-name \"$USER-gdn\" -- uv run pytest -x tests");
    args.example("while read -r x; do gdnctl dev-tpu-execute --tpu-name NAME -- ./try \"$x\" </dev/null; done <list",
                 "without </dev/null, the first command would read the rest of the list");
    args.see_also({"dev-tpu-test", "dev-tpu-connect"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    int code = 0;
    if (via == Via::ray) {
        GDNCTL_TRY_ASSIGN(const JobEnd end, by_job(options, hold, context));
        if (!end.of_command) return static_cast<ExitCode>(end.code);
        code = end.code;
    } else {
        GDNCTL_TRY_ASSIGN(code, over_connection(options, hold, context));
    }
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.dev-tpu-execute/1";
        out["tpu_name"] = hold.record.tpu_name;
        out["submission_id"] = hold.record.submission_id;
        out["exit_code"] = code;
        print_json(out, context);
    }
    if (code == k_ssh_failed) {
        log::info("the command exited with code 255; this command exits with 254, because 255 is ssh's own failure");
        code = k_for_255;
    }
    return static_cast<ExitCode>(code % k_byte);
}

}  // namespace gdnctl::commands::dev_tpu_execute

// gdnctl dev-tpu-watch: run a command on the host of a held TPU, again at every change of the tree.
namespace gdnctl::commands::dev_tpu_watch {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    double debounce_s = 1;
    std::vector<std::string> command;
};

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr double k_longest_s = 3600;

// False for files that editors and caches write, whatever git says about them.
bool matters(std::string_view name) {
    constexpr std::array<std::string_view, 5> k_names = {".git", "__pycache__", ".pytest_cache", ".mypy_cache",
                                                         ".DS_Store"};
    constexpr std::array<std::string_view, 5> k_ends = {".swp", ".tmp", "~", ".pyc", ".pyo"};
    return std::none_of(k_names.begin(), k_names.end(), [&](auto one) { return name == one; }) &&
           std::none_of(k_ends.begin(), k_ends.end(), [&](auto end) { return name.ends_with(end); });
}

// The synced files with size and time: two trees with the same look are the same.
struct Look {
    std::string facts;
    std::set<fs::path> folders;
};

Result<Look> look_at(const fs::path& root, Context& context) {
    GDNCTL_TRY_ASSIGN(const WorkingTree tree, list_working_tree(root, context, TreeFilter::tracked));
    Look look;
    look.folders.insert(root);
    for (const std::string& name : tree.files) {
        const fs::path path = root / name;
        if (!matters(path.filename().string())) continue;
        std::error_code problem;
        const auto time = fs::last_write_time(path, problem);
        const auto size = fs::file_size(path, problem);
        if (problem) continue;
        look.facts += fmt::format("{}:{}:{}\n", name, size, time.time_since_epoch().count());
        for (fs::path folder = path.parent_path(); look.folders.insert(folder).second && folder != root;) {
            folder = folder.parent_path();
        }
    }
    return look;
}

// Runs the command on its own thread, one at a time.
class Runner {
public:
    Runner(const Options& options, Context& context) : m_options(options), m_context(context) {}
    ~Runner() { stop(); }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    void start() {
        m_ended = false;
        m_thread = std::jthread([this](std::stop_token stop) {
            Context own = m_context;
            own.stop = std::move(stop);
            own.global.json = false;
            dev_tpu_execute::Options execute{m_options.name, m_options.sync, m_options.run, m_options.command, false};
            auto code = dev_tpu_execute::run(execute, own);
            if (own.stop.stop_requested()) return;
            m_code = std::move(code);
            m_ended = true;
        });
    }
    void stop() {
        if (!m_thread.joinable()) return;
        m_thread.request_stop();
        m_thread.join();
    }
    // Whether the command has ended by itself since the last call.
    bool take_end() { return m_ended.exchange(false); }
    void tell_end() const {
        if (m_code) {
            log::info("the command ended with exit code {}; waiting for changes", static_cast<int>(*m_code));
            return;
        }
        log::error("{}", m_code.error().text());
        if (!m_code.error().hint.empty()) log::warning("hint: {}", m_code.error().hint);
    }

private:
    const Options& m_options;
    Context& m_context;
    Result<ExitCode> m_code;  // written before m_ended
    std::atomic<bool> m_ended{false};
    std::jthread m_thread;
};

// The hold while the watch lasts, which renews its lease also between two runs.
class RenewedHold {
public:
    RenewedHold(FoundHold hold, Context& context) : m_hold(std::move(hold)), m_context(context) { renew(); }

    // Why it is over; nullopt: it is held, nobody can tell, or there is a new hold of that name.
    std::optional<Error> over(const Options& options) {
        auto over = over_now(m_hold, m_context);
        if (!over) return over;
        auto again = find_hold(options.name.tpu_name, options.name.place, m_context);
        if (again && again->record.submission_id != m_hold.record.submission_id) {
            m_hold = std::move(*again);
            renew();
            return std::nullopt;
        }
        over->kind = ErrorKind::infrastructure;
        return over;
    }

private:
    void renew() {
        m_renewer.reset();
        auto renewer = start_renewing(m_hold.record, m_hold.place, m_context);
        if (!renewer) return log::warning("the lease is not being renewed: {}", renewer.error().text());
        m_renewer = std::move(*renewer);
    }

    FoundHold m_hold;
    Context& m_context;
    std::unique_ptr<LeaseRenewer> m_renewer;
};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Runs a command on the TPU's host as dev-tpu-execute does. When a file of the tree changes, it stops the "
        "command, syncs, and runs it again, until Ctrl-C. Changes to files that git ignores have no effect.");
    args.option(options.debounce_s, "--debounce SECONDS", "wait until nothing has changed for this long",
                {.group = "Command"});
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_run(args, options.run);
    devtpu_options::describe_name(args, options.name);
    args.command_line(options.command, true, {"COMMAND", "the command and its arguments"});
    args.exit_code(4, "the name is not held, or the TPU was lost or released");
    args.example("gdnctl dev-tpu-watch --tpu-name \"$USER-gdn\" -- uv run pytest -x tests");
    args.see_also("dev-tpu-execute");
    args.check([&options]() -> Status {
        if (options.debounce_s >= 0 && options.debounce_s <= k_longest_s) return {};
        return fail(ErrorKind::usage, "--debounce: expected 0 to 3600 seconds");
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path root, sync_root(options.sync, context));
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(options.name.tpu_name, options.name.place, context));
    RenewedHold held(std::move(hold), context);
    GDNCTL_TRY_ASSIGN(FolderWatch watch, FolderWatch::create());
    GDNCTL_TRY_ASSIGN(Look seen, look_at(root, context));
    GDNCTL_TRY(watch.set(seen.folders));
    Runner runner(options, context);
    runner.start();
    const auto quiet = milliseconds(static_cast<std::int64_t>(options.debounce_s * 1000.0));
    // An occasional look finds what no event reports: files behind links, added and removed folders, the end of the
    // hold.
    constexpr std::chrono::seconds k_look{10};
    auto next_look = context.clock.monotonic() + k_look;
    while (!context.stop.stop_requested()) {
        const bool told = watch.wait(milliseconds(250), matters, context.stop);
        while (told && watch.wait(quiet, matters, context.stop)) {
        }
        if (context.stop.stop_requested()) break;
        const bool ended = runner.take_end();
        const bool due = context.clock.monotonic() >= next_look;
        if (ended || due) {
            if (auto over = held.over(options)) return tl::unexpected(std::move(*over));
        }
        if (ended) runner.tell_end();
        if (!told && !due) continue;
        next_look = context.clock.monotonic() + k_look;
        auto now = look_at(root, context);
        if (!now || now->facts == seen.facts) continue;
        seen = std::move(*now);
        GDNCTL_TRY(watch.set(seen.folders));
        log::info("the tree has changed: running the command again");
        runner.stop();
        runner.start();
    }
    runner.stop();
    return tl::unexpected(stopped_error());
}

}  // namespace gdnctl::commands::dev_tpu_watch

namespace gdnctl::commands {

Rows dev_tpu_host_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&dev_tpu_execute::describe, &dev_tpu_execute::run>("dev-tpu-execute", "Dev TPUs",
                                                                     "run a command on a held TPU's host", Tier::http),
        cli::make<&dev_tpu_watch::describe, &dev_tpu_watch::run>(
            "dev-tpu-watch", "Dev TPUs", "run a command on a held TPU's host at every change", Tier::http),
        cli::make<&dev_tpu_connect::describe, &dev_tpu_connect::run>("dev-tpu-connect", "Dev TPUs",
                                                                     "open a shell on a held TPU's host", Tier::http),
        cli::make<&dev_tpu_setup::describe, &dev_tpu_setup::run>("dev-tpu-setup", "Dev TPUs",
                                                                 "set up a held TPU's host again", Tier::http)};
    return k_rows;
}

}  // namespace gdnctl::commands
