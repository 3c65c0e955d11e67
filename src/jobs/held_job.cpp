#include "jobs/held_job.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/hold_host.h"
#include "jobs/job_trace.h"
#include "jobs/lease_renewer.h"
#include "jobs/submit.h"
#include "jobs/watch.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "services/devtpu/holds.h"
#include "services/devtpu/host_connection.h"
#include "services/devtpu/sync.h"

namespace gdnctl {

using devtpu::HoldRecord;
using devtpu::Turn;
using std::chrono::seconds;

std::optional<Error> over_now(const FoundHold& hold, Context& context) {
    if (hold.record.submission_id.empty()) return std::nullopt;
    auto backend = open_backend(hold.place, true, context);
    if (!backend) return std::nullopt;
    const auto job = (*backend)->poll(hold.record.submission_id);
    if (!job && job.error().kind == ErrorKind::remote_missing) return hold_vanished(hold.record);
    if (!job || !is_terminal(job->state)) return std::nullopt;
    return hold_over(hold.record, *job, read_holder(**backend, hold.record.submission_id).end());
}

namespace {

// Marks a run on the host and everything that it starts: begins with the hold's id, ends with a dot and a random part.
std::string new_run_id(const HoldRecord& record) {
    const std::string& owner = record.submission_id.empty() ? record.alias : record.submission_id;
    return owner + "." + random_hex(8);
}

constexpr seconds k_end_limit{8};
constexpr seconds k_over_limit{8};  // a release on a busy machine
constexpr int k_ssh_failed = 255, k_for_255 = 254, k_by_signal = 128;
constexpr std::size_t k_kept_stderr = std::size_t{16} << 10;

// Keeps the end of stderr, in whole lines.
class StderrEnd {
public:
    void feed(std::string_view bytes) {
        m_text.append(bytes);
        if (m_text.size() > 2 * k_kept_stderr) m_text.erase(0, m_text.size() - k_kept_stderr);
    }
    const std::string& text() const { return m_text; }

private:
    std::string m_text;
};

// Both streams of a command over the connection. Until the mark comes on stdout, what arrives is of ssh and the host's
// login shell: its stdout is dropped, its stderr held back, because the error that may follow repeats it.
class Streams {
public:
    explicit Streams(const HostRun& run) : m_run(run) {}

    void feed_out(std::string_view bytes) {
        if (m_begun) return out(bytes);
        m_before.append(bytes);
        const std::size_t mark = m_before.find(devtpu::k_mark);
        if (mark == std::string::npos && m_before.size() <= k_kept_before) return;
        let_go();
    }
    void feed_err(std::string_view bytes) {
        m_end.feed(bytes);
        m_err.append(bytes);
        if (m_begun || m_err.size() > k_kept_before) pass_err(false);
    }
    // Whether the command has begun, or may have.
    bool begun() const { return m_begun; }
    void let_go() {
        if (!m_begun) out(devtpu::after_mark(m_before));
        m_begun = true;
        m_before.clear();
        pass_err(false);
    }
    // The command has ended with this code; returns its own.
    int finish(int code) {
        let_go();
        if (code == k_for_255 && m_err == devtpu::k_was_255) {
            m_err.clear();
            return k_ssh_failed;
        }
        pass_err(true);
        return code;
    }
    const std::string& said() const { return m_end.text(); }

private:
    static constexpr std::size_t k_kept_before = std::size_t{64} << 10;

    void out(std::string_view bytes) const {
        if (m_run.on_out && !bytes.empty()) m_run.on_out(bytes);
    }
    // Keeps an end that may be the beginning of the last words of the host's script.
    void pass_err(bool all) {
        std::size_t kept = all ? 0 : std::min(m_err.size(), devtpu::k_was_255.size());
        while (kept > 0 && !devtpu::k_was_255.starts_with(std::string_view(m_err).substr(m_err.size() - kept))) --kept;
        const std::size_t passed = m_err.size() - kept;
        if (m_run.on_err && passed > 0) m_run.on_err(std::string_view(m_err).substr(0, passed));
        m_err.erase(0, passed);
    }

