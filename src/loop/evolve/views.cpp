#include "loop/evolve/views.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/verify.h"
#include "loop/measure/pairs.h"
#include "loop/memory/run_view.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "render/chart.h"
#include "render/page.h"

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
    if (text.size() > columns) {
        // At the end of a word, if one ends near there.
        constexpr std::size_t k_longest = 16, k_dots = 3;
        text.resize(columns - k_dots);
        const std::size_t blank = text.rfind(' ');
        if (blank != std::string::npos && text.size() - blank <= k_longest) text.resize(blank);
        text += "...";
    }
    return text::visible(text);
}

std::string line_of(const Attempt& one, std::size_t columns) {
    std::string line =
        fmt::format("{:>5}  {:<8}  {:>2}  {:<11}  {:<7}", one.number, one.number == 0 ? "base" : to_text(one.op),
                    one.lineage < 0 ? "-" : std::to_string(one.lineage),
                    one.verdict == Verdict::none ? "running" : to_text(one.verdict), short_of(one.commit));
    const bool shows_gain = one.gate && one.number > 0;
    const std::string rest = shows_gain ? gain_text(*one.gate) : one.reason;
    const std::string between = one.technique.empty() || rest.empty() ? "" : ": ";
    // The technique makes room for the gain or the reason, but not all of it.
    constexpr std::size_t k_least = 16;
    const std::size_t taken = line.size() + 2 + between.size() + rest.size();
    const std::string technique = cut(one.technique, columns > taken + k_least ? columns - taken : k_least);
    return cut(line + "  " + technique + between + rest, columns) + "\n";
}

constexpr std::string_view k_heading = "    N  operator   L  verdict      commit   technique: gain, or why";

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

// What was measured of it.
std::string spent_text(const Spent& spent) {
    std::string out = span(spent.wall_s);
    if (spent.tokens > 0) out += fmt::format(", {} tokens", grouped(spent.tokens));
    if (spent.device_s > 0) out += fmt::format(", {} on the device", span(spent.device_s));
    if (spent.usd > 0) out += fmt::format(", ${:.2f}", spent.usd);
    return out;
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

// "base", "running", "imported" (and not judged yet), or the verdict.
std::string_view verdict_word(const Attempt& one) {
    if (one.number == 0) return "base";
    if (one.verdict != Verdict::none) return to_text(one.verdict);
    return one.imported.empty() ? "running" : "imported";
}

}  // namespace

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
    if (id == "last") return static_cast<int>(state.attempts.size()) - 1;
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

namespace {

// Parts of status_json() and status_text(): what follows from the journal alone, and what does not.
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
    out += fmt::format("spent      {}\n", spent_text(state.spent));
    if (!state.left.empty() && state.stopped.empty()) out += fmt::format("left       {}\n", left_text(state));
    int lineage = 0;
    for (const LineageTally& one : lineages_of(state)) {
        out += fmt::format("lineage {}  {} attempt{} since its last gain\n", lineage++, one.stagnant_for,
                           one.stagnant_for == 1 ? "" : "s");
    }
    return out;
}

}  // namespace

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
    field("technique", one.technique);
    field("commit", one.commit);
    std::string parents;
    for (const int number : one.parents) parents += fmt::format("{}{}", parents.empty() ? "" : ", ", number);
    field("parents", attempt == 0 ? std::string() : parents);
    field("lineage", attempt == 0 ? std::string() : std::to_string(one.lineage));
    field("class", one.kind);
    field("verdict", std::string(verdict_word(one)));
    field("reason", one.reason);
    if (one.gate && attempt > 0) field("gain", gain_text(*one.gate));
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

std::string log_text(const State& state, std::size_t columns) {
    std::string out = cut(std::string(k_heading), columns) + "\n";
    for (const Attempt& one : state.attempts) out += line_of(one, columns);
    return out;
}

std::vector<int> ancestry(const State& state, int attempt) {
    std::vector<int> out = {attempt};
    while (out.back() != 0) out.push_back(state.at(out.back()).parents.front());
    return out;
}

std::string lineage_text(const State& state, const std::vector<int>& numbers, std::size_t columns) {
    std::string out = cut(std::string(k_heading), columns) + "\n";
    for (const int number : numbers) out += line_of(state.at(number), columns);
    return out;
}

Json lineage_json(const State& state, const std::vector<int>& numbers) {
    Json out = Json::array();
    for (const int number : numbers) out.push_back(summary_json(state, state.at(number)));
    return out;
}

