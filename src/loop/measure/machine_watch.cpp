#include "loop/measure/machine_watch.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "core/for_people.h"
#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

// Below this, nearly every machine has a free processor for the measurement.
constexpr double k_busy_share = 0.4;
constexpr std::chrono::milliseconds k_look{100};
constexpr std::chrono::milliseconds k_second_look{300};  // the previous run's last activity must not count as another
                                                         // program
constexpr double k_slow_share = 0.9;                     // share of the highest frequency

std::vector<int> own_processors() {
    std::vector<int> list;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return list;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &set)) list.push_back(i);
    }
    return list;
}

std::string text_of(const fs::path& file) {
    auto text = read_file_if_exists(file, std::size_t{1} << 20);
    return text && *text ? std::move(**text) : std::string();
}

std::optional<std::int64_t> number_of(const fs::path& file) { return text::parse_int(text::trim(text_of(file))); }

// Folders in `folder` whose names are `prefix` and a number.
std::vector<std::pair<int, fs::path>> numbered(const fs::path& folder, std::string_view prefix) {
    std::vector<std::pair<int, fs::path>> list;
    std::error_code problem;
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        const std::string name = at->path().filename().string();
        if (!name.starts_with(prefix)) continue;
        const auto number = text::parse_int(std::string_view(name).substr(prefix.size()));
        if (number && *number >= 0) list.emplace_back(static_cast<int>(*number), at->path());
    }
    std::sort(list.begin(), list.end());
    return list;
}

// Whether the command line is that of a running loop, not of one that only shows help or its plan.
bool is_loop(std::string_view cmdline) {
    const auto words = text::split(cmdline, '\0');
    if (words.empty() || words.front().substr(words.front().rfind('/') + 1) != "gdnctl") return false;
    const auto has = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    const bool counted =
        std::any_of(words.begin(), words.end(), [](std::string_view word) { return word.starts_with("--iterations"); });
    return has("codex-loop") && counted && !has("--dry-run") && !has("--help");
}

}  // namespace

std::optional<ProcessorTicks> parse_processor_ticks(std::string_view proc_stat, const std::vector<int>& only) {
    ProcessorTicks sum;
    for (const std::string_view line : text::split(proc_stat, '\n')) {
        if (!line.starts_with("cpu") || line.size() < 4 || line[3] == ' ') continue;
        const auto words = text::split(line, ' ');
        const auto number = text::parse_int(words[0].substr(3));
        if (!number || words.size() < 6) continue;
        if (!only.empty() && std::find(only.begin(), only.end(), *number) == only.end()) continue;
        ++sum.processors;
        // user nice system idle iowait irq softirq steal; user already includes guest time
        for (std::size_t i = 1; i < std::min<std::size_t>(words.size(), 9); ++i) {
            const auto ticks =
                static_cast<std::uint64_t>(std::max<std::int64_t>(0, text::parse_int(words[i]).value_or(0)));
            sum.total += ticks;
            if (i != 4 && i != 5) sum.busy += ticks;
        }
    }
    return sum.processors == 0 ? std::nullopt : std::optional(sum);
}

MachineWatch::MachineWatch(Clock& clock, fs::path root) : m_clock(clock), m_root(std::move(root)) {
    if (m_root == "/") m_ours = own_processors();
}

std::optional<ProcessorTicks> MachineWatch::ticks() const {
    return parse_processor_ticks(text_of(m_root / "proc/stat"), m_ours);
}

std::string MachineWatch::other_programs() const {
    std::string found;
    for (const auto look : {k_look, k_second_look}) {
        const auto before = ticks();
        if (!before) return {};
        m_clock.sleep_for(look, {});
        const auto after = ticks();
        if (!after || after->total <= before->total) return {};
        const double share = static_cast<double>(after->busy - std::min(before->busy, after->busy)) /
                             static_cast<double>(after->total - before->total);
        if (share < k_busy_share) return {};
        found = fmt::format("other programs use {} of {} CPUs", number_for_people(share * after->processors, 2),
                            after->processors);
    }
    return found;
}

std::string MachineWatch::slow_processors() {
    double slowest = 1.0;
    std::int64_t at = 0, of = 0;
    std::uint64_t throttled = 0;
    bool counts = false;
    for (const auto& [number, folder] : numbered(m_root / "sys/devices/system/cpu", "cpu")) {
        if (!m_ours.empty() && std::find(m_ours.begin(), m_ours.end(), number) == m_ours.end()) continue;
        const auto allowed = number_of(folder / "cpufreq/scaling_max_freq");
        const auto highest = number_of(folder / "cpufreq/cpuinfo_max_freq");
        if (allowed && highest && *highest > 0) {
            const double share = static_cast<double>(*allowed) / static_cast<double>(*highest);
            if (share < slowest) {
                slowest = share;
                at = *allowed;
                of = *highest;
            }
        }
        if (const auto count = number_of(folder / "thermal_throttle/core_throttle_count")) {
            counts = true;
            throttled += static_cast<std::uint64_t>(std::max<std::int64_t>(0, *count));
        }
    }
    std::vector<std::string> found;
    constexpr double k_khz_per_ghz = 1e6;
    if (slowest < k_slow_share) {
        found.push_back(fmt::format("the CPUs are limited to {} of {} GHz",
                                    number_for_people(static_cast<double>(at) / k_khz_per_ghz, 3),
                                    number_for_people(static_cast<double>(of) / k_khz_per_ghz, 3)));
    }
    if (counts && m_throttled && throttled > *m_throttled) found.emplace_back("the CPUs overheated and were throttled");
    if (counts) m_throttled = throttled;
    return text::join(found, "; ");
}

std::string MachineWatch::other_loops() const {
    std::vector<std::string> found;
    for (const auto& [pid, folder] : numbered(m_root / "proc", "")) {
        if (pid != getpid() && is_loop(text_of(folder / "cmdline"))) found.push_back(std::to_string(pid));
    }
    if (found.empty()) return {};
    return fmt::format("another codex-loop is running on this machine (process {})", text::join(found, ", "));
}

std::string MachineWatch::busy() {
    std::vector<std::string> found;
    for (std::string one : {other_programs(), slow_processors(), other_loops()}) {
        if (!one.empty()) found.push_back(std::move(one));
    }
    return text::join(found, "; ");
}

}  // namespace gdnctl::loop
