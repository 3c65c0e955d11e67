#include "loop/evolve/views.h"

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/for_people.h"
#include "core/text.h"
#include "core/time.h"
#include "loop/evolve/journal.h"
#include "loop/evolve/prompt.h"
#include "loop/evolve/verify.h"
#include "loop/report/report.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

Json optional_gain(const std::optional<Gain>& gain) { return gain ? json_of(*gain) : Json(); }

Json parents_json(const State& state, const Attempt& one) {
    Json out = Json::array();
    for (const int number : one.parents) out.push_back({{"attempt", number}, {"commit", state.at(number).commit}});
    return out;
}

Json summary_json(const State& state, const Attempt& one) {
    return {
        {"attempt", one.number},
        {"operator", one.number == 0 ? "base" : std::string(to_text(one.op))},
        {"lineage", one.lineage},
        {"parents", parents_json(state, one)},
        {"class", one.kind},
        {"verdict", to_text(one.verdict)},
        {"reason", one.reason},
        {"commit", one.commit},
        {"gain", optional_gain(one.measured)},
        {"gain_against_base", one.gain},
        {"technique", one.technique},
        {"lines", one.lines},
        {"tokens", one.tokens ? Json(*one.tokens) : Json()},
        {"device_s", one.device_s},
        {"imported", one.imported.empty()
                         ? Json()
                         : Json{{"origin", one.origin}, {"status", one.imported}, {"speedup", one.imported_speedup}}}};
}

std::string short_of(const std::string& commit) { return commit.empty() ? std::string("-") : commit.substr(0, 7); }

std::string cut(std::string text, std::size_t columns) {
    while (text.ends_with(' ')) text.pop_back();
    if (text.size() > columns) text = text.substr(0, columns - 3) + "...";
    return text::visible(text);
}

std::string line_of(const Attempt& one) {
    std::string line =
        fmt::format("{:>5}  {:<8}  {:>2}  {:<11}  {:<7}", one.number, one.number == 0 ? "base" : to_text(one.op),
                    one.lineage, one.verdict == Verdict::none ? "running" : to_text(one.verdict), short_of(one.commit));
    const bool shows_gain = one.gate && one.number > 0;
    const std::string rest = shows_gain ? gain_text(*one.gate) : one.reason;
    const std::string between = one.technique.empty() || rest.empty() ? "" : ": ";
    return cut(line + "  " + one.technique + between + rest, 100) + "\n";
}

constexpr std::string_view k_heading =
    "    N  operator   L  verdict      commit   technique: gain over the champion, or why\n";

// Which stage the open attempt is in.
std::string stage_of(const State& state) {
    const Step step = next(state, false);
    if (step.kind == StepKind::run_stage) return std::string(step.stage);
    if (step.kind == StepKind::measure_again) return "target";
    return step.kind == StepKind::run_agent ? "agent" : "verdict";
}

struct LineageTally {
    int attempts = 0, stagnant_for = 0;
};

std::vector<LineageTally> lineages_of(const State& state) {
    std::vector<LineageTally> out(static_cast<std::size_t>(state.rules.lineages));
    for (const Attempt& one : state.attempts) {
        const auto at = static_cast<std::size_t>(one.lineage);
        if (one.lineage < 0 || at >= out.size()) continue;
        ++out[at].attempts;
        count_stagnant(one, one.lineage, out[at].stagnant_for);
    }
    return out;
}

std::string span(double seconds) {
    return format_duration(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
}

// Seconds until a budget ends the run, at the pace of its attempts so far.
std::optional<double> eta_of(const State& state) {
    if (!state.stopped.empty()) return std::nullopt;
    std::optional<double> eta;
    const auto take = [&eta](double seconds) { eta = eta && *eta < seconds ? *eta : seconds; };
    const auto left = state.left_now();
    const auto attempts = left.find("attempts"), wall = left.find("wall_s");
    if (wall != left.end()) take(wall->second);
    if (attempts != left.end() && state.spent.attempts > 0) {
        take(attempts->second * state.spent.wall_s / static_cast<double>(state.spent.attempts));
    }
    return eta;
}

std::string left_text(const State& state) {
    std::string out;
    for (const auto& [name, value] : state.left_now()) {
        out += out.empty() ? "" : ", ";
        if (name == "usd") {
            out += fmt::format("${:.2f}", value);
        } else if (name == "wall_s") {
            out += span(value);
        } else if (name == "device_s") {
            out += span(value) + " on the device";
        } else {
            out += fmt::format("{:.0f} {}", value, name == "no_improve" ? "attempts without a gain" : name);
        }
    }
    const auto eta = eta_of(state);
    return eta ? fmt::format("{}: at this pace, the run ends in {}", out, span(*eta)) : out;
}

}  // namespace