namespace {

// Size of the journal and hash of its last line, without the newline; empty: it has none.
Json mark_of(const fs::path& journal, std::string_view last_line) {
    std::error_code problem;
    const auto size = fs::file_size(journal, problem);
    const auto hash = hash_hex(HashKind::sha256, last_line);
    if (problem || !hash) return {};
    return {{"bytes", size}, {"last", *hash}};
}

// Without its newline; empty: the file ends in the middle of a line, or has none.
std::string last_line_of(const fs::path& journal) {
    constexpr std::streamoff k_piece = 1 << 16;
    std::ifstream file(journal, std::ios::binary | std::ios::ate);
    std::streamoff end = file ? static_cast<std::streamoff>(file.tellg()) : 0;
    std::string tail;
    while (end > 0) {
        const std::streamoff from = std::max<std::streamoff>(end - k_piece, 0);
        std::string piece(static_cast<std::size_t>(end - from), '\0');
        file.seekg(from);
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        if (!file) return {};
        tail.insert(0, piece);
        if (tail.back() != '\n') return {};
        const auto newline = tail.size() < 2 ? std::string::npos : tail.rfind('\n', tail.size() - 2);
        if (newline != std::string::npos) return tail.substr(newline + 1, tail.size() - newline - 2);
        end = from;
    }
    return tail.empty() ? std::string() : tail.substr(0, tail.size() - 1);
}

}  // namespace

void write_index(const fs::path& log_dir, const State& state, std::string_view last_line) {
    const Json mark = mark_of(log_dir / k_journal, last_line);
    if (mark.is_null() || !state.begun()) return;
    const Json index = {{"schema", "gdnctl.evolve-state/1"}, {"journal", mark},
                        {"stopped", state.stopped},          {"run", state.run},
                        {"status", status_facts(state)},     {"words", status_body(state)}};
    // The index can be rebuilt, so it need not survive a crash: it is replaced, but not flushed to the disk.
    const fs::path place = log_dir / k_index, fresh = log_dir / ".state.json.new";
    {
        std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
        file << gdnctl::to_text(index) << "\n";
        if (!file.flush()) return;
    }
    std::error_code ignored;
    fs::permissions(fresh, fs::perms::owner_read | fs::perms::owner_write, ignored);
    fs::rename(fresh, place, ignored);
}

std::optional<StatusIndex> read_index(const fs::path& log_dir, bool running) {
    const auto text = read_file_if_exists(log_dir / k_index);
    if (!text || !*text) return std::nullopt;
    const Json index = Json::parse(**text, nullptr, false);
    const fs::path journal = log_dir / k_journal;
    if (!index.is_object() || !index.contains("journal") || !index.contains("words") ||
        index["journal"] != mark_of(journal, last_line_of(journal))) {
        return std::nullopt;
    }
    const std::string stopped = index.value("stopped", ""), run = index.value("run", "");
    StatusIndex out;
    Json status = index.value("status", Json::object());
    status.update(status_head(log_dir, stopped, running));
    out.status = gdnctl::to_text(status);
    out.text = status_heading(run, stopped, running) + index.value("words", "") + status_place(log_dir);
    return out;
}

namespace {

constexpr std::string_view k_page = R"html(<h1>Evolve run {{run}}</h1>
<p>{{page/result}}</p>
<p class=soft>{{page/standing}}</p>
<dl>
{{?page/target}}<div><dt>target<dd>{{page/target}}</div>
{{/}}{{?page/repository}}<div><dt>repository<dd>{{page/repository}}</div>
{{/}}{{?page/agent}}<div><dt>agent<dd>{{page/agent}}</div>
{{/}}{{?page/dates}}<div><dt>dates<dd>{{page/dates}}</div>
{{/}}<div><dt>attempts<dd>{{page/attempts}}</div>
{{?page/noise}}<div><dt>noise of a pair<dd>{{page/noise}}</div>
{{/}}<div><dt>spent<dd>{{page/spent}}</div>
</dl>
<h2>Tree</h2>
{{&page/tree}}{{&page/legend}}<h2>Gains against the champion at that time</h2>
{{&page/gains}}{{&page/legend}}<p class=soft>A line is the interval of a gain. × marks an attempt that was not timed.</p>
{{?page/rows}}<h2>Attempts</h2>
<div class=wide><table><tr><th class=n>N<th>operator{{?page/has_technique}}<th>technique{{/}}<th class=n>lineage<th>verdict
<th>gain over the champion, or why{{?page/has_tokens}}<th class=n>tokens{{/}}{{?page/has_device}}<th class=n>device{{/}}<th>commit</tr>
{{#page/rows}}<tr><td class=n>{{attempt}}<td>{{operator}}{{?page/has_technique}}<td>{{technique}}{{/}}<td class=n>{{lineage}}<td>{{verdict}}
<td>{{why}}{{?page/has_tokens}}<td class=n>{{tokens}}{{/}}{{?page/has_device}}<td class=n>{{device}}{{/}}<td>{{commit}}</tr>
{{/}}</table></div>
{{/}})html";

std::string_view colour_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kept: return "kept";
        case Verdict::tie: return "agent";
        case Verdict::rejected:
        case Verdict::invalid:
        case Verdict::tampered: return "rejected";
        default: return "none";
    }
}