    const HostRun& m_run;
    StderrEnd m_end;
    std::string m_before, m_err;
    bool m_begun = false;
};

void end_run(const devtpu::HostConnection& connection, const HoldRecord& record, const std::string& run_id,
             Context& context) {
    const auto ended =
        devtpu::ask_host(connection, devtpu::end_line(run_id), {}, k_end_limit, context.process, std::stop_token());
    if (ended) return;
    const std::string how_long =
        record.submission_id.empty() ? "" : " for up to " + format_duration(seconds(record.terms.lease_s));
    log::warning("the command may still be running on the host{}: {}", how_long, ended.error().text());
}

devtpu::HostCommand command_for(const FoundHold& hold, const devtpu::HostConnection& connection, const HostRun& run) {
    devtpu::HostCommand command{run.line, run.env, new_run_id(hold.record), hold.record.terms.lease_s, {}, false};
    command.reads_stdin = run.stdin_fd >= 0;
    command.record = devtpu::run_record(connection.lease, command.run_id);
    return command;
}

// A release stops running commands before the holder, and a machine that is taken away disappears before its cluster
// notices.
std::optional<Error> over_soon(const FoundHold& hold, seconds limit, Context& context) {
    const auto deadline = context.clock.monotonic() + limit;
    for (;;) {
        auto over = over_now(hold, context);
        if (over || context.clock.monotonic() >= deadline) return over;
        if (!context.clock.sleep_for(std::chrono::milliseconds(250), context.stop)) return over;
    }
}

// `cut`: ssh itself has failed.
Result<int> judged(const FoundHold& hold, const ProcessResult& result, const ProcessSpec& spec, bool cut,
                   const std::string& said, Context& context) {
    if (result.end == ProcessResult::End::wall_limit || result.end == ProcessResult::End::idle_limit) {
        return fail(ErrorKind::timeout, "the command " + describe_end(result, spec) + ", and was terminated");
    }
    const int code = result.exit_code < 0 ? k_by_signal - result.exit_code : result.exit_code;
    if (auto complaint = devtpu::host_complaint(code, said)) return tl::unexpected(std::move(*complaint));
    if (cut || code > k_by_signal) {
        const bool was_ended = cut || code == k_by_signal + SIGTERM || code == k_by_signal + SIGKILL;
        if (auto over = over_soon(hold, was_ended ? k_over_limit : seconds(0), context)) {
            over->kind = ErrorKind::infrastructure;
            over->message += "; the command did not end by itself";
            return tl::unexpected(std::move(*over));
        }
    }
    if (cut) return tl::unexpected(devtpu::ssh_error(said));
    return code;
}

// A script that needs a terminal: copied first, then run with the terminal as its standard input. `tree` and `turn` as
// for run_over_connection().
Result<int> run_interactive(const FoundHold& hold, const devtpu::HostConnection& connection, const HostRun& run,
                            const std::string& tree, Turn& turn, Context& context) {
    devtpu::HostCommand command = command_for(hold, connection, run);
    command.tree = tree;
    const std::string script = devtpu::terminal_script(connection, command);
    const std::string keep =
        fmt::format("umask 077; mkdir -p {0}/run && f=$(mktemp {0}/run/XXXXXX) && cat >\"$f\" && printf %s \"$f\"",
                    connection.base);
    GDNCTL_TRY_ASSIGN(const devtpu::Answer kept,
                      devtpu::ask_host(connection, keep, script, seconds(30), context.process, context.stop));
    if (kept.exit_code != 0) {
        return fail(ErrorKind::infrastructure,
                    "cannot store the command on the host: " + text::visible(text::trim(kept.err)));
    }
    const std::string line = fmt::format("exec sh {0} {0}", text::shell_quote(kept.out));
    std::vector<std::string> argv = devtpu::host_argv(connection, line);
    if (!connection.is_local()) argv.insert(argv.begin() + 1, "-t");
    const auto renewer = start_renewing(hold.record, hold.place, context, command.record);
    GDNCTL_TRY_ASSIGN(const int code, run_in_terminal(argv, context.stop));
    if (context.stop.stop_requested()) {
        end_run(connection, hold.record, command.run_id, context);
        return tl::unexpected(stopped_error());
    }
    if (code == devtpu::k_turn_code && !tree.empty()) {
        const std::string words =
            fmt::format("f={}; if [ -f \"$f\" ]; then cat \"$f\"; rm -f \"$f\"; fi", text::shell_quote(kept.out));
        GDNCTL_TRY_ASSIGN(const devtpu::Answer answer,
                          devtpu::ask_host(connection, words, {}, seconds(30), context.process, context.stop));
        turn = devtpu::turn_of(code, answer.out);
    }
    if (connection.is_local() || code != k_ssh_failed) return code;
    end_run(connection, hold.record, command.run_id, context);
    if (auto over = over_now(hold, context)) return tl::unexpected(std::move(*over));
    return fail(ErrorKind::infrastructure, "ssh: the connection was lost");
}

bool is_forwarded(std::string_view name) {
    constexpr std::array<std::string_view, 13> k_names = {
        "HF_TOKEN",       "WANDB_API_KEY",          "MARIN_PREFIX",
        "OPENAI_API_KEY", "GCLOUD_PROJECT",         "GCLOUD_TOKEN_PATH",
        "RAY_ADDRESS",    "RAY_API_SERVER_ADDRESS", "RAY_DASHBOARD_ADDRESS",
        "RAY_AUTH_MODE",  "RAY_AUTH_TOKEN_PATH",    "WANDB_MODE",
        "RUN_ID"};
    return std::find(k_names.begin(), k_names.end(), name) != k_names.end();
}

// A loopback address would mean another machine there.
bool is_loopback_address(const JobEnv& item) {
    return item.name.starts_with("RAY_") && item.name.ends_with("ADDRESS") &&
           (item.value.find("127.0.0.1") != std::string::npos || item.value.find("localhost") != std::string::npos ||
            item.value.find("::1") != std::string::npos);
}

// `tree`: the mark that the host's tree must have. With a turn that is not `mine`, the command has not run.
Result<int> run_over_connection(const FoundHold& hold, const devtpu::HostConnection& connection, const HostRun& run,
                                const std::string& tree, Turn& turn, Context& context) {
    devtpu::HostCommand command = command_for(hold, connection, run);
    command.tree = tree;
    command.alone = run.alone;
    ProcessSpec spec;
    spec.stdin_bytes = devtpu::command_script(connection, command);
    spec.stdin_fd = run.stdin_fd;
    spec.argv = devtpu::host_argv(connection, devtpu::receive_line(run.stdin_fd < 0 ? 0 : spec.stdin_bytes.size()));
    spec.wall_limit = run.wall_limit;
    spec.idle_limit = run.idle_limit;
    spec.stop = context.stop;
    spec.leaves_behind = [&](int) { return !connection.is_local(); };
    Streams streams(run);
    spec.stdin_ready = [&] { return streams.begun(); };  // nothing is taken from a command that does not run
    spec.on_stdout = [&](std::string_view bytes) { streams.feed_out(bytes); };
    spec.on_stderr = [&](std::string_view bytes) { streams.feed_err(bytes); };
    const auto renewer = start_renewing(hold.record, hold.place, context, command.record);
    if (!renewer) log::warning("the lease is not being renewed: {}", renewer.error().text());
    GDNCTL_TRY_ASSIGN(ProcessResult result, context.process.run(spec));
    const bool exited = result.end == ProcessResult::End::exited;
    turn = exited && !streams.begun() ? devtpu::turn_of(result.exit_code, streams.said()) : Turn::mine;
    if (turn != Turn::mine) return result.exit_code;
    const bool cut = exited && result.exit_code == k_ssh_failed && !connection.is_local();
    if (!cut || streams.begun()) result.exit_code = streams.finish(result.exit_code);
    if (streams.begun() && (cut || !exited)) end_run(connection, hold.record, command.run_id, context);
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    return judged(hold, result, spec, cut, streams.said(), context);
}

// Reports on stderr which processes keep the chips busy: those that have /dev/accel* or /dev/vfio/* open.
void report_busy_chips(const FoundHold& hold, Context& context) {
    const auto connection = connection_of(hold.record, context);
    if (!connection || connection->is_local()) return;
    constexpr std::string_view k_line =
        "for l in /proc/[0-9]*/fd/*; do case $(readlink \"$l\" 2>/dev/null) in /dev/accel[0-9]*|/dev/vfio/[0-9]*) "
        "p=${l#/proc/}; echo \"${p%%/*}\";; esac; done | sort -un | while read -r p; do "
        "printf '%s %s\\n' \"$p\" \"$(tr '\\0' ' ' </proc/\"$p\"/cmdline | cut -c1-120)\"; done";
    const auto answer = devtpu::ask_host(*connection, k_line, {}, seconds(10), context.process, context.stop);
    if (!answer) return;
    for (const std::string_view line : text::split(text::trim(answer->out), '\n')) {
        if (!line.empty()) log::warning("the chips are in use on the host: {}", text::visible(line));
    }
}

std::string prefix_of(const std::optional<std::string>& given, const devtpu::HoldRecord& record,
                      const Context& context) {
    if (given) return *given;
    if (const auto value = context.env.get("MARIN_PREFIX"); value && !value->empty()) return *value;
    const std::string& zone = record.host.gcloud_zone;
    return devtpu::marin_prefix(zone.empty() ? record.cluster : zone);
}

Result<PlannedJob> begin_held_plan(Target target, const FoundHold& hold, Context& context) {
    GDNCTL_TRY(check_target_is_named(target, hold.record.cluster == "local", context));
    PlannedJob job;
    GDNCTL_TRY_ASSIGN(job.place, choose_destination(hold.place, context));
    GDNCTL_TRY_ASSIGN(job.target, target_at(job.place, std::move(target), context));
    job.tpu = hold.record.tpu_type;
    return job;
}

void set_end(JobRun& run, int code) {
    run.details.state = code == 0 ? JobState::succeeded : JobState::failed;
    run.details.driver_exit_code = code;
    if (code == 0) {
        run.details.message = job_message::k_succeeded;
        return;
    }
    run.details.error_type = job_error::k_command_error;
    run.details.message = job_message::exit_code(code, run.output.tail());
}

// Copies a file or folder of the host's tree to this machine, with its times. An empty path: it is not there. Errors:
// those of run_on_host(), local_io, infrastructure.
Result<std::filesystem::path> fetch_from_host(const FoundHold& hold, const std::string& path, Context& context) {
    constexpr int k_missing = 3;
    GDNCTL_TRY_ASSIGN(const auto folder, new_trace_folder(context));
    const auto pack = folder / "back.tar";
    std::ofstream file(pack, std::ios::binary);
    HostRun run;
    const std::string word = text::shell_quote("./" + path);
    run.line = fmt::format("[ -e {0} ] || exit {1}; exec tar -cf - {0}", word, k_missing);
    run.on_out = [&](std::string_view bytes) { file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())); };
    GDNCTL_TRY_ASSIGN(const int code, run_on_host(hold, run, context));
    file.close();
    if (!file) return tl::unexpected(file_error(ErrorKind::local_io, "write", pack, errno));
    if (code == k_missing) return std::filesystem::path();
    ProcessSpec unpack;
    unpack.argv = {"tar", "-xf", pack.string(), "-C", folder.string(), "--no-same-owner"};
    unpack.stop = context.stop;
    GDNCTL_TRY_ASSIGN(const ProcessResult unpacked, context.process.run(unpack));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    std::error_code ignored;
    std::filesystem::remove(pack, ignored);
    if (code == 0 && unpacked.ok()) return folder / path;
    return fail(ErrorKind::infrastructure, code != 0
                                               ? fmt::format("tar on the host ended with exit code {}", code)
                                               : "tar could not unpack it: " + text::visible(text::trim(unpacked.err)));
}

