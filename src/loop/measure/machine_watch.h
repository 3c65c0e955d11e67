// Whether other programs use this machine during a measurement.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"

namespace gdnctl::loop {

// Processor time since the machine started, in ticks.
struct ProcessorTicks {
    std::uint64_t busy = 0, total = 0;
    int processors = 0;
};
// Sums the processors with these numbers, or all of them. `proc_stat` is the text of /proc/stat. nullopt: it is
// something else. Pure.
std::optional<ProcessorTicks> parse_processor_ticks(std::string_view proc_stat, const std::vector<int>& only = {});

class MachineWatch {
public:
    // `root`: the folder that contains /proc and /sys; tests pass another one. The clock must outlive the object.
    explicit MachineWatch(Clock& clock, std::filesystem::path root = "/");

    // What would disturb a measurement that starts now: "other programs use 1.9 of 2 processors"; several reasons are
    // joined by "; ". Empty: nothing was found. Takes 0.1 s, or up to 0.4 s if something is found.
    std::string busy();

private:
    std::optional<ProcessorTicks> ticks() const;
    std::string other_programs() const;
    std::string slow_processors();
    std::string other_loops() const;

    Clock& m_clock;
    std::filesystem::path m_root;
    std::vector<int> m_ours;  // processors that this process may use; empty: all
    std::optional<std::uint64_t> m_throttled;
};

}  // namespace gdnctl::loop
