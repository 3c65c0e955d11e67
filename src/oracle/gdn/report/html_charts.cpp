#include "oracle/gdn/report/html_charts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace gdnctl::oracle_html {

namespace {

using oracle::GdnReference;
using oracle::GdnReport;
using oracle::LaneErrors;

constexpr std::size_t k_most_cells = 256;
constexpr std::size_t k_most_lanes = 512;
// Below this number, each cell has its own rectangle, and so a tooltip; above it, neighbours of one colour share one.
constexpr std::size_t k_single_cells = 4096;

double worse(double a, double b) { return std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::max(a, b); }

std::string times_text(double error) {
    return std::isfinite(error) ? fmt::format("{:.3g} x budget", error) : std::string("not finite");
}

// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
std::size_t nice_step(double least) {
    for (std::size_t decade = 1;; decade *= 10) {
        for (const std::size_t factor : {1UL, 2UL, 5UL}) {
            if (static_cast<double>(decade * factor) >= least) return decade * factor;
        }
    }
}

// Upper limit on the average width of a letter at 12 px.
constexpr double k_letter = 8;

// What the map shows: which lanes, and how many chunks share a column.
struct MapLayout {
    std::vector<std::size_t> lanes;
    std::size_t chunks = 0, per_cell = 1, cells = 0;
    double cell_width = 12, row_height = 16, left = 0;
    bool names_sequences = false;

    double x_of(std::size_t cell) const { return left + static_cast<double>(cell) * cell_width; }
};

double worst_of(const LaneErrors& lane) {
    double worst = lane.final_state ? worse(0, *lane.final_state) : 0;
    for (const double e : lane.chunks) worst = worse(worst, e);
    return worst;
}

MapLayout layout_of(const GdnReference& reference, const std::vector<LaneErrors>& errors) {
    MapLayout m;
    m.lanes.resize(errors.size());
    std::iota(m.lanes.begin(), m.lanes.end(), std::size_t{0});
    if (m.lanes.size() > k_most_lanes) {
        std::stable_sort(m.lanes.begin(), m.lanes.end(),
                         [&](std::size_t a, std::size_t b) { return worst_of(errors[a]) > worst_of(errors[b]); });
        m.lanes.resize(k_most_lanes);
        std::sort(m.lanes.begin(), m.lanes.end());
    }
    for (const std::size_t lane : m.lanes) m.chunks = std::max(m.chunks, errors[lane].chunks.size());
    m.per_cell = std::max<std::size_t>(1, (m.chunks + k_most_cells - 1) / k_most_cells);
    m.cells = (m.chunks + m.per_cell - 1) / m.per_cell;
    m.names_sequences = reference.problem.sequences.size() > 1;
    m.left = m.names_sequences ? 128 : 64;
    m.cell_width = m.cells == 0 ? 12 : std::clamp(860.0 / static_cast<double>(m.cells), 3.2, 26.0);
    m.row_height = m.lanes.size() <= 40 ? 17 : m.lanes.size() <= 128 ? 10 : 6;
    return m;
}

std::string rectangle(int colour, double x, double y, double width, double height, const std::string& title) {
    return fmt::format(
        "<rect class=e{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}</title></rect>\n",
        colour, x, y, width, height, title);
}

// One lane's chunks, from left to right.
std::string row_of_cells(const LaneErrors& lane, const MapLayout& m, double y) {
    const bool single = m.lanes.size() * m.cells <= k_single_cells;
    const double gap = m.row_height > 8 ? 1 : 0.5;
    std::string html;
    std::size_t first = 0;  // cell where the current run of one colour begins
    double run = 0;
    const auto worst_in = [&](std::size_t cell) {
        double worst = 0;
        const std::size_t end = std::min((cell + 1) * m.per_cell, lane.chunks.size());
        for (std::size_t c = cell * m.per_cell; c < end; ++c) worst = worse(worst, lane.chunks[c]);
        return worst;
    };
    const std::size_t cells = (lane.chunks.size() + m.per_cell - 1) / m.per_cell;
    for (std::size_t cell = 0; cell < cells; ++cell) {
        run = worse(run, worst_in(cell));
        const bool more = cell + 1 < cells;
        if (more && !single && level(worst_in(cell + 1)) == level(worst_in(cell))) continue;
        const std::size_t last_chunk = std::min((cell + 1) * m.per_cell, lane.chunks.size()) - 1;
        const std::string chunks = first * m.per_cell == last_chunk
                                       ? fmt::format("chunk {}", last_chunk)
                                       : fmt::format("chunks {} to {}", first * m.per_cell, last_chunk);
        html +=
            rectangle(level(run), m.x_of(first), y, static_cast<double>(cell + 1 - first) * m.cell_width - gap,
                      m.row_height - gap,
                      fmt::format("sequence {}, head {}, {}: {}", lane.sequence, lane.head, chunks, times_text(run)));
        first = cell + 1;
        run = 0;
    }
    return html;
}

std::string chunk_numbers(const MapLayout& m) {
    std::string html;
    if (m.chunks == 0) return html;
    const std::size_t step = nice_step(30 / m.cell_width * static_cast<double>(m.per_cell));
    html += "<text x=\"0\" y=\"12\">chunk</text>\n";
    for (std::size_t chunk = 0; chunk < m.chunks; chunk += step) {
        html += fmt::format("<text x=\"{:.1f}\" y=\"12\">{}</text>\n", m.x_of(chunk / m.per_cell), chunk);
    }
    return html;
}

// The y axis of the token chart.
struct LogScale {
    double low = -2, high = 2, top = 10, height = 230;

