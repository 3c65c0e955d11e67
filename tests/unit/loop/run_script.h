// Records of a run, without a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/time.h"
#include "loop/engine/journal.h"

namespace gdnctl::loop {

class RunScript {
public:
    explicit RunScript(std::int64_t total) {
        add(RecordType::run, 0, {{"run", "r1"}, {"isolation", "worktree"}, {"loop_id", "l1"}}, {{"total", total}});
    }
    void add(RecordType type, int iteration, std::map<std::string, std::string> text = {},
             std::map<std::string, std::int64_t> number = {}) {
        m_now += std::chrono::seconds(1);
        m_records.push_back(
            {type, iteration, std::move(text), std::move(number), m_records.size() + 1, format_iso8601(m_now)});
    }
    void attempt(int iteration, int number, const std::string& class_word, const std::string& next) {
        add(RecordType::attempt, iteration, {}, {{"attempt", number}});
        add(RecordType::attempt_end, iteration, {{"class", class_word}, {"next", next}},
            {{"attempt", number}, {"rc", next == "retry" ? 1 : 0}, {"wall_ms", 1000}, {"tokens", 10}});
    }
    void begin(int iteration) {
        add(RecordType::iteration, iteration);
        add(RecordType::base, iteration, {{"sha", std::string(40, 'b')}, {"branch", "refs/heads/main"}});
    }
    void candidate(int iteration) {
        add(RecordType::candidate, iteration,
            {{"head", std::string(39, 'c') + std::to_string(iteration % 10)}, {"diff", "change"}});
        add(RecordType::stage, iteration, {{"name", "protected"}, {"verdict", "pass"}});
    }
    void end(int iteration, const std::string& outcome, const std::string& verdict, const std::string& reason,
             bool promoted = false) {
        const bool counted = verdict == "reject";
        add(RecordType::decision, iteration, {{"outcome", outcome}, {"verdict", verdict}, {"reason", reason}});
        add(RecordType::settled, iteration, {{"result", verdict == "keep" ? "landed" : "rejected"}});
        add(RecordType::logged, iteration, {{"commit", std::string(40, 'd')}});
        add(RecordType::iteration_end, iteration, {{"outcome", outcome}},
            {{"counted", counted ? 1 : 0}, {"promoted", promoted ? 1 : 0}});
    }
    const std::vector<Record>& records() const { return m_records; }

private:
    std::vector<Record> m_records;
    WallTime m_now{std::chrono::milliseconds(1'773'161'587'000)};
};

// Iterations 1 (kept, promoted), 2 (tests fail, after a retry), 3 (refused by a gate), 4 (open); of 10.
inline std::vector<Record> scripted_run(int iterations) {
    RunScript run(10);
    if (iterations >= 1) {
        run.begin(1);
        run.attempt(1, 1, "ok", "collect");
        run.candidate(1);
        run.add(RecordType::stage, 1,
                {{"name", "performance"},
                 {"verdict", "pass"},
                 {"fact.gate.while_ms", "pass 4.1 <= 5.0"},
                 {"fact.step_ms", "99.5"}});
        run.end(1, "accepted", "keep", "", true);
    }
    if (iterations >= 2) {
        run.begin(2);
        run.attempt(2, 1, "server-error", "retry");
        run.attempt(2, 2, "ok", "collect");
        run.candidate(2);
        run.add(RecordType::stage, 2,
                {{"name", "test"}, {"verdict", "fail"}, {"reason", "case t_long: WRONG"}, {"sign", "t_long"}},
                {{"tpu_ms", 500}});
        run.end(2, "test-fail", "reject", "case t_long: WRONG");
    }
    if (iterations >= 3) {
        run.begin(3);
        run.attempt(3, 1, "ok", "collect");
        run.candidate(3);
        run.add(RecordType::stage, 3,
                {{"name", "performance"},
                 {"verdict", "fail"},
                 {"fact.gate.while_ms", "fail 6.2 <= 5.0"},
                 {"fact.step_ms", "99.9"}});
        run.end(3, "rejected", "reject", "`while_ms` increased by 6.2 ms");
    }
    if (iterations >= 4) {
        run.begin(4);
        run.add(RecordType::attempt, 4, {}, {{"attempt", 1}});
    }
    return run.records();
}

}  // namespace gdnctl::loop
