#include "oracle/judge/charts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "render/chart.h"
#include "render/page.h"

namespace gdnctl::oracle {

namespace {

using svg::Anchor;

// Bands of the levels of error, and labels that keep a distance of 13 units; those of the bands come first.
void add_bands(svg::Plot& plot, const Scale& scale, double last, double low, double high) {
    double below = std::pow(10, low);
    const double tops[] = {1, scale.ok, scale.wrong, std::pow(10, high)};
    for (int i = 0; i < 4; ++i) {
        plot.area({fmt::format("e{} zone", i)}, 0, last, below, tops[i]);
        below = tops[i];
    }
    std::vector<double> taken;
    const auto label = [&](double error, const std::string& text) {
        const double y = plot.y_of(error);
        if (std::any_of(taken.begin(), taken.end(), [y](double other) { return std::fabs(other - y) < 13; })) return;
        taken.push_back(y);
        plot.level(error, text, false);
    };
    label(scale.wrong, fmt::format("{} WRONG", scale.wrong));
    label(1, "1");
    label(scale.ok, fmt::format("{} OK", scale.ok));
    for (int decade = static_cast<int>(high); decade >= static_cast<int>(low); --decade) {
        label(std::pow(10.0, decade), fmt::format("1e{}", decade));
    }
}

// Neighbours share points, of which there are at most 1,800; each shows the worst.
void add_points(svg::Plot& plot, const ErrorCurve& curve) {
    const std::vector<double>& errors = curve.errors;
    const std::size_t step = std::max<std::size_t>(1, errors.size() / 900);
    std::vector<std::pair<double, double>> points;
    for (std::size_t first = 0; first < errors.size(); first += step) {
        double worst = 0;
        for (std::size_t t = first; t < std::min(first + step, errors.size()); ++t)
            worst = worse_error(worst, errors[t]);
        points.emplace_back(first, worst);
    }
    plot.polyline({}, points);
    if (errors.size() > 150) return;
    for (const auto& [place, error] : points) {
        plot.point({{}, fmt::format("{} {}: {}", curve.axis, place, times_text(error, curve.scale))}, place, error,
                   svg::Shape::dot);
    }
}

}  // namespace

std::string curve_html(const ErrorCurve& curve) {
    const std::vector<double>& errors = curve.errors;
    if (errors.empty()) return fmt::format("<p class=soft>{}</p>\n", html::escaped(curve.missing));
    constexpr double k_low = -2, k_width = 900, k_height = 230;
    double high = 2;
    for (const double e : errors) {
        if (std::isfinite(e) && e > 0) high = std::max(high, std::ceil(std::log10(e)));
    }
    const auto last = static_cast<double>(std::max<std::size_t>(errors.size() - 1, 1));
    svg::Plot plot(fmt::format("error by {}", curve.axis), {0, last}, {k_low, high, true},
                   {k_width, k_height, 78, false});
    add_bands(plot, curve.scale, last, k_low, high);
    if (curve.marked) {
        const auto at = static_cast<double>(*curve.marked);
        const bool late = 2 * at > static_cast<double>(errors.size());
        plot.line("mark", at, std::pow(10, high), at, std::pow(10, k_low));
        plot.note(at, 0, late ? -5 : 5, -6, fmt::format("{}: {} {}", curve.mark, curve.axis, *curve.marked),
                  late ? Anchor::end : Anchor::start);
    }
    add_points(plot, curve);
    plot.ticks(svg::round_step(std::max(1.0, 70 * last / k_width)), static_cast<int>(errors.size()) - 1);
    plot.note(0, 0, -12, 18, curve.axis, Anchor::end);
    return plot.svg();
}

namespace {

constexpr std::size_t k_characters = 54;
constexpr std::size_t k_most_cells = 256;
constexpr std::size_t k_most_rows = 512;
// Below this number, each cell has its own rectangle, and so a tooltip; above it, neighbours of one colour share one.
constexpr std::size_t k_single_cells = 4096;
constexpr double k_letter = 8;  // upper limit on the average width of a letter at 12 px
constexpr double k_top = 20;

char symbol(double error, const Scale& scale) { return ".-+#"[error_level(error, scale)]; }

std::size_t divided_up(std::size_t count, std::size_t by) { return std::max<std::size_t>(1, (count + by - 1) / by); }

double worst_of(const std::vector<double>& cells, std::size_t first, std::size_t end) {
    double worst = 0;
    for (std::size_t c = first; c < std::min(end, cells.size()); ++c) worst = worse_error(worst, cells[c]);
    return worst;
}

double worst_of(const ErrorRow& row) {
    return worse_error(worst_of(row.cells, 0, row.cells.size()), row.beside.value_or(0));
}

std::size_t most_cells(const ErrorMap& map, const std::vector<std::size_t>& rows) {
    std::size_t most = 0;
    for (const std::size_t row : rows) most = std::max(most, map.all[row].cells.size());
    return most;
}

// Where a row is: "sequence 0, head 3".
std::string place_of(const ErrorMap& map, const ErrorRow& row, std::string_view between, bool all) {
    std::string text;
    for (std::size_t i = 0; i < map.axes.size(); ++i) {
        if (!all && map.axes[i].extent <= 1 && i + 1 < map.axes.size()) continue;
        text += fmt::format("{}{}{}{}", text.empty() ? "" : between, map.axes[i].name,
                            map.axes[i].name.empty() ? "" : " ", row.at[i]);
    }
    return text;
}

// What the map of a page shows: which rows, and how many cells share a column.
struct Layout {
    const ErrorMap& map;
    std::vector<std::size_t> rows;
    std::size_t cells = 0, per_column = 1, columns = 0;
    double column_width = 12, row_height = 16, left = 0;

