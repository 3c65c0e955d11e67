#include "loop/engine/resume.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "platform/fs.h"
#include "platform/replace.h"

namespace gdnctl::loop {

namespace {

constexpr std::string_view k_schema = "gdnctl.loop-state/1";

int ended_iterations(std::span<const Record> records) {
    return static_cast<int>(std::count_if(
        records.begin(), records.end(), [](const Record& record) { return record.type == RecordType::iteration_end; }));
}

int last_number(std::span<const Record> records) {
    const Record* last = last_of(records, RecordType::iteration);
    return last == nullptr ? 0 : last->iteration;
}

// Before the candidate is known: steps for the tree and the attempts.
Step step_of_attempts(std::span<const Record> open, int iteration, bool interrupted) {
    if (last_of(open, RecordType::base) == nullptr) return {StepKind::take_base, iteration, 0, interrupted};
    const Record* started = last_of(open, RecordType::attempt);
    const Record* ended = last_of(open, RecordType::attempt_end);
    const int last = started == nullptr ? 0 : static_cast<int>(started->count("attempt"));
    if (last == 0) return {StepKind::run_attempt, iteration, 1, interrupted};
    // Records are in order: an end belongs to the attempt before it.
    const bool over = ended != nullptr && ended > started;
    if (!over || ended->word("next") == "retry") return {StepKind::put_away, iteration, last, interrupted};
    return {StepKind::collect, iteration, last, interrupted};
}

// Where the user's work is. A run that was asked to stop restores it before the iteration has ended.
struct Stash {
    const Record* intent = nullptr;   // none since it was restored
    const Record* stashed = nullptr;  // the same
};
Stash stash_of(std::span<const Record> open) {
    const Record* back = last_of(open, RecordType::restored);
    const auto since = [&](RecordType type) {
        const Record* record = last_of(open, type);
        return record != nullptr && (back == nullptr || record > back) ? record : nullptr;
    };
    return {since(RecordType::stash_intent), since(RecordType::stashed)};
}

}  // namespace

std::string_view to_text(StepKind kind) {
    constexpr std::array<std::string_view, 13> k_kinds = {
        "start_run", "begin_iteration", "set_aside", "take_base", "put_away",      "run_attempt", "collect",
        "judge",     "settle",          "write_log", "restore",   "end_iteration", "finished"};
    return k_kinds[static_cast<std::size_t>(kind)];
}

const Record* last_of(std::span<const Record> records, RecordType type) {
    const auto at = std::find_if(records.rbegin(), records.rend(), [&](const Record& r) { return r.type == type; });
    return at == records.rend() ? nullptr : &*at;
}

const Record* first_of(std::span<const Record> records, RecordType type) {
    const auto at = std::find_if(records.begin(), records.end(), [&](const Record& r) { return r.type == type; });
    return at == records.end() ? nullptr : &*at;
}

std::span<const Record> open_iteration(std::span<const Record> records) {
    for (std::size_t i = records.size(); i-- > 0;) {
        if (records[i].type == RecordType::iteration_end) return {};
        if (records[i].type == RecordType::iteration) return records.subspan(i);
    }
    return {};
}

Step next_step(std::span<const Record> records, int iterations, bool stashes, bool interrupted) {
    if (records.empty()) return {};
    const auto open = open_iteration(records);
    if (open.empty()) {
        if (ended_iterations(records) >= iterations) return {StepKind::finished};
        return {StepKind::begin_iteration, last_number(records) + 1};
    }
    const int iteration = open.front().iteration;
    const auto has = [&](RecordType type) { return last_of(open, type) != nullptr; };
    const Stash stash = stash_of(open);
    if (stashes && stash.stashed == nullptr && !has(RecordType::settled)) {
        const bool again = stash.intent != nullptr;
        return {StepKind::set_aside, iteration, 0, again, again ? stash.intent->word("message") : ""};
    }
    const Record* candidate = last_of(open, RecordType::candidate);
    if (candidate == nullptr) return step_of_attempts(open, iteration, interrupted);
    // A candidate that followed a moved branch is judged again.
    const Record* decision = last_of(open, RecordType::decision);
    if (decision == nullptr || decision < candidate) return {StepKind::judge, iteration, 0, interrupted};
    const Record* intent = last_of(open, RecordType::settle_intent);
    if (!has(RecordType::settled)) return {StepKind::settle, iteration, 0, intent != nullptr && intent > decision};
    if (!has(RecordType::logged)) return {StepKind::write_log, iteration, 0, has(RecordType::log_intent)};
    if (stash.stashed != nullptr && !stash.stashed->word("commit").empty()) {
        return {StepKind::restore_stash, iteration, 0, interrupted};
    }
    return {StepKind::end_iteration, iteration};
}

RunState summarise(std::span<const Record> records, int iterations, bool stashes) {
    RunState state;
    state.total = iterations;
    state.records = records.size();
    for (const Record& record : records) {
        switch (record.type) {
            case RecordType::run:
                state.run = record.word("run");
                state.isolation = record.word("isolation");
                break;
            case RecordType::resume: state.stop_reason.clear(); break;
            case RecordType::iteration: state.open = record.iteration; break;
            case RecordType::attempt_end:
                state.tokens += record.count("tokens");
                state.agent_ms += record.count("wall_ms");
                break;
            case RecordType::stage: state.tpu_ms += record.count("tpu_ms"); break;
            case RecordType::iteration_end:
                state.open = 0;
                ++state.ended;
                state.failures += static_cast<int>(record.count("counted"));
                ++state.outcomes[record.word("outcome")];
                state.since_promotion = record.count("promoted") > 0 ? 0 : state.since_promotion + 1;
                state.promotions += static_cast<int>(record.count("promoted"));
                state.tpu_ms += record.count("tpu_ms");
                break;
            case RecordType::stop: state.stop_reason = record.word("reason"); break;
            default: break;
        }
    }
    state.next = to_text(next_step(records, iterations, stashes, false).kind);
    return state;
}

namespace {

// Makes PATH.bak the current PATH: the same file, whose bytes are already on disk.
Status keep_backup(const std::filesystem::path& path) {
    const std::string backup = path.string() + ".bak";
    const std::string link = backup + ".new";
    std::error_code problem;
    std::filesystem::remove(link, problem);
    std::filesystem::create_hard_link(path, link, problem);
    if (!problem) std::filesystem::rename(link, backup, problem);
    if (!problem || problem == std::errc::no_such_file_or_directory) return {};
    // Not every file system supports links.
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(path));
    return before ? replace_whole(backup, *before, 0600) : Status();
}

}  // namespace

