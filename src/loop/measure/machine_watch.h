// Whether this machine does other things while something is measured on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"

namespace gdnctl::loop {

// Time of the processors since the machine started, in ticks.
struct ProcessorTicks {
    std::uint64_t busy = 0, total = 0;
    int processors = 0;
};
// Of the processors with these numbers, or of all; the text is that of /proc/stat. nullopt: it is none. Pure.
std::optional<ProcessorTicks> parse_processor_ticks(std::string_view proc_stat, const std::vector<int>& only = {});

class MachineWatch {
public:
    // `root`: where /proc and /sys are; something else than "/" in tests. The clock must outlive it.
    explicit MachineWatch(Clock& clock, std::filesystem::path root = "/");

    // What would disturb a measurement that begins now: "other programs use 1.9 of 2 processors"; several joined by
    // "; ". Empty: nothing that is known of. Takes 0.1 s, and up to 0.4 s where something is found.
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