// Copies what the plan wants from the host. What cannot be copied is only told; an error is an interruption.
Status bring_back(const FoundHold& hold, const JobPlan& plan, JobRun& run, Context& context) {
    auto fetched = fetch_from_host(hold, plan.bring_back, context);
    if (!fetched && is_interruption(fetched.error())) return tl::unexpected(std::move(fetched).error());
    if (fetched) {
        run.brought_back = std::move(*fetched);
    } else {
        log::warning("{} was not copied back: {}", plan.bring_back, fetched.error().text());
    }
    return {};
}

Result<JobRun> run_by_connection(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options,
                                 Context& context) {
    JobRun run;
    if (plan.metric) {
        GDNCTL_TRY_ASSIGN(run.metric, MetricReader::create(*plan.metric));
    }
    std::vector<JobEnv> extra;
    if (hold.record.cluster != "local") {
        for (const auto& [name, value] : plan.cluster_env) extra.push_back({name, value});
    }
    for (const auto& [name, value] : plan.command.env) extra.push_back({name, value});
    GDNCTL_TRY_ASSIGN(const auto own, extra_env(options.run, context));
    HostRun command;
    GDNCTL_TRY_ASSIGN(command.env, host_environment(hold, {}, options.run.forward_all_env, context));
    command.env.insert(command.env.end(), extra.begin(), extra.end());
    command.env.insert(command.env.end(), own.begin(), own.end());
    for (const JobEnv& item : own) register_secret(item.value);
    command.line = plan.command.entrypoint;
    command.alone = true;
    command.wall_limit = limit_of(options.run.timeout_s);
    if (plan.command.timeout_s && command.wall_limit.count() == 0) {
        command.wall_limit = std::chrono::seconds(*plan.command.timeout_s);
    }
    command.idle_limit = limit_of(options.run.idle_timeout_s);
    const LogFilter::Out print = log_printer(context);
    DataLines data(plan.data_prefix, print);
    const auto take = [&](std::string_view bytes) {
        plan.data_prefix.empty() ? print(bytes) : data.feed(bytes);
        run.output.feed(bytes);
        if (run.metric) run.metric->feed(bytes);
    };
    command.on_out = take;
    command.on_err = take;
    run.place = {std::string(to_text(hold.record.kind)), hold.record.cluster, hold.record.address, ""};
    run.details.submission_id = hold.record.submission_id;
    run.subject = fmt::format("the {} of target '{}' on dev TPU {}", plan.kind, plan.target, hold.record.tpu_name);
    run.details.entrypoint = plan.command.entrypoint;
    run.details.start_time = context.clock.wall();
    run.request.entrypoint = plan.command.entrypoint;
    run.request.env = command.env;
    run.waited = true;
    const auto code = run_on_host(hold, command, context);
    run.data = data.finish();
    run.output.finish();
    if (run.metric) run.metric->finish();
    run.details.end_time = context.clock.wall();
    if (code) {
        set_end(run, *code);
        run.verdict = classify(run.details, run.output.tail());
        if (*code == 0 && !plan.bring_back.empty()) GDNCTL_TRY(bring_back(hold, plan, run, context));
        return run;
    }
    run.details.state = JobState::stopped;
    if (run.metric) run.metric->discard("the end of the output is missing");
    run.verdict = {code.error().kind == ErrorKind::timeout ? FailureClass::timeout : failure_of(code.error()),
                   exit_code_of(code.error().kind)};
    run.cut_short = code.error();
    return run;
}

}  // namespace

