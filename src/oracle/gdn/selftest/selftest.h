// Tests whether the oracle on this machine can tell right from wrong: it must catch mutants of a chunked kernel,
// forward and backward, and pass correct variants.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/selftest/backward_mutants.h"

namespace gdnctl::oracle {

struct Mutant;

struct SelftestTotals {
    std::size_t mutants = 0, caught = 0, right_stage = 0, right_place = 0;
    std::size_t variants = 0, false_alarms = 0;
};

// A mutant that was missed or misplaced, or a correct variant that was flagged.
struct SelftestFinding {
    std::string kind;  // "missed", "stage", "place", "false alarm"
    std::string name;  // "rounding of the state / real, heads 2 of 4"
    std::string expected, got;
};

struct SelftestReport {
    SelftestTotals totals, backward;  // of forward passes, and of gradients
    // Separately for faults that no known mistake of the search explains. No variants.
    SelftestTotals unexpected, backward_unexpected;
    std::vector<SelftestFinding> findings;

    // For each: 100 % caught, no false alarm, 90 % of the stages and 95 % of the places right.
    bool passed() const;
};

struct SelftestOptions {
    int threads = 1;
    std::size_t every = 1;       // judges every N-th mutant, and the variants of every N-th case
    std::function<bool()> stop;  // called between two judgements; true ends the test early
};

SelftestReport run_selftest(const SelftestOptions& options);
// Judges these alone, counted as `totals`.
SelftestReport judge_mutants(const std::vector<Mutant>& mutants, const SelftestOptions& options);

// The part of the selftest for gradients.

// A case of the selftest, and its reference.
GdnCase selftest_case(bool real, GdnDims dims);
GdnReference selftest_reference(const GdnCase& c, int threads);

class BackwardSelftest {
public:
    BackwardSelftest(const SelftestOptions& options, SelftestReport& report) : m_options(options), m_report(report) {}

    // Adds mutants and correct variants to the report.
    void run();

private:
    // Shared by the mutants of one problem.
    struct Round {
        const GdnReference& reference;
        const GdnGradients& honest;
        SelftestTotals& totals;
    };

    void mutants(const std::vector<BackwardMutant>& all, SelftestTotals& totals);
    void variants();
    void judge_mutant(const Round& round, const BackwardMutant& mutant, const MutantScope& scope,
                      std::string_view where);
    void judge_variant(const GdnReference& reference, const GdnCase& c, std::string_view what,
                       const GdnGradients& gradients);
    GdnReport judged(const GdnReference& reference, const GdnGradients& gradients, bool hints) const;
    bool skipped() { return m_seen++ % m_options.every != 0; }
    bool stopped() const { return m_options.stop && m_options.stop(); }

    const SelftestOptions& m_options;
    SelftestReport& m_report;
    std::size_t m_seen = 0;
};

}  // namespace gdnctl::oracle
