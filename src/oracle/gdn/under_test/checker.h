// Checks relations on a kernel one by one, each with its own inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/under_test/metamorphic.h"

namespace gdnctl::oracle {

using Reals = std::vector<double>;

struct Outcome {
    Reals out, state;
};

inline std::size_t unsign(std::int64_t n) { return static_cast<std::size_t>(n); }

// Checks relations on one kernel. A fault of the kernel ends the relation, so call failed() after every run().
class Checker {
public:
    // Inputs have the heads and gates of `setting`. `widening`: how much larger errors of the declared precision are
    // than those of fp32.
    Checker(Kernel& kernel, int threads, std::uint64_t seed, const GdnCase& setting, const Declared& declared,
            double widening)
        : m_kernel(kernel),
          m_threads(threads),
          m_seed(seed),
          m_setting(setting),
          m_declared(declared),
          m_widening(widening) {
        if (const ContractField* l2norm = declared.find("l2norm")) m_l2norm = l2norm->value != "off";
    }

    Status causality();
    Status prefixes();
    Status continuation();
    Status linearity();
    Status batch_order();
    Status head_order();
    Status signs();
    Status chunk_length();
    Status packed();
    Status padding();
    Status beta_zero();
    Status perfect_fit();
    Status identical_keys();
    Status orthonormal_keys();
    Status gradient();

    RelationResult result;

private:
    // Seeded inputs of two batch rows; S0 is 0.1 N(0,1).
    GdnProblem inputs(std::int64_t tokens, std::uint64_t variant = 0) const;
    TensorFile file_of(const GdnProblem& p) const;
    // Of a file of inputs, with what is declared.
    Result<ResolvedContract> contract_of(const TensorFile& file) const;
    Result<Outcome> run(const GdnProblem& p);
    bool failed() const { return result.fault.has_value(); }
    void compare(const Reals& got, const Reals& want, const std::string& what);
    // Compares the derivative from `gradient` along `step` with the one from differences.
    void note_derivative(const Reals& gradient, const Reals& step, double difference, const char* name);

    Kernel& m_kernel;
    int m_threads;
    std::uint64_t m_seed;
    const GdnCase& m_setting;
    const Declared& m_declared;
    double m_widening;
    bool m_l2norm = true;
    int m_chunk = 64;
};

}  // namespace gdnctl::oracle