Status check_has_ssh(const std::string& tpu_name, const DestinationOptions& place, std::string refusal,
                     Context& context) {
    GDNCTL_TRY_ASSIGN(const auto records, devtpu::HoldStore(context.state_dir).all());
    const auto known =
        std::find_if(records.rbegin(), records.rend(), [&](const HoldRecord& one) { return one.tpu_name == tpu_name; });
    std::optional<PlaceKind> kind;
    if (!place.given() && known != records.rend()) {
        kind = known->kind;
    } else {
        GDNCTL_TRY_ASSIGN(const JobDestination destination, choose_destination(place, context));
        kind = destination.kind;
    }
    return kind == PlaceKind::iris ? Status(fail(ErrorKind::usage, std::move(refusal))) : Status();
}

Result<Via> choose_via(FoundHold& hold, Via wanted, Context& context) {
    HoldRecord& record = hold.record;
    if (record.cluster == "local") return Via::ssh;  // the connection is this machine
    if (record.kind == PlaceKind::iris) {
        return wanted == Via::ssh ? Result<Via>(fail(ErrorKind::usage, k_no_via_ssh)) : Result<Via>(Via::ray);
    }
    const bool foreign = record.submission_id.empty();
    if (wanted == Via::ray && foreign) {
        return fail(ErrorKind::usage,
                    "dev TPU " + record.tpu_name + " is held by another program, without a holder job",
                    "use --via ssh");
    }
    const bool known = record.ssh_ok.value_or(false);
    if (wanted == Via::ray || (wanted == Via::automatic && !known)) return Via::ray;
    if (foreign) return Via::ssh;
    const Status reached = try_ssh(record, context);
    if (reached) {
        record.ssh_ok = true;
        if (!known) GDNCTL_TRY(devtpu::HoldStore(context.state_dir).put(record));
        return Via::ssh;
    }
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (auto over = over_now(hold, context)) {
        over->kind = ErrorKind::infrastructure;
        return tl::unexpected(std::move(*over));
    }
    Error error = reached.error();
    const bool refused =
        error.kind == ErrorKind::authentication || error.message.find(devtpu::k_key_changed) != std::string::npos;
    if (wanted == Via::automatic && !refused) {
        log::warning("{}: using a job on the holder's host instead of ssh", error.text());
        record.ssh_ok = false;
        return Via::ray;
    }
    error.message = fmt::format("no ssh connection to dev TPU {}: {}", record.tpu_name, error.message);
    if (error.hint.empty()) {
        error.hint = fmt::format(
            "`gdnctl dev-tpu-execute --tpu-name {}` with the option --via ray runs the command as a "
            "job on the holder's host",
            record.tpu_name);
    }
    return tl::unexpected(std::move(error));
}

