// gdnctl lint-log.
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/lint/lint.h"
#include "runlog/parse/log.h"
#include "runlog/records/store.h"
#include "services/git/git.h"
#include "target/target.h"

namespace gdnctl::commands::lint_log {

enum class Scope { last_entry, all };
// text_for_ci, the default, has no name: text, to which a GitHub workflow adds annotations.
enum class Format { text_for_ci, text, json, github, sarif, automatic };

struct Options {
    std::optional<std::string> log_file;
    Scope scope = Scope::last_entry;
    bool allow_pending = false;
    bool allow_this_commit = false;
    bool allow_non_monotonic = false;
    Format format = Format::text_for_ci;
    std::optional<std::string> output;
    bool strict = false;
    std::vector<std::string> rules;
    std::optional<std::string> rules_file;
    bool fix = false;
    bool fix_unsafe = false;
    bool diff = false;
    std::optional<std::string> repo;
    bool no_git = false;
    runlog::TemplateChoice log_template = runlog::TemplateChoice::automatic;
    std::optional<std::string> records;
    std::optional<std::string> since;
    std::optional<std::string> file;  // the argument, which means --log-file
    std::optional<std::string> explain;

    const std::optional<std::string>& log() const { return file ? file : log_file; }
};

namespace {

// Applies the fixes of `lint-log --fix` and `--diff` to a log.

struct FixedLog {
    std::string bytes;
    std::size_t count = 0;  // findings
};

// The log after repeated fixing until nothing changes. Error: bad_input.
Result<FixedLog> fixed_log(std::string bytes, const Options& options, runlog::LintInput input,
                           const runlog::LintOptions& lint_options) {
    FixedLog fixed{std::move(bytes), 0};
    constexpr int k_rounds = 500;  // one fix may have to wait for another, and each round has a limit
    for (int round = 0; round < k_rounds; ++round) {
        GDNCTL_TRY_ASSIGN(const runlog::Document document, runlog::parse_document(fixed.bytes, options.log_template));
        input.document = &document;
        const runlog::LintReport report = runlog::lint(input, lint_options);
        runlog::FixResult applied = runlog::apply_fixes(fixed.bytes, report.findings, options.fix_unsafe);
        if (applied.fixed == 0 || applied.bytes == fixed.bytes) break;
        fixed.count += applied.fixed;
        fixed.bytes = std::move(applied.bytes);
    }
    return fixed;
}

// Replaces the log unless it has changed since it was checked. Errors: conflict, local_io, interrupted.
Status replace_log(const std::filesystem::path& path, std::string_view shown, std::string_view before,
                   std::string_view after, const Context& context) {
    // The lock of all writers: otherwise an entry that `log append` adds between the check and the replacement would be
    // lost.
    GDNCTL_TRY_ASSIGN(const auto lock, FileLock::acquire_folder(path.parent_path(), writer_wait(context)));
    GDNCTL_TRY_ASSIGN(const std::string now, read_file(path));
    if (now != before) {
        return fail(ErrorKind::conflict, fmt::format("{} changed while it was checked", shown),
                    "run the command again");
    }
    return atomic_replace(path, after);
}

namespace fs = std::filesystem;
using runlog::Document;
using runlog::LintInput;
using runlog::LintOptions;
using runlog::LintReport;

constexpr std::array k_scopes = {cli::Choice<Scope>{"last-entry", Scope::last_entry, "the last entry"},
                                 cli::Choice<Scope>{"all", Scope::all, "the whole file"}};
constexpr std::array k_formats = {
    cli::Choice<Format>{"text", Format::text, "lines for people and scripts"},
    cli::Choice<Format>{"json", Format::json, "gdnctl.lint/1"},
    cli::Choice<Format>{"github", Format::github, "annotations of a GitHub workflow"},
    cli::Choice<Format>{"sarif", Format::sarif, "SARIF 2.1.0 for code scanning"},
    cli::Choice<Format>{"auto", Format::automatic, "github inside a GitHub workflow, otherwise text"}};
constexpr std::array k_templates = {
    cli::Choice<runlog::TemplateChoice>{"auto", runlog::TemplateChoice::automatic, "by the headings"},
    cli::Choice<runlog::TemplateChoice>{"hillclimb", runlog::TemplateChoice::hillclimb, "### Iteration N"},
    cli::Choice<runlog::TemplateChoice>{"experiment", runlog::TemplateChoice::experiment, "## YYYY-MM-DD - name"}};

// The log's path, and its name in output.
struct LogPath {
    fs::path path;         // absolute
    std::string shown;     // as the user gave it
    fs::path root;         // of the repository; empty: none
    std::string relative;  // relative to the repository, else the file's name
    std::string history;   // the same with symbolic links resolved, as in the git history
};

fs::path below(const Context& context, const std::string& path) { return (context.cwd / path).lexically_normal(); }

Result<LogPath> find_log(const Options& options, const Context& context) {
    if (options.log() && options.log()->empty()) return fail(ErrorKind::usage, "--log-file needs a path");
    LogPath where;
    GDNCTL_TRY_ASSIGN(where.path, named_log(options.log(), context));
    where.shown = options.log()                        ? *options.log()
                  : is_inside(context.cwd, where.path) ? where.path.lexically_relative(context.cwd).string()
                                                       : where.path.string();
    if (options.repo) {
        where.root = find_repository_root(below(context, *options.repo)).value_or(fs::path());
        if (where.root.empty())
            return fail(ErrorKind::usage, fmt::format("not in a git repository: {}", *options.repo));
    } else {
        where.root = find_repository_root(where.path.parent_path()).value_or(fs::path());
    }
    // Machine formats never show where this checkout is.
    const fs::path base = !where.root.empty() && is_inside(where.root, where.path) ? where.root
                          : is_inside(context.cwd, where.path)                     ? context.cwd
                                                                                   : where.path.parent_path();
    where.relative = where.path.lexically_relative(base).generic_string();
    std::error_code problem;
    const fs::path real = fs::weakly_canonical(where.path, problem);
    const fs::path real_root = problem ? fs::path() : fs::weakly_canonical(where.root, problem);
    const bool followed = !problem && !where.root.empty() && is_inside(real_root, real);
    where.history = followed ? real.lexically_relative(real_root).generic_string() : where.relative;
    return where;
}

// An unreadable log is a usage error for this command, as in the script that it replaces.
Error as_usage(Error error) {
    if (error.kind == ErrorKind::local_io || error.kind == ErrorKind::bad_input) error.kind = ErrorKind::usage;
    return error;
}

Result<LintOptions> lint_options(const Options& options, const Context& context, const Target& target) {
    LintOptions lint;
    lint.all_entries = options.scope == Scope::all;
    lint.allow_pending = options.allow_pending;
    lint.allow_this_commit = options.allow_this_commit;
    lint.allow_non_monotonic = options.allow_non_monotonic;
    lint.strict = options.strict;
    lint.now = context.clock.wall();
    if (target.test) {
        lint.evidence = {target.test->evidence.passed_min, target.test->evidence.skipped_max};
    }
    if (options.rules_file) {
        auto content = read_file(below(context, *options.rules_file));
        if (!content) return tl::unexpected(as_usage(std::move(content).error()));
        GDNCTL_TRY(runlog::add_rules_file(lint, *content, *options.rules_file));
    }
    for (const std::string& rule : options.rules) GDNCTL_TRY(runlog::add_rule_option(lint, rule));
    return lint;
}

// Opens the history on the first question.
class History {
public:
    History(const Options& options, const LogPath& where, Process& process)
        : m_enabled(!options.no_git && !where.root.empty()), m_root(where.root), m_process(process) {}