std::string_view verdict_word(const Attempt& one) {
    if (one.number == 0) return "base";
    if (one.verdict != Verdict::none) return to_text(one.verdict);
    return one.imported.empty() ? "running" : "imported";
}

bool is_evolve_run(const fs::path& log_dir) {
    std::ifstream file(log_dir / k_journal);
    std::string line;
    return std::getline(file, line) && line.find(R"("type":"run_start")") != std::string::npos;
}

Result<RunView> load_evolve(const fs::path& log_dir) {
    RunView view;
    view.log_dir = log_dir;
    GDNCTL_TRY_ASSIGN(view.state, load_state(log_dir));
    if (!view.state.begun()) {
        return fail(ErrorKind::remote_missing, fmt::format("no evolve run in {}", log_dir.string()));
    }
    view.running = running(log_dir).has_value();
    return view;
}

Result<int> attempt_of(const State& state, std::string_view id) {
    if (id == "best") return state.best;
    if (id == "base") return 0;
    if (const auto number = text::parse_int(id); number && id.size() < 7) {
        if (*number >= 0 && *number < static_cast<std::int64_t>(state.attempts.size()))
            return static_cast<int>(*number);
    } else if (id.size() >= 7) {
        for (const Attempt& one : state.attempts) {
            if (one.commit.starts_with(id)) return one.number;
        }
    }
    return fail(ErrorKind::remote_missing, fmt::format("run {} has no attempt {}", state.run, id),
                fmt::format("it has attempts 1 to {}; see `gdnctl evolve log`", state.attempts.size() - 1));
}

Json status_facts(const State& state) {
    const Attempt& best = state.at(state.best);
    Json attempts = Json::object();
    for (const auto& [word, count] : state.verdicts()) attempts[word] = count;
    Json lineages = Json::array();
    for (const LineageTally& one : lineages_of(state)) {
        lineages.push_back(
            {{"lineage", lineages.size()}, {"attempts", one.attempts}, {"stagnant_for", one.stagnant_for}});
    }
    Json failure, running_now;
    if (const auto failed = failed_verification(state)) {
        failure = {{"attempt", failed->attempt}, {"stage", failed->stage}, {"reason", failed->reason}};
    }
    if (state.open.number != 0) running_now = {{"attempt", state.open.number}, {"stage", stage_of(state)}};
    return {{"mode", "evolve"},
            {"run", state.run},
            {"attempts", attempts},
            {"best",
             {{"attempt", best.number},
              {"commit", best.commit},
              {"gain", optional_gain(best.measured)},
              {"gain_against_base", best.gain}}},
            {"failed_verification", failure},
            {"running", running_now},
            {"noise", {{"sd", state.noise_sd}, {"pairs", state.noise_pairs}}},
            {"spent",
             {{"attempts", state.spent.attempts},
              {"wall_s", state.spent.wall_s},
              {"tokens", state.spent.tokens},
              {"usd", state.spent.usd},
              {"device_s", state.spent.device_s},
              {"since_kept", state.spent.since_kept}}},
            {"budget_left", state.left_now()},
            {"eta_s", eta_of(state) ? Json(*eta_of(state)) : Json()},
            {"lineages", lineages}};
}

Json status_head(const fs::path& log_dir, const std::string& stopped, bool running_now) {
    return {{"state", running_now       ? "running"
                      : stopped.empty() ? "interrupted"
                                        : "stopped"},
            {"reason", stopped},
            {"log_dir", log_dir.string()}};
}

std::string status_heading(const std::string& run, const std::string& stopped, bool running_now) {
    return fmt::format("run {}: {}\n", run,
                       running_now       ? std::string("running")
                       : stopped.empty() ? std::string("interrupted; continue it with --resume")
                                         : "ended (" + stopped + ")");
}

std::string status_place(const fs::path& log_dir) { return fmt::format("log        {}\n", log_dir.string()); }

std::string status_body(const State& state) {
    const Attempt& best = state.at(state.best);
    std::string out;
    if (best.number == 0) {
        out += fmt::format("best       the base commit {}: nothing was kept yet\n", short_of(best.commit));
    } else {
        const std::string title = best.technique.empty() ? "" : " (" + cut(best.technique, 40) + ")";
        out += fmt::format("best       attempt {}{}, commit {}: {}\n", best.number, title, short_of(best.commit),
                           against_base_text(best));
        if (best.gate) out += fmt::format("           last step {}\n", gain_text(*best.gate));
        if (const auto failed = failed_verification(state)) {
            out += fmt::format("           failed the final verification: {}: {}\n", failed->stage,
                               text::visible_line(failed->reason));
        }
    }
    std::string counts;
    for (const auto& [word, count] : state.verdicts())
        counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, word);
    out += fmt::format("attempts   {}\n", counts.empty() ? "none yet" : counts);
    if (state.open.number != 0) {
        out += fmt::format("now        attempt {}, stage {}\n", state.open.number, stage_of(state));
    }
    if (state.noise_measured) {
        out += fmt::format("noise      a pair has a standard deviation of {:.2f} %\n", to_percent(state.noise_sd));
    }
    out += fmt::format("spent      {}, {} tokens, {} on the device, ${:.2f}\n", span(state.spent.wall_s),
                       state.spent.tokens, span(state.spent.device_s), state.spent.usd);
    if (!state.left.empty() && state.stopped.empty()) out += fmt::format("left       {}\n", left_text(state));
    int lineage = 0;
    for (const LineageTally& one : lineages_of(state)) {
        out += fmt::format("lineage {}  {} attempts since its last gain\n", lineage++, one.stagnant_for);
    }
    return out;
}

