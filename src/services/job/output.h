// What a job's log says beyond the exit status: pytest counts, the device line, oracle verdicts, profile metrics. Pure
// and streaming: memory does not grow with the log.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gdnctl {

// pytest's last summary line ("87 passed, 2 skipped in 12.30s").
struct PytestCounts {
    std::int64_t passed = 0, failed = 0, errors = 0, skipped = 0, deselected = 0, xfailed = 0, xpassed = 0;
    std::optional<double> seconds;
};
std::optional<PytestCounts> parse_pytest_summary(std::string_view line);

// `GDNCTL_DEVICE {"backend":"tpu","count":4}` at the start of a line.
struct DeviceReport {
    std::string backend;
    std::int64_t count = 0;
};
std::optional<DeviceReport> parse_device_line(std::string_view line);

// The oracle's verdicts: per item, and overall (`verdict: OK`, its last line).
struct OracleVerdicts {
    std::string overall;  // empty: no verdict line
    std::string kernel;   // as passed to `oracle verify --kernel`; empty: unknown
    std::int64_t cases = 0, vectors = 0;
    std::map<std::string, std::int64_t> counts;  // number of items per verdict
};
// "case   uniform_T64   OK   0.12 x budget": kind and verdict; nullopt: another line.
struct OracleItem {
    bool vector = false;  // a recorded output instead of a generated case
    std::string verdict;
};
std::optional<OracleItem> parse_oracle_item(std::string_view line);
// "crossed: 96 OK, 2 WRONG": a set of cases, or `vectors`, with the number of items per verdict; nullopt: another line.
// Gradients, decode and relations are counted by no line of this kind.
struct OracleSummary {
    bool vectors = false;
    std::map<std::string, std::int64_t> counts;
};
std::optional<OracleSummary> parse_oracle_summary(std::string_view line);
// "src:k.c" of "[gdnctl] judging src:k.c on the generated cases"; nullopt: another line.
std::optional<std::string> parse_judging_line(std::string_view line);
// The verdict in "verdict: WRONG: reason"; nullopt: not a verdict line.
std::optional<std::string> parse_verdict_line(std::string_view line);

struct ProfileReport {
    std::optional<double> mfu, tokens_per_second, duration;  // throughput/…, as the run prints them
    std::optional<std::string> run_url;
    std::optional<std::string> ce_implementation;
    std::map<std::string, std::string> model;  // key=value words of the `GDN profile model:` line
    bool empty() const {
        return !mfu && !tokens_per_second && !duration && !run_url && !ce_implementation && model.empty();
    }
};

// The number after the last `key` on the line, with nothing but [^0-9eE+-]* between them.
std::optional<double> parse_metric(std::string_view line, std::string_view key);
// https://wandb.ai/<entity>/<project>/runs/<id>, without a trailing backtick or period.
std::optional<std::string> parse_run_url(std::string_view line);

// Feed a log in pieces of any size, then finish().
class JobOutput {
public:
    void feed(std::string_view bytes);
    void finish();

    const std::optional<PytestCounts>& pytest() const { return m_pytest; }
    const std::optional<DeviceReport>& device() const { return m_device; }
    const OracleVerdicts& verdicts() const { return m_verdicts; }
    const ProfileReport& profile() const { return m_profile; }
    // The end of the log, at most 64 KiB, for classify().
    const std::string& tail() const { return m_tail; }

private:
    void line(std::string_view text);

    std::string m_partial;  // the unfinished line; anything beyond 64 KiB of a line is dropped
    std::string m_tail;
    std::optional<PytestCounts> m_pytest;
    std::optional<DeviceReport> m_device;
    OracleVerdicts m_verdicts;
    bool m_summarised = false;  // by sets: lines of items are then details
    ProfileReport m_profile;
};

}  // namespace gdnctl