    CommitFacts* facts() {
        if (!m_enabled || m_asked) return m_facts.get();
        m_asked = true;
        auto opened = open_commit_facts(m_root, m_process);
        if (opened) {
            m_facts = std::move(*opened);
        } else {
            m_problem = std::move(opened).error();
        }
        return m_facts.get();
    }

    // Why the history could not be opened; nullopt: it could, or there is none.
    const std::optional<Error>& problem() const { return m_problem; }

private:
    bool m_enabled;
    bool m_asked = false;
    fs::path m_root;
    Process& m_process;
    std::unique_ptr<CommitFacts> m_facts;
    std::optional<Error> m_problem;
};

// The log at the revision of --since; a log that did not exist then is empty.
Result<std::string> text_since(const std::string& revision, const LogPath& where, History& history) {
    CommitFacts* facts = history.facts();
    if (history.problem()) return tl::unexpected(*history.problem());
    if (facts == nullptr) return fail(ErrorKind::usage, "--since needs git history, which is missing here");
    GDNCTL_TRY_ASSIGN(const auto commit, facts->resolve(revision));
    const bool cut = !commit && facts->is_shallow().value_or(false);
    if (cut) return fail(ErrorKind::usage, "the clone is shallow and lacks " + revision, std::string(k_fetch_all));
    if (!commit) return fail(ErrorKind::usage, fmt::format("unknown revision: {}", revision));
    GDNCTL_TRY_ASSIGN(auto text, facts->file_at(commit->sha, where.history));
    return text.value_or("");
}

// nullopt: there are no records for this log.
Result<std::optional<std::vector<runlog::RecordFacts>>> read_records(const Options& options, const Context& context,
                                                                     const LogPath& where) {
    fs::path path = runlog::records_path(where.path);
    std::optional<std::string> jsonl;
    if (options.records) {
        path = below(context, *options.records);
        GDNCTL_TRY_ASSIGN(jsonl, read_file(path));
    } else {
        GDNCTL_TRY_ASSIGN(jsonl, read_file_if_exists(path));
    }
    if (!jsonl) return std::nullopt;
    GDNCTL_TRY_ASSIGN(runlog::RecordFactsFile file, runlog::read_record_facts(*jsonl, path.filename().string()));
    for (const std::string& warning : file.warnings) log::warning("{}", warning);
    return std::move(file.records);
}

void add_step_summary(const LintReport& report, const LogPath& where, const Context& context) {
    const auto path = context.env.get("GITHUB_STEP_SUMMARY");
    if (!path || path->empty()) return;
    const std::string summary = runlog::lint_as_step_summary(report, where.relative);
    std::error_code problem;
    const auto size = fs::file_size(*path, problem);
    constexpr std::uintmax_t limit = 1u << 20;  // of one step; larger ones are not shown at all
    if (!problem && size + summary.size() > limit) {
        log::warning("the step summary is full; the findings were not added");
        return;
    }
    std::ofstream out(*path, std::ios::app | std::ios::binary);
    out << summary;
    if (!out.flush()) log::warning("cannot write the step summary {}", *path);
}

Status write_output(const Options& options, Context& context, std::string_view text) {
    if (!options.output) {
        context.terminal.out(text);
        return {};
    }
    return atomic_replace(below(context, *options.output), text);
}

Format chosen_format(const Options& options, const Context& context) {
    if (context.global.json) return Format::json;
    const bool workflow = context.env.get("GITHUB_ACTIONS") == "true";
    if (options.format == Format::text_for_ci) {
        return workflow && !options.output ? Format::text_for_ci : Format::text;
    }
    if (options.format != Format::automatic) return options.format;
    return workflow ? Format::github : Format::text;
}

Status print_report(const Options& options, Context& context, const LogPath& where, const Document& document,
                    const LintReport& report, ExitCode code) {
    const char* scope = options.since ? "since" : options.scope == Scope::all ? "all" : "last-entry";
    const runlog::LintOutput output{where.relative, scope, gdnctl::version(), static_cast<int>(code)};
    const Format format = chosen_format(options, context);
    std::string text;
    switch (format) {
        case Format::json:
            text = runlog::lint_as_json(report, output, !options.output && context.terminal.out_is_tty() ? 2 : -1);
            break;
        case Format::sarif: text = runlog::lint_as_sarif(report, document, output); break;
        case Format::github:
            text = runlog::lint_as_github(report, where.relative);
            add_step_summary(report, where, context);
            break;
        case Format::text:
        case Format::text_for_ci:
        case Format::automatic: {
            const bool color = !options.output && context.terminal.color_out();
            const runlog::LintText lines =
                runlog::lint_as_text(report, where.shown, {code != ExitCode::usage, options.since.value_or(""), color});
            context.terminal.err(lines.blocks);
            text = lines.findings + (options.output ? lines.counts : "") + lines.verdict;
            if (format == Format::text_for_ci) {
                text += runlog::lint_as_github(report, where.relative);
                add_step_summary(report, where, context);
            }
            GDNCTL_TRY(write_output(options, context, text));
            // The count ends the findings also where both streams are one.
            if (!options.output && !lines.counts.empty()) {
                GDNCTL_TRY(context.terminal.flush());
                context.terminal.err(lines.counts);
            }
            return {};
        }
    }
    return write_output(options, context, text);
}

Status check_combination(const Options& options) {
    if (options.file && options.log_file) {
        return fail(ErrorKind::usage, "FILE and --log-file are two logs; name one");
    }
    if (options.diff && options.format != Format::text && options.format != Format::text_for_ci) {
        return fail(ErrorKind::usage, "--diff prints a diff and cannot be combined with --format");
    }
    if (options.no_git && options.since)
        return fail(ErrorKind::usage, "--since needs git and cannot be combined with --no-git");
    return {};
}

// What a rule finds and how to fix it.
Result<ExitCode> explain(const std::string& id, Context& context) {
    const runlog::RuleInfo* rule = runlog::find_lint_rule(id);
    if (rule == nullptr) {
        std::vector<std::string> known;
        for (const runlog::RuleInfo& each : runlog::lint_rules()) {
            known.emplace_back(each.id);
            known.emplace_back(each.name);
            if (each.name == id) rule = &each;
        }
        if (rule == nullptr) {
            const auto meant = text::nearest(id, known);
            return fail(
                ErrorKind::usage, fmt::format("--explain: there is no rule {}", id),
                meant ? fmt::format("did you mean {}?", *meant) : "docs/reference/lint-rules.md lists the rules");
        }
    }
    if (context.global.json) {
        print_json({{"schema", "gdnctl.lint-rule/1"},
                    {"rule", rule->id},
                    {"name", rule->name},
                    {"severity", runlog::name_of(rule->severity)},
                    {"summary", rule->summary},
                    {"help", rule->help}},
                   context);
    } else {
        print_lines(fmt::format("{} {} ({})\n  finds: {}\n  fix:   {}\n  off:   --rule {}=off\n", rule->id, rule->name,
                                runlog::name_of(rule->severity), rule->summary, rule->help, rule->id),
                    context);
    }
    return ExitCode::ok;
}

Result<Document> parse(const Options& options, const LogPath& where, std::string_view bytes) {
    auto document = runlog::parse_document(bytes, options.log_template);
    if (!document) return tl::unexpected(std::move(document).error().within(where.shown));
    return document;
}

Result<ExitCode> check(const Options& options, Context& context, const LogPath& where, std::string bytes,
                       const LintOptions& lint_options) {
    GDNCTL_TRY_ASSIGN(Document document, parse(options, where, bytes));
    History history(options, where, context.process);
    std::string base_text;
    Document base;
    LintInput input;
    input.repository_path = where.history;
    input.open_facts = [&] { return history.facts(); };
    if (options.since) {
        GDNCTL_TRY_ASSIGN(base_text, text_since(*options.since, where, history));
        GDNCTL_TRY_ASSIGN(base, runlog::parse_document(base_text, options.log_template));
        input.base = &base;
    }
    // Even with damaged records, the log itself is checked.
    const auto records = read_records(options, context, where);
    const std::vector<runlog::RecordFacts> none;
    if (records) input.records = *records ? &**records : &none;
    input.records_kept = records && *records;

    std::size_t fixed_count = 0;
    if (options.fix || options.fix_unsafe || options.diff) {
        GDNCTL_TRY_ASSIGN(FixedLog fixed, fixed_log(bytes, options, input, lint_options));
        if (options.diff) {
            GDNCTL_TRY(write_output(options, context, runlog::unified_diff(bytes, fixed.bytes, where.relative)));
        } else if (fixed.bytes != bytes) {
            GDNCTL_TRY(replace_log(where.path, where.shown, bytes, fixed.bytes, context));
            bytes = std::move(fixed.bytes);
            GDNCTL_TRY_ASSIGN(document, parse(options, where, bytes));
            fixed_count = fixed.count;
            log::info("fixed {} {} in {}", fixed_count, fixed_count == 1 ? "finding" : "findings", where.shown);
        }
    }
    input.document = &document;
    LintReport report = runlog::lint(input, lint_options);
    report.fixed = fixed_count;
    if (history.problem()) log::warning("git history is not available: {}", history.problem()->text());
    const ExitCode code = !records ? ExitCode::usage : report.failed() ? ExitCode::check_failed : ExitCode::ok;
    if (options.diff) {
        const runlog::LintText lines =
            runlog::lint_as_text(report, where.shown, {true, {}, context.terminal.color_err()});
        context.terminal.err(lines.blocks + lines.findings + lines.counts);
    } else {
        GDNCTL_TRY(print_report(options, context, where, document, report, code));
    }
    if (!records) return tl::unexpected(as_usage(records.error()));
    return code;
}

using cli::Complete;

cli::OptionSpec group(std::string_view names, std::string_view value, std::string_view help, std::string_view heading,
                      Complete complete = Complete::nothing) {
    cli::OptionSpec spec;
    spec.names = names;
    spec.value = value;
    spec.help = help;
    spec.group = heading;
    spec.complete = complete;
    return spec;
}

void describe_what(cli::Args& args, Options& options) {
    args.positional(options.file, "FILE", "the log to check; without it the target's", {.complete = Complete::file});
    args.option(options.log_file, group("--log-file", "PATH", "as FILE", "What", Complete::file));
    args.option(options.scope, std::span<const cli::Choice<Scope>>(k_scopes),
                group("--scope", "SCOPE", "entries to check", "What"));
    args.option(options.since,
                group("--since", "REV", "check only entries added or changed since this revision", "What"));
    args.option(options.log_template, std::span<const cli::Choice<runlog::TemplateChoice>>(k_templates),
                group("--template", "KIND", "the log's template", "What"));
    args.option(options.records,
                group("--records", "FILE", "records file, if not next to the log", "What", Complete::file));
    args.option(options.repo, group("--repo", "DIR", "repository to look up history in", "What", Complete::directory));
    args.flag(options.no_git, group("--no-git", {}, "do not read history", "What"));
}

void describe_rules_and_output(cli::Args& args, Options& options) {
    args.flag(options.allow_pending, group("--allow-pending", {}, "accept `Commit: (pending)`", "Rules"));
    args.flag(options.allow_this_commit,
              group("--allow-this-commit", {}, "accept `Commit: this commit` anywhere", "Rules"));
    args.flag(options.allow_non_monotonic,
              group("--allow-non-monotonic", {}, "accept iteration numbers in any order", "Rules"));
    args.flag(options.strict, group("--strict", {}, "treat warnings as errors", "Rules"));
    args.option(options.rules, group("--rule", "ID=SEVERITY", "set one rule to off, note, warning or error", "Rules",
                                     Complete::lint_rule));
    args.option(options.rules_file,
                group("--rules-file", "FILE", "read ID=SEVERITY lines from a file", "Rules", Complete::file));

    args.option(options.explain, {.names = "--explain",
                                  .value = "RULE",
                                  .help = "print what a rule finds and how to fix it; check nothing",
                                  .group = "Rules",
                                  .complete = Complete::lint_rule_id});

    args.flag(options.fix, group("--fix", {}, "apply the safe fixes", "Fixes"));
    args.flag(options.fix_unsafe, group("--fix-unsafe", {}, "also apply fixes that change what the log says", "Fixes"));
    args.flag(options.diff, group("--diff", {}, "print what --fix would change as a diff; write nothing", "Fixes"));

    args.option(options.format, std::span<const cli::Choice<Format>>(k_formats),
                {.names = "--format",
                 .value = "FORMAT",
                 .help = "output format",
                 .group = "Output",
                 .default_text = "text; in a GitHub workflow also annotations"});
    args.option(options.output,
                group("--output", "FILE", "write findings to this file instead", "Output", Complete::file));
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Checks the running log: commit values, numbering, required fields, dates, numbers and their arithmetic, test "
        "evidence, secrets. Only errors fail; `--strict` turns warnings into errors. Without FILE, it checks the "
        "target's log, below the root of the repository around the working directory.");
    args.about(
        "`this commit` is accepted, and resolved from the git history. Machine formats show paths relative to the "
        "repository. Findings go to stdout as PATH:LINE:COLUMN: SEVERITY RULE TEXT; errors about pending commits, "
        "`this "
        "commit` and numbering go to stderr. In a GitHub workflow, each finding is also an annotation.");
    describe_what(args, options);
    describe_rules_and_output(args, options);
    args.check([&options] { return check_combination(options); });

