#include "core/tone.h"

#include <doctest/doctest.h>

namespace gdnctl {

TEST_CASE("tone: results have a colour, other words have none") {
    CHECK(tone_of("OK") == Tone::good);
    CHECK(tone_of(" kept ") == Tone::good);
    CHECK(tone_of("rejected") == Tone::bad);
    CHECK(tone_of("SUSPECT") == Tone::undecided);
    CHECK(tone_of("chunk") == Tone::none);
    CHECK(tone_of_gain("1.02x faster (1.01 to 1.03, 9 pairs)") == Tone::good);
    CHECK(tone_of_gain("1.2x slower") == Tone::bad);
    CHECK(tone_of_gain("as fast") == Tone::none);
}

TEST_CASE("tone: verdicts in capitals are coloured, parts of other words are not") {
    CHECK(toned_verdicts("crossed: 96 OK, 6 WRONG\n", true) ==
          "crossed: 96 \x1b[32mOK\x1b[0m, 6 \x1b[31mWRONG\x1b[0m\n");
    CHECK(toned_verdicts("TOKENS OK_NOT wrong", true) == "TOKENS OK_NOT wrong");
    CHECK(toned_verdicts("OK", false) == "OK");
}

TEST_CASE("tone: of a row the result and the gain are coloured, the title is not") {
    CHECK(toned_rows("   3  rejected   12 s  we kept it: 1.2x slower", true) ==
          "   3  \x1b[31mrejected\x1b[0m   12 s  we kept it: \x1b[31m1.2x slower\x1b[0m");
    CHECK(toned_rows("a\nkept\n", true) == "a\n\x1b[32mkept\x1b[0m\n");
    CHECK(toned_rows("   3  rejected", false) == "   3  rejected");
    const std::string late = std::string(60, 'x') + " kept";
    CHECK(toned_rows(late, true) == late);
}

}  // namespace gdnctl