    double x_of(std::size_t column) const { return left + static_cast<double>(column) * column_width; }
    std::size_t number(std::size_t cell) const { return map.numbers.empty() ? cell : map.numbers[cell]; }
};

Layout layout_of(const ErrorMap& map) {
    Layout m{map, {}};
    m.rows.resize(map.all.size());
    std::iota(m.rows.begin(), m.rows.end(), std::size_t{0});
    if (m.rows.size() > k_most_rows) {
        std::stable_sort(m.rows.begin(), m.rows.end(),
                         [&](std::size_t a, std::size_t b) { return worst_of(map.all[a]) > worst_of(map.all[b]); });
        m.rows.resize(k_most_rows);
        std::sort(m.rows.begin(), m.rows.end());
    }
    m.cells = most_cells(map, m.rows);
    m.per_column = divided_up(m.cells, k_most_cells);
    m.columns = (m.cells + m.per_column - 1) / m.per_column;
    std::size_t letters = 0;
    for (const ErrorRow& row : map.all) letters = std::max(letters, place_of(map, row, " ", false).size());
    m.left = std::max(64.0, k_letter * static_cast<double>(letters));
    m.column_width = m.columns == 0 ? 12 : std::clamp(860.0 / static_cast<double>(m.columns), 3.2, 26.0);
    m.row_height = m.rows.size() <= 40 ? 17 : m.rows.size() <= 128 ? 10 : 6;
    return m;
}

std::string cell_rect(const Layout& m, double error, const svg::Box& box, const std::string& where) {
    const Scale& scale = m.map.scale;
    return svg::rect(
        {fmt::format("e{}", error_level(error, scale)), fmt::format("{}: {}", where, times_text(error, scale))}, box);
}

// One row's cells, from left to right.
std::string row_of_cells(const Layout& m, const ErrorRow& row, double y) {
    const bool single = m.rows.size() * m.columns <= k_single_cells;
    const double gap = m.row_height > 8 ? 1 : 0.5;
    std::string html;
    std::size_t first = 0;  // column where the current run of one colour begins
    double run = 0;
    const auto worst_in = [&](std::size_t column) {
        return worst_of(row.cells, column * m.per_column, (column + 1) * m.per_column);
    };
    const auto level_in = [&](std::size_t column) { return error_level(worst_in(column), m.map.scale); };
    const std::size_t columns = (row.cells.size() + m.per_column - 1) / m.per_column;
    for (std::size_t column = 0; column < columns; ++column) {
        run = worse_error(run, worst_in(column));
        if (column + 1 < columns && !single && level_in(column + 1) == level_in(column)) continue;
        const std::size_t from = m.number(first * m.per_column);
        const std::size_t to = m.number(std::min((column + 1) * m.per_column, row.cells.size()) - 1);
        const std::string cells =
            from == to ? fmt::format("{} {}", m.map.cell, to) : fmt::format("{}s {} to {}", m.map.cell, from, to);
        html += cell_rect(
            m, run,
            {m.x_of(first), y, static_cast<double>(column + 1 - first) * m.column_width - gap, m.row_height - gap},
            fmt::format("{}, {}", place_of(m.map, row, ", ", true), cells));
        first = column + 1;
        run = 0;
    }
    return html;
}

std::string cell_numbers(const Layout& m) {
    if (m.cells == 0) return {};
    const double least = 30 / m.column_width * static_cast<double>(m.per_column);
    const auto step = static_cast<std::size_t>(svg::round_step(std::max(1.0, least)));
    std::string html = svg::text(0, 12, m.map.cell);
    for (std::size_t cell = 0; cell < m.cells; cell += step) {
        html += svg::text(m.x_of(cell / m.per_column), 12, fmt::format("{}", m.number(cell)));
    }
    return html;
}

std::string map_legend(const Layout& m) {
    const Scale& scale = m.map.scale;
    std::vector<std::pair<std::string, std::string>> items;
    if (scale.ok > 1) items.emplace_back("e0", "up to 1");
    items.emplace_back(scale.ok > 1 ? "e1" : "e0", fmt::format("up to {}: OK", scale.ok));
    if (scale.wrong > scale.ok) items.emplace_back("e2", fmt::format("up to {}: SUSPECT", scale.wrong));
    items.emplace_back("e3", "beyond: WRONG");
    return svg::legend(items, fmt::format("error / {}: ", scale.unit),
                       m.per_column > 1 ? fmt::format("{} {}s a column", m.per_column, m.map.cell) : std::string());
}

}  // namespace

std::string map_text(const ErrorMap& map, std::string_view of) {
    std::vector<std::size_t> rows(map.all.size());
    std::iota(rows.begin(), rows.end(), std::size_t{0});
    const std::size_t cells = most_cells(map, rows);
    const std::size_t per_cell = divided_up(cells, k_characters);
    std::string text = fmt::format(
        "error / {}{} by {} (rows) and {} of {} (columns), {} right of the bar\n", map.scale.unit, of, map.rows,
        per_cell == 1 ? std::string(map.cell) : fmt::format("{} {}s", per_cell, map.cell), map.cell_size, map.beside);
    for (const ErrorRow& row : map.all) {
        std::string symbols;
        for (std::size_t first = 0; first < row.cells.size(); first += per_cell) {
            symbols += symbol(worst_of(row.cells, first, first + per_cell), map.scale);
        }
        for (std::size_t i = 0; i < map.axes.size(); ++i) {
            if (map.axes[i].extent > 1 || i + 1 == map.axes.size()) {
                text += fmt::format("{} {:>3} ", map.axes[i].name, row.at[i]);
            }
        }
        text += fmt::format("{:<{}} |{}\n", symbols, (cells + per_cell - 1) / per_cell,
                            row.beside ? symbol(*row.beside, map.scale) : '?');
    }
    return text;
}

std::string map_key_text() {
    return ". up to 1   - up to 4 (OK)   + up to 30 (SUSPECT)   # beyond (WRONG)   ? not in the dump\n";
}

std::string map_html(const ErrorMap& map) {
    const Layout m = layout_of(map);
    const bool beside = !map.beside.empty();
    const double beside_at = m.x_of(m.columns) + 12;
    std::string html;
    if (m.rows.size() < map.all.size()) {
        html += fmt::format("<p class=soft>the {} worst of {} {}s of {}s</p>\n", m.rows.size(), map.all.size(),
                            map.rows, map.axes.front().name);
    }
    html += svg::open(beside_at + std::max(80.0, k_letter * static_cast<double>(map.beside.size())),
                      k_top + m.row_height * static_cast<double>(m.rows.size()) + 4,
                      fmt::format("error by {} and {}", map.axes.back().name, map.cell));
    html += cell_numbers(m);
    if (beside) html += svg::text(beside_at, 12, map.beside);
    const auto named = static_cast<std::size_t>(std::ceil(13 / m.row_height));  // one label per this many rows
    double y = k_top;
    for (std::size_t i = 0; i < m.rows.size(); ++i, y += m.row_height) {
        const ErrorRow& row = map.all[m.rows[i]];
        if (i % named == 0) {
            html += svg::text(0, y + std::min(m.row_height, 17.0) / 2 + 4, place_of(map, row, " ", false));
        }
        html += row_of_cells(m, row, y);
        if (!beside) continue;
        const std::string where = fmt::format("{}, {}", place_of(map, row, ", ", true), map.beside);
        const svg::Box box{beside_at, y, 26, m.row_height - 0.5};
        html +=
            row.beside ? cell_rect(m, *row.beside, box, where) : svg::rect({"e9", where + ": not in the dump"}, box);
    }
    return html.append(svg::k_close) + map_legend(m);
}

}  // namespace gdnctl::oracle
