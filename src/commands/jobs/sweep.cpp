// gdnctl sweep run and sweep report.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/timing.h"
#include "jobs/hold.h"
#include "jobs/lease_renewer.h"
#include "jobs/target_job.h"
#include "jobs/tree.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/journal.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "platform/toml.h"
#include "sweep/parse.h"
#include "sweep/report.h"
#include "sweep/run.h"

namespace gdnctl::commands::sweep_run {

struct Options {
    std::string plan;
    std::optional<std::string> journal, tpu_name;
    DestinationOptions place;
    std::optional<double> budget_s;
    bool prune_vmem = false;
};

namespace {

namespace fs = std::filesystem;

Result<sweep::Plan> read_plan(const Options& options, const Context& context) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(context.cwd / options.plan));
    ConfigOrigin origin;
    origin.kind = ConfigOrigin::Kind::project_file;
    origin.source = options.plan;
    GDNCTL_TRY_ASSIGN(const ConfigTable table, parse_toml(text, origin));
    GDNCTL_TRY_ASSIGN(sweep::Plan plan, sweep::parse_plan(table, options.plan));
    if (plan.name.empty()) plan.name = fs::path(options.plan).stem().string();
    return plan;
}

fs::path journal_path(const Options& options, const Context& context) {
    if (options.journal) return context.cwd / *options.journal;
    return context.cwd / fs::path(options.plan).replace_extension(".journal.jsonl");
}

// The journal's existing records. Error usage: it is another kind of file.
Result<std::vector<std::string>> read_history(const fs::path& path) {
    GDNCTL_TRY_ASSIGN(JournalContents contents, read_journal(path));
    const auto& records = contents.records;
    const bool ours = std::any_of(records.begin(), records.end(),
                                  [](const std::string& line) { return sweep::parse_journal_event(line).has_value(); });
    if (!records.empty() && !ours) {
        return fail(ErrorKind::usage, path.string() + " is not a journal of a sweep",
                    "choose another file with --journal");
    }
    return std::move(contents.records);
}

// Judges in a process of its own, since a run's output may contain anything.
Result<std::string> check_outputs(const std::string& inputs, sweep::Check check, const std::string& outputs,
                                  Context& context) {
    std::error_code ignored;
    if (!fs::exists(outputs, ignored)) return std::string("it wrote no outputs");
    ProcessSpec spec;
    spec.argv = {context.program, "oracle",    "compare", "linear-ce", "--inputs",
                 inputs,          "--outputs", outputs,   "--level",   std::string(sweep::to_text(check)),
                 "--json"};
    spec.cwd = context.cwd;
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(const ProcessResult judged, context.process.run(spec));
    if (judged.ok()) return std::string();
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    const auto verdict = parse_json(judged.out, "verdict");
    if (verdict && verdict->contains("verdict")) {
        std::string why = verdict->at("verdict").get<std::string>();
        const auto reason = verdict->find("reason");
        if (reason != verdict->end() && reason->is_string()) why += ": " + reason->get<std::string>();
        return why;
    }
    const std::string line = judged.err.substr(0, judged.err.find('\n'));
    return line.empty() ? "the judge " + describe_end(judged, spec) : line;
}

struct Opened {
    std::unique_ptr<JobBackend> backend;
    std::unique_ptr<LeaseRenewer> renewer;
    sweep::JobRunOptions options;
    std::string device;  // its kind: results of another one are not ours
};

// The TPU's type; without one, this machine's processor or the cluster.
std::string device_of(const std::string& tpu, const JobBackend& backend) {
    if (!tpu.empty()) return tpu;
    if (backend.name() == "local") return harness::this_machine().cpu;
    return backend.cluster().empty() ? backend.address() : backend.cluster();
}

Result<Opened> open_place(const Options& options, const sweep::Plan& plan, Context& context) {
    Opened opened;
    opened.options.name = plan.name;
    opened.options.switches = sweep::switches_of(context.env.all());
    if (options.tpu_name) {
        GDNCTL_TRY_ASSIGN(const FoundHold hold, find_hold(*options.tpu_name, options.place, context));
        GDNCTL_TRY_ASSIGN(opened.backend, open_backend(hold.place, false, context));
        auto renewer = start_renewing(hold.record, hold.place, context);
        if (renewer) {
            opened.renewer = std::move(*renewer);
        } else {
            log::warning("the lease is not being renewed: {}", renewer.error().text());
        }
        opened.options.beside = hold.record.submission_id;
        opened.options.tpu_name = *options.tpu_name;
        opened.device = device_of(hold.record.tpu_type, *opened.backend);
        return opened;
    }
    GDNCTL_TRY_ASSIGN(const JobDestination place, choose_destination(options.place, context));
    GDNCTL_TRY_ASSIGN(const TpuChoice tpu, choose_tpu("auto", place, Target{}));
    opened.options.resources = tpu.resources;
    GDNCTL_TRY_ASSIGN(opened.backend, open_backend(place, options.place, context));
    opened.device = device_of(tpu.type, *opened.backend);
    return opened;
}

