// --hold-dev-tpu: a development TPU that another program allocates and holds for as long as it runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"
#include "loop/engine/held_tpu.h"
#include "loop/engine/options.h"
#include "platform/clock.h"
#include "platform/process.h"

namespace gdnctl::loop {

struct HoldSettings {
    HoldOptions options;
    std::vector<std::string> allocator;  // its first words; the cluster and the rest are added
    std::filesystem::path log;           // removed at the start
    std::filesystem::path cwd;
    std::map<std::string, std::string> environment;  // on top of ours
    std::chrono::seconds reacquire_pause{30};        // between two attempts to get it again, at least
};

// The allocator's words for a cluster.
std::vector<std::string> allocator_argv(const HoldSettings& settings, std::string_view cluster);
// The clusters in the order in which they are tried, each once.
std::vector<std::string> hold_clusters(const HoldOptions& options);

// Ends what the allocate log keeps.
inline constexpr std::string_view k_became_active =
    "[gdnctl] dev TPU became active; suppressing further allocation log output while keeping the hold process drained.";

// The last 80 lines of the allocate log, each on a line of its own and indented.
std::string tail_of(const std::filesystem::path& file);

// What the allocate log keeps: everything up to the line that says that the TPU is there, then one notice. Pure.
class AllocateLog {
public:
    // What to write of this line, with newline; empty: nothing.
    std::string take(std::string_view line);
    bool ready() const { return m_ready; }

private:
    bool m_ready = false;
};

// What a run asks of whoever holds its TPU.
class LoopHold : public HeldTpu {
public:
    // Tries cluster after cluster, pass after pass. Errors: infrastructure (none of them worked), usage, interrupted,
    // terminated.
    virtual Status acquire() = 0;
    virtual void release() = 0;
    virtual std::chrono::milliseconds held() const = 0;  // all together
};

class TpuHold final : public LoopHold {
public:
    TpuHold(HoldSettings settings, Process& process, Clock& clock, std::stop_token stop);
    ~TpuHold() override;
    TpuHold(const TpuHold&) = delete;
    TpuHold& operator=(const TpuHold&) = delete;

    // Of infrastructure errors: cluster, attempt, log, its last lines.
    Status acquire() override;
    // SIGINT, then SIGTERM, then SIGKILL; returns when it is gone.
    void release() override;

    bool active() const override;
    std::string cluster() const override { return m_cluster; }
    std::string name() const override { return m_settings.options.name; }
    bool reacquire(std::string_view reason) override;
    std::chrono::milliseconds held() const override;

private:
    struct Child;
    Status allocate(const std::string& cluster, int attempt);
    Status wait_until_ready(const std::string& cluster, int attempt);
    void end_child(std::chrono::milliseconds grace);
    Error failure(const std::string& cluster, int attempt, std::string_view what) const;

    HoldSettings m_settings;
    Process& m_process;
    Clock& m_clock;
    std::stop_token m_stop;
    std::unique_ptr<Child> m_child;
    std::string m_cluster;
    std::optional<Clock::Monotonic> m_since;  // it is held
    std::chrono::milliseconds m_held{0};      // before that
    std::optional<Clock::Monotonic> m_tried;  // to get it again
};

}  // namespace gdnctl::loop
