#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "core/tone.h"
#include "oracle/linear_ce/blocks/block_sizes.h"
#include "render/chart.h"
#include "render/page.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

namespace {

// What a log does not say is left out.
std::string after(std::string_view separator, const std::string& word) {
    return word.empty() ? std::string() : fmt::format("{}{}", separator, text::visible(word));
}
std::string logged_shape(const Record& r, std::string_view axes = {}) {
    const bool none = !r.kernel_batch && !r.hidden && !r.vocab;
    return none ? "shape not in the log" : fmt::format("{}{}", shape_text(r), axes);
}

// Groups results by shape, device kind and dtype: the fastest first, failures last.
struct Group {
    std::string title;
    std::vector<const Measured*> members;
};

std::vector<Group> groups_of(const Report& report) {
    std::vector<Group> groups;
    for (const Measured& m : report.results) {
        const Record& r = m.record;
        std::string title = r.device_kind.empty() ? "" : text::visible(r.device_kind) + ", ";
        title += logged_shape(r, " (B x H x V)") + after(", ", r.x_dtype);
        if (m.bucket) title += ", bucket " + *m.bucket;
        auto at = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.title == title; });
        if (at == groups.end()) at = groups.insert(groups.end(), {std::move(title), {}});
        at->members.push_back(&m);
    }
    for (Group& g : groups) {
        std::stable_sort(g.members.begin(), g.members.end(), [](const Measured* a, const Measured* b) {
            const auto key = [](const Measured* m) {
                return m->step_tok_s.value_or(m->forward_tok_s.value_or(0) * 1e-9);
            };
            return key(a) > key(b);
        });
    }
    return groups;
}

std::string counts_text(const Report& report, bool color = false) {
    std::size_t ok = 0;
    std::array<std::size_t, 9> failed{};
    std::size_t wrong = 0;
    for (const Measured& m : report.results) {
        if (m.record.status == ResultStatus::ok) ++ok;
        if (m.record.status == ResultStatus::wrong) ++wrong;
        if (m.record.status == ResultStatus::failed && m.record.failure.kind) {
            ++failed[static_cast<std::size_t>(*m.record.failure.kind)];
        }
    }
    const auto bad = [color](std::string_view word) { return toned(word, Tone::bad, color); };
    std::string text = fmt::format("{} configuration{}: {} {}", report.results.size(),
                                   report.results.size() == 1 ? "" : "s", ok, toned("ok", color && ok > 0));
    for (std::size_t i = 0; i < failed.size(); ++i) {
        if (failed[i] > 0) text += fmt::format(", {} {}", failed[i], bad(to_text(static_cast<FailureKind>(i))));
    }
    if (wrong > 0) text += fmt::format(", {} {}", wrong, bad("wrong"));
    return text;
}

std::string spread_text(const Measured& m) {
    if (!m.record.spread || m.record.spread->median_s <= 0) return "-";
    return fmt::format("{:.1f} %", m.record.spread->mad_s / m.record.spread->median_s * 100);
}

std::string comparison_name(const Comparison& c) {
    return fmt::format("{} x {} x {}", c.shape.batch, c.shape.hidden, c.shape.vocab);
}

std::string best_text(const Measured& m) {
    const std::string place = m.bucket ? "of " + *m.bucket : "at " + shape_text(m.record);
    const auto rate = m.step_tok_s ? m.step_tok_s : m.forward_tok_s;
    return fmt::format("best {}{}: {}, {} tok/s a {}", place, after(" on ", m.record.device_kind), name_of(m),
                       rate_text(rate), m.step_tok_s ? "step" : "forward");
}

// Ten columns; faster is green, slower red.
std::string gain_cell(std::optional<double> ratio, bool color) {
    constexpr double k_shown = 0.0005;  // what rounds to 0.0 % is neither
    const double gain = ratio.value_or(1) - 1;
    const Tone tone = gain >= k_shown ? Tone::good : gain <= -k_shown ? Tone::bad : Tone::none;
    return toned(fmt::format("{:>10}", ratio_text(ratio)), tone, color);
}