// The files that a command line names: as words, or as parts of words such as --config=FILE, src:FILE or
// `sh -c "python FILE"`. `gdnctl` as the first word is this program.
std::set<fs::path> files_named(const std::vector<std::string>& argv, const Context& context) {
    constexpr std::string_view k_between = " \t\n=:,;'\"()<>|&";
    std::set<fs::path> files;
    const auto add = [&](std::string_view name) {
        const fs::path path = (context.cwd / name).lexically_normal();
        std::error_code ignored;
        if (!name.empty() && fs::is_regular_file(path, ignored)) files.insert(path);
    };
    if (!argv.empty() && argv.front() == "gdnctl") add(context.program);
    for (const std::string& word : argv) {
        add(word);
        for (std::size_t at = 0; at < word.size();) {
            const std::size_t end = std::min(word.find_first_of(k_between, at), word.size());
            add(std::string_view(word).substr(at, end - at));
            at = end + 1;
        }
    }
    return files;
}

// The configurations, with keys that cover the device and the code: the plan's source_revision, or the commit and what
// differs from it; and the content of the files that the commands name.
Result<std::vector<sweep::Configuration>> keyed(const sweep::Plan& plan, const Opened& opened, const fs::path& journal,
                                                const std::string& plan_file, Context& context) {
    const auto& switches = opened.options.switches;
    std::string revision = plan.source_revision.value_or("");
    if (!plan.source_revision) {
        const fs::path root = project_root(context);
        std::set<std::string> apart;
        for (const fs::path& file : {journal, (context.cwd / plan_file).lexically_normal()}) {
            apart.insert(file.lexically_relative(root.lexically_normal()).string());
        }
        GDNCTL_TRY_ASSIGN(revision, source_state(root, apart, context));
    }
    GDNCTL_TRY_ASSIGN(const auto nameless, sweep::configurations_of(plan, revision, switches));
    std::set<fs::path> files;
    for (const auto& one : nameless) files.merge(files_named(sweep::command_of(plan, one, "", plan.inputs), context));
    if (!plan.inputs.empty()) files.merge(files_named({plan.inputs}, context));
    std::map<std::string, std::string> found = {{"device", opened.device}};
    for (const fs::path& file : files) {
        GDNCTL_TRY_ASSIGN(found["file " + file.lexically_relative(context.cwd).string()],
                          hash_file_hex(HashKind::sha256, file));
    }
    return sweep::configurations_of(plan, revision, switches, found);
}

// Says that results of other code, or of another device, are not used.
void say_what_is_left(const std::vector<sweep::Configuration>& wanted, const std::vector<std::string>& history) {
    sweep::JournalReader reader;
    std::int64_t number = 0;
    for (const std::string& line : history) reader.line(line, ++number);
    const auto& known = reader.configs();
    std::size_t others = 0;
    for (const auto& one : wanted) {
        if (known.contains(one.key)) continue;
        others += std::any_of(known.begin(), known.end(), [&](const auto& item) {
            return item.second.label == one.label && item.second.shape == one.shape && !item.second.ends.empty();
        });
    }
    if (others == 0) return;
    log::info(
        "{} of {} configurations have results of other code, settings or another device in the journal; these do "
        "not count",
        others, wanted.size());
}

ExitCode exit_of(const sweep::SweepResult& result) {
    if (result.ended == sweep::SweepEnd::budget) return ExitCode::timeout;
    if (result.infra_only) return ExitCode::infrastructure;
    return result.any_ok && result.all_have_outcomes ? ExitCode::ok : ExitCode::check_failed;
}

