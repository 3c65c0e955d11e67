// A development TPU that a run holds, by another program or in this process, and what its users need to know about it.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"
#include "jobs/hold.h"
#include "loop/engine/options.h"
#include "platform/clock.h"
#include "platform/process.h"

namespace gdnctl::loop {

class HeldTpu {
public:
    virtual ~HeldTpu() = default;
    virtual bool active() const = 0;
    virtual std::string cluster() const = 0;  // the current one; it may change when the TPU is lost
    virtual std::string name() const = 0;
    // Allocates a TPU again on any of its clusters; false: none is available. The holder limits how often it tries.
    virtual bool reacquire(std::string_view reason) = 0;
};

// --hold-dev-tpu: a development TPU that another program allocates and holds while it runs.

struct HoldSettings {
    HoldOptions options;
    std::vector<std::string> allocator;  // first words of its command line; cluster and options are added
    std::filesystem::path log;           // removed at the start
    std::filesystem::path cwd;
    std::map<std::string, std::string> environment;  // added to ours
    std::chrono::seconds reacquire_pause{30};        // shortest pause between two attempts to allocate again
};

// The allocator's command line for a cluster.
std::vector<std::string> allocator_argv(const HoldSettings& settings, std::string_view cluster);
// The clusters in the order in which to try them, without duplicates.
std::vector<std::string> hold_clusters(const HoldOptions& options);

// Last line that the allocate log keeps.
inline constexpr std::string_view k_became_active =
    "[gdnctl] dev TPU became active; suppressing further allocation log output while keeping the hold process drained.";

// The last 80 lines of the allocate log, each on its own indented line.
std::string tail_of(const std::filesystem::path& file);

// Decides which lines the allocate log keeps: everything up to the line that reports the TPU as allocated, then one
// notice. Pure.
class AllocateLog {
public:
    // What to write for this line, with newline; empty: nothing.
    std::string take(std::string_view line);
    bool ready() const { return m_ready; }

private:
    bool m_ready = false;
};

// What a run needs from the holder of its TPU.
class LoopHold : public HeldTpu {
public:
    // Tries each cluster, pass after pass. Errors: infrastructure (no cluster had a TPU), usage, interrupted,
    // terminated.
    virtual Status acquire() = 0;
    virtual void release() = 0;
    virtual std::chrono::milliseconds held() const = 0;  // total
};

class TpuHold final : public LoopHold {
public:
    TpuHold(HoldSettings settings, Process& process, Clock& clock, std::stop_token stop);
    ~TpuHold() override;
    TpuHold(const TpuHold&) = delete;
    TpuHold& operator=(const TpuHold&) = delete;

    // Infrastructure errors name cluster, attempt, log, and the log's last lines.
    Status acquire() override;
    // Sends SIGINT, then SIGTERM, then SIGKILL; returns when the program has ended.
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
    std::optional<Clock::Monotonic> m_since;  // when the current hold started
    std::chrono::milliseconds m_held{0};      // before the current hold
    std::optional<Clock::Monotonic> m_tried;  // last attempt to allocate again
};

// --hold-dev-tpu: a development TPU held by this process itself.

class OwnHold final : public LoopHold {
public:
    OwnHold(HoldSettings settings, Context& context);
    ~OwnHold() override;
    OwnHold(const OwnHold&) = delete;
    OwnHold& operator=(const OwnHold&) = delete;

    Status acquire() override;
    void release() override;

    bool active() const override { return m_holding != nullptr && !m_lost; }
    std::string cluster() const override { return m_cluster; }
    std::string name() const override { return m_settings.options.name; }
    bool reacquire(std::string_view reason) override;
    std::chrono::milliseconds held() const override;

private:
    Status allocate(const std::string& cluster, std::int64_t attempt);
    HoldPlan plan();

    HoldSettings m_settings;
    Context& m_context;
    std::unique_ptr<Holding> m_holding;
    std::atomic<bool> m_lost{false};
    std::jthread m_watch;  // notices when the TPU is lost
    std::string m_cluster;
    std::optional<Clock::Monotonic> m_since;
    std::chrono::milliseconds m_held{0};
    std::optional<Clock::Monotonic> m_tried;
};

}  // namespace gdnctl::loop