// A row of the table: what failed has no figures. `spread`: this group has them, and then no combined rates.
std::string table_row(const Measured& m, bool spread, bool color) {
    if (m.record.status != ResultStatus::ok) {
        return fmt::format("{:<28} {}\n", name_of(m), toned(remark_of(m), Tone::bad, color));
    }
    std::string row = fmt::format("{:<28} {:>10} {:>10} {:>9} {:>7} {:>7}  {}", name_of(m), rate_text(m.forward_tok_s),
                                  rate_text(m.step_tok_s), spread ? spread_text(m) : rate_text(m.combined_tok_s),
                                  percent_text(m.forward_mfu), percent_text(m.step_mfu), remark_of(m));
    row.resize(row.find_last_not_of(' ') + 1);
    return row + "\n";
}

}  // namespace

std::string shape_text(const Record& record) {
    const auto part = [](const std::optional<std::int64_t>& n) { return n ? std::to_string(*n) : std::string("?"); };
    return part(record.kernel_batch) + " x " + part(record.hidden) + " x " + part(record.vocab);
}

std::string rate_text(std::optional<double> tok_s) {
    if (!tok_s || !std::isfinite(*tok_s)) return "-";
    return std::abs(*tok_s) < 9e15 ? grouped(std::llround(*tok_s)) : fmt::format("{:.3g}", *tok_s);
}

std::string percent_text(std::optional<double> fraction) {
    return fraction ? fmt::format("{:.1f} %", *fraction * 100) : std::string("-");
}

std::string ratio_text(std::optional<double> ratio) {
    return ratio ? signed_number((*ratio - 1) * 100, 1) + " %" : std::string("-");
}

std::string name_of(const Measured& m) {
    const Record& r = m.record;
    const std::string name = text::visible(r.implementation + (r.implementation.empty() ? "" : " ") + r.label);
    return name.empty() ? "unknown" : name;
}

std::string remark_of(const Measured& m) {
    std::vector<std::string> parts;
    if (m.record.status == ResultStatus::failed && m.record.failure.kind) {
        parts.emplace_back(to_text(*m.record.failure.kind));
        const Failure& f = m.record.failure;
        constexpr double k_mib = 1 << 20;
        if (f.vmem_used_bytes && f.vmem_limit_bytes) {
            parts.back() += fmt::format(" {:.1f}M of {:.1f}M", *f.vmem_used_bytes / k_mib, *f.vmem_limit_bytes / k_mib);
        }
    }
    if (m.record.status == ResultStatus::wrong) parts.emplace_back("wrong");
    for (const std::string& flag : m.flags) {
        if (flag != "reduced_precision") parts.push_back(flag);
    }
    return text::join(parts, ", ");
}

std::vector<std::string> notes_of(const Report& report) {
    std::vector<std::string> notes;
    const auto once = [&](std::string note) {
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
    };
    for (const Measured& m : report.results) {
        for (const Correction& c : m.corrections) {
            if (c.kind == "shards") {
                once(fmt::format(
                    "shards: the log counts the tokens of all {:g} shards in the time of one; rates here are of "
                    "one chip",
                    c.factor));
            } else if (c.kind == "chips") {
                once(fmt::format(
                    "chips: the printed roofline counts {:g} chips; MFU here is of the one that ran the kernel",
                    c.factor));
            } else {
                once("combined: counts the forward twice, since the backward was timed with one; see step instead");
            }
        }
        if (m.has_flag("reduced_precision")) {
            once("matmul precision: reduced; float32 results beyond a third of the bf16 peak used bf16 products");
        }
    }
    for (const Warning& w : report.warnings) {
        notes.push_back(fmt::format("{}:{}: warning: {}", text::visible(w.file), w.line, w.text));
    }
    return notes;
}