Status show(const sweep::SweepResult& result, const fs::path& journal, Context& context) {
    GDNCTL_TRY_ASSIGN(const sweep::Report report, sweep::make_report(result.records, std::nullopt));
    if (!context.global.json) {
        print_lines(sweep::report_table(report, context.terminal.color_out()), context);
        return {};
    }
    Json out = {{"schema", "gdnctl.sweep-run/1"}};
    out.update(sweep::report_json(report));
    out["journal"] = journal.string();
    out["ended"] = result.ended == sweep::SweepEnd::budget ? "budget" : "complete";
    print_json(out, context);
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Times a kernel at every block size of a plan, one process per configuration, as jobs on this machine, on a "
        "cluster or on a held TPU. Every configuration runs once before any runs again. The first run of each is "
        "discarded; the median of the others counts. Failed configurations are not repeated; runs lost by the "
        "infrastructure are. Results are written to a journal immediately: run the same command again to continue "
        "after "
        "any interruption.");
    args.positional(options.plan, {"PLAN", "the plan, a TOML file (docs/sweeps.md)", cli::Complete::file});
    args.option(options.journal, "--journal FILE", "file that keeps the results",
                {.default_text = "PLAN's name with .journal.jsonl", .complete = cli::Complete::file});
    args.option(options.tpu_name, "--tpu-name NAME", "run on this held TPU", {.default_text = "none"});
    args.option(options.budget_s, "--budget SECONDS", "stop after this time, instead of the plan's budget_s",
                {.default_text = "the plan's"});
    args.flag(options.prune_vmem, "--prune-vmem", "skip block sizes whose estimated VMEM exceeds the scoped limit");
    describe_place(args, options.place);
    args.exit_code(0, "every configuration succeeded or failed by itself, and at least one is ok");
    args.exit_code(1, "no configuration is ok, or a module is missing");
    args.exit_code(4, "the infrastructure lost every run of some configurations");
    args.exit_code(7, "another sweep is writing this journal");
    args.exit_code(124, "the budget is spent; run the command again to continue");
    args.example("gdnctl sweep run ce.toml --cluster local", "on this machine");
    args.example("gdnctl sweep run ce.toml --cluster us-central1 --budget 3600", "on a cluster's TPUs, for an hour");
    args.example("gdnctl sweep run ce.toml --tpu-name me --json", "on a held TPU, as gdnctl.sweep-run/1");
    args.see_also({"sweep report", "ce-infer"});
    args.check([&options]() -> Status {
        if (options.budget_s.value_or(0) < 0) return fail(ErrorKind::usage, "--budget: expected 0 or more seconds");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const sweep::Plan plan, read_plan(options, context));
    const fs::path path = journal_path(options, context).lexically_normal();
    GDNCTL_TRY(read_history(path));
    GDNCTL_TRY_ASSIGN(const Opened opened, open_place(options, plan, context));
    const bool local = opened.backend->name() == "local";
    if (plan.check != sweep::Check::none && !local) {
        return fail(ErrorKind::usage,
                    "the plan's `check` needs the outputs on this machine, but the runs are on a cluster",
                    "run with --cluster local, or set check = \"none\"");
    }
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(path));
    if (!journal.cut_off().empty()) log::warning("{}: removed an incomplete last line", path.string());
    GDNCTL_TRY_ASSIGN(const std::vector<std::string> history, read_history(path));

    GDNCTL_TRY_ASSIGN(const auto configurations, keyed(plan, opened, path, options.plan, context));
    say_what_is_left(configurations, history);
    sweep::SweepOptions how;
    how.budget_s = options.budget_s ? options.budget_s : plan.budget_s;
    how.prune_vmem = options.prune_vmem;
    how.libtpu_init_args = context.env.get("LIBTPU_INIT_ARGS").value_or("");
    how.inputs = plan.inputs.empty() || !local ? plan.inputs : (context.cwd / plan.inputs).lexically_normal().string();
    how.outputs = (context.state_dir / "sweeps").string();
    if (plan.check != sweep::Check::none) GDNCTL_TRY(make_private_directory(how.outputs));

    auto place = sweep::run_as_jobs(*opened.backend, opened.options, context);
    place.check = [&](const std::string& outputs) { return check_outputs(how.inputs, plan.check, outputs, context); };
    GDNCTL_TRY_ASSIGN(const sweep::SweepResult result,
                      sweep::run_sweep(plan, configurations, how, history, journal, place, context.clock));
    GDNCTL_TRY(show(result, path, context));
    return exit_of(result);
}

}  // namespace gdnctl::commands::sweep_run