    args.example("gdnctl lint-log", "the last entry of the target's log");
    args.example("gdnctl lint-log --scope all --strict", "everything, warnings included");
    args.example("gdnctl lint-log --since origin/main", "a pull request");
    args.example("gdnctl lint-log --diff", "show what --fix would do");
    args.example("gdnctl lint-log --explain L405", "what the rule finds, and how to fix it");
    args.exit_code(1, "at least one finding of severity error");
    args.exit_code(2, "usage error; the log is missing, unreadable or too large; or damaged records");
    args.exit_code(7, "--fix: the log changed while it was checked");
    args.exit_code(8, "--fix or --output: the file cannot be written");
    args.see_also({"log append", "log show"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.explain) return explain(*options.explain, context);
    if (context.global.json && options.diff)
        return fail(ErrorKind::usage, "--diff prints a diff and cannot be combined with --json");
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const LintOptions lint, lint_options(options, context, target));
    GDNCTL_TRY_ASSIGN(const LogPath where, find_log(options, context));
    if (options.output && below(context, *options.output) == where.path) {
        return fail(ErrorKind::usage, "--output names the log itself");
    }
    std::error_code problem;
    if (!fs::exists(where.path, problem) && !(problem && problem != std::errc::no_such_file_or_directory)) {
        context.terminal.err(fmt::format("[gdnctl] log file not found: {}\n", where.path.string()));
        const std::string which = options.log() ? " --log-file " + text::shell_quote(*options.log()) : "";
        context.terminal.err(fmt::format(
            "[gdnctl] hint: `gdnctl log init{}` starts one; a codex-loop sees it once it is committed\n", which));
        return ExitCode::usage;
    }
    auto bytes = read_file(where.path, {.limit = runlog::k_max_file_bytes});
    if (!bytes) return tl::unexpected(as_usage(std::move(bytes).error()));
    return check(options, context, where, std::move(*bytes), lint);
}

}  // namespace gdnctl::commands::lint_log

namespace gdnctl::commands {

Rows lint_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&lint_log::describe, &lint_log::run>("lint-log", "Running log", "check the running log", Tier::git)
            .also("log lint")};
    return k_rows;
}

}  // namespace gdnctl::commands