Status write_state(const std::filesystem::path& path, const RunState& state) {
    Json outcomes = Json::object();
    for (const auto& [name, count] : state.outcomes) outcomes[name] = count;
    const Json json = {{"schema", k_schema},
                       {"run", state.run},
                       {"isolation", state.isolation},
                       {"iterations_total", state.total},
                       {"iterations_ended", state.ended},
                       {"iteration_open", state.open},
                       {"next_step", state.next},
                       {"failures", state.failures},
                       {"promotions", state.promotions},
                       {"since_promotion", state.since_promotion},
                       {"outcomes", outcomes},
                       {"tokens", state.tokens},
                       {"agent_ms", state.agent_ms},
                       {"tpu_ms", state.tpu_ms},
                       {"stop_reason", state.stop_reason},
                       {"journal_records", state.records}};
    GDNCTL_TRY(keep_backup(path));
    return replace_whole(path, gdnctl::to_text(json, 2) + "\n", 0600);  // the journal can recreate it
}

Result<std::optional<RunState>> read_state(const std::filesystem::path& path) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return std::optional<RunState>();
    const Json json = Json::parse(*text, nullptr, false);
    const auto refused = [&](std::string_view why) {
        return fail(
            ErrorKind::config, fmt::format("{} {}; nothing was changed", path.string(), why),
            "compare it with state.json.bak; `gdnctl loop-status --rebuild-state` rebuilds it from the journal");
    };
    if (!json.is_object()) return refused("does not parse");
    RunState state;
    bool whole = true;
    const auto word = [&](const char* key, std::string& value) {
        const auto at = json::maybe_text(json, key);
        whole = whole && at;
        if (whole) value = *at;
    };
    const auto number = [&](const char* key, auto& value) {
        const auto at = json::integer(json, key);
        whole = whole && at;
        if (whole) value = static_cast<std::remove_reference_t<decltype(value)>>(*at);
    };
    std::string schema;
    word("schema", schema);
    if (whole && schema != k_schema) return refused("is of another version (" + schema + ")");
    word("run", state.run);
    word("isolation", state.isolation);
    number("iterations_total", state.total);
    number("iterations_ended", state.ended);
    number("iteration_open", state.open);
    word("next_step", state.next);
    number("failures", state.failures);
    number("promotions", state.promotions);
    number("since_promotion", state.since_promotion);
    number("tokens", state.tokens);
    number("agent_ms", state.agent_ms);
    number("tpu_ms", state.tpu_ms);
    word("stop_reason", state.stop_reason);
    number("journal_records", state.records);
    const Json* outcomes = json::object(json, "outcomes");
    whole = whole && outcomes != nullptr;
    if (whole) {
        for (const auto& [name, count] : outcomes->items()) {
            whole = whole && count.is_number_integer();
            if (whole) state.outcomes[name] = count.get<int>();
        }
    }
    if (!whole) return refused("lacks a field or has one of the wrong type");
    return std::optional(std::move(state));
}

}  // namespace gdnctl::loop
