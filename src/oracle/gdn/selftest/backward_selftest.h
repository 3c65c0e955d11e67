// The part of the selftest for gradients.
#pragma once

#include <string_view>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/selftest/backward_mutants.h"
#include "oracle/gdn/selftest/selftest.h"

namespace gdnctl::oracle {

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