std::string report_table(const Report& report, bool color) {
    std::string out = counts_text(report, color) + "\n";
    for (const Group& group : groups_of(report)) {
        const bool spread = std::any_of(group.members.begin(), group.members.end(),
                                        [](const Measured* m) { return m->record.spread.has_value(); });
        out += fmt::format("\n{}\n{:<28} {:>10} {:>10} {:>9} {:>7} {:>7}\n", group.title, "tok/s of a chip", "forward",
                           "step", spread ? "spread" : "combined", "fwd MFU", "MFU");
        for (const Measured* m : group.members) out += table_row(*m, spread, color);
    }
    if (!report.best.empty()) out += "\n";
    for (const std::size_t i : report.best) out += best_text(report.results[i]) + "\n";
    if (report.base) {
        out += fmt::format("\n{:<24} {:<24} {:>10} {:>10} {:>10}\n", "beside " + text::visible(*report.base),
                           "B x H x V", "forward", "step", "combined");
        for (const Comparison& c : report.comparisons) {
            out += fmt::format("{:<24} {:<24} {} {} {}\n", text::visible(c.implementation), comparison_name(c),
                               gain_cell(c.forward_ratio, color), gain_cell(c.step_ratio, color),
                               gain_cell(c.combined_ratio, color));
        }
    }
    const auto notes = notes_of(report);
    if (!notes.empty()) out += "\n";
    for (const std::string& note : notes) out += note + "\n";
    return out;
}

std::string report_markdown(const Report& report) {
    const auto cell = [](std::string text) {
        for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
        return text;
    };
    std::string out = counts_text(report) + "\n";
    for (const Group& group : groups_of(report)) {
        out += fmt::format(
            "\n### {}\n\n| configuration | forward tok/s | step tok/s | combined tok/s | forward MFU | step MFU "
            "| spread | remark |\n|---|---:|---:|---:|---:|---:|---:|---|\n",
            group.title);
        for (const Measured* m : group.members) {
            out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", cell(name_of(*m)),
                               rate_text(m->forward_tok_s), rate_text(m->step_tok_s), rate_text(m->combined_tok_s),
                               percent_text(m->forward_mfu), percent_text(m->step_mfu), spread_text(*m),
                               cell(remark_of(*m)));
        }
    }
    if (!report.best.empty()) out += "\n";
    for (const std::size_t i : report.best) out += "- " + best_text(report.results[i]) + "\n";
    if (report.base) {
        out += fmt::format(
            "\n### Beside {}\n\n| implementation | B x H x V | forward | step | combined "
            "|\n|---|---|---:|---:|---:|\n",
            text::visible(*report.base));
        for (const Comparison& c : report.comparisons) {
            out +=
                fmt::format("| {} | {} | {} | {} | {} |\n", cell(text::visible(c.implementation)), comparison_name(c),
                            ratio_text(c.forward_ratio), ratio_text(c.step_ratio), ratio_text(c.combined_ratio));
        }
    }
    const auto notes = notes_of(report);
    if (!notes.empty()) out += "\n";
    for (const std::string& note : notes) out += "- " + note + "\n";
    return out;
}

// Upstream keeps a row a device key, dtype and bucket. TPU v5p calls itself TPU v5, so those two rows are one.
std::string report_patch(const Report& report) {
    std::string out;
    for (const std::size_t i : report.best) {
        const Measured& m = report.results[i];
        const Record& r = m.record;
        const auto key = oracle::linear_ce::device_key_of(r.device_kind);
        if (!m.bucket || !key || !r.sizes || r.x_dtype.empty()) {
            out += fmt::format("# {}: no row, {}\n", best_text(m),
                               !m.bucket           ? "no bucket contains the shape"
                               : !key              ? "the device kind is not known (--device-kind)"
                               : r.x_dtype.empty() ? "the dtype is not known (--dtype)"
                                                   : "the table already gives these block sizes");
            continue;
        }
        const auto now = oracle::linear_ce::tuned_sizes(oracle::linear_ce::TableDate::latest, *key, *m.bucket);
        out += fmt::format("# {}; {}\n", best_text(m),
                           !now               ? "the table has no row"
                           : *now == *r.sizes ? "the table has this row"
                                              : fmt::format("the table has {}/{}/{}", now->b, now->h, now->v));
        const bool twin = *key == "TPU v5" || *key == "TPU v5p";
        for (const std::string_view row_key :
             twin ? std::vector<std::string_view>{"TPU v5p", "TPU v5"} : std::vector<std::string_view>{*key}) {
            out += fmt::format(
                "\"{}\": {{(\"{}\", \"{}\"): BlockSizes(b_block_size={}, h_block_size={}, v_block_size={})}},\n",
                row_key, text::visible(r.x_dtype), *m.bucket, r.sizes->b, r.sizes->h, r.sizes->v);
        }
    }
    return out;
}

