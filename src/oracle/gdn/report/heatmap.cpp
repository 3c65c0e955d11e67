// The map of errors by head and chunk, for terminals.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/report/report.h"

namespace gdnctl::oracle_report {

namespace {

constexpr std::size_t k_cells = 72;

char symbol(double error) {
    if (error <= 1) return '.';
    if (error <= oracle::k_ok_band) return '-';
    return error <= oracle::k_wrong_band ? '+' : '#';
}

// One map. `what`: what the errors belong to; `state`: label of the column after the bar.
std::string map_text(const oracle::GdnReference& reference, const std::vector<oracle::LaneErrors>& errors,
                     std::string_view what, std::string_view state) {
    std::size_t chunks = 0;
    for (const auto& lane : errors) chunks = std::max(chunks, lane.chunks.size());
    const std::size_t per_cell = std::max<std::size_t>(1, (chunks + k_cells - 1) / k_cells);
    std::string text =
        fmt::format("error / budget{} by value head (rows) and {} (columns), {} behind the bar\n", what,
                    per_cell == 1 ? fmt::format("chunk of {} tokens", reference.contract.value.chunk)
                                  : fmt::format("{} chunks of {} tokens", per_cell, reference.contract.value.chunk),
                    state);
    for (const auto& lane : errors) {
        std::string cells;
        for (std::size_t first = 0; first < lane.chunks.size(); first += per_cell) {
            double worst = 0;
            for (std::size_t c = first; c < std::min(first + per_cell, lane.chunks.size()); ++c) {
                worst = std::isnan(lane.chunks[c]) ? HUGE_VAL : std::max(worst, lane.chunks[c]);
            }
            cells += symbol(worst);
        }
        text += fmt::format("{} {:>3} {:<{}} |{}\n",
                            errors.size() > static_cast<std::size_t>(reference.problem.dims.Hv)
                                ? fmt::format("sequence {:>3} head", lane.sequence)
                                : std::string("head"),
                            lane.head, cells, (chunks + per_cell - 1) / per_cell,
                            lane.final_state ? std::string(1, symbol(*lane.final_state)) : std::string("?"));
    }
    return text;
}

}  // namespace

std::string heatmap_text(const oracle::GdnReference& reference, const oracle::GdnReport& report) {
    std::string text = map_text(reference, report.errors, "", "final state");
    if (!report.gradient_errors.empty()) {
        text += map_text(reference, report.gradient_errors, " of the worst gradient", "d_initial_state");
    }
    return text + ". up to 1   - up to 4 (OK)   + up to 30 (SUSPECT)   # beyond (WRONG)   ? not in the dump\n";
}

}  // namespace gdnctl::oracle_report
