// gdnctl log init, new, append, stamp, import and render: the commands that write the log and its records.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/history/append.h"
#include "runlog/import/import.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "runlog/render/render.h"

namespace gdnctl::commands::log_init {

struct Options {
    std::optional<std::string> log_file;
    runlog::Template style = runlog::Template::hillclimb;
};

namespace {

constexpr cli::Choice<runlog::Template> k_styles[] = {
    {"hillclimb", runlog::Template::hillclimb, "numbered iterations"},
    {"experiment", runlog::Template::experiment, "dated experiments"}};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Creates a running log of the target: title, goal, loop contract, the entry template in a code fence, and an "
        "empty list of "
        "iterations. Missing folders are created. An existing file is never touched.");
    describe_log_file(args, options.log_file);
    args.option(options.style, k_styles, "--template STYLE", "style of the log");
    args.example("gdnctl log init", "the log of the selected target");
    args.example("gdnctl log init --template experiment --log-file notes/experiment-log.md");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the file exists");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the file cannot be written");
    args.see_also({"log append", "lint-log"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    std::error_code problem;
    std::filesystem::create_directories(path.parent_path(), problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", path.parent_path(), problem.value()));
    GDNCTL_TRY_ASSIGN(const auto lock, FileLock::acquire_folder(path.parent_path(), writer_wait(context)));
    if (std::filesystem::exists(std::filesystem::symlink_status(path, problem))) {
        return fail(ErrorKind::conflict, fmt::format("{} already exists", path.string()),
                    "use `gdnctl log append` to add to it, or --log-file to name another one");
    }
    // A log that --log-file names needs no target.
    const auto target = target_in_use(context);
    GDNCTL_TRY(atomic_replace(path, runlog::log_head(options.style, target ? target->name : "",
                                                     target && target->metric ? target->metric->name : "")));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-init/1"},
                    {"log", path.string()},
                    {"template", options.style == runlog::Template::experiment ? "experiment" : "hillclimb"}},
                   context);
    } else {
        log::info("wrote {}", path.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_init

// gdnctl log new
namespace gdnctl::commands::log_new {

struct Options {
    std::optional<std::string> log_file;
    std::optional<std::string> title;
    std::optional<std::string> hypothesis;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Starts an iteration: reserves the next number, writes an empty record next to the log "
        "(iteration-NNN-record.json) and prints the entry's skeleton. Fill in the record and pass it to `gdnctl log "
        "append --record`, or write the entry by hand from the skeleton.");
    describe_log_file(args, options.log_file);
    args.option(options.title, "--title TEXT", "title of the entry");
    args.option(options.hypothesis, "--hypothesis TEXT", "expected result, and why");
    args.example("gdnctl log new --title \"Fuse the gate into the chunk kernel\"");
    args.exit_code(static_cast<int>(ExitCode::conflict), "another writer has locked the log");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the record cannot be written");
    args.see_also("log append");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    GDNCTL_TRY_ASSIGN(const auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    GDNCTL_TRY_ASSIGN(const auto document, runlog::parse_document(writer.text()));
    const auto iteration = runlog::next_free_iteration(writer, document);
    const auto now = context.clock.wall();
    Json record = runlog::empty_record(runlog::make_record_id(now, iteration), iteration, now);
    if (runlog::template_of(document) == runlog::Template::experiment) record["kind"] = "experiment";
    if (options.title) record["title"] = *options.title;
    if (options.hypothesis) record["idea"]["hypothesis"] = *options.hypothesis;
    if (auto facts = facts_for(path, context)) {
        const auto head = facts->resolve("HEAD");
        if (head && *head) record["base"]["commit"] = (*head)->sha;
    }
    const auto draft = runlog::draft_path(path, iteration.number);
    GDNCTL_TRY(atomic_replace(draft, to_text(record, 2) + "\n"));
    const std::string skeleton = runlog::entry_skeleton(record);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-new/1"},
                    {"log", path.string()},
                    {"record_file", draft.string()},
                    {"id", runlog::id_of(record)},
                    {"iteration", iteration.text()},
                    {"record", record},
                    {"skeleton", skeleton}},
                   context);
    } else {
        context.terminal.out(skeleton);
        log::info("record to fill in: {}", draft.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_new

namespace gdnctl::commands::log_append {

struct Options {
    std::optional<std::string> log_file;
    std::vector<std::string> from_job;
    std::optional<std::string> record;
    std::optional<std::string> title;
    std::optional<std::string> goal;
    std::optional<std::string> hypothesis;
    std::vector<std::string> changes;
    std::optional<std::string> commit;
    std::optional<std::string> starting_commit;
    std::optional<std::string> decision;
    std::optional<std::string> outcome;
    std::optional<std::string> change_class;
    std::optional<std::string> slot;
    std::vector<std::string> metrics;
    runlog::Comparison comparison = runlog::Comparison::unknown;
    std::optional<std::string> assessment;
    std::vector<std::string> interpretation;
    std::optional<std::string> next;
};

namespace {

constexpr std::string_view k_outcomes[] = {"accepted", "rejected",  "no-op", "infra",   "environment", "compile",
                                           "oom",      "test-fail", "flaky", "timeout", "agent-error"};

constexpr std::array k_comparisons = {
    cli::Choice<runlog::Comparison>{"champion", runlog::Comparison::champion, "the champion and this iteration"},
    cli::Choice<runlog::Comparison>{"previous", runlog::Comparison::previous, "the previous iteration and this one"},
    cli::Choice<runlog::Comparison>{"control", runlog::Comparison::control, "a control run and this iteration"},
    cli::Choice<runlog::Comparison>{"ab", runlog::Comparison::ab, "two variants"},
    cli::Choice<runlog::Comparison>{"unknown", runlog::Comparison::unknown,
                                    "not stated; the numbers do not affect the outcome"}};

bool says_nothing(const Options& options) {
    const auto blank = [](const std::string& value) { return text::trim(value).empty(); };
    // A commit, a slot or a verdict says nothing if nothing was tried.
    for (const auto* value :
         {&options.record, &options.title, &options.goal, &options.hypothesis, &options.assessment, &options.next}) {
        if (*value && !blank(**value)) return false;
    }
    const auto none = [&](const auto& values) { return std::all_of(values.begin(), values.end(), blank); };
    return none(options.from_job) && none(options.changes) && none(options.metrics) && none(options.interpretation);
}

Status check_options(const Options& options) {
    const auto standard_input =
        std::count(options.from_job.begin(), options.from_job.end(), "-") + (options.record == "-" ? 1 : 0);
    if (standard_input > 1) return fail(ErrorKind::usage, "only one input can be read from standard input (`-`)");
    if (says_nothing(options)) {
        return fail(ErrorKind::usage, "nothing to append: an entry needs at least one text, number or job",
                    "try `gdnctl log append --title TEXT --hypothesis TEXT`, or --from-job FILE");
    }
    if (!options.outcome) return {};
    const std::vector<std::string> words(std::begin(k_outcomes), std::end(k_outcomes));
    if (std::find(words.begin(), words.end(), *options.outcome) != words.end()) return {};
    const auto meant = text::nearest(*options.outcome, words);
    return fail(ErrorKind::usage, fmt::format("--outcome: unknown word: {}", *options.outcome),
                meant ? fmt::format("did you mean {}?", *meant) : fmt::format("one of {}", text::join(words, ", ")));
}

Result<Json> read_json(const std::string& name, const Context& context) {
    const bool standard_input = name == "-";
    auto text = standard_input ? read_descriptor(STDIN_FILENO, "standard input") : read_file(context.cwd / name);
    if (!text) return tl::unexpected(std::move(text).error());
    const std::string place = standard_input ? "standard input" : name;
    if (text::trim(*text).empty()) {
        return fail(ErrorKind::bad_input, place + " is empty",
                    "the command that should have written it failed: see its message");
    }
    return parse_json(*text, place);
}

// KEY=VALUE or KEY=BEFORE:AFTER
Status add_metric(Json& record, const std::string& item) {
    const auto equals = item.rfind('=');
    const std::string name = item.substr(0, equals);
    const std::string_view values = equals == std::string::npos ? "" : std::string_view(item).substr(equals + 1);
    const auto colon = values.find(':');
    const auto first = text::parse_double(values.substr(0, colon));
    const auto second = colon == std::string_view::npos ? std::nullopt : text::parse_double(values.substr(colon + 1));
    if (name.empty() || !first || (colon != std::string_view::npos && !second)) {
        return fail(ErrorKind::usage, fmt::format("--metric: expected KEY=VALUE or KEY=BEFORE:AFTER: {}", item));
    }
    const auto key = runlog::metric_key(name);
    record[key ? "metrics" : "extra_metrics"][key.value_or(name)] = {
        {"before", second ? Json(*first) : Json()}, {"after", second ? *second : *first}, {"source", "stated"}};
    return {};
}

// The default commit value of a record.
std::string default_commit(const Json& record, bool has_change, bool in_repository) {
    const auto outcome = json::text(record, "outcome");
    if (outcome == "infra" || outcome == "environment") return "none (infra-blocked)";
    if (!outcome.empty() && outcome != "accepted" && outcome != "no-op") return "none (failed attempt)";
    if (!has_change) return "none (measurement only)";
    return in_repository ? "this commit" : "none (not committed)";
}

std::string default_title(const Json& record) {
    if (const auto hypothesis = json::text_at(record, "/idea/hypothesis"); !hypothesis.empty()) {
        return hypothesis.substr(0, hypothesis.find('\n'));
    }
    if (const auto name = json::text_at(record, "/checks/0/name"); !name.empty()) return name;
    return json::find_at(record, "/profiles/0") != nullptr ? "profile run" : "";
}

Status apply_options(const Options& options, Json& record, CommitFacts* facts) {
    const auto set = [&](const std::optional<std::string>& value, const char* pointer) {
        if (value) record[Json::json_pointer(pointer)] = *value;
    };
    set(options.title, "/title");
    set(options.goal, "/idea/title");
    set(options.hypothesis, "/idea/hypothesis");
    set(options.decision, "/decision");
    set(options.outcome, "/outcome");
    set(options.change_class, "/change_class");
    set(options.slot, "/coverage_slot");
    set(options.assessment, "/assessment");
    set(options.next, "/next_hypothesis");
    for (const auto& change : options.changes) record["changes"].push_back(change);
    for (const auto& line : options.interpretation) record["interpretation"].push_back(line);
    for (const auto& metric : options.metrics) GDNCTL_TRY(add_metric(record, metric));
    if (options.comparison != runlog::Comparison::unknown) {
        record["comparison"]["kind"] = runlog::name_of(options.comparison);
    }
    if (options.starting_commit) {
        std::string sha = *options.starting_commit;
        if (facts != nullptr) {
            GDNCTL_TRY_ASSIGN(const auto info, facts->resolve(sha));
            if (!info) return fail(ErrorKind::usage, fmt::format("--starting-commit: no such commit: {}", sha));
            sha = info->sha;
        }
        record["base"]["commit"] = sha;
    }
    const bool given = !json::text(record, "commit_status").empty();
    if (options.commit || !given) {
        const bool has_change = !json::texts(record, "changes").empty();
        GDNCTL_TRY(
            set_commit(record, options.commit.value_or(default_commit(record, has_change, facts != nullptr)), facts));
    }
    if (json::text(record, "title").empty()) record["title"] = default_title(record);
    return {};
}

void report(const std::filesystem::path& path, const Json& record, const runlog::Appended& appended, Context& context) {
    for (const auto& message : appended.repaired)
        log::info("completed the entry of an interrupted command: {}", message);
    for (const auto& message : appended.warnings) log::warning("{}", message);
    const std::string iteration = runlog::iteration_of(record).text();
    if (!context.global.json) {
        log::info("iteration {} is in {}", iteration, path.string());
        return;
    }
    const Json* outcome = json::find(record, "outcome");
    print_json({{"schema", "gdnctl.log-append/1"},
                {"log", path.string()},
                {"records", runlog::records_path(path).string()},
                {"id", runlog::id_of(record)},
                {"iteration", iteration},
                {"title", json::text(record, "title")},
                {"commit_status", json::text(record, "commit_status")},
                {"outcome", outcome != nullptr ? *outcome : Json()},
                {"repaired", appended.repaired},
                {"warnings", appended.warnings}},
               context);
}

}  // namespace

std::span<const std::string_view> outcome_words() { return k_outcomes; }

namespace {

void describe_use(cli::Args& args) {
    args.example(
        "gdnctl ray-test --cluster local --json |\n    gdnctl log append --from-job - --hypothesis \"...\" --next "
        "\"...\"",
        "record a correctness run");
    args.example(
        "gdnctl log append --title \"Larger chunk\" --change \"chunk 64 -> 128\" --commit HEAD \\\n    "
        "--metric step_duration_ms=167.09:159.42 --comparison champion");
    args.exit_code(static_cast<int>(ExitCode::usage), "nothing to append, or the file is not a running log");
    args.exit_code(static_cast<int>(ExitCode::conflict),
                   "another writer has locked the log, it has an unresolved merge, or the record's number is taken");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log cannot be written; nothing has changed");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the input is neither a job nor a record");
    args.see_also({"log init", "log render", "lint-log"});
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Appends an iteration: its record to the records file next to the log, and the entry rendered from it to the "
        "log. "
        "The number continues from the last entry. Either both files are written or neither; if a writer was killed, "
        "the next one completes its entry. Secrets are masked, and home directories become `~/`.");
    describe_log_file(args, options.log_file);
    args.option(options.from_job, "--from-job FILE", "--json output of a job command; - is standard input",
                {.complete = cli::Complete::file});
    args.option(options.record, "--record FILE", "a record that `log new` started; - is standard input",
                {.complete = cli::Complete::file});
    args.option(options.title, "--title TEXT", "title of the entry");
    args.option(options.goal, "--goal TEXT", "goal (experiment logs)");
    args.option(options.hypothesis, "--hypothesis TEXT", "expected result, and why");
    args.option(options.changes, "--change TEXT", "one change that was made");
    args.option(options.commit, "--commit COMMIT", "a sha or revision, `none (REASON)`, `this commit` or `pending`",
                {.default_text = "by the outcome"});
    args.option(options.starting_commit, "--starting-commit SHA", "commit that the iteration started from");
    args.option(options.decision, "--decision WORD", "decision, such as promoted, regression or low-impact");
    args.option(options.outcome, "--outcome WORD",
                "accepted, rejected, no-op, infra, environment, compile, oom, test-fail, flaky, "
                "timeout or agent-error",
                {.default_text = "the job's", .complete = cli::Complete::outcome});
    args.option(options.change_class, "--change-class TEXT", "class of the change");
    args.option(options.slot, "--slot TEXT", "coverage slot");
    args.option(options.metrics, "--metric KEY=VALUE", "a measured number: KEY=VALUE or KEY=BEFORE:AFTER");
    args.option(options.comparison, std::span<const cli::Choice<runlog::Comparison>>(k_comparisons),
                "--comparison KIND", "what BEFORE and AFTER compare");
    args.option(options.assessment, "--assessment TEXT", "what the numbers say");
    args.option(options.interpretation, "--interpretation TEXT", "explanation of the numbers");
    args.option(options.next, "--next TEXT", "next hypothesis");
    args.check([&options] { return check_options(options); });
    describe_use(args);
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    const auto now = context.clock.wall();
    Json record = runlog::empty_record("new", {}, now);
    if (options.record) {
        GDNCTL_TRY_ASSIGN(record, read_json(*options.record, context));
        GDNCTL_TRY(runlog::check_record(record, *options.record));
    }
    for (const auto& name : options.from_job) {
        GDNCTL_TRY_ASSIGN(const Json job, read_json(name, context));
        auto added = runlog::add_job(record, job);
        if (!added) return tl::unexpected(std::move(added).error().within(name == "-" ? "standard input" : name));
    }
    const auto facts = facts_for(path, context);
    GDNCTL_TRY(apply_options(options, record, facts.get()));

    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    runlog::AppendOptions append;
    append.now = now;
    append.keep_number = options.record.has_value();
    GDNCTL_TRY_ASSIGN(const auto appended, runlog::append_entry(writer, record, append));
    if (options.record && *options.record != "-") {
        std::error_code problem;
        const auto draft = runlog::draft_path(path, runlog::iteration_of(record).number);
        if (std::filesystem::equivalent(draft, context.cwd / *options.record, problem)) {
            std::filesystem::remove(draft, problem);
        }
    }
    report(path, record, appended, context);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_append

// gdnctl log stamp
namespace gdnctl::commands::log_stamp {

struct Options {
    std::optional<std::string> log_file;
    std::string commit = "HEAD";
    std::optional<std::string> record;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a commit into the last entry if that entry says `Commit: this commit` or `Commit: (pending)`; any "
        "other value is left alone. An entry that was rendered from a record gets a corrected record and is rendered "
        "again. --record stamps that iteration instead.");
    args.about(
        "The log is a tracked file. Stamping it after the commit leaves the tree dirty, and `git revert` of that "
        "commit then fails. Commit the stamped log separately.");
    describe_log_file(args, options.log_file);
    args.option(options.commit, "--commit SHA", "the commit", {.default_text = "HEAD"});
    args.option(options.record, "--record ID", "stamp the entry of this record; `last`: of the newest iteration");
    args.example("gdnctl log stamp", "HEAD");
    args.example("gdnctl log stamp --commit 1a2b3c4");
    args.exit_code(static_cast<int>(ExitCode::nothing_done), "nothing to stamp; the file is untouched");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the generated entry was edited by hand");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log cannot be written; nothing has changed");
    args.see_also("log append");
}

namespace {

Result<std::string> full_sha(const std::string& given, const std::filesystem::path& path, Context& context) {
    Json probe = Json::object();
    const auto facts = facts_for(path, context);
    GDNCTL_TRY(set_commit(probe, given, facts.get()));
    const auto commits = json::texts(probe, "commits");
    if (commits.empty()) return fail(ErrorKind::usage, fmt::format("--commit: not a commit: {}", given), "give a sha");
    return commits.front();
}

Result<ExitCode> nothing(std::string_view reason, Context& context) {
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-stamp/1"}, {"stamped", false}, {"reason", reason}}, context);
    } else {
        log::info("nothing stamped: {}", reason);
    }
    return ExitCode::nothing_done;
}

Result<ExitCode> done(const std::string& sha, const std::string& record_id, Context& context) {
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-stamp/1"},
                    {"stamped", true},
                    {"commit", sha},
                    {"record", record_id.empty() ? Json() : Json(record_id)}},
                   context);
    } else {
        log::info("stamped last hill-climb log entry with commit {}", sha.substr(0, 12));
    }
    return ExitCode::ok;
}