namespace {

Json text_or_unknown(const std::string& value) { return value.empty() ? Json("unknown") : Json(value); }

Json sizes_json(const std::optional<BlockSizes>& sizes) {
    if (!sizes) return nullptr;
    return {{"b_block_size", sizes->b}, {"h_block_size", sizes->h}, {"v_block_size", sizes->v}};
}

Json shape_json(const Record& r) {
    Json shape;
    const std::array<std::pair<const char*, const std::optional<std::int64_t>*>, 3> parts = {
        {{"batch", &r.kernel_batch}, {"hidden", &r.hidden}, {"vocab", &r.vocab}}};
    for (const auto& [name, value] : parts) shape[name] = *value ? Json(**value) : Json("unknown");
    return shape;
}

// A figure that is not finite is the word that Python has for it.
Json printed_json(const Record& r) {
    Json printed = Json::object();
    for (const auto& [name, value] : r.figures) {
        const bool whole = std::abs(value) < 9e15 && value == std::floor(value);
        printed[name] = std::isnan(value)   ? Json("NaN")
                        : std::isinf(value) ? Json(value > 0 ? "Infinity" : "-Infinity")
                        : whole             ? Json(static_cast<std::int64_t>(value))
                                            : Json(value);
    }
    return printed;
}

Json result_json(const Measured& m) {
    const Record& r = m.record;
    Json out;
    out["source"] = {{"file", r.file}, {"line", r.line}};
    out["script"] = to_text(r.script);
    out["label"] = text_or_unknown(r.label);
    out["implementation"] = text_or_unknown(r.implementation);
    out["status"] = to_text(r.status);
    const bool failed = r.status == ResultStatus::failed;
    out["failure_class"] = failed && r.failure.kind ? Json(to_text(*r.failure.kind)) : Json();
    out["error"] = r.error.empty() ? Json() : Json(r.error.substr(0, r.error.find('\n')));
    out["vmem_used_bytes"] =
        r.failure.vmem_used_bytes ? Json(static_cast<std::int64_t>(*r.failure.vmem_used_bytes)) : Json();
    out["vmem_limit_bytes"] =
        r.failure.vmem_limit_bytes ? Json(static_cast<std::int64_t>(*r.failure.vmem_limit_bytes)) : Json();
    out["shape"] = shape_json(r);
    out["x_dtype"] = text_or_unknown(r.x_dtype);
    out["accum_dtype"] = text_or_unknown(r.accum_dtype);
    out["device_kind"] = text_or_unknown(r.device_kind);
    out["sizes"] = sizes_json(r.sizes);
    out["bucket"] = m.bucket ? Json(*m.bucket) : Json();
    out["forward_s"] = json::or_null(m.forward_s);
    out["step_s"] = json::or_null(m.step_s);
    out["forward_tok_s"] = json::or_null(m.forward_tok_s);
    out["step_tok_s"] = json::or_null(m.step_tok_s);
    out["combined_tok_s"] = json::or_null(m.combined_tok_s);
    out["forward_mfu"] = json::or_null(m.forward_mfu);
    out["step_mfu"] = json::or_null(m.step_mfu);
    out["spread"] = r.spread
                        ? Json{{"runs", r.spread->runs}, {"median_s", r.spread->median_s}, {"mad_s", r.spread->mad_s}}
                        : Json();
    out["corrections"] = Json::array();
    for (const Correction& c : m.corrections) {
        out["corrections"].push_back({{"kind", c.kind}, {"factor", c.factor}, {"text", c.text}});
    }
    out["flags"] = m.flags;
    out["printed"] = printed_json(r);
    return out;
}

Json best_json(const Measured& m) {
    const Record& r = m.record;
    return {{"bucket", m.bucket ? Json(*m.bucket) : Json()},
            {"device_kind", text_or_unknown(r.device_kind)},
            {"shape", shape_json(r)},
            {"x_dtype", text_or_unknown(r.x_dtype)},
            {"implementation", text_or_unknown(r.implementation)},
            {"label", text_or_unknown(r.label)},
            {"sizes", sizes_json(r.sizes)},
            {"step_tok_s", json::or_null(m.step_tok_s)}};
}

}  // namespace

