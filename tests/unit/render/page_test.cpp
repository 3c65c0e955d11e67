// The template of pages and their charts: what is filled in, left out and escaped, and where values are drawn.
#include "render/page.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "core/json.h"
#include "render/chart.h"

namespace gdnctl::html {

namespace {

// The filled template, without the document around it.
std::string filled(std::string_view body, const Json& data) {
    const std::string all = page("t", body, data);
    const std::size_t from = all.find("<body>\n") + 7;
    return all.substr(from, all.rfind("</body>") - from);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::size_t count(const std::string& text, std::string_view part) {
    std::size_t times = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
    return times;
}

}  // namespace

TEST_CASE("a page loads nothing, and its title is escaped") {
    const std::string all = page("{{name}}", "<p>{{name}}</p>", {{"name", "<script>\"&\x1b"}});
    CHECK(has(all, "<title>&lt;script&gt;&quot;&amp;\\x1b</title>"));
    CHECK(has(all, "<p>&lt;script&gt;&quot;&amp;\\x1b</p>"));
    CHECK(has(all, "default-src 'none'"));
    CHECK(has(all, "prefers-color-scheme: dark"));
}

TEST_CASE("values: paths, numbers in a format, cut texts, lists") {
    const Json data = {{"a", {{"b", {1, 2.5}}}}, {"ms", 90000},     {"n", 1234567}, {"x", 0.000123456},
                       {"text", "ä\nöü"},        {"none", nullptr}, {"nan", "NaN"}, {"chart", "<svg>"}};
    CHECK(filled("{{a/b/1}} {{a/b}} {{a/c}}{{none}}{{missing}}", data) == "2.5 1, 2.5 ");
    CHECK(filled("{{ms|duration}} {{n|grouped}} {{x|people}} {{x|.2g}} {{nan|.2g}}", data) ==
          "1 min 30 s 1,234,567 0.00012346 0.00012 NaN");
    CHECK(filled("{{text|3}} {{text|4}}", data) == "ä\nö… ä\nöü");
    CHECK(filled("{{chart}}{{&chart}}", data) == "&lt;svg&gt;<svg>");
}

TEST_CASE("sections: lists, objects, members, and what is left out") {
    const Json data = {{"name", "outer"},
                       {"list", {{{"name", "a"}, {"more", {1, 2}}}, {{"name", nullptr}, {"more", Json::array()}}}},
                       {"facts", {{"k", 1}, {"l", "<"}}},
                       {"zero", 0},
                       {"empty", ""},
                       {"yes", true}};
    CHECK(filled("{{#list}}[{{name}}:{{#more}}{{.}}{{/}}{{^more}}-{{/}}]{{/}}", data) == "[a:12][:-]");
    CHECK(filled("{{*facts}}{{@}}={{.}};{{/}}", data) == "k=1;l=&lt;;");
    CHECK(filled("{{?list}}some {{name}}{{/}}{{?zero}}0{{/}}{{?empty}}e{{/}}{{?missing}}m{{/}}", data) == "some outer");
    CHECK(filled("{{^list}}x{{/}}{{^zero}}0{{/}}{{^missing}}m{{/}}{{#yes}}y{{/}}", data) == "0my");
    CHECK(filled("{{#missing}}{{#list}}a{{/}}{{?yes}}b{{/}}{{/}}c", data) == "c");
    CHECK(filled("{{#facts}}{{name}}{{k}}{{/}}", data) == "outer1");
}

TEST_CASE("a plot draws values between its axes, and an arrow for those beyond") {
    svg::Plot plot("errors <1>", {0, 10}, {0, 4}, {.width = 100, .height = 40, .left = 20});
    CHECK(plot.x_of(5) == doctest::Approx(70));
    CHECK(plot.y_of(4) == doctest::Approx(14));
    CHECK(plot.y_of(0) == doctest::Approx(54));
    plot.point({"kept", "a & b", "i3"}, 5, 2, svg::Shape::circle);
    plot.point({"kept"}, 5, 9, svg::Shape::circle);
    plot.levels(2, [](double y) { return std::to_string(static_cast<int>(y)); });
    plot.ticks(4, 9);
    const std::string chart = plot.svg();
    CHECK(has(chart, "aria-label=\"errors &lt;1&gt;\""));
    CHECK(has(chart,
              "<a href=\"#i3\"><circle class=kept cx=\"70.0\" cy=\"34.0\" r=\"4\"><title>a &amp; b</title></circle>"));
    CHECK(has(chart, "<path class=kept d=\"M70.0 14.0 l-5 7 h10 z\"/>"));
    CHECK(count(chart, "<line class=axis") == 3);
    CHECK(count(chart, "text-anchor=\"middle\"") == 3);
}

TEST_CASE("a logarithmic axis shows 0 at its foot, and what is not finite at its top") {
    const svg::Plot plot("errors", {0, 1}, {-2, 2, true}, {.width = 100, .height = 40, .left = 20});
    CHECK(plot.y_of(1) == doctest::Approx(34));
    CHECK(plot.y_of(0) == doctest::Approx(54));
    CHECK(plot.y_of(std::numeric_limits<double>::quiet_NaN()) == doctest::Approx(14));
    CHECK(plot.y_of(HUGE_VAL) == doctest::Approx(14));
}

TEST_CASE("bars are as long as their values say, and none are no chart") {
    CHECK(svg::bars("none", {}, 100).empty());
    const std::vector<svg::Bar> two = {{"long", "kept", 4, "four"}, {"short", "best", 1, "one"}};
    const std::string chart = svg::bars("two", two, 100);
    CHECK(has(chart, "<rect class=kept x=\"100.0\" y=\"5.0\" width=\"776.0\""));
    CHECK(has(chart, "<rect class=best x=\"100.0\" y=\"27.0\" width=\"194.0\""));
}

TEST_CASE("steps between ticks are 1, 2 or 5 times a power of ten") {
    CHECK(svg::round_step(0.3) == doctest::Approx(0.5));
    CHECK(svg::round_step(6) == doctest::Approx(10));
    CHECK(svg::round_step(0) == 1);
    CHECK(svg::round_step(-1) == 1);
}

}  // namespace gdnctl::html