constexpr double k_step = 34;  // from one attempt to the next

// "attempt 7, Tile by 32"
std::string title_of(const Attempt& one) {
    if (one.number == 0) return "base";
    return fmt::format("attempt {}{}{}", one.number, one.technique.empty() ? "" : ", ", one.technique);
}

// Attempts from left to right, a row for each lineage; lines lead to parents.
std::string tree_chart(const State& state) {
    constexpr double k_row = 46;
    const auto last = static_cast<double>(state.attempts.size()), lineages = static_cast<double>(state.rules.lineages);
    svg::Plot plot("Tree", {-.5, last}, {-lineages, 0},
                   {.width = k_step * (last + .5), .height = k_row * lineages, .left = 80, .scales = false});
    const auto y = [](const Attempt& one) { return one.number == 0 ? 0.0 : static_cast<double>(-one.lineage); };
    for (int k = 0; k < state.rules.lineages; ++k) plot.level(-k, fmt::format("lineage {}", k), false);
    for (const Attempt& one : state.attempts) {
        for (const int parent : one.parents) plot.curve("edge", parent, y(state.at(parent)), one.number, y(one));
    }
    for (const Attempt& one : state.attempts) {
        plot.point(
            {fmt::format("{}{}", colour_of(one.verdict), one.number == state.best ? " chosen" : ""),
             fmt::format("{}, {}{}{}", title_of(one), verdict_word(one), one.reason.empty() ? "" : ": ", one.reason)},
            one.number, y(one), svg::Shape::large_circle);
        plot.note(one.number, y(one), 0, 21, std::to_string(one.number));
    }
    return plot.svg();
}

std::string gains_chart(const State& state) {
    double low = 0, high = .001;
    for (const Attempt& one : state.attempts) {
        if (!one.gate || one.number == 0) continue;
        low = std::min(low, one.gate->lo);
        high = std::max(high, one.gate->hi);
    }
    // A candidate that is many times slower would flatten all others, so it is drawn at the edge, with its value.
    low = std::max(low, -std::max(2 * high, .05));
    const auto last = static_cast<double>(state.attempts.size());
    svg::Plot plot("Gains", {-.5, last}, {low, high},
                   {.width = k_step * (last + .5), .height = 148, .left = 80, .scales = false});
    for (const double gain : {low, 0.0, high}) plot.level(gain, signed_number(to_percent(gain), 1) + " %");
    for (const Attempt& one : state.attempts) {
        if (one.number == 0 || one.verdict == Verdict::none) continue;
        const std::string colour(colour_of(one.verdict));
        if (!one.gate) {
            plot.point({"cross " + colour, title_of(one) + ", not timed: " + one.reason}, one.number, 0,
                       svg::Shape::cross);
            plot.tick(one.number, std::to_string(one.number));
            continue;
        }
        plot.line(colour, one.number, one.gate->lo, one.number, one.gate->hi);
        plot.point({colour, title_of(one) + ": " + gain_text(*one.gate)}, one.number, one.gate->est,
                   svg::Shape::circle);
        plot.tick(one.number, std::to_string(one.number));
        if (one.gate->est < low) {
            plot.note(one.number, low, 0, -12, signed_number(to_percent(one.gate->est), 0) + " %");
        }
    }
    return plot.svg();
}

