// gdnctl loop-status, loop-explain and loop-report.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/time.h"
#include "core/tone.h"
#include "loop/engine/log_dir.h"
#include "loop/evolve/views.h"
#include "loop/report/run_report.h"
#include "loop/report/wording.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "runlog/records/record.h"

namespace gdnctl::commands::loop_status {

namespace {

using namespace loop;

using loop::IterationView;
using loop::shown;

constexpr std::size_t k_last_shown = 8;

std::string open_text(const loop::LoadedRun& run, WallTime now) {
    if (status_of(run) == LoopStatus::ended) return {};
    std::string line = run.view.step_text();
    const auto last = parse_iso8601(run.view.last);
    if (run.holder && last && now > *last) line += ", for " + format_duration(now - *last);
    const auto& state = run.view;
    if (state.open == 0) return fmt::format("{} of {} ended; {}", state.ended, state.total, line);
    return fmt::format("{} of {}: {}", state.open, state.total, line);
}

std::string promoted_text(const loop::RunView& view) {
    if (view.promotions == 0) return "none yet";
    const auto last = std::find_if(view.iterations.rbegin(), view.iterations.rend(),
                                   [](const IterationView& i) { return i.promoted; });
    return fmt::format("{}, the last in iteration {}; {} iteration{} since", view.promotions, last->number,
                       view.since_promotion, view.since_promotion == 1 ? "" : "s");
}

// A reason from the performance policy includes the gain.
std::string why_of(const IterationView& i, const loop::MeasuredRun* measured) {
    const loop::MeasuredView* own = measured == nullptr ? nullptr : measured->of(i);
    const std::string gain = gain_text(own);
    const std::string_view cause = i.ended ? runlog::outcome_words(i.outcome).cause : std::string_view();
    // The clause that identifies the failure comes first: without what ran where.
    const std::size_t sign = i.sign.empty() ? std::string::npos : i.reason.find(i.sign);
    const std::size_t before = sign == std::string::npos ? sign : i.reason.find_last_of(":;", sign);
    std::string why = runlog::reason_words(text::trim(std::string_view(i.reason).substr(before + 1)));
    if (!cause.empty()) why = std::string(cause) + (why.empty() ? "" : ": ") + why;
    if (gain.empty() || i.reason.find(runlog::gain_text(*own->gain)) != std::string::npos) return why;
    return gain + (why.empty() ? "" : "; ") + why;
}

// The running log may have had entries before this run; if so, its numbers get their own column.
bool has_other_number(const IterationView& i) {
    return !i.log_number.empty() && i.log_number != std::to_string(i.number);
}

// The columns that only some runs have.
struct Columns {
    bool log = false, tokens = false;
};

Columns columns_of(const loop::RunView& view) {
    const auto any = [&](auto test) { return std::any_of(view.iterations.begin(), view.iterations.end(), test); };
    return {any(has_other_number), any([](const IterationView& i) { return i.tokens.has_value(); })};
}

// Everything before the title.
std::string row_start(const Columns& wanted, std::string_view number, std::string_view log, std::string_view result,
                      std::string_view time, std::string_view tokens) {
    return fmt::format("{:>4}{}  {:<9}  {:>12}{}  ", number, wanted.log ? fmt::format("  {:>4}", log) : "", result,
                       time, wanted.tokens ? fmt::format("  {:>12}", tokens) : "");
}

std::string iteration_row(const IterationView& i, const Columns& wanted, const loop::MeasuredRun* measured,
                          std::size_t width) {
    const std::string start =
        row_start(wanted, std::to_string(i.number), i.log_number, shown(i.ended ? result_word(i) : "open", 9),
                  duration_text(i.wall_ms), loop::grouped(i.tokens));
    const std::string what =
        title_and_why(i.title, why_of(i, measured), width > start.size() ? width - start.size() : 1);
    std::string row = start + what;
    while (row.ends_with(' ')) row.pop_back();
    return row;
}

// Lines no wider than `columns`. `measured`: for the same run; nullptr: nothing was measured.
std::string status_text(const loop::LoadedRun& run, const loop::MeasuredRun* measured, WallTime now, int columns) {
    const auto width = static_cast<std::size_t>(columns);
    const auto& view = run.view;
    std::string text;
    const auto line = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) text += shown(fmt::format("{:<10} {}", name, value), width) + "\n";
    };
    line("run", fmt::format("{} {}", shown(view.run, 40), standing(run)));
    line("log", shown(run.log_dir.string()));
    line("iteration", open_text(run, now));
    if (run.holder) line("now", shown(noted_work(run.log_dir)));
    if (view.ended > 0) {
        line("ended", fmt::format("{}: {}; {} counted as failures", view.ended,
                                  results_text(view.outcomes, view.promotions), view.failures));
        line("promotions", promoted_text(view));
    }
    line("cost", cost_text({view.wall_ms, view.agent_ms, view.tpu_ms, view.tokens}));
    if (view.iterations.empty()) return text;
    const Columns wanted = columns_of(view);
    text += "\n" + shown(row_start(wanted, "ITER", "LOG", "RESULT", "TIME", "TOKENS") + "TITLE: WHY", width) + "\n";
    const std::size_t first = view.iterations.size() - std::min(view.iterations.size(), k_last_shown);
    for (std::size_t i = first; i < view.iterations.size(); ++i) {
        text += shown(iteration_row(view.iterations[i], wanted, measured, width), width) + "\n";
    }
    return text;
}