Json status_json(const RunView& view) {
    Json out = status_facts(view.state);
    out.update(status_head(view.log_dir, view.state.stopped, view.running));
    return out;
}

std::string status_text(const RunView& view) {
    const State& state = view.state;
    return status_heading(state.run, state.stopped, view.running) + status_body(state) + status_place(view.log_dir);
}

Result<Json> attempt_json(const RunView& view, int attempt) {
    const State& state = view.state;
    Json out = summary_json(state, state.at(attempt));
    Json stages = Json::array(), verdicts = Json::array();
    GDNCTL_TRY(each_record(view.log_dir, [&](const Json& record, std::size_t) -> Status {
        const auto about = record.find("attempt");
        if (about == record.end() || *about != attempt) return {};
        const auto type = record.find("type");
        if (*type == "attempt_start") {
            out["draws"] = record.value("draws", Json::array());
            out["inspirations"] = record.value("inspirations", Json::array());
        }
        Json facts = record;
        for (const char* key : {"v", "prev", "type"}) facts.erase(key);
        if (*type == "eval_stage") stages.push_back(facts);
        if (*type == "verdict") verdicts.push_back(facts);
        if (*type == "proposal" || *type == "snapshot") out[type->get<std::string>()] = facts;
        return {};
    }));
    out["stages"] = stages;
    out["verdicts"] = verdicts;
    out["folder"] = (view.log_dir / attempt_folder(attempt)).string();
    return out;
}

Result<std::string> attempt_text(const RunView& view, int attempt) {
    const Attempt& one = view.state.at(attempt);
    GDNCTL_TRY_ASSIGN(const Json json, attempt_json(view, attempt));
    std::string out = attempt == 0 ? std::string("base\n") : fmt::format("attempt {}: {}\n", attempt, to_text(one.op));
    const auto field = [&out](std::string_view name, const std::string& value) {
        if (!value.empty()) out += fmt::format("  {:<10} {}\n", name, cut(value, 87));
    };
    field("commit", one.commit);
    std::string parents;
    for (const int number : one.parents) parents += fmt::format("{}{}", parents.empty() ? "" : ", ", number);
    field("parents", attempt == 0 ? std::string() : parents);
    field("lineage", attempt == 0 ? std::string() : std::to_string(one.lineage));
    field("class", one.kind);
    field("verdict", std::string(verdict_word(one)));
    field("reason", one.reason);
    if (one.gate && attempt > 0) field("gain", gain_text(*one.gate));
    field("technique", one.technique);
    if (!one.imported.empty()) {
        field("imported", fmt::format("{}: {}, speedup {:g} there", one.origin, one.imported, one.imported_speedup));
    }
    for (const auto& stage : json["stages"]) {
        field(fmt::format("eval {}", stage.value("eval_id", 0)),
              fmt::format("{:<9} {}  {}", stage.value("stage", ""), stage.value("verdict", ""),
                          stage.value("reason", "")));
    }
    field("files", json["folder"].get<std::string>());
    return out;
}

Json log_json(const State& state) {
    Json out = Json::array();
    for (const Attempt& one : state.attempts) out.push_back(summary_json(state, one));
    return out;
}

std::string log_text(const State& state) {
    std::string out(k_heading);
    for (const Attempt& one : state.attempts) out += line_of(one);
    return out;
}

std::vector<int> ancestry(const State& state, int attempt) {
    std::vector<int> out = {attempt};
    while (out.back() != 0) out.push_back(state.at(out.back()).parents.front());
    return out;
}

std::string lineage_text(const State& state, const std::vector<int>& numbers) {
    std::string out(k_heading);
    for (const int number : numbers) out += line_of(state.at(number));
    return out;
}

Json lineage_json(const State& state, const std::vector<int>& numbers) {
    Json out = Json::array();
    for (const int number : numbers) out.push_back(summary_json(state, state.at(number)));
    return out;
}

}  // namespace gdnctl::loop::evolve
