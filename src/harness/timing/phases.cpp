#include "harness/timing/phases.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gdnctl::harness {

namespace {

// A phase that reaches less than this of either ceiling is held up by something else: shuffles, scalar work, waiting
// for caches.
constexpr double k_bounded = 0.3;

std::string_view bound_of(const PhaseRow& row) {
    if (std::max(row.of_peak, row.of_memory) < k_bounded) return "packing";
    return row.of_peak >= row.of_memory ? "arithmetic" : "memory";
}

std::string figure(double value, int digits) { return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-"; }

}  // namespace

void PhaseRuns::run(const oracle::TimedKernel& kernel, oracle::BenchInputs& inputs, int threads, oracle::Isa isa,
                    const Clock& clock) {
    oracle::PhaseSums sums;
    inputs.set_phases(&sums);
    const auto start = clock.monotonic();
    const std::uint64_t first = oracle::phase_ticks();
    kernel.run(inputs, threads, isa);
    const auto ticks = static_cast<double>(std::max<std::uint64_t>(oracle::phase_ticks() - first, 1));
    Run run;
    run.seconds = std::max(std::chrono::duration<double>(clock.monotonic() - start).count(), 1e-9);
    inputs.set_phases(nullptr);
    for (std::size_t i = 0; i < oracle::k_phases; ++i) {
        const oracle::PhaseWork& work = sums.times().of[i];
        run.in_phase[i] = static_cast<double>(work.ticks) / ticks * run.seconds / threads;
        run.flop[i] = work.flop;
        run.bytes[i] = work.bytes;
    }
    m_runs.push_back(run);
}

std::vector<PhaseRow> PhaseRuns::rows(const Ceilings& ceilings) const {
    if (m_runs.empty()) return {};
    // Those of one run add up to its time; medians of each would not.
    std::vector<Run> runs = m_runs;
    const auto middle = runs.begin() + static_cast<std::ptrdiff_t>((runs.size() - 1) / 2);
    std::nth_element(runs.begin(), middle, runs.end(),
                     [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
    const Run& run = *middle;
    double waiting = run.seconds;
    std::vector<PhaseRow> rows;
    for (std::size_t i = 0; i < oracle::k_phases; ++i) {
        const double seconds = run.in_phase[i];
        if (seconds <= 0) continue;
        waiting -= seconds;
        PhaseRow row;
        row.name = oracle::name_of(static_cast<oracle::Phase>(i));
        row.ms = seconds * 1e3;
        row.share = seconds / run.seconds;
        row.gflops = run.flop[i] / seconds * 1e-9;
        row.of_peak = row.gflops / ceilings.gflops;
        row.gigabytes_a_second = run.bytes[i] / seconds * 1e-9;
        row.of_memory = row.gigabytes_a_second / ceilings.gigabytes_a_second;
        row.bound = bound_of(row);
        rows.push_back(row);
    }
    if (rows.empty()) return rows;
    PhaseRow rest;
    rest.name = "waiting";
    rest.ms = std::max(waiting, 0.0) * 1e3;
    rest.share = std::max(waiting, 0.0) / run.seconds;
    rows.push_back(rest);
    return rows;
}

std::string phases_text(std::string_view kernel, const std::vector<PhaseRow>& rows) {
    if (rows.empty())
        return fmt::format("phases of {}: not measured (only our forward and backward kernels have phases)\n", kernel);
    std::string out = fmt::format("phases of {}\n", kernel);
    out += fmt::format("{:<22}{:>10}{:>9}{:>11}{:>9}{:>9}{:>11}  {}\n", "", "ms", "share", "GFLOP/s", "x peak", "GB/s",
                       "x memory", "bound by");
    for (const PhaseRow& row : rows) {
        const std::string line = fmt::format("  {:<20}{:>10.2f}{:>7.0f} %{:>11}{:>9}{:>9}{:>11}  {}", row.name, row.ms,
                                             row.share * 100, figure(row.gflops, 1), figure(row.of_peak, 2),
                                             figure(row.gigabytes_a_second, 1), figure(row.of_memory, 2), row.bound);
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
}

Json phases_json(const std::vector<PhaseRow>& rows) {
    if (rows.empty()) return nullptr;
    Json list = Json::array();
    for (const PhaseRow& row : rows) {
        list.push_back({{"name", row.name},
                        {"ms", row.ms},
                        {"share", row.share},
                        {"gflops", row.gflops},
                        {"fma_peak_fraction", row.of_peak},
                        {"gigabytes_per_s", row.gigabytes_a_second},
                        {"memory_fraction", row.of_memory},
                        {"bound", row.bound.empty() ? Json(nullptr) : Json(row.bound)}});
    }
    return list;
}

}  // namespace gdnctl::harness