Json brief_of(const IterationView& i, const loop::MeasuredRun* measured) {
    const loop::MeasuredView* own = measured == nullptr ? nullptr : measured->of(i);
    return {{"iteration", i.number},
            {"title", i.title.empty() ? Json() : Json(redact(i.title))},
            {"outcome", i.outcome.empty() ? Json() : Json(redact(i.outcome))},
            {"verdict", i.verdict.empty() ? Json() : Json(redact(i.verdict))},
            {"ended", i.ended},
            {"counted", i.counted},
            {"promoted", i.promoted},
            {"attempts", i.attempts.size()},
            {"wall_ms", i.wall_ms},
            {"agent_ms", i.agent_ms},
            {"tpu_ms", i.tpu_ms},
            {"tokens", i.tokens ? Json(*i.tokens) : Json()},
            {"log_iteration", i.log_number.empty() ? Json() : Json(i.log_number)},
            {"gain", own != nullptr && own->gain ? runlog::gain_json(*own->gain) : Json()},
            {"reason", redact(i.reason)}};
}

// gdnctl.loop-status/1
Json status_json(const loop::LoadedRun& run, const loop::MeasuredRun* measured) {
    const auto& view = run.view;
    Json outcomes = Json::object();
    for (const auto& [name, count] : view.outcomes) outcomes[redact(name)] = count;
    Json iterations = Json::array();
    for (const IterationView& i : view.iterations) iterations.push_back(brief_of(i, measured));
    return {{"schema", "gdnctl.loop-status/1"},
            {"log_dir", run.log_dir.string()},
            {"run", view.run},
            {"status", word_of(status_of(run))},
            {"pid", run.holder ? Json(run.holder->pid) : Json()},
            {"stop_asked", run.stop_asked},
            {"started_at", view.started},
            {"last_record_at", view.last},
            {"isolation", view.isolation},
            {"iterations_total", view.total},
            {"iterations_ended", view.ended},
            {"iteration_open", view.open == 0 ? Json() : Json(view.open)},
            {"next_step", view.next},
            {"outcomes", std::move(outcomes)},
            {"failures_counted", view.failures},
            {"promotions", view.promotions},
            {"since_promotion", view.since_promotion},
            {"stop_reason", view.stop_rc ? Json(redact(view.stop_reason)) : Json()},
            {"stop_exit_code", view.stop_rc ? Json(*view.stop_rc) : Json()},
            {"wall_ms", view.wall_ms},
            {"agent_ms", view.agent_ms},
            {"tpu_ms", view.tpu_ms},
            {"tokens", view.tokens ? Json(*view.tokens) : Json()},
            {"journal_records", view.records},
            {"iterations", std::move(iterations)}};
}

}  // namespace

}  // namespace gdnctl::commands::loop_status