    double y_of(double error) const {
        const double log = !std::isfinite(error) ? high : error > 0 ? std::log10(error) : low;
        return top + (high - std::clamp(log, low, high)) / (high - low) * height;
    }
    double bottom() const { return top + height; }
};

constexpr double k_chart_left = 78;
constexpr double k_chart_width = 900;

std::string bands(const LogScale& scale) {
    std::string html;
    double below = scale.bottom();
    const double tops[] = {scale.y_of(1), scale.y_of(oracle::k_ok_band), scale.y_of(oracle::k_wrong_band), scale.top};
    for (int i = 0; i < 4; ++i) {
        html += fmt::format("<rect class=\"e{} band\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>\n", i,
                            k_chart_left, tops[i], k_chart_width, below - tops[i]);
        below = tops[i];
    }
    // Labels keep a distance of 13 units; those of the bands come first.
    std::vector<double> taken;
    const auto label = [&](double error, const std::string& text) {
        const double y = scale.y_of(error);
        if (std::any_of(taken.begin(), taken.end(), [y](double other) { return std::fabs(other - y) < 13; })) return;
        taken.push_back(y);
        html +=
            fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", k_chart_left - 6, y + 4, text);
    };
    label(oracle::k_wrong_band, "30 WRONG");
    label(1, "1");
    label(oracle::k_ok_band, "4 OK");
    for (int decade = static_cast<int>(scale.high); decade >= static_cast<int>(scale.low); --decade) {
        label(std::pow(10.0, decade), fmt::format("1e{}", decade));
    }
    return html;
}

// Tokens share points, of which there are at most 1,800; each shows its worst token.
std::string curve(const std::vector<double>& errors, const LogScale& scale, double per_token) {
    const std::size_t step = std::max<std::size_t>(1, errors.size() / 900);
    std::string points;
    std::string dots;
    for (std::size_t first = 0; first < errors.size(); first += step) {
        double worst = 0;
        for (std::size_t t = first; t < std::min(first + step, errors.size()); ++t) worst = worse(worst, errors[t]);
        const double x = k_chart_left + per_token * static_cast<double>(first);
        points += fmt::format("{:.1f},{:.1f} ", x, scale.y_of(worst));
        if (errors.size() > 150) continue;
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\"><title>token {}: {}</title></circle>\n", x,
                            scale.y_of(worst), first, times_text(worst));
    }
    return fmt::format("<polyline points=\"{}\"/>\n{}", points, dots);
}

}  // namespace

int level(double error) {
    if (error <= 1) return 0;
    if (error <= oracle::k_ok_band) return 1;
    return error <= oracle::k_wrong_band ? 2 : 3;
}

