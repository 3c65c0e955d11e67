#include "oracle/judge/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "render/page.h"

namespace gdnctl::oracle_report {

using oracle::TensorReport;
using oracle::Verdict;
using oracle::Worst;

namespace {

Json outside_json(const oracle::Outside& outside) { return {{"count", outside.count}, {"fraction", outside.fraction}}; }

}  // namespace

ExitCode exit_code_of(Verdict verdict, bool allow_suspect) {
    switch (verdict) {
        case Verdict::ok: return ExitCode::ok;
        case Verdict::suspect: return allow_suspect ? ExitCode::ok : ExitCode::check_failed;
        case Verdict::wrong: return ExitCode::check_failed;
        case Verdict::unstable_input:
        case Verdict::no_data: return ExitCode::bad_input;
    }
    return ExitCode::internal;
}

std::string wrapped(std::string_view first, const std::vector<std::string>& words) {
    std::string text(first);
    std::size_t column = first.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool last = i + 1 == words.size();
        const std::string word = text::visible(words[i]);
        if (column + word.size() + 1 > 73) {  // 80 columns, where it is indented by 7
            if (text.ends_with(' ')) text.pop_back();
            text += "\n  ";
            column = 2;
        }
        text += word + (last ? "" : ", ");
        column += word.size() + 2;
    }
    return text + "\n";
}

std::string place_text(const Worst& worst) {
    std::string index;
    std::size_t axis = 0;
    for (const std::int64_t i : worst.index) {
        index += fmt::format("{}{}={}", index.empty() ? "" : ",", worst.axes[2 * axis], i);
        ++axis;
    }
    return fmt::format("{}[{}] got {:.9g}, want {:.9g}", worst.tensor, index, worst.got, worst.want);
}

std::string not_compared_text(const std::vector<oracle::NotCompared>& missing) {
    std::string text;
    std::vector<std::string> reasons;
    for (const auto& item : missing) {
        if (std::find(reasons.begin(), reasons.end(), item.reason) == reasons.end()) reasons.push_back(item.reason);
    }
    for (const std::string& reason : reasons) {
        std::vector<std::string> names;
        for (const auto& item : missing) {
            if (item.reason == reason) names.push_back(item.tensor);
        }
        text += wrapped(fmt::format("not compared ({}): ", reason), names);
    }
    return text;
}

std::vector<std::string> unread_names(const std::vector<oracle::UnreadTensor>& unread) {
    std::vector<std::string> names;
    for (const auto& item : unread) names.push_back(fmt::format("{} ({})", item.name, item.dtype));
    return names;
}

std::string left_alone_text(const std::vector<std::string>& unknown, const std::vector<oracle::UnreadTensor>& unread) {
    std::string text;
    if (!unknown.empty()) text += wrapped("unknown tensors: ", unknown);
    if (unread.empty()) return text;
    return text + wrapped("not read because of the dtype: ", unread_names(unread));
}

std::string missing_gradients_text(bool some, const std::vector<std::string>& missing) {
    if (!some) return "FORWARD ONLY: no gradient was compared\n";
    return missing.empty() ? std::string() : wrapped("GRADIENTS MISSING: ", missing);
}

Json number(double x) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
    return x;
}

void add_left_alone(Json& object, const std::vector<std::string>& unknown,
                    const std::vector<oracle::UnreadTensor>& unread) {
    object["unknown_tensors"] = unknown;
    object["unread_tensors"] = Json::array();
    for (const auto& item : unread) object["unread_tensors"].push_back({{"tensor", item.name}, {"dtype", item.dtype}});
}

Json worst_json(const std::optional<Worst>& worst) {
    if (!worst) return nullptr;
    return {{"tensor", worst->tensor},
            {"axes", worst->axes},
            {"index", worst->index},
            {"got", number(worst->got)},
            {"want", number(worst->want)}};
}

Json not_compared_json(const std::vector<oracle::NotCompared>& missing) {
    Json list = Json::array();
    for (const auto& item : missing) list.push_back({{"tensor", item.tensor}, {"reason", item.reason}});
    return list;
}

std::string tensor_text(const TensorReport& t, std::size_t name_width) {
    const std::size_t width = std::max<std::size_t>(name_width, 15);
    std::string line = fmt::format("{:<{}} {:<8} {:<14} {:<7} {:>7.2g} x budget  rms {:.2g}  max {:.2g}", t.name, width,
                                   oracle::name_of(t.stored), oracle::text_of(t.shape), oracle::name_of(t.verdict),
                                   t.error_over_budget, t.rms_ratio, t.max_abs);
    if (t.by_budget != t.verdict && t.verdict == Verdict::ok) {
        line += fmt::format("  ({} by the budget)", oracle::name_of(t.by_budget));
    }
    // Above that, a distance in ULPs says nothing more than rms.
    if (t.ulp.max < 1000) line += fmt::format("  ulp {:.0f}", t.ulp.max);
    if (t.nonfinite_got > 0) line += fmt::format("\n{:<{}} {} values are not finite", "", width, t.nonfinite_got);
    if (t.nonfinite_want > 0)
        line += fmt::format("\n{:<{}} {} values of the truth are not finite", "", width, t.nonfinite_want);
    return line + "\n";
}

