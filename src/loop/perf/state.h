// perf_state.json: champions and everything that was measured. `{"champion": record or null, "history": [record, ...],
// "version": 2}` as the recipe's program writes it, and besides `champions`, one by fingerprint key. Fields that this
// program does not know are kept.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/perf/policy.h"

namespace gdnctl::loop {

// Field names are the recipe's (docs/reference/loop.md).
Json record_json(const PerfRecord& record);
// What is missing or of another type stays empty: a champion without a number is none to compare with.
PerfRecord parse_record(const Json& value);

class PerfState {
public:
    PerfState();
    PerfState(PerfState&&) noexcept;
    PerfState& operator=(PerfState&&) noexcept;
    ~PerfState();

    // Versions 1 and 2. Error config (exit 2): it does not parse, or another program wrote it in another form. An empty
    // text is none.
    static Result<PerfState> parse(std::string_view text, std::string_view name);
    // Sorted keys, two blanks of indent, a newline at the end.
    std::string text() const;

    // Of this configuration; a champion that was written without a fingerprint counts for all configurations.
    std::optional<PerfRecord> champion(const std::string& key) const;
    // Keys that have a champion.
    std::vector<std::string> champion_keys() const;
    void set_champion(const PerfRecord& record);
    void append(const PerfRecord& record);
    // The last one last; of all configurations.
    std::vector<PerfRecord> history() const;
    // Of this configuration.
    std::vector<PerfRecord> history(const std::string& key) const;
    // Refusals after the last time that HEAD was seen to be where the champion is. Returns how many.
    int mark_suspects(const std::string& key);

private:
    struct Document;
    explicit PerfState(std::unique_ptr<Document> document);
    std::unique_ptr<Document> m_document;
};

// No such file: an empty state. Errors: those of parse(), local_io.
Result<PerfState> load_perf_state(const std::filesystem::path& path);
// Reads, changes and replaces the file under a lock (PATH.lock); when `change` fails, or the file does not parse,
// nothing is written. Errors: those of load and of `change`, conflict (locked), local_io, the old content being whole.
Status update_perf_state(const std::filesystem::path& path, const std::function<Status(PerfState&)>& change);

// The JSON form of a record of the performance state is declared in state.h; these are its parts.

Json gates_json(const std::vector<GateResult>& gates);  // [{"id", "result", "reason", "numbers"}]

// A Measurement as evidence of a stage: `gdnctl.measurement/1`.
Json measurement_json(const Measurement& measurement);
Measurement parse_measurement(const Json& value);

}  // namespace gdnctl::loop