Result<int> run_on_host(const FoundHold& hold, const HostRun& run, Context& context) {
    const auto connection = connection_of(hold.record, context);
    if (!connection) return fail(ErrorKind::infrastructure, "no ssh connection to dev TPU " + hold.record.tpu_name);
    std::optional<Clock::Monotonic> deadline;  // from the first wait after the last sync on
    std::string tree = hold.synced ? hold.synced->mark : std::string();
    for (;;) {
        Turn turn = Turn::mine;
        auto code = run.interactive ? run_interactive(hold, *connection, run, tree, turn, context)
                                    : run_over_connection(hold, *connection, run, tree, turn, context);
        if (turn == Turn::mine) return code;
        if (turn == Turn::busy) {
            if (!deadline) {
                log::info("waiting for another command that uses the TPU of {} to end", hold.record.tpu_name);
                deadline = context.clock.monotonic() + devtpu::k_turn_limit;
            }
            if (context.clock.monotonic() >= *deadline) return tl::unexpected(devtpu::no_turn(*connection));
            if (!context.clock.sleep_for(devtpu::k_turn_pause, context.stop)) return tl::unexpected(stopped_error());
            continue;
        }
        GDNCTL_TRY_ASSIGN(const SyncedTree again,
                          sync_to_host(hold.record, hold.synced->root, hold.synced->replaces_other, context));
        tree = again.mark;
        deadline.reset();
    }
}