Json report_json(const Report& report) {
    Json out = Json::object();
    std::int64_t ok = 0;
    Json failures = Json::object();
    for (const Measured& m : report.results) {
        const Record& r = m.record;
        if (r.status == ResultStatus::ok) ++ok;
        if (r.status != ResultStatus::failed || !r.failure.kind) continue;
        Json& count = failures[std::string(to_text(*r.failure.kind))];
        count = count.is_null() ? 1 : count.get<std::int64_t>() + 1;
    }
    const auto all = static_cast<std::int64_t>(report.results.size());
    out["counts"] = {{"configs", all}, {"ok", ok}, {"failed", all - ok}};
    out["failures"] = std::move(failures);
    out["results"] = Json::array();
    for (const Measured& m : report.results) out["results"].push_back(result_json(m));
    out["best"] = Json::array();
    for (const std::size_t i : report.best) out["best"].push_back(best_json(report.results[i]));
    if (report.base) {
        out["comparisons"] = Json::array();
        for (const Comparison& c : report.comparisons) {
            out["comparisons"].push_back({{"shape", to_json(c.shape)},
                                          {"device_kind", text_or_unknown(c.device_kind)},
                                          {"dtype", text_or_unknown(c.dtype)},
                                          {"base", c.base},
                                          {"implementation", text_or_unknown(c.implementation)},
                                          {"forward_ratio", json::or_null(c.forward_ratio)},
                                          {"step_ratio", json::or_null(c.step_ratio)},
                                          {"combined_ratio", json::or_null(c.combined_ratio)}});
        }
    }
    out["warnings"] = Json::array();
    for (const Warning& w : report.warnings) {
        out["warnings"].push_back(
            {{"source", {{"file", w.file}, {"line", w.line}}}, {"kind", w.kind}, {"text", w.text}});
    }
    return out;
}

