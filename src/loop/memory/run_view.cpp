#include "loop/memory/run_view.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/log_dir.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/lock.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

// Bytes of the code point that starts with `lead`, in valid UTF-8.
std::size_t length_of(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    if (byte < 0x80U) return 1;
    if (byte < 0xE0U) return 2;
    return byte < 0xF0U ? 3 : 4;
}

std::string shown_point(std::string_view bytes) {
    if (bytes == "\n") return "\\n";
    if (bytes == "\r") return "\\r";
    if (bytes == "\t") return "\\t";
    return text::visible(bytes);
}

constexpr std::array<std::string_view, 5> k_stage_words = {"name", "verdict", "reason", "sign", "outcome"};
constexpr std::string_view k_fact = "fact.";
constexpr std::string_view k_gate = "gate.";

// Removes the next word from the front of `rest`.
std::string_view next_word(std::string_view& rest) {
    rest = text::trim(rest);
    const auto end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    return word;
}

bool is_relation(std::string_view word) {
    return word == "<=" || word == ">=" || word == "<" || word == ">" || word == "==";
}

StageView stage_view(const Record& record) {
    StageView stage;
    stage.name = record.word("name");
    stage.verdict = record.word("verdict");
    stage.reason = record.word("reason");
    stage.sign = record.word("sign");
    stage.outcome = record.word("outcome");
    stage.tpu_ms = record.count("tpu_ms");
    stage.wall_ms = record.count("wall_ms");
    for (const auto& [key, value] : record.text) {
        if (std::find(k_stage_words.begin(), k_stage_words.end(), key) != k_stage_words.end()) continue;
        std::string_view name = key;
        if (name.starts_with(k_fact)) name.remove_prefix(k_fact.size());
        std::string_view gate_name = name;
        if (gate_name.starts_with(k_gate)) gate_name.remove_prefix(k_gate.size());
        if (name == "trace_lines") {
            for (const auto line : text::split(value, '\n')) stage.trace_lines.emplace_back(line);
        } else if (name == "oracle") {
            stage.oracle = Json::parse(value, nullptr, false);
        } else if (auto gate = parse_gate(gate_name, value)) {
            stage.gates.push_back(std::move(*gate));
        } else {
            stage.facts.emplace_back(name, value);
        }
    }
    return stage;
}

void end_attempt(IterationView& iteration, const Record& record) {
    if (iteration.attempts.empty()) return;
    AttemptView& attempt = iteration.attempts.back();
    attempt.ended = true;
    attempt.class_word = record.word("class");
    attempt.next = record.word("next");
    attempt.reason = record.word("reason");
    attempt.rc = record.count("rc");
    attempt.wall_ms = record.count("wall_ms");
    if (record.number.contains("tokens")) attempt.tokens = record.count("tokens");
    iteration.agent_ms += attempt.wall_ms;
    if (attempt.tokens) iteration.tokens = iteration.tokens.value_or(0) + *attempt.tokens;
}

void apply_candidate(IterationView& iteration, const Record& record) {
    iteration.stages.clear();  // after following a moved branch, it is judged again
    iteration.head = record.word("head");
    iteration.diff = record.word("diff");
    iteration.leftovers = record.word("leftovers");
    iteration.patch = record.word("patch");
    iteration.commits = record.count("commits");
    iteration.files = record.count("files");
    iteration.protected_paths = record.word("protected");
    if (iteration.title.empty()) iteration.title = record.word("title");
    // If the loop followed a moved branch, a later record does not repeat this.
    if (const std::string gone = record.word("gone"); !gone.empty()) iteration.gone = gone;
}

void apply_decision(IterationView& iteration, const Record& record) {
    iteration.decided = true;
    iteration.outcome = record.word("outcome");
    iteration.verdict = record.word("verdict");
    iteration.sign = record.word("sign");
    iteration.reason = record.word("reason");
    // If the decision has no sign, use that of the stage that refused it.
    if (!iteration.sign.empty() || iteration.stages.empty()) return;
    if (iteration.stages.back().verdict == "fail") iteration.sign = iteration.stages.back().sign;
}

void end_iteration(IterationView& iteration, const Record& record) {
    iteration.ended = true;
    iteration.finished = record.time;
    if (!record.word("outcome").empty()) iteration.outcome = record.word("outcome");
    if (!record.word("reason").empty() && iteration.reason.empty()) iteration.reason = record.word("reason");
    iteration.counted = record.count("counted") > 0;
    iteration.promoted = record.count("promoted") > 0;
    iteration.tpu_ms += record.count("tpu_ms");
}

