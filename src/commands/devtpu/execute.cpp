#include "commands/devtpu/execute.h"

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/held_job.h"
#include "jobs/run.h"
#include "platform/terminal.h"

namespace gdnctl::commands::dev_tpu_execute {

namespace {

constexpr int k_byte = 256, k_ssh_failed = 255, k_for_255 = 254;

// Over the road, with this terminal if there is one.
Result<int> over_road(const Options& options, const FoundHold& hold, Context& context) {
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
    args.command_line(options.command, true, {.name = "COMMAND", .help = "the command and its arguments"});
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-execute --tpu-name \"$USER-gdn\" -- uv run pytest -x tests");
    args.example("while read -r x; do gdnctl dev-tpu-execute --tpu-name NAME -- ./try \"$x\" </dev/null; done <list",
                 "without </dev/null, the first command would read the rest of the list");
    args.see_also("dev-tpu-test");
    args.see_also("dev-tpu-connect");
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
        GDNCTL_TRY_ASSIGN(code, over_road(options, hold, context));
    }
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.dev-tpu-execute/1";
        out["tpu_name"] = hold.record.tpu_name;
        out["submission_id"] = hold.record.submission_id;
        out["exit_code"] = code;
        print_json(out, context, -1);
    }
    if (code == k_ssh_failed) {
        log::info("the command exited with code 255; this command exits with 254, because 255 is ssh's own failure");
        code = k_for_255;
    }
    return static_cast<ExitCode>(code % k_byte);
}

}  // namespace gdnctl::commands::dev_tpu_execute

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_execute_row = cli::make<&dev_tpu_execute::describe, &dev_tpu_execute::run>(
    "dev-tpu-execute", "Dev TPUs", "run a command on a held TPU's host", Tier::http);

}  // namespace gdnctl::commands