namespace {

constexpr std::string_view k_page = R"html(<h1>Sweep of block sizes</h1>
<p class=soft>{{counts/ok}} of {{counts/configs}} configurations have a time. Rates are of one chip; a step is forward
and backward.</p>
{{#page/settings}}<h2>{{name}}</h2>
<div class="wide dense"><table><thead><tr><th>configuration{{?has/rate}}<th>{{rates}} tok/s of one chip{{/}}{{?has/forward}}
<th class=n>forward tok/s{{/}}{{?has/step}}<th class=n>step tok/s{{/}}{{?has/combined}}<th class=n>combined{{/}}{{?has/mfu}}
<th class=n>forward MFU<th class=n>step MFU{{/}}{{?has/remark}}<th>remark{{/}}<th>log</tr></thead>
{{#rows}}<tr><td>{{name}}{{?has/rate}}<td>{{&bar}}{{/}}{{?has/forward}}<td class=n>{{forward}}{{/}}{{?has/step}}<td class=n>{{step}}{{/}}
{{?has/combined}}<td class=n>{{combined}}{{/}}{{?has/mfu}}<td class=n>{{forward_mfu}}<td class=n>{{step_mfu}}{{/}}
{{?has/remark}}<td class=remark>{{remark}}{{/}}<td class=soft>{{log}}</tr>
{{/}}</table></div>
{{?has/rate}}<p class=legend><span><i class=kept></i>fastest of its shape</span></p>
{{/}}{{/}}{{?page/comparisons}}<h2>Beside {{page/base}}</h2>
<div class="wide dense"><table><thead><tr><th>implementation<th>B x H x V<th class=n>forward<th class=n>step<th class=n>combined</tr></thead>
{{#page/comparisons}}<tr><td>{{implementation}}<td>{{shape}}<td class=n>{{forward}}<td class=n>{{step}}<td class=n>{{combined}}</tr>
{{/}}</table></div>
{{/}}{{?page/notes}}<h2>Corrections and warnings</h2>
<ul>
{{#page/notes}}<li>{{.}}</li>
{{/}}</ul>
{{/}})html";

// The rate that results are ranked by: of a step if this group has any, else of a forward; 0 if there is none.
double rate_of(const Measured& m, bool steps) {
    return m.ranked() ? (steps ? m.step_tok_s : m.forward_tok_s).value_or(0) : 0;
}

// A bar of at most 140 units beside the name of its row.
std::string rate_bar(double rate, double most, bool best) {
    if (rate <= 0) return {};
    constexpr double k_width = 140, k_height = 14;
    return svg::open(k_width, k_height, rate_text(rate) + " tok/s") +
           svg::rect({best ? "kept" : "best"}, {0, 0, rate / most * k_width, k_height}) + std::string(svg::k_close);
}

// The rows of one setting, the fastest first, and which columns have anything to show.
Json setting_json(const Report& report, const std::string& name, std::vector<std::size_t> results) {
    const auto measured = [&](std::size_t i) -> const Measured& { return report.results[i]; };
    const bool steps = std::any_of(results.begin(), results.end(),
                                   [&](std::size_t i) { return measured(i).ranked() && measured(i).step_tok_s; });
    const auto rate = [&](std::size_t i) { return rate_of(measured(i), steps); };
    std::stable_sort(results.begin(), results.end(), [&](std::size_t a, std::size_t b) { return rate(a) > rate(b); });
    const double most = rate(results.front());
    Json rows = Json::array();
    Json has = {{"rate", most > 0}};
    for (const std::size_t i : results) {
        const Measured& m = measured(i);
        const bool best = std::find(report.best.begin(), report.best.end(), i) != report.best.end();
        const std::string& file = m.record.file;
        rows.push_back({{"name", name_of(m)},
                        {"bar", rate_bar(rate(i), most, best)},
                        {"forward", rate_text(m.forward_tok_s)},
                        {"step", rate_text(m.step_tok_s)},
                        {"combined", rate_text(m.combined_tok_s)},
                        {"forward_mfu", percent_text(m.forward_mfu)},
                        {"step_mfu", percent_text(m.step_mfu)},
                        {"remark", remark_of(m)},
                        {"log", fmt::format("{}:{}", text::visible(file.substr(file.rfind('/') + 1)), m.record.line)}});
        const auto add = [&](const char* column, bool some) { has[column] = has.value(column, false) || some; };
        add("forward", m.forward_tok_s.has_value());
        add("step", m.step_tok_s.has_value());
        add("combined", m.combined_tok_s.has_value());
        add("mfu", m.forward_mfu || m.step_mfu);
        add("remark", !remark_of(m).empty());
    }
    return {{"name", name}, {"rates", steps ? "step" : "forward"}, {"has", std::move(has)}, {"rows", std::move(rows)}};
}

// Results that can be compared: of one shape, device kind and dtype.
Json settings_json(const Report& report) {
    std::vector<std::pair<std::string, std::vector<std::size_t>>> settings;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const Record& r = report.results[i].record;
        const std::string name = logged_shape(r) + after(" on ", r.device_kind) + after(", ", r.x_dtype);
        auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.first == name; });
        if (found == settings.end()) found = settings.insert(settings.end(), {name, {}});
        found->second.push_back(i);
    }
    Json list = Json::array();
    for (auto& [name, results] : settings) list.push_back(setting_json(report, name, std::move(results)));
    return list;
}

}  // namespace

std::string report_html(const Report& report) {
    Json data = report_json(report);
    Json comparisons = Json::array();
    for (const Comparison& c : report.comparisons) {
        comparisons.push_back({{"implementation", c.implementation},
                               {"shape", comparison_name(c)},
                               {"forward", ratio_text(c.forward_ratio)},
                               {"step", ratio_text(c.step_ratio)},
                               {"combined", ratio_text(c.combined_ratio)}});
    }
    data["page"] = {{"settings", settings_json(report)},
                    {"base", report.base.value_or("")},
                    {"comparisons", std::move(comparisons)},
                    {"notes", notes_of(report)}};
    return html::page("Sweep of block sizes", k_page, data);
}

}  // namespace gdnctl::sweep
