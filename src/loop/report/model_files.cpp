// Reads the files of a log directory.
#include <algorithm>

#include <fmt/format.h>

#include "loop/engine/artefacts.h"
#include "loop/engine/chain.h"
#include "loop/report/model.h"
#include "platform/fs.h"
#include "platform/lock.h"
#include "runlog/records/words.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

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
                "attempt {} ended: {}, exit code {}, {}, {} tokens", record.count("attempt"), word("class"),
                record.count("rc"), format_duration(std::chrono::milliseconds(record.count("wall_ms"))),
                grouped(record.number.contains("tokens") ? std::optional(record.count("tokens")) : std::nullopt));
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

}  // namespace gdnctl::loop