Json page_rows(const State& state) {
    Json rows = Json::array();
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        rows.push_back({{"attempt", one.number},
                        {"operator", to_text(one.op)},
                        {"technique", one.technique},
                        {"lineage", one.lineage},
                        {"verdict", verdict_word(one)},
                        {"why", one.gate ? gain_text(*one.gate) : one.reason},
                        {"tokens", one.tokens ? grouped(*one.tokens) : ""},
                        {"device", one.device_s > 0 ? span(one.device_s) : ""},
                        {"commit", one.commit.substr(0, 7)}});
    }
    return rows;
}

// Text of a table's cell in Markdown.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text::visible(text)) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

}  // namespace

// Target, repository, agent, dates, state and the result in one sentence; empty: unknown.
Json heading_json(const RunView& view) {
    const State& state = view.state;
    const Json config = Json::parse(state.config, nullptr, false);
    const auto word = [&](const char* pointer) {
        const Json& value = json::field_at(config, pointer);
        return value.is_string() ? text::visible(value.get<std::string>()) : std::string();
    };
    const Attempt& best = state.at(state.best);
    const auto root = find_repository_root(view.log_dir);
    const std::string standing = status_heading(state.run, state.stopped, view.running);
    return {{"target", word("/target/name")},
            {"repository", root ? text::visible(root->filename().string()) : std::string()},
            {"agent", agent_text(config)},
            {"dates", dates_text(state.attempts.size() > 1 ? state.at(1).started : "", state.last_time)},
            {"standing", text::visible(std::string(text::trim(standing.substr(standing.find(": ") + 2))))},
            {"result", best.number == 0
                           ? fmt::format("No candidate was faster than the base commit {}.", short_of(best.commit))
                           : fmt::format("The best is {}, commit {}: {}.", title_of(best), short_of(best.commit),
                                         against_base_text(best))}};
}

std::string report_markdown(const RunView& view) {
    const State& state = view.state;
    const Json heading = heading_json(view);
    std::string out = fmt::format("# Evolve run {}\n\n{}\n\n| | |\n|---|---|\n", state.run,
                                  cell(heading["result"].get<std::string>()));
    for (const char* name : {"target", "repository", "agent", "dates"}) {
        const std::string value = cell(heading[name].get<std::string>());
        if (!value.empty()) out += fmt::format("| {} | {} |\n", name, value);
    }
    out += fmt::format("\n```\n{}```\n\n## Attempts\n\n", status_text(view));
    out +=
        "| N | operator | technique | lineage | verdict | gain over the champion, or why | commit "
        "|\n|---|---|---|---|---|---|---|\n";
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", one.number, to_text(one.op), cell(one.technique),
                           one.lineage, verdict_word(one), cell(one.gate ? gain_text(*one.gate) : one.reason),
                           one.commit.substr(0, 7));
    }
    const std::string known = insights(state);
    if (!known.empty()) out += "\n## What is known\n\n" + known;
    return out;
}

std::string report_html(const RunView& view) {
    const State& state = view.state;
    Json data = status_json(view);
    data["page"] = heading_json(view);
    const auto any = [&](auto test) { return std::any_of(state.attempts.begin(), state.attempts.end(), test); };
    const std::string legend = svg::legend({{"kept", "kept"},
                                            {"agent", "tie"},
                                            {"rejected", "rejected, invalid or tampered"},
                                            {"none", "nothing to judge"}});
    data["page"].update({{"attempts", state.attempts.size() - 1},
                         {"noise", state.noise_measured ? fmt::format("{:.2f} %", to_percent(state.noise_sd)) : ""},
                         {"spent", spent_text(state.spent)},
                         {"tree", tree_chart(state)},
                         {"gains", gains_chart(state)},
                         {"legend", legend},
                         {"has_technique", any([](const Attempt& one) { return !one.technique.empty(); })},
                         {"has_tokens", any([](const Attempt& one) { return one.tokens.has_value(); })},
                         {"has_device", any([](const Attempt& one) { return one.device_s > 0; })},
                         {"rows", page_rows(state)}});
    return html::page("Evolve run {{run}}", k_page, data);
}

Json report_json(const RunView& view) {
    Json out = status_json(view);
    out["all"] = log_json(view.state);
    return out;
}