void apply_record(IterationView& iteration, const Record& record) {
    switch (record.type) {
        case RecordType::base:
            iteration.base = record.word("sha");
            iteration.branch = record.word("branch");
            break;
        case RecordType::attempt:
            iteration.attempts.emplace_back();
            iteration.attempts.back().number = static_cast<int>(record.count("attempt"));
            break;
        case RecordType::attempt_end: end_attempt(iteration, record); break;
        case RecordType::candidate: apply_candidate(iteration, record); break;
        case RecordType::stage:
            iteration.stages.push_back(stage_view(record));
            iteration.tpu_ms += iteration.stages.back().tpu_ms;
            break;
        case RecordType::decision: apply_decision(iteration, record); break;
        case RecordType::settled:
            iteration.settled = record.word("result");
            iteration.tip = record.word("tip");
            break;
        case RecordType::logged:
            iteration.log_commit = record.word("commit");
            iteration.log_number = record.word("number");
            break;
        case RecordType::iteration_end: end_iteration(iteration, record); break;
        default: break;
    }
}

void apply_run_numbers(RunView& view, RunState state) {
    view.run = std::move(state.run);
    view.isolation = std::move(state.isolation);
    view.total = state.total;
    view.ended = state.ended;
    view.open = state.open;
    view.next = std::move(state.next);
    view.failures = state.failures;
    view.promotions = state.promotions;
    view.since_promotion = state.since_promotion;
    view.outcomes = std::move(state.outcomes);
    view.agent_ms = state.agent_ms;
    view.tpu_ms = state.tpu_ms;
    view.stop_reason = std::move(state.stop_reason);
    view.records = state.records;
}

// Describes a record for someone who watches; empty: nothing to say.
std::string event_text(const Record& record) {
    const auto word = [&](const char* key) {
        std::string text = shown(record.word(key), 200);
        return text.empty() ? std::string("-") : text;
    };
    switch (record.type) {
        case RecordType::resume: return "resumed";
        case RecordType::iteration: return "began";
        case RecordType::attempt: return fmt::format("attempt {} of the agent", record.count("attempt"));
        case RecordType::attempt_end:
            return fmt::format(
                "attempt {} ended: {}, exit code {}, {}{}", record.count("attempt"), word("class"), record.count("rc"),
                format_duration(std::chrono::milliseconds(record.count("wall_ms"))),
                record.number.contains("tokens") ? fmt::format(", {} tokens", grouped(record.count("tokens"))) : "");
        case RecordType::stage:
            return fmt::format("stage {}: {}{}", word("name"), word("verdict"),
                               record.word("reason").empty() ? "" : ": " + word("reason"));
        case RecordType::candidate: return record.word("title").empty() ? std::string() : "candidate: " + word("title");
        case RecordType::decision:
            return fmt::format(
                "decided: {}{}", shown(runlog::outcome_phrase(record.word("outcome")), 60),
                record.word("reason").empty() ? "" : ": " + shown(runlog::reason_words(record.word("reason")), 200));
        case RecordType::iteration_end:
            return fmt::format("ended: {}{}",
                               record.count("promoted") > 0 ? std::string("promoted")
                                                            : shown(runlog::outcome_phrase(record.word("outcome")), 60),
                               record.count("counted") > 0 ? ", counted as a failure" : "");
        case RecordType::stop:
            return fmt::format("the loop ends: {} (exit code {})", word("reason"), record.count("rc"));
        default: break;
    }
    return {};
}

std::optional<PairsView> pairs_at(const Json& record) {
    const Json* at = json::object(record, "pairs");
    if (at == nullptr) return std::nullopt;
    PairsView pairs;
    pairs.n = json::integer(*at, "n").value_or(0);
    pairs.gain_pct = json::number(*at, "gain_pct").value_or(0);
    pairs.low_pct = json::number(*at, "low_pct").value_or(0);
    pairs.high_pct = json::number(*at, "high_pct").value_or(0);
    pairs.deviation_pct = json::number(*at, "deviation_pct").value_or(0);
    pairs.verdict = json::text(*at, "verdict");
    return pairs;
}