std::string lane_map(const GdnReference& reference, const std::vector<LaneErrors>& errors, std::string_view state) {
    const MapLayout m = layout_of(reference, errors);
    const double state_at = m.x_of(m.cells) + 12;
    constexpr double k_top = 20;
    const double height = k_top + m.row_height * static_cast<double>(m.lanes.size()) + 4;
    std::string html;
    if (m.lanes.size() < errors.size()) {
        html += fmt::format("<p class=soft>the {} worst of {} value heads of sequences</p>\n", m.lanes.size(),
                            errors.size());
    }
    html += fmt::format(
        "<div class=wide><svg width=\"{:.0f}\" height=\"{:.0f}\" role=img aria-label=\"error by head and chunk\">\n",
        state_at + std::max(80.0, k_letter * static_cast<double>(state.size())), height);
    html += chunk_numbers(m) + fmt::format("<text x=\"{:.1f}\" y=\"12\">{}</text>\n", state_at, state);
    const auto named = static_cast<std::size_t>(std::ceil(13 / m.row_height));  // one label per this many rows
    double y = k_top;
    for (std::size_t row = 0; row < m.lanes.size(); ++row, y += m.row_height) {
        const LaneErrors& lane = errors[m.lanes[row]];
        if (row % named == 0) {
            const std::string name = m.names_sequences ? fmt::format("seq {} head {}", lane.sequence, lane.head)
                                                       : fmt::format("head {}", lane.head);
            html +=
                fmt::format("<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + std::min(m.row_height, 17.0) / 2 + 4, name);
        }
        html += row_of_cells(lane, m, y);
        const std::string times = lane.final_state ? times_text(*lane.final_state) : std::string("not in the dump");
        html += rectangle(lane.final_state ? level(*lane.final_state) : 9, state_at, y, 26, m.row_height - 0.5,
                          fmt::format("sequence {}, head {}, {}: {}", lane.sequence, lane.head, state, times));
    }
    html += "</svg></div>\n<p class=legend>error / budget: ";
    for (const auto& [colour, text] :
         {std::pair{0, "up to 1"}, {1, "up to 4: OK"}, {2, "up to 30: SUSPECT"}, {3, "beyond: WRONG"}}) {
        html += fmt::format("<span><i class=e{}></i>{}</span> ", colour, text);
    }
    return html + (m.per_cell > 1 ? fmt::format("{} chunks a column", m.per_cell) : std::string()) + "</p>\n";
}

std::optional<std::int64_t> wrong_token(const GdnReference& reference, const GdnReport& report, bool gradients) {
    if (!report.place || report.backward_fault != gradients) return std::nullopt;
    const auto& place = *report.place;
    if (place.tensor == "final_state" || place.tensor == "d_initial_state") return std::nullopt;
    const auto& sequence = reference.problem.sequences[static_cast<std::size_t>(place.first_sequence)];
    return place.first_batch * reference.problem.dims.T + place.first_token - sequence.begin;
}

std::string token_chart(const TokenChart& chart) {
    const std::vector<double>& errors = chart.errors;
    if (errors.empty()) return fmt::format("<p class=soft>{}</p>\n", chart.missing);
    LogScale scale;
    for (const double e : errors) {
        if (std::isfinite(e) && e > 0) scale.high = std::max(scale.high, std::ceil(std::log10(e)));
    }
    const double per_token = k_chart_width / static_cast<double>(std::max<std::size_t>(errors.size() - 1, 1));
    std::string html =
        fmt::format("<div class=wide><svg width=\"{:.0f}\" height=\"{:.0f}\" role=img aria-label=\"error by token\">\n",
                    k_chart_left + k_chart_width + 20, scale.bottom() + 24);
    html += bands(scale);
    if (chart.marked) {
        const double x = k_chart_left + per_token * static_cast<double>(*chart.marked);
        const bool late = *chart.marked * 2 > static_cast<std::int64_t>(errors.size());
        html += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=mark x=\"{3:.1f}\" y=\"{4}\" "
            "text-anchor=\"{5}\">{7}: token {6}</text>\n",
            x, scale.top, scale.bottom(), late ? x - 5 : x + 5, scale.bottom() - 6, late ? "end" : "start",
            *chart.marked, chart.mark);
    }
    html += curve(errors, scale, per_token);
    const std::size_t step = nice_step(70 / per_token);
    for (std::size_t t = 0; t < errors.size(); t += step) {
        html += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
                            k_chart_left + per_token * static_cast<double>(t), scale.bottom() + 16, t);
    }
    return html + fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">token</text></svg></div>\n",
                              k_chart_left - 12, scale.bottom() + 16);
}

}  // namespace gdnctl::oracle_html
