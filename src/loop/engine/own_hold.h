// --hold-dev-tpu: a development TPU held by this process itself.
#pragma once

#include <atomic>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "jobs/hold.h"
#include "loop/engine/tpu_hold.h"

namespace gdnctl::loop {

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