namespace {

constexpr std::size_t k_most_listed = 10;

std::string proven(const Attempt& one) { return fmt::format("{} (eval {})", gain_text(*one.gate), one.eval); }

std::string what_of(const Attempt& one) { return one.technique.empty() ? std::string(to_text(one.op)) : one.technique; }

std::string actions(const State& state, const Session& session) {
    std::map<std::string, int> verdicts;
    for (const Attempt& one : state.attempts) {
        if (one.number < session.first || one.verdict == Verdict::none) continue;
        ++verdicts[std::string(to_text(one.verdict))];
    }
    std::string out;
    for (const auto& [word, count] : verdicts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, word);
    return fmt::format("- Attempts {} to {}: {}.\n", session.first, state.attempts.size() - 1,
                       out.empty() ? "none has a verdict" : out);
}

std::string outcome(const State& state, const Session& session) {
    std::string kept;
    std::size_t listed = 0;
    for (std::size_t i = state.attempts.size(); i-- > 1;) {
        const Attempt& one = state.attempts[i];
        if (one.number < session.first || one.verdict != Verdict::kept || !one.gate) continue;
        if (++listed > k_most_listed) break;
        kept += fmt::format("- Kept: attempt {} ({}), commit `{}`: {}.\n", one.number, what_of(one), one.commit,
                            proven(one));
    }
    const Attempt& best = state.at(state.best);
    const std::string standing =
        state.best == 0 ? fmt::format("the base `{}`", state.base)
                        : fmt::format("attempt {}, commit `{}`: {}", best.number, best.commit, proven(best));
    return kept.empty() ? fmt::format("- No improvement. The standing best is {}.\n", standing)
                        : kept + fmt::format("- The best is {}.\n", standing);
}

std::string insight(const State& state, const Session& session) {
    std::map<std::string, int> dead;
    for (const Attempt& one : state.attempts) {
        if (one.number < session.first) continue;
        if (one.verdict == Verdict::rejected || one.verdict == Verdict::invalid) ++dead[what_of(one)];
    }
    std::string out = fmt::format("- Noise: a pair has a standard deviation of {:.2f} % (eval {}).\n",
                                  to_percent(state.noise_sd), state.noise_eval);
    for (const auto& [what, count] : dead) out += fmt::format("- Dead end: {}, {} times.\n", what, count);
    return out;
}

}  // namespace

std::string experiment_entry(const State& state, const Session& session, WallTime now) {
    const std::string goal(text::trim(session.goal));
    return text::visible(fmt::format(
        "\n## {} - Evolve run {}, attempts {} to {}\n\n### Goal\n{}\n\n### Hypothesis\n"
        "One of these candidates of {} lineages, drawn with seed {}, is faster than the best so far by more than the "
        "smallest gain that is kept.\n\n### Action\n{}\n### Outcome\n{}\n### Breakthrough / Insight\n{}\n"
        "### Next Step\n{}\n",
        format_iso8601(now).substr(0, 10), state.run, session.first, state.attempts.size() - 1,
        goal.empty() ? std::string("A better metric of the target.") : goal, state.rules.lineages, state.seed,
        actions(state, session), outcome(state, session), insight(state, session),
        fmt::format("The session ended with `{}`. {}", session.reason,
                    state.best == 0 ? "Continue it with a larger budget, or try other directives."
                                    : "Verify the best with `gdnctl evolve promote best`, or continue from it.")));
}

LogCheck check_log(std::string_view text, const std::set<int>& evals) {
    static const std::regex k_number(R"((^|[^\w.(])([-+]?\d+(?:\.\d+)?\s?(?:%|x\b|ms\b|us\b|s\b))|\(eval (\d+)\))");
    LogCheck out;
    std::size_t number = 0;
    bool fenced = false;
    for (const std::string_view view : text::split(text, '\n')) {
        ++number;
        if (text::trim(view).starts_with("```")) fenced = !fenced;
        if (fenced) continue;
        const std::string line(view.substr(0, 4096));
        std::vector<std::string> open;
        for (std::sregex_iterator it(line.begin(), line.end(), k_number), end; it != end; ++it) {
            if ((*it)[2].matched) {
                open.push_back((*it)[2].str());
                ++out.numbers;
                continue;
            }
            const int eval = static_cast<int>(text::parse_int((*it)[3].str()).value_or(0));
            if (!evals.contains(eval)) out.problems.push_back({number, (*it)[0].str(), "there is no such evaluation"});
            open.clear();
        }
        for (std::string& one : open) {
            out.problems.push_back(
                {number, std::move(one), "does not say which evaluation it comes from: add (eval N) after it"});
        }
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
