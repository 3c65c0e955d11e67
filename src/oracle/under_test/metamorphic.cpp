#include "gdnctl/oracle/metamorphic.h"

#include <fmt/format.h>

#include "oracle/under_test/checker.h"

namespace gdnctl::oracle {

namespace {

// Honest fp32 kernels stay below a tenth of it on these inputs.
constexpr double k_tolerance = 2e-5;

struct RelationRow {
    const char* name;
    const char* about;
    Status (Checker::*check)();
};

constexpr RelationRow k_relations[] = {
    {"causality", "later tokens change no earlier output, bit for bit", &Checker::causality},
    {"prefixes", "the first tokens alone give what they give among others", &Checker::prefixes},
    {"continuation", "two calls, the state handed on, equal one", &Checker::continuation},
    {"linearity", "v and the initial state enter linearly", &Checker::linearity},
    {"batch_order", "batch rows do not know of each other", &Checker::batch_order},
    {"head_order", "heads do not know of each other", &Checker::head_order},
    {"signs", "signs of dimensions go through", &Checker::signs},
    {"chunk_length", "the chunk length does not matter", &Checker::chunk_length},
    {"packed", "packed sequences equal each one alone", &Checker::packed},
    {"padding", "NaN behind the last sequence changes nothing", &Checker::padding},
    {"beta_zero", "beta = 0: the initial state decays, and that is all", &Checker::beta_zero},
    {"perfect_fit", "alpha = beta = 1: the state recalls the last v", &Checker::perfect_fit},
    {"identical_keys", "one key, beta = 1: out is s (q.k) v", &Checker::identical_keys},
    {"orthonormal_keys", "orthonormal keys: the state's rows are decayed values", &Checker::orthonormal_keys},
    {"gradient", "each gradient is what differences of the forward say", &Checker::gradient},
};

}  // namespace

const std::vector<Relation>& relations() {
    static const std::vector<Relation> k_all = [] {
        std::vector<Relation> all;
        for (const RelationRow& row : k_relations) all.push_back({row.name, row.about});
        return all;
    }();
    return k_all;
}

Result<RelationResult> check_relation(const std::string& name, KernelUnderTest& kernel, int threads,
                                      std::uint64_t seed) {
    for (const RelationRow& row : k_relations) {
        if (name != row.name) continue;
        Checker checker(kernel, threads, seed);
        checker.result.tolerance = k_tolerance;
        GDNCTL_TRY((checker.*row.check)());
        return std::move(checker.result);
    }
    return fail(ErrorKind::usage, fmt::format("relation '{}' is not known", name));
}

}  // namespace gdnctl::oracle