Result<std::vector<JobEnv>> host_environment(const FoundHold& hold, const std::vector<JobEnv>& extra, bool all,
                                             const Context& context) {
    std::vector<JobEnv> env;
    if (hold.record.cluster != "local") {
        for (const auto& [name, value] : context.env.all()) {
            const bool own = name == "PATH" || name == "HOME" || name == "PWD" || name == "SHELL" || name == "USER" ||
                             name == "LOGNAME" || name == "TMPDIR" || name == "OLDPWD" || name.starts_with("SSH_") ||
                             name.starts_with("XDG_") || name.starts_with("GDNCTL_") || name == "_";
            const bool plain = parse_env_items({name + "="}, "environment").has_value();
            if (plain && (is_forwarded(name) || (all && !own))) env.push_back({name, value});
        }
        for (const char* file : {".levanter.yaml", ".marin.yaml", ".config"}) {
            std::error_code ignored;
            const auto path = project_root(context) / file;
            if (!std::filesystem::is_regular_file(path, ignored)) continue;
            GDNCTL_TRY_ASSIGN(const auto table, read_env_table(path));
            for (const auto& [name, value] : table) env.push_back({name, value});
        }
        std::erase_if(env, is_loopback_address);
    }
    env.insert(env.end(), extra.begin(), extra.end());
    if (hold.record.cluster != "local") GDNCTL_TRY(add_wandb_server(env, context.env));
    for (const JobEnv& item : env) {
        if (names_a_secret(item.name)) register_secret(item.value);
    }
    for (const JobEnv& item : extra) register_secret(item.value);
    return env;
}