const Json* find_record(const std::vector<Json>& current, const std::vector<Json>& all, std::string id) {
    if (id.empty()) return nullptr;  // an entry without a record
    // A correction may have replaced an id.
    for (const Json& record : all) {
        if (runlog::replaced_id(record) == id) id = runlog::id_of(record);
    }
    const auto found =
        std::find_if(current.begin(), current.end(), [&](const Json& record) { return runlog::id_of(record) == id; });
    return found == current.end() ? nullptr : &*found;
}

const Json* last_record(const std::vector<Json>& current) {
    const auto found = std::max_element(current.begin(), current.end(), [](const Json& a, const Json& b) {
        return runlog::iteration_of(a).before(runlog::iteration_of(b));
    });
    return found == current.end() ? nullptr : &*found;
}

Result<ExitCode> stamp_record(runlog::LogWriter& writer, const Json& old, const std::string& sha, Context& context) {
    const std::string status = json::text(old, "commit_status");
    if (status != "self" && status != "pending") {
        return nothing(
            fmt::format("iteration {} already says `{}`", runlog::iteration_of(old).text(), runlog::render_commit(old)),
            context);
    }
    Json record = runlog::superseding(old, context.clock.wall(), "stamped with its commit");
    record["commits"] = Json::array({sha});
    record["commit_status"] = "committed";
    std::vector<Json> all = writer.records();
    all.push_back(record);
    runlog::PlacementOptions place;
    place.only_missing = true;
    place.rewrite_id = runlog::id_of(record);
    GDNCTL_TRY_ASSIGN(const auto placement,
                      runlog::place_records(writer.text(), runlog::current_records(all), all, place));
    for (const auto& difference : placement.differences) {
        if (difference.id == runlog::id_of(old) && !difference.settled) {
            return fail(ErrorKind::conflict, difference.message,
                        "move your text outside the markers, then `gdnctl log render --force`");
        }
    }
    GDNCTL_TRY(writer.commit({&record, 1}, placement.text));
    return done(sha, runlog::id_of(record), context);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    std::error_code problem;
    if (!std::filesystem::exists(path, problem)) return nothing("log file not found: " + path.string(), context);
    GDNCTL_TRY_ASSIGN(const auto sha, full_sha(options.commit, path, context));
    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    const auto current = runlog::current_records(writer.records());
    if (options.record) {
        const Json* record =
            *options.record == "last" ? last_record(current) : find_record(current, writer.records(), *options.record);
        if (record == nullptr) return nothing("no record " + *options.record, context);
        return stamp_record(writer, *record, sha, context);
    }
    GDNCTL_TRY_ASSIGN(const auto stamp, runlog::stamp_last_entry(writer.text(), sha));
    if (!stamp.stamped) return nothing(stamp.reason, context);
    if (const Json* record = find_record(current, writer.records(), stamp.record_id)) {
        return stamp_record(writer, *record, sha, context);
    }
    GDNCTL_TRY(writer.commit({}, stamp.text));
    return done(sha, "", context);
}

}  // namespace gdnctl::commands::log_stamp