// A state of an earlier version has the difference of the values, and the result of the pairs. It did not record which
// direction is better. A gain with a smaller value shows it; otherwise the name decides, since only times have a unit
// in it.
std::optional<runlog::Gain> gain_at(const Json& record, const MeasuredView& view) {
    if (const Json* own = json::object(record, "gain")) return runlog::parse_gain(*own);
    if (!view.value || !view.delta_pct || *view.delta_pct <= -100 || view.decision == "aa_ok") return std::nullopt;
    runlog::Gain gain;
    gain.metric = view.metric;
    gain.unit = view.unit;
    const double sides = view.pairs ? view.pairs->gain_pct * *view.delta_pct : 0;
    gain.lower_is_better = sides == 0 ? !gain.unit.empty() : sides < 0;
    gain.before = *view.value / (1 + *view.delta_pct / 100);
    gain.after = view.value;
    gain.factor = runlog::speed_factor(gain.before, gain.after, gain.lower_is_better);
    if (!view.pairs || view.pairs->n <= 0) return gain;
    gain.pairs = view.pairs->n;
    gain.factor = 1 + view.pairs->gain_pct / 100;
    gain.low = 1 + view.pairs->low_pct / 100;
    gain.high = 1 + view.pairs->high_pct / 100;
    return gain;
}

void read_gate_list(const Json& record, MeasuredView& view) {
    if (const Json* gates = json::array(record, "gates")) {
        for (const Json& gate : *gates) {
            if (!gate.is_object()) continue;
            const std::string numbers = json::text(gate, "numbers");
            const std::string reason = json::text(gate, "reason");
            GateView one{json::text(gate, "id"), json::text(gate, "result")};
            one.words = numbers + (numbers.empty() || reason.empty() ? "" : "; ") + reason;
            view.gates.push_back(std::move(one));
        }
        return;
    }
    // The recipe's program stores the reasons of gates that fired, and nothing about the others.
    if (const Json* reasons = json::array(record, "control_gate_reasons")) {
        for (const Json& reason : *reasons) {
            if (!reason.is_string()) continue;
            GateView one{"gate", "fail"};
            one.words = reason.get<std::string>();
            view.gates.push_back(std::move(one));
        }
    }
}

