// The journal of `sweep run`: one JSON object per line, and the state of each configuration. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "sweep/record.h"

namespace gdnctl::sweep {

inline constexpr std::string_view k_journal_schema = "gdnctl.sweep-journal/1";

struct Shape {
    std::int64_t batch = 0, hidden = 0, vocab = 0;  // batch: rows of one kernel call
    bool operator==(const Shape&) const = default;
};
Json to_json(const Shape& shape);
// Error: bad_input.
std::optional<Shape> parse_shape(const Json& value);

// What a run came to.
struct RunEnd {
    ResultStatus status = ResultStatus::ok;
    Failure failure;
    std::string error;                        // its first line
    std::optional<double> steady_time_s;      // as printed
    std::optional<double> forward_s, step_s;  // what that is the time of
    double wall_s = 0, time_limit_s = 0;
    bool reduced = false;
    // The time by which configurations are compared: that of a step, else that of a forward.
    std::optional<double> time_s() const { return step_s ? step_s : forward_s; }
};

struct JournalEvent {
    enum class Kind { plan, start, end, skip };
    Kind kind = Kind::plan;
    std::string key, label, at;
    Shape shape;
    std::int64_t run = 0;  // 0 is the discarded one
    std::optional<BlockSizes> sizes;
    RunEnd end;                                                           // of `end`
    std::string name, device_kind, x_dtype, accum_dtype, implementation;  // of `plan`
    std::string submission_id, cluster, tpu_name;                         // of `start`
};
std::string to_line(const JournalEvent& event);
// nullopt: another text.
std::optional<JournalEvent> parse_journal_event(std::string_view line);

// All that a journal holds of one configuration.
struct ConfigHistory {
    std::string key, label;
    Shape shape;
    std::optional<BlockSizes> sizes;
    std::int64_t line = 0;                              // of its first event
    std::vector<std::pair<std::int64_t, RunEnd>> ends;  // run, end
    std::optional<JournalEvent> open;                   // a start without end

    // The configuration's own failure, or wrong output, which rules it out for good; nullptr: none. One that reached a
    // limit below `time_limit_s`, or ran to its end under a higher limit since, gets another chance.
    const RunEnd* verdict(double time_limit_s = 0) const;
    bool has_run(std::int64_t run) const;    // ended well
    std::vector<double> kept_times() const;  // of runs 1 and up
};

// Median and median absolute deviation; of nothing: nullopt.
std::optional<Spread> spread_of(std::vector<double> times);

class JournalReader {
public:
    explicit JournalReader(std::string_view file = {}) : m_file(file) {}
    // False: not a line of a journal.
    bool line(std::string_view text, std::int64_t number);
    const std::map<std::string, ConfigHistory>& configs() const { return m_configs; }
    // A record a configuration that has ended at least once.
    std::vector<Record> finish() const;

private:
    std::string m_file;
    std::map<std::string, ConfigHistory> m_configs;
    std::map<std::string, JournalEvent> m_plans;  // by key of a configuration: the plan that it was run under
    JournalEvent m_plan;
};

}  // namespace gdnctl::sweep