// gdnctl log import
namespace gdnctl::commands::log_import {

struct Options {
    std::optional<std::string> log_file;
    bool dry_run = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Reads the hand-written entries of a log into records (source \"import\", with a confidence for each field). "
        "The log itself does not change. An entry that changed since an earlier import gets a new record that replaces "
        "the old one.");
    describe_log_file(args, options.log_file);
    args.flag(options.dry_run, "--dry-run", "write nothing; show what would be imported");
    args.example("gdnctl log import --dry-run --json", "print the records");
    args.example("gdnctl log import && gdnctl log render --check");
    args.exit_code(static_cast<int>(ExitCode::nothing_done), "the log has no hand-written entry");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the records cannot be written; nothing has changed");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also({"log render", "log show"});
}

namespace {

void report(const std::filesystem::path& path, const runlog::Imported& imported, bool dry_run, Context& context) {
    const auto beside = runlog::records_path(path).string();
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.log-import/1"},
                       {"log", path.string()},
                       {"records", beside},
                       {"dry_run", dry_run},
                       {"imported", imported.records.size()},
                       {"unchanged", imported.unchanged},
                       {"generated", imported.generated},
                       {"entries", Json::array()}};
        for (const Json& record : imported.records) object["entries"].push_back(record);
        print_json(object, context);
        return;
    }
    for (const Json& record : imported.records) {
        log::debug("iteration {}: {}", runlog::iteration_of(record).text(), runlog::id_of(record));
    }
    log::info("{} {} of {} entries into {} ({} already imported, {} generated)", dry_run ? "would import" : "imported",
              imported.records.size(), imported.records.size() + imported.unchanged + imported.generated, beside,
              imported.unchanged, imported.generated);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    const auto now = context.clock.wall();
    runlog::Imported imported;
    if (options.dry_run) {
        GDNCTL_TRY_ASSIGN(const auto files, runlog::read_log_files(path));
        if (!files.text) return tl::unexpected(runlog::missing_log(path));
        GDNCTL_TRY_ASSIGN(imported, runlog::import_log(*files.text, files.records.records, now));
    } else {
        GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
        GDNCTL_TRY_ASSIGN(imported, runlog::import_log(writer.text(), writer.records(), now));
        GDNCTL_TRY(writer.commit(imported.records, writer.text()));
    }
    report(path, imported, options.dry_run, context);
    return imported.records.empty() && imported.unchanged == 0 ? ExitCode::nothing_done : ExitCode::ok;
}

}  // namespace gdnctl::commands::log_import

