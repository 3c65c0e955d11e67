#include "commands/log/append.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "runlog/parse/log.h"
#include "runlog/records/append.h"
#include "runlog/records/store.h"

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
    args.see_also("log init");
    args.see_also("log render");
    args.see_also("lint-log");
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Appends an iteration: its record to the records file next to the log, and the entry rendered from it to the "
        "log. "
        "The number continues from the last entry. Either both files are written or neither; if a writer was killed, "
        "the next one completes its entry. Secrets are masked, and home directories become `~/`.");
    describe_log_file(args, options.log_file);
    args.option(options.from_job, {.names = "--from-job",
                                   .value = "FILE",
                                   .help = "--json output of a job command; - is standard input",
                                   .complete = cli::Complete::file});
    args.option(options.record, {.names = "--record",
                                 .value = "FILE",
                                 .help = "a record that `log new` started; - is standard input",
                                 .complete = cli::Complete::file});
    args.option(options.title, {.names = "--title", .value = "TEXT", .help = "title of the entry"});
    args.option(options.goal, {.names = "--goal", .value = "TEXT", .help = "goal (experiment logs)"});
    args.option(options.hypothesis, {.names = "--hypothesis", .value = "TEXT", .help = "expected result, and why"});
    args.option(options.changes, {.names = "--change", .value = "TEXT", .help = "one change that was made"});
    args.option(options.commit, {.names = "--commit",
                                 .value = "COMMIT",
                                 .help = "a sha or revision, `none (REASON)`, `this commit` or `pending`",
                                 .default_text = "by the outcome"});
    args.option(options.starting_commit,
                {.names = "--starting-commit", .value = "SHA", .help = "commit that the iteration started from"});
    args.option(
        options.decision,
        {.names = "--decision", .value = "WORD", .help = "decision, such as promoted, regression or low-impact"});
    args.option(options.outcome,
                {.names = "--outcome",
                 .value = "WORD",
                 .help = "accepted, rejected, no-op, infra, environment, compile, oom, test-fail, flaky, "
                         "timeout or agent-error",
                 .default_text = "the job's",
                 .complete = cli::Complete::outcome});
    args.option(options.change_class, {.names = "--change-class", .value = "TEXT", .help = "class of the change"});
    args.option(options.slot, {.names = "--slot", .value = "TEXT", .help = "coverage slot"});
    args.option(
        options.metrics,
        {.names = "--metric", .value = "KEY=VALUE", .help = "a measured number: KEY=VALUE or KEY=BEFORE:AFTER"});
    args.option(options.comparison, std::span<const cli::Choice<runlog::Comparison>>(k_comparisons),
                {.names = "--comparison", .value = "KIND", .help = "what BEFORE and AFTER compare"});
    args.option(options.assessment, {.names = "--assessment", .value = "TEXT", .help = "what the numbers say"});
    args.option(options.interpretation,
                {.names = "--interpretation", .value = "TEXT", .help = "explanation of the numbers"});
    args.option(options.next, {.names = "--next", .value = "TEXT", .help = "next hypothesis"});
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

namespace gdnctl::commands {

constinit const cli::Command k_log_append_row = cli::make<&log_append::describe, &log_append::run>(
    "log append", "Running log", "add an iteration to the log", Tier::git);

}  // namespace gdnctl::commands
