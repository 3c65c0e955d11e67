// The crossed cases: what has to meet meets.
#include <array>
#include <functional>
#include <set>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/problem.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::linear_ce;

namespace {

using Of = std::function<std::size_t(const Case&)>;

const std::vector<Of>& conditions() {
    static const std::vector<Of> k_all = {
        [](const Case& c) { return static_cast<std::size_t>(c.layout == Layout::vh); },
        [](const Case& c) { return static_cast<std::size_t>(c.soft_cap > 0); },
        [](const Case& c) { return static_cast<std::size_t>(c.logsumexp_weight > 0); },
        [](const Case& c) { return static_cast<std::size_t>(c.weights != Weights::none); },
        [](const Case& c) { return static_cast<std::size_t>(c.ignores_rows); },
        [](const Case& c) { return static_cast<std::size_t>(c.reduction); },
        [](const Case& c) { return static_cast<std::size_t>(c.d_loss) + 2 * static_cast<std::size_t>(c.d_lse); },
        [](const Case& c) { return static_cast<std::size_t>(c.dtype == DType::bf16); },
        [](const Case& c) { return c.vocab; },
    };
    return k_all;
}

}  // namespace

TEST_CASE("linear-ce crossed: every triple of conditions is in some case") {
    const std::vector<Case> cases = crossed_sets();
    CHECK(cases.size() < 100);
    const auto& all = conditions();
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = i + 1; j < all.size(); ++j) {
            for (std::size_t k = j + 1; k < all.size(); ++k) {
                std::set<std::array<std::size_t, 3>> met;
                std::set<std::size_t> a, b, c;
                for (const Case& one : cases) {
                    met.insert({all[i](one), all[j](one), all[k](one)});
                    a.insert(all[i](one));
                    b.insert(all[j](one));
                    c.insert(all[k](one));
                }
                CHECK(met.size() == a.size() * b.size() * c.size());
            }
        }
    }
}

TEST_CASE("linear-ce crossed: cases hold what they say") {
    bool skipped_rows_have_d_lse = false;
    for (const Case& c : crossed_sets()) {
        CAPTURE(c.name);
        const TensorFile file = make_inputs(c);
        CHECK((file.find("d_loss") != nullptr) == c.d_loss);
        CHECK((file.find("d_lse") != nullptr) == c.d_lse);
        CHECK(file.metadata.contains("ignore_index") == c.ignores_rows);
        const auto contract = resolve(file.metadata, {});
        REQUIRE(contract);
        const auto problem = read_problem(file, *contract);
        REQUIRE(problem);
        CHECK((problem->ignored_count > 0) == c.ignores_rows);
        for (std::size_t i = 0; i < problem->batch; ++i) {
            if (problem->ignored[i]) CHECK(problem->d_loss[i] == 0);
            skipped_rows_have_d_lse |= c.d_lse && problem->d_loss[i] == 0 && (*problem->d_lse)[i] != 0;
        }
    }
    CHECK(skipped_rows_have_d_lse);
    CHECK(find_case("large_vocabulary")->vocab > 65536);
}