// gdnctl loop-status: shows the state of a loop, once or continuously.
namespace gdnctl::commands::loop_status {

struct Options {
    std::optional<std::string> log_dir;
    bool watch = false;
    bool rebuild_state = false;
};

using namespace loop;

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_look_again{1};

std::uint64_t size_of(const fs::path& journal) {
    std::error_code problem;
    const auto size = fs::file_size(journal, problem);
    return problem ? 0 : size;
}

// Redraws the same lines.
class Screen {
public:
    explicit Screen(Terminal& terminal) : m_terminal(terminal) {}
    Status draw(const std::string& text) {
        if (m_lines > 0) m_terminal.move_out(fmt::format("\x1b[{}A\x1b[J", m_lines));
        m_terminal.out(text);
        m_lines = std::count(text.begin(), text.end(), '\n');
        return m_terminal.flush();
    }

private:
    Terminal& m_terminal;
    std::ptrdiff_t m_lines = 0;
};

Status print_events(const loop::LoadedRun& run, std::size_t from, Terminal& terminal) {
    for (const auto& event : loop::events(run, from)) {
        const auto place = event.iteration > 0 ? fmt::format("iteration {}: ", event.iteration) : std::string();
        terminal.out(fmt::format("{} {}{}\n", loop::shown(local_time_of(event.time), 40), place, event.text));
    }
    return terminal.flush();
}

// The state of a run does not depend on its measurements.
std::optional<loop::MeasuredRun> measured_by(const loop::LoadedRun& run) {
    auto measured = loop::read_measured(run);
    if (measured) return std::move(*measured);
    log::warning("gains are not shown: {}", measured.error().text());
    return std::nullopt;
}

Result<ExitCode> watch(loop::LoadedRun run, Context& context) {
    Terminal& terminal = context.terminal;
    const bool redraws = terminal.out_is_tty();
    Screen screen(terminal);
    auto measured = measured_by(run);
    const auto status = [&] {
        return toned_rows(status_text(run, measured ? &*measured : nullptr, context.clock.wall(), terminal.columns()),
                          terminal.color_out());
    };
    std::uint64_t size = size_of(run.log_dir / "journal.jsonl");
    std::size_t printed = run.view.records;
    GDNCTL_TRY(screen.draw(status()));
    while (run.holder && !terminal.out_closed()) {
        if (!context.clock.sleep_for(k_look_again, context.stop)) return tl::unexpected(stopped_error());
        const std::uint64_t now = size_of(run.log_dir / "journal.jsonl");
        if (now != size || !loop::running(run.log_dir)) {
            size = now;
            GDNCTL_TRY_ASSIGN(run, loop::load_run(run.log_dir));
            measured = measured_by(run);
        }
        if (redraws) {
            GDNCTL_TRY(screen.draw(status()));
            continue;
        }
        printed = std::min(printed, run.view.records);  // another run took over the directory
        GDNCTL_TRY(print_events(run, printed, terminal));
        printed = run.view.records;
    }
    return ExitCode::ok;
}

// What a running attempt is measuring.
std::string evolve_work(const fs::path& log_dir) {
    const std::string work = loop::running(log_dir) ? loop::noted_work(log_dir) : std::string();
    return work.empty() ? work : fmt::format("at work    {}\n", loop::shown(work));
}

Result<ExitCode> evolve_watch(const fs::path& log_dir, Context& context) {
    Terminal& terminal = context.terminal;
    Screen screen(terminal);
    std::string drawn;
    for (;;) {
        GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
        const std::string text = loop::evolve::status_text(view) + evolve_work(log_dir);
        if (terminal.out_is_tty()) {
            GDNCTL_TRY(screen.draw(toned_rows(text, terminal.color_out())));
        } else if (const std::string work = evolve_work(log_dir); drawn != work || drawn.empty()) {
            terminal.out(drawn.empty() ? text : work);
            drawn = work.empty() ? text : work;
            GDNCTL_TRY(terminal.flush());
        }
        if (!view.running || terminal.out_closed()) return ExitCode::ok;
        if (!context.clock.sleep_for(k_look_again, context.stop)) return tl::unexpected(stopped_error());
    }
}

Result<ExitCode> evolve_status(const Options& options, const fs::path& log_dir, Context& context) {
    if (options.rebuild_state) return fail(ErrorKind::usage, "--rebuild-state cannot be used with an evolve run");
    if (options.watch) return evolve_watch(log_dir, context);
    const auto show = [&](const Json& status, const std::string& text) {
        if (context.global.json) {
            Json json = {{"schema", "gdnctl.loop-status/1"}};
            json.update(status);
            print_json(json, context);
        } else {
            context.terminal.out(toned_rows(text, context.terminal.color_out()));
        }
        return ExitCode::ok;
    };
    if (const auto index = loop::evolve::read_index(log_dir, loop::running(log_dir).has_value())) {
        GDNCTL_TRY_ASSIGN(const Json status, parse_json(index->status, "state.json"));
        return show(status, index->text + evolve_work(log_dir));
    }
    GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
    return show(loop::evolve::status_json(view), loop::evolve::status_text(view) + evolve_work(log_dir));
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows the state of a loop: whether it is running and as which process, the current iteration, outcomes, cost, "
        "and the latest iterations with reasons. It only reads the journal in the log directory, and does not disturb "
        "a running loop.");
    args.about(
        "If state.json cannot be parsed, the exit code is 2. --rebuild-state rebuilds it from the journal and keeps "
        "the old file as state.json.bak.");
    describe_loop_dir(args, options.log_dir);
    args.flag(options.watch, "--watch",
              "follow the loop until it ends: redraw on a terminal, otherwise print one line per event");
    args.flag(options.rebuild_state, "--rebuild-state", "rebuild state.json from the journal; no loop may be running");
    args.check([&options]() -> Status {
        if (options.watch && options.rebuild_state)
            return fail(ErrorKind::usage, "--rebuild-state and --watch cannot be combined");
        return {};
    });
    args.example("gdnctl loop-status --watch");
    args.example("gdnctl loop-status --json | jq .outcomes");
    args.exit_code(static_cast<int>(ExitCode::usage),
                   "usage or configuration error; state.json or the journal's version cannot be read");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the journal is damaged; --rebuild-state while a loop runs");
    args.see_also("docs/loop-reports.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.watch && context.global.json) {
        return fail(ErrorKind::usage, "--watch and --json cannot be combined");
    }
    GDNCTL_TRY_ASSIGN(const fs::path log_dir, loop_dir(options.log_dir, context));
    if (loop::evolve::is_evolve_run(log_dir)) return evolve_status(options, log_dir, context);
    GDNCTL_TRY_ASSIGN(loop::LoadedRun run, loop::load_run(log_dir));
    if (options.rebuild_state) {
        GDNCTL_TRY(loop::rebuild_state(run));
        log::info("rebuilt state.json from {} journal records; the old file is state.json.bak", run.view.records);
    }
    GDNCTL_TRY(loop::check_state(log_dir));
    if (options.watch) return watch(std::move(run), context);
    const auto measured = measured_by(run);
    const loop::MeasuredRun* gains = measured ? &*measured : nullptr;
    if (context.global.json) {
        print_json(status_json(run, gains), context);
    } else {
        context.terminal.out(toned_rows(status_text(run, gains, context.clock.wall(), context.terminal.columns()),
                                        context.terminal.color_out()));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_status

// gdnctl loop-explain: why an iteration was accepted or rejected.
namespace gdnctl::commands::loop_explain {

struct Options {
    std::string iteration;  // a number, or "last"
    std::optional<std::string> log_dir;
};

using namespace loop;

namespace {

using loop::IterationView;
using loop::shown;

class Lines {
public:
    void heading(const std::string& text) { m_text += (m_text.empty() ? "" : "\n") + text + "\n"; }
    void field(std::string_view name, const std::string& value) {
        if (!value.empty()) m_text += fmt::format("  {:<10} {}\n", name, value);
    }
    void line(const std::string& text) { m_text += "  " + text + "\n"; }
    std::string text() && { return std::move(m_text); }

private:
    std::string m_text;
};

std::string candidate_text(const IterationView& i) {
    if (i.head.empty()) return {};
    std::string line = short_commit(i.head);
    if (i.head == i.base) line += ", which is the base: nothing was committed";
    if (i.commits > 0) line += fmt::format(", {} commit{}", i.commits, i.commits == 1 ? "" : "s");
    if (i.files > 0) line += fmt::format(", {} file{}", i.files, i.files == 1 ? "" : "s");
    if (!i.diff.empty() && i.diff != "change") line += ", " + shown(i.diff, 20);
    return line;
}

void put_gate(const loop::GateView& gate, Lines& lines) {
    lines.line(fmt::format("  {:<5} {:<28} {}", shown(gate.result, 10), shown(gate.id, 60), gate_text(gate)));
}

// Those that judged nothing share a line, unless it is only one.
void put_gates(const std::vector<loop::GateView>& gates, Lines& lines) {
    const auto skipped =
        std::count_if(gates.begin(), gates.end(), [](const auto& gate) { return gate.result == "skip"; });
    for (const auto& gate : gates) {
        if (gate.result != "skip" || skipped == 1) put_gate(gate, lines);
    }
    if (skipped > 1) {
        lines.line(
            fmt::format("  skip  {} gates: not measured, or meant for other changes (--json lists them)", skipped));
    }
}

void put_stages(const IterationView& i, Lines& lines) {
    if (i.stages.empty()) return;
    lines.heading("stages, in the order in which they ran");
    for (const auto& stage : i.stages) {
        std::string line = fmt::format("{:<5} {}", shown(stage.verdict, 10), shown(stage.name, 60));
        if (stage.wall_ms > 0) line += fmt::format(", {}", duration_text(stage.wall_ms));
        if (stage.tpu_ms > 0) line += fmt::format(", device {}", duration_text(stage.tpu_ms));
        if (!stage.reason.empty()) line += ": " + shown(runlog::reason_words(stage.reason));
        lines.line(line);
        put_gates(stage.gates, lines);
        for (const auto& said : runlog::oracle_lines(stage.oracle)) lines.line("      " + shown(said, 400));
        for (const auto& [name, value] : stage.facts) {
            // Numbers are shown with all digits, as in the journal.
            const auto number = value.find('.') == std::string::npos ? std::nullopt : text::parse_double(value);
            lines.line(
                fmt::format("      {} = {}", shown(name, 60), number ? number_for_people(*number) : shown(value)));
        }
    }
}

void put_attempts(const IterationView& i, Lines& lines) {
    if (i.attempts.empty()) return;
    lines.heading("attempts of the agent");
    for (const auto& attempt : i.attempts) {
        if (!attempt.ended) {
            lines.line(fmt::format("{:>3}  under way, or interrupted", attempt.number));
            continue;
        }
        lines.line(fmt::format("{:>3}  {}, exit code {}, {}{}{}", attempt.number, shown(attempt.class_word, 30),
                               attempt.rc, duration_text(attempt.wall_ms),
                               attempt.tokens ? fmt::format(", {} tokens", loop::grouped(*attempt.tokens)) : "",
                               attempt.reason.empty() ? "" : ": " + shown(attempt.reason)));
    }
}

void put_measured(const loop::MeasuredView& m, const loop::MeasuredRun& all, const IterationView& i, Lines& lines) {
    lines.heading("measured");
    if (m.value) {
        lines.field(shown(m.metric, 40),
                    fmt::format("{} ({} run{}){}", value_text(m), std::max<std::size_t>(m.points.size(), 1),
                                m.points.size() > 1 ? "s" : "", m.suspect ? "; suspect" : ""));
    }
    if (m.gain) {
        lines.field("compared", fmt::format("{}: the champion, then this candidate{}", compared_text(*m.gain),
                                            m.gain->pairs > 0 ? ", means of alternating runs" : ""));
        lines.field("gain", gain_text(&m));
        lines.field("busy", shown(m.gain->busy));
        if (m.gain->lone_baseline) {
            lines.field("baseline", fmt::format("{}, measured when it became the champion; not used for the gain",
                                                quantity(*m.gain->lone_baseline, m.unit)));
        }
    }
    if (const auto noise = all.noise_pct()) {
        lines.field("noise", fmt::format("{} % from run to run", number_for_people(*noise, 3)));
    }
    if (m.suspect) {
        lines.field("suspect", "it was rejected against a base that, as found later, had moved");
    }
    lines.field("decision", shown(runlog::decision_words(m.decision)));
    lines.field("run", shown(m.run_url));
    const bool told = std::any_of(i.stages.begin(), i.stages.end(), [](const auto& s) { return !s.gates.empty(); });
    if (told) return;
    put_gates(m.gates, lines);
}

std::string explanation(const Explained& e) {
    const IterationView& i = e.iteration;
    Lines lines;
    lines.heading(fmt::format("iteration {}: {}", i.number, verdict_text(i)));
    lines.field("title", shown(i.title));
    const bool gained = i.kept() && e.measured != nullptr && e.measured->gain;
    lines.field("why", gained ? fmt::format("{}; {}", gain_text(e.measured), why_text(i)) : why_text(i));
    lines.field("base", i.base.empty() ? "" : fmt::format("{} on {}", short_commit(i.base), or_dash(shown(i.branch))));
    lines.field("candidate", candidate_text(i));
    lines.field("stored at", kept_at_text(e));
    if (const std::string command = judge_again_text(e); !command.empty()) {
        lines.field("again", "codex-loop --agent command --agent-command '" + command + "' with its gates judges it");
    }
    lines.field("leftovers", i.patch.empty() ? "" : "not committed, saved as " + shown(i.patch));
    lines.field("protected", shown(i.protected_paths));
    if (!i.gone.empty()) {
        for (const auto line : text::split(i.gone, '\n')) lines.field("others", shown(line));
    }
    const std::string number = i.log_number.empty() ? "" : "iteration " + shown(i.log_number, 20) + ", ";
    lines.field("log", i.log_commit.empty() ? "" : number + "commit " + short_commit(i.log_commit));
    const std::string again =
        i.retries() == 0 ? "" : fmt::format(", {} retr{}", i.retries(), i.retries() == 1 ? "y" : "ies");
    lines.field("cost", cost_text({i.wall_ms, i.agent_ms, i.tpu_ms, i.tokens}) + again);
    put_attempts(i, lines);
    put_stages(i, lines);
    if (e.measured != nullptr) put_measured(*e.measured, *e.all_measured, i, lines);
    if (!e.files.empty()) {
        lines.heading("files in " + shown(e.log_dir.string()));
        for (const auto& file : e.files) lines.line(shown(file));
    }
    return std::move(lines).text();
}

Result<const IterationView*> chosen(const loop::LoadedRun& run, const std::string& word) {
    const auto& all = run.view.iterations;
    if (all.empty()) {
        return fail(ErrorKind::remote_missing, fmt::format("run {} has no iteration yet", shown(run.view.run)));
    }
    if (word == "last") return &all.back();
    const auto number = text::parse_int(word);
    const IterationView* found =
        number && *number > 0 && *number < 1'000'000'000 ? run.view.find(static_cast<int>(*number)) : nullptr;
    if (found != nullptr) return found;
    return fail(
        ErrorKind::remote_missing, fmt::format("run {} has no iteration {}", shown(run.view.run), shown(word, 40)),
        fmt::format("it has 1 to {}; earlier runs are in {}", all.back().number, (run.log_dir / "previous").string()));
}

// For an evolve run; `id` as for `evolve show`, or "last".
Result<ExitCode> explain_attempt(const std::string& id, const std::filesystem::path& log_dir, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
    GDNCTL_TRY_ASSIGN(const int attempt, loop::evolve::attempt_of(view.state, id));
    if (context.global.json) {
        GDNCTL_TRY_ASSIGN(const Json facts, loop::evolve::attempt_json(view, attempt));
        Json object = {{"schema", "gdnctl.loop-explain/1"},
                       {"log_dir", log_dir.string()},
                       {"run", view.state.run},
                       {"mode", "evolve"}};
        object.update(facts);
        print_json(object, context);
        return ExitCode::ok;
    }
    GDNCTL_TRY_ASSIGN(const std::string text, loop::evolve::attempt_text(view, attempt));
    context.terminal.out(toned_rows(text, context.terminal.color_out()));
    return ExitCode::ok;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Explains why an iteration was accepted or rejected: the decision, every stage with each gate and its number, "
        "the "
        "measurements against the champion, the agent's attempts, the cost, where its commits are, and the files in "
        "the log directory that show it.");
    args.positional(options.iteration, "N", "iteration number, or `last`; of an evolve run as for `evolve show`",
                    {.complete = cli::Complete::loop_iteration});
    describe_loop_dir(args, options.log_dir);
    args.check([&options]() -> Status {
        const auto number = text::parse_int(options.iteration);
        if (options.iteration == "last" || (number && *number > 0)) return {};
        return fail(ErrorKind::usage, "N must be a number from 1, or `last`: " + options.iteration);
    });
    args.example("gdnctl loop-explain 7");
    args.example("gdnctl loop-explain last --json | jq '.stages[] | select(.verdict == \"fail\")'");
    args.exit_code(static_cast<int>(ExitCode::remote_missing),
                   "the directory contains no run, or it has no such iteration");
    args.see_also({"loop-status", "docs/loop-reports.md"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto log_dir, loop_dir(options.log_dir, context));
    if (loop::evolve::is_evolve_run(log_dir)) return explain_attempt(options.iteration, log_dir, context);
    GDNCTL_TRY_ASSIGN(const loop::LoadedRun run, loop::load_run(log_dir));
    GDNCTL_TRY_ASSIGN(const IterationView* iteration, chosen(run, options.iteration));
    GDNCTL_TRY_ASSIGN(const auto measured, loop::read_measured(run));
    const Explained explained{*iteration,
                              run.view.run,
                              log_dir,
                              measured ? measured->of(*iteration) : nullptr,
                              measured ? &*measured : nullptr,
                              loop::evidence_of(log_dir, iteration->number)};
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.loop-explain/1"}, {"log_dir", log_dir.string()}, {"run", run.view.run}};
        object.update(explained_json(explained));
        print_json(object, context);
    } else {
        print_lines(toned_rows(explanation(explained), context.terminal.color_out()), context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_explain

// gdnctl loop-report: a report of a run.
namespace gdnctl::commands::loop_report {

struct Options {
    std::optional<std::string> log_dir;
    std::optional<std::string> html;
};

using namespace loop::report;

namespace {

Result<ExitCode> report_evolve(const Options& options, const std::filesystem::path& log_dir, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
    if (options.html) {
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, loop::evolve::report_html(view)));
        log::info("report of {} attempts: {}", view.state.attempts.size() - 1, (context.cwd / *options.html).string());
    }
    if (context.global.json) {
        Json json = {{"schema", "gdnctl.loop-report/1"}};
        json.update(loop::evolve::report_json(view));
        print_json(json, context);
    } else if (!options.html) {
        context.terminal.out(loop::evolve::report_markdown(view));
    }
    return ExitCode::ok;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints a report of a run in Markdown: champions and noise, outcomes, failures by class, cost, ideas that "
        "failed repeatedly, slots, flaky tests, and every iteration with its reason.");
    args.about(
        "--html writes a self-contained page instead, light or dark like your system: the metric over the iterations "
        "with champions and noise band, outcomes over time, cost, failures, and the evidence for each iteration.");
    describe_loop_dir(args, options.log_dir);
    args.option(options.html, "--html PATH", "write the report to this file as an HTML page",
                {.complete = cli::Complete::file});
    args.check([&options]() -> Status {
        if (options.html && options.html->empty()) return fail(ErrorKind::usage, "--html: the path is empty");
        return {};
    });
    args.example("gdnctl loop-report > report.md");
    args.example("gdnctl loop-report --html report.html");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "ledger or coverage.json is malformed");
    args.see_also({"loop-explain", "docs/loop-reports.md"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto log_dir, loop_dir(options.log_dir, context));
    if (loop::evolve::is_evolve_run(log_dir)) return report_evolve(options, log_dir, context);
    GDNCTL_TRY_ASSIGN(const Report report, make_report(log_dir));
    if (options.html) {
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, report_html(report)));
        log::info("report of {} iteration{}: {}", report.run.view.iterations.size(),
                  report.run.view.iterations.size() == 1 ? "" : "s", (context.cwd / *options.html).string());
    }
    if (context.global.json) {
        print_json(report_json(report), context);
    } else if (!options.html) {
        context.terminal.out(report_markdown(report));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_report

namespace gdnctl::commands {

Rows loop_view_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&loop_status::describe, &loop_status::run>("loop-status", "Loop", "show the state of a loop",
                                                             Tier::none)
            .prints_report()
            .also("loop status"),
        cli::make<&loop_explain::describe, &loop_explain::run>(
            "loop-explain", "Loop", "explain why an iteration was accepted or rejected", Tier::none)
            .prints_report()
            .also("loop explain"),
        cli::make<&loop_report::describe, &loop_report::run>("loop-report", "Loop", "write a report of a run",
                                                             Tier::none)
            .prints_report()
            .also("loop report")};
    return k_rows;
}

}  // namespace gdnctl::commands