// gdnctl log render
namespace gdnctl::commands::log_render {

struct Options {
    std::optional<std::string> log_file;
    bool check = false;
    bool force = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes the entries of the records to the log: missing ones in order of their numbers, stale ones in place. "
        "Text outside the `<!-- gdnctl:begin ... -->` markers is never touched. A generated entry that was edited by "
        "hand is replaced only with --force.");
    describe_log_file(args, options.log_file);
    args.flag(options.check, "--check", "write nothing; exit with 1 if the log does not match the records");
    args.flag(options.force, "--force", "overwrite generated entries that were edited by hand");
    args.example("gdnctl log render --check", "in CI");
    args.example("gdnctl log render", "after a merge of the records");
    args.exit_code(static_cast<int>(ExitCode::check_failed), "--check: the log does not match the records");
    args.exit_code(static_cast<int>(ExitCode::conflict), "something needs your decision");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log cannot be written");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also({"log append", "log import"});
}

namespace {

void report(const std::filesystem::path& path, const runlog::Placement& placement, std::size_t records, bool written,
            const Options& options, Context& context) {
    if (context.global.json) {
        Json differences = Json::array();
        for (const auto& difference : placement.differences) {
            differences.push_back({{"kind", runlog::name_of(difference.kind)},
                                   {"id", difference.id},
                                   {"iteration", difference.iteration.text()},
                                   {"settled", !options.check && difference.settled},
                                   {"message", difference.message}});
        }
        print_json({{"schema", "gdnctl.log-render/1"},
                    {"log", path.string()},
                    {"records", records},
                    {"written", written},
                    {"differences", std::move(differences)}},
                   context);
        return;
    }
    for (const auto& difference : placement.differences) {
        if (!options.check && difference.settled) {
            log::info("written: {}", difference.message);
        } else {
            log::warning("{}", difference.message);
        }
    }
    if (placement.differences.empty()) log::info("{} matches its {} records", path.string(), records);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    runlog::PlacementOptions place;
    place.overwrite_edited = options.force;
    if (options.check) {
        GDNCTL_TRY_ASSIGN(const auto files, runlog::read_log_files(path));
        if (!files.text) return tl::unexpected(runlog::missing_log(path));
        for (const auto& warning : files.records.warnings) log::warning("{}", warning);
        const auto current = runlog::current_records(files.records.records);
        GDNCTL_TRY_ASSIGN(const auto placement,
                          runlog::place_records(*files.text, current, files.records.records, place));
        report(path, placement, current.size(), false, options, context);
        return placement.differences.empty() ? ExitCode::ok : ExitCode::check_failed;
    }
    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    const auto current = runlog::current_records(writer.records());
    GDNCTL_TRY_ASSIGN(const auto placement, runlog::place_records(writer.text(), current, writer.records(), place));
    const bool changes = placement.text != writer.text();
    GDNCTL_TRY(writer.commit({}, placement.text));
    report(path, placement, current.size(), changes, options, context);
    return placement.complete() ? ExitCode::ok : ExitCode::conflict;
}

}  // namespace gdnctl::commands::log_render

namespace gdnctl::commands {

Rows log_write_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&log_init::describe, &log_init::run>("log init", "Running log", "start a running log", Tier::none),
        cli::make<&log_append::describe, &log_append::run>("log append", "Running log", "add an iteration to the log",
                                                           Tier::git),
        cli::make<&log_new::describe, &log_new::run>("log new", "Running log",
                                                     "start a record and print an entry skeleton", Tier::git),
        cli::make<&log_render::describe, &log_render::run>("log render", "Running log",
                                                           "write log entries from the records", Tier::none),
        cli::make<&log_stamp::describe, &log_stamp::run>("log stamp", "Running log",
                                                         "put the commit into the last entry", Tier::git),
        cli::make<&log_import::describe, &log_import::run>("log import", "Running log",
                                                           "read hand-written entries into records", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