Result<std::filesystem::path> sync_root(const HeldSync& options, const Context& context) {
    if (!options.sync_path || *options.sync_path == ".") {
        const auto root = project_root(context);
        return options.sync_path ? context.cwd : root;
    }
    const auto root = (context.cwd / *options.sync_path).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_directory(root, ignored)) return root;
    return fail(ErrorKind::usage, "--sync-path " + *options.sync_path + ": no such folder");
}

Result<std::vector<JobEnv>> extra_env(const HeldRun& options, const Context& context) {
    std::vector<std::string> items;
    for (const std::string& item : options.env) {
        if (item.find('=') != std::string::npos) {
            items.push_back(item);
        } else if (const auto value = context.env.get(item)) {
            items.push_back(item + "=" + *value);
        } else {
            return fail(ErrorKind::usage, "-e " + item + ": not set in this environment",
                        "write -e " + item + "=VALUE");
        }
    }
    return parse_env_items(items, "-e");
}

std::chrono::milliseconds limit_of(const std::optional<double>& limit_s) {
    return std::chrono::milliseconds(limit_s ? static_cast<std::int64_t>(*limit_s * 1000.0) : 0);
}

Result<FoundHold> ready_hold(const std::string& tpu_name, const DestinationOptions& place, const HeldSync& sync,
                             Via& via, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto root, sync_root(sync, context));
    if (via == Via::ssh) GDNCTL_TRY(check_has_ssh(tpu_name, place, k_no_via_ssh, context));
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(tpu_name, place, context));
    GDNCTL_TRY_ASSIGN(via, choose_via(hold, via, context));
    if (sync.no_sync || via != Via::ssh) return hold;
    auto synced = sync_to_host(hold.record, root, sync.sync_path.has_value(), context);
    if (synced) {
        hold.synced = std::move(*synced);
        return hold;
    }
    if (synced.error().kind == ErrorKind::infrastructure) {
        if (auto over = over_now(hold, context)) {
            over->kind = ErrorKind::infrastructure;
            return tl::unexpected(std::move(*over));
        }
    }
    return tl::unexpected(std::move(synced).error());
}