Json tensor_json(const TensorReport& t) {
    Json object;
    object["name"] = t.name;
    object["meaning"] = t.canonical;
    object["shape"] = t.shape;
    object["dtype"] = oracle::name_of(t.stored);
    object["judged_as"] = oracle::name_of(t.judged);
    object["verdict"] = oracle::name_of(t.verdict);
    object["budget_verdict"] = oracle::name_of(t.by_budget);
    object["error_over_budget"] = number(t.error_over_budget);
    object["budget_rms_ratio"] = number(t.budget_relative);
    object["max_abs"] = number(t.max_abs);
    object["max_rel"] = number(t.max_rel);
    object["rms_ratio"] = number(t.rms_ratio);
    object["nmse"] = number(t.nmse);
    object["cosine"] = number(t.cosine);
    object["ulp"] = {{"max", number(t.ulp.max)}, {"p50", number(t.ulp.p50)}, {"p99", number(t.ulp.p99)}};
    object["outside_atol_rtol"] = outside_json(t.numpy_rule);
    object["outside_flashinfer"] = outside_json(t.flashinfer_rule);
    object["nonfinite"] = {{"got", t.nonfinite_got}, {"want", t.nonfinite_want}};
    object["worst"] = t.worst.index.empty() ? Json() : worst_json(t.worst);
    return object;
}

std::string contract_text(const std::string& first, const std::vector<oracle::ContractField>& fields,
                          std::string_view usual) {
    std::vector<std::string> words;
    for (const auto& f : fields) {
        words.push_back(f.origin == usual ? fmt::format("{}={}", f.name, f.value)
                                          : fmt::format("{}={} ({})", f.name, f.value, f.origin));
    }
    return wrapped(first + ": ", words);
}

Json contract_json(std::string_view name, const std::vector<oracle::ContractField>& fields) {
    Json all = Json::object();
    for (const auto& f : fields) all[f.name] = {{"value", f.value}, {"origin", f.origin}};
    return {{"name", name}, {"fields", std::move(all)}};
}

std::string stages_text(const std::vector<std::string>& stages) {
    if (stages.empty()) return {};
    if (stages.size() == 1) return fmt::format("stage: {}\n", stages.front());
    return wrapped(fmt::format("stage: {}; also possible: ", stages.front()), {stages.begin() + 1, stages.end()});
}

namespace {

// All in one line.
std::string hint_text(const std::vector<oracle::Hint>& hints) {
    std::string text;
    for (const oracle::Hint& h : hints) text += (text.empty() ? "" : "; or ") + h.text;
    return text;
}

}  // namespace

void add_diagnosis(Json& object, const std::vector<std::string>& stages, const std::vector<oracle::Hint>& hints) {
    object["stage"] = stages.empty() ? Json() : Json(stages.front());
    object["stages"] = stages;
    object["hint"] = hints.empty() ? Json() : Json(hint_text(hints));
    object["hints"] = Json::array();
    for (const oracle::Hint& h : hints) {
        object["hints"].push_back({{"stage", h.stage}, {"text", h.text}, {"error_reduction", number(h.improvement)}});
    }
}

std::string verdict_text(std::string_view verdict, std::string_view reason) {
    return fmt::format("verdict: {}{}{}\n", verdict, reason.empty() ? "" : ": ", reason);
}

}  // namespace gdnctl::oracle_report

namespace gdnctl::oracle {

namespace {

constexpr int k_most_runs = 12;

// "0-3, 7": at most a dozen runs. `counted`: says how many there are if that is not all.
std::string ranges(const std::vector<std::int64_t>& numbers, bool counted) {
    std::string text;
    int runs = 0;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        if (++runs > k_most_runs) return text + (counted ? fmt::format(", ... ({} in all)", numbers.size()) : ", ...");
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
        if (end > i) text += fmt::format("-{}", numbers[end]);
        i = end + 1;
    }
    return text;
}

}  // namespace

std::string place_text(const std::vector<PlaceAxis>& axes) {
    std::string text;
    for (const PlaceAxis& axis : axes) {
        text += text.empty() ? "where: " : "; ";
        text += axis.at.size() == 1 ? axis.name : axis.several;
        if (axis.whole) {
            text += fmt::format(" {} to {}", axis.at[0], axis.at[1]);
        } else if (!axis.at.empty()) {
            text += " " + ranges(axis.at, axis.extent == 0 && axis.note.empty());
        }
        if (axis.extent > 0) text += fmt::format(" of {}", axis.extent);
        if (!axis.note.empty()) text += fmt::format(" {}", axis.note);
    }
    return text + "\n";
}

