#include <algorithm>

#include <fmt/format.h>

#include "render/page.h"
#include "render/svg.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

namespace {

using html::escaped;
using svg::Anchor;

const html::Look& look() {
    static const html::Look k_look{{{"bar", "#2f6fb5", "#6aa5e3"}, {"best", "#17692f", "#5cc981"}},
                                   "td { white-space: nowrap; } .remark { color: var(--wrong); }\n"};
    return k_look;
}

// Results that can be compared: of one shape, device kind and dtype.
struct Setting {
    std::string name;
    std::vector<std::size_t> results;
};

std::vector<Setting> settings_of(const Report& report) {
    std::vector<Setting> settings;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const Record& r = report.results[i].record;
        const std::string name =
            fmt::format("{} on {}, {}", shape_text(r), r.device_kind.empty() ? "an unknown device" : r.device_kind,
                        r.x_dtype.empty() ? "unknown dtype" : r.x_dtype);
        auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.name == name; });
        if (found == settings.end()) found = settings.insert(settings.end(), {name, {}});
        found->results.push_back(i);
    }
    return settings;
}

// Horizontal bars: tokens a second of one chip, the fastest first.
std::string plot(const Report& report, const Setting& setting) {
    std::vector<std::size_t> shown;
    const bool steps = std::any_of(setting.results.begin(), setting.results.end(), [&](std::size_t i) {
        return report.results[i].ranked() && report.results[i].step_tok_s;
    });
    const auto rate = [&](std::size_t i) {
        const Measured& m = report.results[i];
        return (steps ? m.step_tok_s : m.forward_tok_s).value_or(0);
    };
    for (const std::size_t i : setting.results) {
        if (report.results[i].ranked() && rate(i) > 0) shown.push_back(i);
    }
    if (shown.empty()) return {};
    std::stable_sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) { return rate(a) > rate(b); });
    constexpr std::size_t k_most = 60;
    constexpr double k_left = 276, k_width = 600, k_row = 22, k_top = 24;
    shown.resize(std::min(shown.size(), k_most));
    const double top = rate(shown.front());
    const double height = k_top + k_row * static_cast<double>(shown.size());
    std::string chart = svg::open(960, height + 4, "tokens a second of one chip, by configuration", true);
    const double tick = svg::round_step(top / 6);
    for (double at = 0; at <= top * 1.0001; at += tick) {
        const double x = k_left + k_width * at / top;
        chart += svg::line("axis", x, k_top - 4, x, height) + svg::text(x, 14, rate_text(at), Anchor::middle);
    }
    double y = k_top;
    for (const std::size_t i : shown) {
        const bool best = std::find(report.best.begin(), report.best.end(), i) != report.best.end();
        std::string name = name_of(report.results[i]);
        if (name.size() > 38) name = name.substr(0, 37) + "~";
        const double width = k_width * rate(i) / top;
        chart += svg::text(k_left - 8, y + 15, name, Anchor::end) +
                 svg::rect({best ? "best" : "bar"}, {k_left, y + 3, width, k_row - 6}) +
                 svg::text(k_left + width + 5, y + 15, rate_text(rate(i)));
        y += k_row;
    }
    return fmt::format("<p class=soft>{} tok/s of one chip</p>\n{}{}", steps ? "Step" : "Forward", chart, svg::k_close);
}

std::string results_table(const Report& report, const Setting& setting) {
    html::Table table("configuration|forward tok/s@n|step tok/s@n|combined@n|forward MFU@n|step MFU@n|remark@remark");
    for (const std::size_t i : setting.results) {
        const Measured& m = report.results[i];
        table.row({escaped(name_of(m)), rate_text(m.forward_tok_s), rate_text(m.step_tok_s),
                   rate_text(m.combined_tok_s), percent_text(m.forward_mfu), percent_text(m.step_mfu),
                   escaped(remark_of(m))});
    }
    return table.html();
}

std::string comparisons_table(const Report& report) {
    html::Table table("implementation|B x H x V|forward@n|step@n|combined@n");
    for (const Comparison& c : report.comparisons) {
        table.row({escaped(c.implementation), fmt::format("{} x {} x {}", c.shape.batch, c.shape.hidden, c.shape.vocab),
                   ratio_text(c.forward_ratio), ratio_text(c.step_ratio), ratio_text(c.combined_ratio)});
    }
    return table.section("Beside " + report.base.value_or(""));
}

}  // namespace

std::string report_html(const Report& report) {
    std::size_t ok = 0;
    for (const Measured& m : report.results) ok += m.record.status == ResultStatus::ok ? 1 : 0;
    std::string body = fmt::format(
        "<h1>Sweep of block sizes</h1>\n<p class=soft>{} of {} configurations have a time. Rates "
        "are of one chip; a step is forward and backward.</p>\n",
        ok, report.results.size());
    for (const Setting& setting : settings_of(report)) {
        body += html::section(setting.name, plot(report, setting) + results_table(report, setting));
    }
    if (report.base) body += comparisons_table(report);
    const auto notes = notes_of(report);
    if (!notes.empty()) body += "<h2>Corrections and warnings</h2>\n<ul>\n";
    for (const std::string& note : notes) body += "<li>" + escaped(note) + "</li>\n";
    if (!notes.empty()) body += "</ul>\n";
    return html::document("Sweep of block sizes", look(), body);
}

}  // namespace gdnctl::sweep