// gdnctl sweep report
namespace gdnctl::commands::sweep_report {

enum class Format { table, json, patch, markdown, html };

struct Options {
    std::vector<std::string> logs;
    Format format = Format::table;
    bool strict = false;
    std::optional<std::int64_t> shards;
    std::string device_kind, dtype;
    std::optional<std::string> comparisons;
};

namespace {

constexpr std::size_t k_log_limit = std::size_t{256} << 20;

constexpr std::array<cli::Choice<Format>, 5> k_formats = {
    {{"table", Format::table, "for a terminal"},
     {"json", Format::json, "gdnctl.sweep-report/1, as --json"},
     {"patch", Format::patch, "rows of upstream's tuned table for the winners"},
     {"markdown", Format::markdown, "tables for a running log"},
     {"html", Format::html, "one page with a plot"}}};

Result<std::string> read_log(const std::string& name, const Context& context) {
    if (name == "-") return read_descriptor(STDIN_FILENO, "standard input", k_log_limit);
    return read_file(context.cwd / name, {k_log_limit, ErrorKind::usage});
}

std::string text_of(Format format, const sweep::Report& report, bool color) {
    switch (format) {
        case Format::json: break;
        case Format::patch: return sweep::report_patch(report);
        case Format::markdown: return sweep::report_markdown(report);
        case Format::html: return sweep::report_html(report);
        case Format::table: break;
    }
    return sweep::report_table(report, color);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Reads the result lines of marin's tune and bench scripts for the fused cross-entropy, and journals of `sweep "
        "run`, from any mix of logs. Prints rates per chip, MFU, why configurations failed, and the best configuration "
        "of each bucket. Figures that count several shards or chips, or the forward twice, are corrected and listed; "
        "figures that contradict each other are warnings.");
    args.positional(options.logs, {"LOG", "a log or a journal; `-` is standard input", cli::Complete::file});
    args.option(options.format, k_formats, "--format FORMAT", "output format");
    args.flag(options.strict, "--strict", "exit with 1 if there are warnings");
    args.option(options.shards, "--shards N", "shards of the bench script's batch, if the log does not say",
                {.default_text = "1"});
    args.option(options.device_kind, "--device-kind KIND",
                "device kind, if the log does not name it, such as \"TPU v5\"", {.default_text = "none"});
    args.option(options.dtype, "--dtype DTYPE", "dtype of x and w, if the log does not name it",
                {.default_text = "none"});
    args.option(options.comparisons, "--comparisons BASE",
                "compare every implementation with this one, shape by shape");
    args.exit_code(1, "--strict, and there are warnings");
    args.exit_code(9, "no log has a result line");
    args.example("gdnctl sweep report tune.log --device-kind 'TPU v5'", "one log as a table");
    args.example("gdnctl sweep report bench-*.log --comparisons xla --format markdown",
                 "compared with XLA, for a running log");
    args.example("gdnctl ray-logs JOB | gdnctl sweep report - --json", "as gdnctl.sweep-report/1");
    args.see_also({"sweep run", "ce-infer"});
    args.check([&options]() -> Status {
        if (options.logs.empty()) return fail(ErrorKind::usage, "LOG is missing", "name one or more logs, or `-`");
        if (options.shards.value_or(1) < 1) return fail(ErrorKind::usage, "--shards: expected 1 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    const sweep::Assumed assumed{options.device_kind, options.dtype, options.shards};
    std::vector<sweep::Record> records;
    for (const std::string& name : options.logs) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_log(name, context));
        for (sweep::Record& r : sweep::parse_results(text, name, assumed)) records.push_back(std::move(r));
    }
    if (records.empty()) {
        return fail(ErrorKind::bad_input, fmt::format("no result line in {}", text::join(options.logs, ", ")),
                    "expected the output of marin's tune or bench script of the fused cross-entropy, or a journal of "
                    "`gdnctl sweep run`");
    }
    GDNCTL_TRY_ASSIGN(const sweep::Report report, sweep::make_report(std::move(records), options.comparisons));
    if (context.global.json || options.format == Format::json) {
        Json out = {{"schema", "gdnctl.sweep-report/1"}};
        out.update(sweep::report_json(report));
        print_json(out, context);
    } else {
        const std::string text = text_of(options.format, report, context.terminal.color_out());
        options.format == Format::table ? print_lines(text, context) : context.terminal.out(text);
    }
    return options.strict && !report.warnings.empty() ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace gdnctl::commands::sweep_report

namespace gdnctl::commands {

Rows sweep_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&sweep_run::describe, &sweep_run::run>("sweep run", "Jobs",
                                                         "time a kernel at every block size of a plan", Tier::http),
        cli::make<&sweep_report::describe, &sweep_report::run>(
            "sweep report", "Jobs", "compare block sizes from the logs of sweeps", Tier::none)
            .without_config()
            .prints_report()};
    return k_rows;
}

}  // namespace gdnctl::commands
