// Places and maps of errors on named axes, of no operator in particular.
#include <limits>

#include <doctest/doctest.h>

#include "oracle/judge/charts.h"
#include "oracle/judge/report.h"

using namespace gdnctl;
using namespace gdnctl::oracle;

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a place names its axes") {
    CHECK(place_text({{"value head", "value heads", {0, 1, 2, 7}, 8}, {"chunk", "chunks", {3}, 0, "(of 64 tokens)"}}) ==
          "where: value heads 0-2, 7 of 8; chunk 3 (of 64 tokens)\n");
    CHECK(place_text({{"gw", "gw"}, {"vocabulary", "vocabulary", {128, 255}, 0, {}, true}}) ==
          "where: gw; vocabulary 128 to 255\n");
    std::vector<std::int64_t> odd;
    for (std::int64_t i = 1; i < 40; i += 2) odd.push_back(i);
    const std::string many = place_text({{"row", "rows", odd}});
    CHECK(many.ends_with(", 23, ... (20 in all)\n"));
    CHECK(place_text({{"row", "rows", odd, 40}}).ends_with(", 23, ... of 40\n"));
}

TEST_CASE("a map shows rows and cells of any axes") {
    ErrorMap map{{{"layer", 1}, {"expert", 2}}, "expert", "block", "8 rows", "bias", {}};
    map.all.push_back({{"0", "0"}, {0.5, 3, 20}, 0.1});
    map.all.push_back({{"0", "1"}, {40, std::numeric_limits<double>::quiet_NaN()}, std::nullopt});
    CHECK(map_text(map, " of y") ==
          "error / budget of y by expert (rows) and block of 8 rows (columns), bias right of the bar\n"
          "expert   0 .-+ |.\n"
          "expert   1 ##  |?\n");
    const std::string page = map_html(map);
    CHECK(has(page, "aria-label=\"error by expert and block\""));
    CHECK(has(page, "<title>layer 0, expert 0, block 1: 3 x budget</title>"));
    CHECK(has(page, "<title>layer 0, expert 1, block 1: not finite</title>"));
    CHECK(has(page, "<title>layer 0, expert 1, bias: not in the dump</title>"));
    CHECK(has(page, "up to 30: SUSPECT"));
}

TEST_CASE("where errors are right or wrong, a map has two colours, and cells keep their numbers") {
    ErrorMap map{{{"", 1}}, "tensor", "row", {}, {}, {}, {4, 9}, k_limit};
    map.all.push_back({{"gx"}, {0.5, 1.5}});
    const std::string page = map_html(map);
    CHECK(has(page, "<rect class=e0"));
    CHECK(has(page, "<rect class=e3"));
    CHECK(has(page, "<title>gx, row 9: 1.5 x limit</title>"));
    CHECK(has(page, "up to 1: OK"));
    CHECK(!has(page, "SUSPECT"));
}