namespace {

constexpr std::string_view k_page = R"html(<h1>{{page/what}}: <span class={{verdict}}>{{verdict}}</span></h1>
<p>{{reason}}</p>
<p class=soft>{{page/about}}</p>
{{#compared}}<p class=soft><code>{{outputs}}</code> compared with the exact result for <code>{{inputs}}</code>;
{{date}}, gdnctl {{version}}</p>
{{/}}{{?page/why}}<h2>Where, and why</h2>
<pre>{{page/why}}</pre>
{{/}}{{?tensors}}<h2>Tensors</h2>
<div class="wide dense"><table><thead><tr><th>tensor<th>dtype<th>shape<th>verdict{{?classes}}<th>class{{/}}<th class=n>error /
 {{page/unit}}<th class=n>rms ratio<th class=n>max abs{{^classes}}<th class=n>ulp{{/}}<th class=n>not finite</tr></thead>
{{#tensors}}<tr><td>{{name}}<td>{{dtype}}<td>[{{shape}}]<td><span class={{verdict}}>{{verdict}}</span>{{?class}}<td>{{class}}{{/}}
<td class=n>{{error_over_budget|.3g}}<td class=n>{{rms_ratio|.2g}}<td class=n>{{max_abs|.2g}}{{^class}}<td class=n>{{ulp/max|.3g}}{{/}}
<td class=n>{{nonfinite/got}}</tr>
{{/}}</table></div>
{{/}}{{?checks}}<h2>Checks</h2>
<div class="wide dense"><table><thead><tr><th>check<th>verdict<th class=n>value<th class=n>limit</tr></thead>
{{#checks}}<tr><td>{{name}}<td><span class={{verdict}}>{{verdict}}</span><td class=n>{{value|.2g}}<td class=n>{{limit|.2g}}</tr>
{{/}}</table></div>
{{/}}{{?forward_only}}<p><b>Forward only: no gradient was compared</b></p>
{{/}}{{#not_compared}}<p class=soft>Not compared ({{reason}}): {{tensor}}</p>
{{/}}{{?unknown_tensors}}<p class=soft>Unknown tensors: {{unknown_tensors}}</p>
{{/}}{{#unread_tensors}}<p class=soft>Not read because of the dtype: {{tensor}} ({{dtype}})</p>
{{/}}{{#page/charts}}<h2>{{title}}</h2>
{{&chart}}{{/}}{{?page/worst}}<h2>Wrong elements</h2>
<div class="wide dense"><table><thead><tr><th>element<th class=n>got<th class=n>want<th class=n>difference</tr></thead>
{{#page/worst}}<tr><td><code>{{element}}</code><td class=n>{{got|.9g}}<td class=n>{{want|.9g}}<td class=n>{{difference|.3g}}</tr>
{{/}}</table></div>
{{/}}{{#contract}}<h2>Contract: {{name}}</h2>
<div class="wide dense"><table><thead><tr><th>field<th>value<th>origin</tr></thead>
{{*fields}}<tr><td>{{@}}<td><code>{{value}}</code><td class=soft>{{origin}}</tr>
{{/}}</table></div>
{{/}})html";

// Whether the verdict on a tensor is OK; false for a tensor that the verdict does not list.
bool is_ok(const Json& verdict, const std::string& tensor) {
    const Json& tensors = json::field(verdict, "tensors");
    return std::any_of(tensors.begin(), tensors.end(), [&](const Json& t) {
        return json::field(t, "name") == tensor && json::field(t, "verdict") == name_of(Verdict::ok);
    });
}

// Leaves out elements that are equal, and those of tensors that are OK.
Json worst_list(const std::vector<Worst>& elements, const Json& verdict) {
    Json list = Json::array();
    for (const Worst& w : elements) {
        if (w.got == w.want || is_ok(verdict, w.tensor)) continue;
        const std::string place = w.index.empty() ? w.tensor : oracle_report::place_text(w);
        list.push_back({{"element", place.substr(0, place.find(" got "))},
                        {"got", oracle_report::number(w.got)},
                        {"want", oracle_report::number(w.want)},
                        {"difference", oracle_report::number(w.got - w.want)}});
    }
    return list;
}

}  // namespace

std::string page_html(Json verdict, const Page& page) {
    Json charts = Json::array();
    for (const auto& [title, chart] : page.charts) charts.push_back({{"title", title}, {"chart", chart}});
    verdict["page"] = {{"what", page.what}, {"about", page.about},         {"why", page.why},
                       {"unit", page.unit}, {"charts", std::move(charts)}, {"worst", worst_list(page.worst, verdict)}};
    return html::page("{{verdict}} - {{page/what}} verdict", k_page, verdict);
}

}  // namespace gdnctl::oracle
