// Parts of one file: how it is cut, what a note says of them, which answer is the part that was asked for.
#include <limits>

#include <doctest/doctest.h>

#include "services/hub/transfer/download.h"
#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/tail_ranges.h"

using namespace gdnctl::hub;

namespace {

constexpr std::int64_t k_mib = std::int64_t{1} << 20;

std::vector<std::int64_t> ends(const std::vector<Span>& spans) {
    std::vector<std::int64_t> ends;
    for (const Span& span : spans) ends.push_back(span.end);
    return ends;
}

}  // namespace

TEST_CASE("a file is cut into at most four parts of 16 MiB or more") {
    CHECK(ends(cut_into_parts(0, 63 * k_mib, 8)) == std::vector<std::int64_t>{63 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 8)) ==
          std::vector<std::int64_t>{16 * k_mib, 32 * k_mib, 48 * k_mib, 64 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 1)) == std::vector<std::int64_t>{64 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 0)) == std::vector<std::int64_t>{64 * k_mib});
    CHECK(cut_into_parts(0, 1000 * k_mib, 8).size() == 4);
    CHECK(ends(cut_into_parts(0, 70'000'001, 3)) == std::vector<std::int64_t>{23'333'333, 46'666'666, 70'000'001});
}

TEST_CASE("what is left of a file is cut, and the first part holds what is there") {
    const auto spans = cut_into_parts(100 * k_mib, 180 * k_mib, 2);
    REQUIRE(spans.size() == 2);
    CHECK((spans[0].begin == 0 && spans[0].at == 100 * k_mib && spans[0].end == 140 * k_mib));
    CHECK((spans[1].begin == 140 * k_mib && spans[1].at == 140 * k_mib && spans[1].end == 180 * k_mib));
    CHECK(cut_into_parts(150 * k_mib, 180 * k_mib, 8).size() == 1);
    CHECK(ends(cut_into_parts(5, 5, 8)) == std::vector<std::int64_t>{5});
    CHECK(ends(cut_into_parts(0, 0, 8)) == std::vector<std::int64_t>{0});
}

TEST_CASE("the parts in a note are believed only where they make up the file") {
    CHECK(parse_spans(R"({"spans": [[0, 5, 10], [10, 10, 20]]})", 20, 12).size() == 2);
    for (const char* note :
         {"", "[]", "{}", R"({"spans": 1})", R"({"spans": []})", R"({"spans": [[0, 5]]})",
          R"({"spans": [[0, "5", 10], [10, 10, 20]]})", R"({"spans": [[0, 5, 10]]})",
          R"({"spans": [[0, 5, 10], [11, 11, 20]]})", R"({"spans": [[0, 11, 10], [10, 10, 20]]})",
          R"({"spans": [[0, 5, 10], [10, 9, 20]]})", R"({"spans": [[0, 5, 10], [10, 15, 20]]})",
          R"({"spans": [[0, 5, 30], [30, 30, 20]]})", R"({"spans": [[0, 1e3, 10], [10, 10, 20]]})",
          R"({"spans": [[0, 5, 18446744073709551615]]})", R"({"spans": [[0, 5, 10], [10, 10, 20])"}) {
        CAPTURE(note);
        CHECK(parse_spans(note, 20, 12).empty());
    }
}

TEST_CASE("an answer is a part when begin, end and size are those asked for") {
    CHECK(is_range("bytes 0-9/20", 0, 10, 20));
    for (const char* range : {"", "bytes 0-9/*", "bytes 1-9/20", "bytes 0-10/20", "bytes 0-9/21", "bytes */20"}) {
        CAPTURE(range);
        CHECK_FALSE(is_range(range, 0, 10, 20));
    }
}

TEST_CASE("sizes that a server makes up do not overflow") {
    constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
    CHECK(total_of(1, 2) == 3);
    CHECK(total_of(k_most, 1) == k_most);
    CHECK(total_of(k_most - 1, k_most - 1) == k_most);
}