MeasuredView measured_view(const Json& record) {
    MeasuredView view;
    view.iteration =
        static_cast<int>(std::clamp<std::int64_t>(json::integer(record, "iteration").value_or(0), 0, 1'000'000'000));
    view.commit = json::text(record, "commit");
    view.metric = json::text(record, "metric");
    view.unit = json::text(record, "metric_unit");
    if (view.unit.empty()) view.unit = runlog::unit_of(view.metric, nullptr);
    view.source = json::text(record, "metric_source");
    view.decision = json::text(record, "decision");
    view.run_url = json::text(record, "run_url");
    view.key = json::text(record, "fingerprint_key");
    view.value = json::number(record, "metric_value");
    view.delta_pct = json::number(record, "delta_vs_champion_pct");
    view.points = json::numbers(record, "points");
    if (view.source.starts_with("wandb-history-"))
        view.window_points = json::integer(record, "metric_points").value_or(0);
    view.pairs = pairs_at(record);
    view.gain = gain_at(record, view);
    read_gate_list(record, view);
    view.timestamp_unix = json::integer(record, "timestamp_unix").value_or(0);
    view.suspect = json::boolean(record, "suspect").value_or(false);
    return view;
}

double middle(std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    if (values.size() % 2 == 1) return *at;
    return (*at + *std::max_element(values.begin(), at)) / 2;
}

// A line that was cut, without the part of a word at its end: where the text went on with `next`. A very long word,
// such as a path, is cut.
std::string at_a_word(std::string line, char next) {
    constexpr std::size_t k_longest = 16;
    const std::size_t blank = line.rfind(' ');
    if (next == ' ' || blank == std::string::npos || line.size() - blank > k_longest) return line;
    line.resize(line.find_last_not_of(' ', blank) + 1);
    return line;
}

}  // namespace

std::string shown(std::string_view text, std::size_t columns) {
    const std::string safe = redact(text::repair_utf8(text));
    std::string line;
    std::size_t points = 0;
    std::size_t room_for_dots = 0;  // bytes of `line` that leave a column for the dots
    for (std::size_t at = 0; at < safe.size();) {
        const std::size_t length = std::min(length_of(safe[at]), safe.size() - at);
        const std::string point = shown_point(std::string_view(safe).substr(at, length));
        const std::size_t width = point.size() > length ? point.size() : 1;  // an escape is as wide as it is long
        if (points + width > columns) {
            const char next = room_for_dots < line.size() ? line[room_for_dots] : safe[at];
            return at_a_word(line.substr(0, room_for_dots), next) + "…";
        }
        if (points + width <= columns - 1) room_for_dots = line.size() + point.size();
        points += width;
        line += point;
        at += length;
    }
    return line;
}

std::string shown(std::string_view text) { return shown(text, std::string::npos); }

std::string title_and_why(std::string_view title, std::string_view why, std::size_t columns) {
    if (title.empty() || why.empty()) return shown(title.empty() ? why : title, columns);
    constexpr std::size_t k_least_title = 12;
    const auto width = [](const std::string& text) {
        return static_cast<std::size_t>(std::count_if(
            text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    };
    const std::size_t needed = width(shown(why)) + 2;
    const std::size_t room = columns > needed ? columns - needed : 0;
    return shown(shown(title, std::max(room, k_least_title)) + ": " + shown(why), columns);
}

std::string agent_text(const Json& config) {
    constexpr std::size_t k_columns = 80;
    if (!config.is_object()) return {};
    const std::string agent = json::text(config, "agent");
    const bool named = agent == "command";  // the journals of earlier versions name a model that it does not use
    const std::string detail = json::text(config, named ? "agent_command" : "model");
    return shown(agent + (detail.empty() ? "" : (named ? " " : ", ") + detail), k_columns);
}

std::string dates_text(std::string_view from, std::string_view to) {
    if (!parse_iso8601(from) || !parse_iso8601(to)) return {};
    constexpr std::size_t k_date = 10, k_minute = 16;
    const std::string first = local_time_of(from).substr(0, k_minute), last = local_time_of(to).substr(0, k_minute);
    const bool same_day = first.substr(0, k_date) == last.substr(0, k_date);
    return first + " to " + (same_day ? last.substr(k_date + 1) : last);
}

std::string grouped(const std::optional<std::int64_t>& number) { return number ? grouped(*number) : ""; }

std::optional<RunningLoop> running(const std::filesystem::path& log_dir) {
    const auto lock = log_dir / "codex-loop.lock";
    const auto holder = read_file_if_exists(lock, 64);
    if (!holder || !*holder || text::trim(**holder).empty())
        return std::nullopt;  // no holder, or it has released the lock
    RunningLoop loop;
    loop.pid = text::parse_int(text::trim(**holder)).value_or(0);
    const auto text = read_file_if_exists(lock.string() + ".json", std::size_t{64} << 10);
    const Json who = text && *text ? Json::parse(**text, nullptr, false) : Json();
    if (who.is_object() && json::integer(who, "pid").value_or(0) == loop.pid) {
        loop.since = json::text(who, "started_at");
        const auto ticks = static_cast<std::uint64_t>(json::integer(who, "start_ticks").value_or(0));
        const ProcessId id{static_cast<pid_t>(loop.pid), ticks};
        if (is_running(id)) return loop;
    }
    // Either the holder died without releasing the lock, or its process is not visible from here (a container); only
    // the lock itself can tell. A loop that died leaves its name, so this is not asked while one starts.
    const UniqueFd fd(open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd.valid() || flock(fd.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
    return loop;
}

std::optional<GateView> parse_gate(std::string_view id, std::string_view fact) {
    std::string_view rest = fact;
    GateView gate{std::string(id), std::string(next_word(rest))};
    if (gate.result != "pass" && gate.result != "fail" && gate.result != "skip") return std::nullopt;
    std::string_view ahead = rest;
    const auto value = text::parse_double(next_word(ahead));
    const std::string_view relation = next_word(ahead);
    const auto limit = text::parse_double(next_word(ahead));
    if (value && limit && is_relation(relation)) {
        gate.value = value;
        gate.relation = relation;
        gate.limit = limit;
        rest = ahead;
    }
    gate.words = text::trim(rest);
    return gate;
}

std::optional<std::chrono::milliseconds> between(std::string_view earlier, std::string_view later) {
    const auto from = parse_iso8601(earlier);
    const auto to = parse_iso8601(later);
    if (!from || !to) return std::nullopt;
    return std::max(*to - *from, std::chrono::milliseconds(0));  // the clock may have been set back
}

RunState state_of(std::span<const Record> records) {
    std::int64_t total = 0;
    bool stashes = false;
    for (const Record& record : records) {
        const bool names_total = record.type == RecordType::run || record.type == RecordType::resume;
        if (names_total && record.number.contains("total")) total = record.count("total");
        stashes = stashes || record.type == RecordType::stash_intent;
    }
    return summarise(records, static_cast<int>(std::min<std::int64_t>(total, 1'000'000'000)), stashes);
}

RunView view_of(std::span<const Record> records) {
    RunView view;
    apply_run_numbers(view, state_of(records));
    std::string_view before;
    for (const Record& record : records) {
        // For a resumed run, the time in between does not count.
        const auto spent =
            record.type == RecordType::resume || before.empty() ? std::nullopt : between(before, record.time);
        before = record.time;
        if (record.type == RecordType::run || record.type == RecordType::resume) {
            view.loop_id = record.word("loop_id");
            view.stop_rc.reset();
        }
        if (record.type == RecordType::run) {
            view.config = record.word("config");
            view.started = record.time;
        }
        if (record.type == RecordType::stop) view.stop_rc = record.count("rc");
        if (record.type == RecordType::iteration) {
            view.iterations.emplace_back();
            view.iterations.back().number = record.iteration;
            view.iterations.back().started = record.time;
        }
        if (record.type == RecordType::attempt_end && record.number.contains("tokens")) {
            view.tokens = view.tokens.value_or(0) + record.count("tokens");
        }
        const std::int64_t ms = spent ? spent->count() : 0;
        view.wall_ms += ms;
        if (record.iteration == 0 || view.iterations.empty()) continue;
        IterationView& iteration = view.iterations.back();
        if (iteration.number != record.iteration) continue;
        if (record.type != RecordType::iteration) iteration.wall_ms += ms;
        apply_record(iteration, record);
    }
    // The records' times are whole seconds, the agent's are not.
    for (IterationView& iteration : view.iterations) {
        iteration.wall_ms = std::max(iteration.wall_ms, iteration.agent_ms);
    }
    view.wall_ms = std::max(view.wall_ms, view.agent_ms);
    if (!records.empty()) view.last = records.back().time;
    return view;
}

const IterationView* RunView::find(int number) const {
    const auto at =
        std::find_if(iterations.begin(), iterations.end(), [&](const auto& i) { return i.number == number; });
    return at == iterations.end() ? nullptr : &*at;
}

std::string RunView::step_text() const {
    if (iterations.empty() || iterations.back().ended) return "between two iterations";
    const IterationView& current = iterations.back();
    if (current.decided) return fmt::format("decided: {}; {}", shown(runlog::outcome_phrase(current.outcome)), next);
    if (!current.stages.empty()) {
        const StageView& stage = current.stages.back();
        return fmt::format("stage {} has ended: {}", shown(stage.name, 40), shown(stage.verdict, 10));
    }
    if (!current.head.empty()) return "the candidate is collected";
    if (current.attempts.empty()) return "the tree is made ready";
    const AttemptView& attempt = current.attempts.back();
    return fmt::format("attempt {} of the agent{}", attempt.number, attempt.ended ? " has ended" : "");
}

// Reads the files of a log directory.

std::vector<RunEvent> events(const LoadedRun& run, std::size_t from) {
    std::vector<RunEvent> list;
    for (std::size_t i = from; i < run.records->size(); ++i) {
        const Record& record = (*run.records)[i];
        std::string text = event_text(record);
        if (!text.empty()) list.push_back({record.time, std::move(text), record.iteration});
    }
    return list;
}

Result<LoadedRun> load_run(const fs::path& log_dir) {
    LoadedRun run;
    run.log_dir = log_dir;
    // Asked first: if the loop ends in between, its last record is then included.
    run.holder = running(log_dir);
    const fs::path journal = log_dir / "journal.jsonl";
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(journal, std::size_t{256} << 20));
    GDNCTL_TRY_ASSIGN(auto records,
                      parse_records(text ? std::string_view(*text) : std::string_view(), journal.string()));
    if (records.empty()) {
        GDNCTL_TRY(check_never_begun(journal));
        return fail(ErrorKind::remote_missing, fmt::format("no run of codex-loop in {}", log_dir.string()),
                    "start one with `gdnctl codex-loop`, or name another directory with --log-dir");
    }
    run.view = view_of(records);
    run.records = std::make_shared<const std::vector<Record>>(std::move(records));
    std::error_code problem;
    run.stop_asked = fs::exists(fs::symlink_status(log_dir / "STOP", problem));
    return run;
}

Status check_state(const fs::path& log_dir) {
    GDNCTL_TRY(read_state(log_dir / "state.json"));
    return {};
}

Status rebuild_state(const LoadedRun& run) {
    GDNCTL_TRY_ASSIGN(const auto lock, FileLock::acquire(run.log_dir / "codex-loop.lock"));
    return write_state(run.log_dir / "state.json", state_of(*run.records));
}

std::map<int, std::vector<std::string>> evidence(const fs::path& log_dir) {
    std::map<int, std::vector<std::string>> names;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(log_dir, problem)) {
        std::string name = entry.path().filename().string();
        if (const int iteration = iteration_of(name); iteration > 0) names[iteration].push_back(std::move(name));
    }
    for (auto& [iteration, files] : names) std::sort(files.begin(), files.end());
    return names;
}

std::vector<std::string> evidence_of(const fs::path& log_dir, int iteration) {
    auto names = evidence(log_dir);
    return std::move(names[iteration]);
}

// Reads the parts of perf_state.json that people want to see.

bool MeasuredView::became_champion() const {
    return decision == "baseline" || decision == "promoted" || decision == "promote_corrupt_champion" ||
           decision == "baseline_shift";
}

const MeasuredView* MeasuredRun::of(const IterationView& iteration) const {
    const auto began = parse_iso8601(iteration.started);
    const auto ended = parse_iso8601(iteration.finished);
    const MeasuredView* in_time = nullptr;
    for (auto at = history.rbegin(); at != history.rend(); ++at) {
        if (at->iteration != iteration.number) continue;
        const bool whole = at->commit.size() >= 12 && !iteration.head.empty();
        if (whole && iteration.head.starts_with(at->commit.substr(0, 40))) return &*at;
        const WallTime time{std::chrono::seconds(at->timestamp_unix)};
        const bool own = began && time >= *began && (!ended || time <= *ended + std::chrono::seconds(1));
        // Measured in the iteration, but not its candidate: the unchanged base.
        const bool other = whole && !at->decision.empty() && (at->decision == "aa_ok" || at->became_champion());
        if (in_time == nullptr && own && !other) in_time = &*at;
    }
    return in_time;
}

std::optional<double> MeasuredRun::noise_pct() const {
    std::vector<double> spreads;
    for (const MeasuredView& one : history) {
        const bool same = !champion || one.key == champion->key;
        if (same && one.pairs && one.pairs->n >= 3 && one.pairs->deviation_pct > 0) {
            spreads.push_back(one.pairs->deviation_pct);
        }
    }
    if (!spreads.empty()) return middle(std::move(spreads));
    if (!champion || champion->points.size() < 3) return std::nullopt;
    const double median = middle(champion->points);
    if (median == 0) return std::nullopt;
    std::vector<double> distances;
    distances.reserve(champion->points.size());
    for (const double point : champion->points) distances.push_back(std::abs(point - median));
    constexpr double k_deviation_of_mad = 1.4826;  // for a normal distribution
    return 100 * k_deviation_of_mad * middle(std::move(distances)) / std::abs(median);
}

Result<MeasuredRun> parse_measured(std::string_view text, std::string_view name) {
    const Json root = Json::parse(text, nullptr, false);
    if (!root.is_object()) {
        return fail(ErrorKind::config, fmt::format("{}: the performance state is not a JSON object", name),
                    "repair it, or move it away to start without a champion");
    }
    MeasuredRun run;
    if (const Json* champion = json::object(root, "champion")) run.champion = measured_view(*champion);
    if (const Json* history = json::array(root, "history")) {
        for (const Json& record : *history) {
            if (record.is_object()) run.history.push_back(measured_view(record));
        }
    }
    return run;
}

Result<std::optional<MeasuredRun>> read_measured(const std::filesystem::path& log_dir,
                                                 std::span<const Record> records) {
    std::filesystem::path path = log_dir / k_perf_state;
    for (const Record& record : records) {
        const bool of_session = record.type == RecordType::run || record.type == RecordType::resume;
        if (of_session && !record.word("perf_state").empty()) path = log_dir / record.word("perf_state");
    }
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return std::optional<MeasuredRun>();
    GDNCTL_TRY_ASSIGN(MeasuredRun run, parse_measured(*text, path.string()));
    return std::optional(std::move(run));
}

Result<std::optional<MeasuredRun>> read_measured(const LoadedRun& run) {
    return read_measured(run.log_dir, *run.records);
}

}  // namespace gdnctl::loop
