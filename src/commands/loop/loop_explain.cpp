// gdnctl loop-explain: why an iteration was accepted or rejected.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/for_people.h"
#include "core/text.h"
#include "loop/evolve/views.h"
#include "loop/report/verdict_words.h"
#include "platform/context.h"
#include "platform/terminal.h"
#include "runlog/records/words.h"

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

void put_stages(const IterationView& i, Lines& lines) {
    if (i.stages.empty()) return;
    lines.heading("stages, in the order in which they ran");
    for (const auto& stage : i.stages) {
        std::string line = fmt::format("{:<5} {}", shown(stage.verdict, 10), shown(stage.name, 60));
        if (stage.wall_ms > 0) line += fmt::format(", {}", duration_text(stage.wall_ms));
        if (stage.tpu_ms > 0) line += fmt::format(", device {}", duration_text(stage.tpu_ms));
        if (!stage.reason.empty()) line += ": " + shown(runlog::reason_words(stage.reason));
        lines.line(line);
        for (const auto& gate : stage.gates) put_gate(gate, lines);
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
        lines.line(fmt::format("{:>3}  {}, exit code {}, {}, {} tokens{}", attempt.number,
                               shown(attempt.class_word, 30), attempt.rc, duration_text(attempt.wall_ms),
                               loop::grouped(attempt.tokens),
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
    for (const auto& gate : m.gates) put_gate(gate, lines);
}

std::string explanation(const Explained& e) {
    const IterationView& i = e.iteration;
    Lines lines;
    lines.heading(fmt::format("iteration {}: {}", i.number, verdict_text(i)));
    lines.field("title", shown(i.title));
    lines.field("why", why_text(i));
    lines.field("base", i.base.empty() ? "" : fmt::format("{} on {}", short_commit(i.base), or_dash(shown(i.branch))));
    lines.field("candidate", candidate_text(i));
    lines.field("kept at", kept_at_text(e));
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
    lines.field("cost", fmt::format("{}; agent {}, device {}, {} tokens, {} retr{}", duration_text(i.wall_ms),
                                    duration_text(i.agent_ms), duration_text(i.tpu_ms), loop::grouped(i.tokens),
                                    i.retries(), i.retries() == 1 ? "y" : "ies"));
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
    const int last = static_cast<int>(view.state.attempts.size()) - 1;
    GDNCTL_TRY_ASSIGN(const int attempt, id == "last" ? Result<int>(last) : loop::evolve::attempt_of(view.state, id));
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
    context.terminal.out(text);
    return ExitCode::ok;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Explains why an iteration was accepted or rejected: the decision, every stage with each gate and its number, "
        "the "
        "measurements against the champion, the agent's attempts, the cost, where its commits are, and the files in "
        "the log directory that show it.");
    args.positional(options.iteration, {.name = "N", .help = "iteration number, or `last`"});
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
    args.see_also("loop-status");
    args.see_also("docs/loop-reports.md");
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
        context.terminal.out(explanation(explained));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_explain

namespace gdnctl::commands {

constinit const cli::Command k_loop_explain_row = cli::make<&loop_explain::describe, &loop_explain::run>(
    "loop-explain", "Loop", "explain why an iteration was accepted or rejected", Tier::none);

}  // namespace gdnctl::commands
