#include "oracle/judge/page.h"

#include <fmt/format.h>

#include "oracle/judge/report.h"
#include "render/page.h"

namespace gdnctl::oracle {

namespace {

using html::escaped;

const html::Look& look() {
    static const html::Look k_look{{{"e0", "#dcefe1", "#1c3627"},
                                    {"e1", "#9fd0ae", "#2f7049"},
                                    {"e2", "#efb84f", "#b5801c"},
                                    {"e3", "#cc3f54", "#e0526a"},
                                    {"e9", "#e6e9ed", "#2a3037"}},
                                   R"css(
td { white-space: nowrap; } .OK, .SUSPECT, .WRONG { font-weight: 700; } .OK { color: var(--ok); }
.WRONG { color: var(--wrong); } .SUSPECT, .UNSTABLE_INPUT, .NO_DATA { color: var(--suspect); }
polyline { fill: none; stroke: var(--ink); stroke-width: 1.3; } circle { fill: var(--ink); } .band { opacity: .38; }
svg .mark { stroke: var(--wrong); stroke-width: 1.2; stroke-dasharray: 4 3; }
svg .mark + text { fill: var(--wrong); font-weight: 600; }
)css"};
    return k_look;
}

}  // namespace

std::string page_html(const Page& page) {
    std::string body = fmt::format("<h1>{}: <span class={}>{}</span></h1>\n", page.what, page.verdict, page.verdict);
    if (!page.reason.empty()) body += fmt::format("<p>{}</p>\n", escaped(page.reason));
    if (!page.about.empty()) body += fmt::format("<p class=soft>{}</p>\n", escaped(page.about));
    body += html::preformatted("Where, and why", page.why) + page.sections;
    return html::document(fmt::format("{} - {} verdict", page.verdict, page.what), look(), body);
}

std::string verdict_html(Verdict verdict) { return fmt::format("<span class={0}>{0}</span>", name_of(verdict)); }

std::string worst_html(const std::vector<Worst>& elements) {
    html::Table table("element|got@n|want@n|difference@n");
    for (const Worst& w : elements) {
        if (w.got == w.want) continue;
        const std::string place = w.index.empty() ? w.tensor : oracle_report::place_text(w);
        table.row({fmt::format("<code>{}</code>", escaped(place.substr(0, place.find(" got ")))),
                   fmt::format("{:.9g}", w.got), fmt::format("{:.9g}", w.want), fmt::format("{:.3g}", w.got - w.want)});
    }
    return table.section("Worst elements");
}

std::string contract_html(std::string_view title, const std::vector<ContractField>& fields) {
    html::Table table("field|value|origin@soft");
    for (const ContractField& f : fields) {
        table.row({escaped(f.name), fmt::format("<code>{}</code>", escaped(f.value)), escaped(f.origin)});
    }
    return table.section(title);
}

}  // namespace gdnctl::oracle