Result<std::string> program_there(const FoundHold& hold, Via via, JobPlan& plan, Context& context) {
    const bool here = hold.record.cluster == "local";
    if (here || via == Via::ray) return program_there(here, plan, context);
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_file_hex(HashKind::sha256, context.program));
    const std::string path = fmt::format("$HOME/.gdnctl/bin/gdnctl-{}", hash.substr(0, 16));
    const UniqueFd fd(open(context.program.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", context.program, errno));
    HostRun run;
    run.line = fmt::format(
        "p={}; if [ -x \"$p\" ]; then cat >/dev/null; else umask 077 && mkdir -p \"${{p%/*}}\" && "
        "cat >\"$p.$$\" && chmod +x \"$p.$$\" && mv \"$p.$$\" \"$p\"; fi",
        path);
    run.stdin_fd = fd.get();
    GDNCTL_TRY_ASSIGN(const int code, run_on_host(hold, run, context));
    if (code != 0) {
        return fail(ErrorKind::infrastructure, fmt::format("cannot copy gdnctl to the host (exit code {})", code));
    }
    return "\"" + path + "\"";
}

Result<PlannedJob> plan_held_test(Target target, const TestSelection& selection, const FoundHold& hold, Via via,
                                  Context& context) {
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_held_plan(std::move(target), hold, context));
    job.plan = {"test", job.target.name, {}, cluster_env(job.target, job.place.kind), {}};
    job.plan.log_decides = needs_log(job.target);
    std::string there;
    if (selection.oracle != TestSelection::Oracle::off) {
        GDNCTL_TRY_ASSIGN(there, program_there(hold, via, job.plan, context));
        job.plan.data_prefix = k_oracle_data;
    }
    GDNCTL_TRY_ASSIGN(job.plan.command, test_command(job.target, selection, context.program, there));
    return job;
}

Result<PlannedJob> plan_held_profile(Target target, ProfileSettings settings,
                                     const std::optional<std::string>& marin_prefix, const FoundHold& hold, Via via,
                                     Context& context) {
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_held_plan(std::move(target), hold, context));
    if (settings.tpu == "auto") settings.tpu = hold.record.tpu_type;
    const bool has_ssh = via != Via::ray && hold.record.kind != PlaceKind::iris;
    GDNCTL_TRY(check_trace_place(job.target, has_ssh, "a job beside the holder of a dev TPU (--via ray, or on Iris)"));
    settings.on_dev_tpu = via == Via::ssh && hold.record.cluster != "local";
    job.plan = {"profile", job.target.name, {}, cluster_env(job.target, job.place.kind), job.target.metric};
    GDNCTL_TRY_ASSIGN(job.plan.command, profile_command(job.target, settings, context.program));
    if (job.target.profile && job.target.profile->trace_is_file()) {
        job.plan.bring_back = job.target.profile->trace_path();
    }
    const std::string prefix = prefix_of(marin_prefix, hold.record, context);
    if (job.target.style == TargetStyle::levanter && !prefix.empty()) {
        job.plan.command.env.emplace_back("MARIN_PREFIX", prefix);
    }
    job.settings = std::move(settings);
    return job;
}

Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(hold.place, false, context));
    const std::string run_id = new_run_id(hold.record);
    const std::string& id = hold.record.submission_id;
    const auto renewer =
        start_renewing(hold.record, hold.place, context, devtpu::run_record(devtpu::lease_path(id), run_id));
    if (!renewer) log::warning("the lease is not being renewed: {}", renewer.error().text());
    GDNCTL_TRY_ASSIGN(const auto extra, extra_env(options.run, context));
    SubmitOptions submit;
    for (const JobEnv& item : extra) submit.env.push_back(item.name + "=" + item.value);
    submit.auto_stop = true;
    submit.timeout_s = options.run.timeout_s;
    submit.idle_timeout_s = options.run.idle_timeout_s;
    if (options.sync.no_sync) submit.working_dir = "none";
    if (options.sync.sync_path) submit.working_dir = options.sync.sync_path;
    JobPlan beside = plan;
    beside.beside = id;
    beside.guard = devtpu::beside_guard(id, run_id, hold.record.terms.lease_s);
    beside.command.resources.clear();
    auto run = run_job(beside, submit, *backend, context);
    if (!run) return tl::unexpected(for_held_tree(std::move(run).error()));
    return run;
}

Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context) {
    if (via == Via::ray) return run_beside(hold, plan, options, context);
    report_busy_chips(hold, context);
    return run_by_connection(hold, plan, options, context);
}

}  // namespace gdnctl
