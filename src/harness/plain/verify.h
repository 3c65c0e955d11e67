// oracle verify for a PlainOperator: its kernels on its cases.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/plain/operator.h"
#include "harness/verify/skipped.h"

namespace gdnctl::harness {

struct CaseVerdict {
    std::string_view kind = "case";  // or "vector": recorded outputs of somebody else
    std::string name;
    Judgement judgement;
    std::optional<oracle::KernelFault> fault;
    bool bit_equal = true;
    std::string same_fault_as = {};  // the item that was analysed for this one; empty: this one, or nothing is wrong

    bool failed() const { return fault || judgement.verdict != oracle::Verdict::ok; }
    std::string_view verdict_name() const {
        return fault ? oracle::name_of(fault->kind) : oracle::name_of(judgement.verdict);
    }
};
std::string text_of(const CaseVerdict& item);
// The mistake that was found in an item, and the items that look like it.
std::string fault_text(const CaseVerdict& analysed, const std::vector<std::string>& others);
Json json_of(const CaseVerdict& item);

struct VerifyRequest {
    std::string kernel;
    std::vector<std::string> cases;  // empty: all, and all vectors
    std::optional<std::filesystem::path> vectors;
    std::optional<std::uint64_t> seed;
    bool unseen = false;  // other shapes than those of the cases, where the operator knows any
    bool bf16 = false;    // floating inputs of every case in bf16
    int threads = 1;
    Limits limits;
    std::vector<std::string> sets = {};  // what the kernel is declared to compute: "field=value"
};

struct Verified {
    std::vector<CaseVerdict> cases;
    std::vector<SkippedCase> skipped;  // they need something else than is declared
    int not_run = 0;
    std::string network;

    const oracle::KernelFault* fault() const;  // the gravest; nullptr: none
    oracle::Verdict verdict() const;           // of those without a fault
    bool forward_only() const;
    std::size_t failed() const;
    std::size_t count_of(std::string_view kind) const;
};

// `said` gets the lines about each as it is judged, then those about each distinct fault. Usage error: a case that is
// not known. A vector of another operator is skipped.
Result<Verified> verify_cases(const PlainOperator& op, const VerifyRequest& request, Context& context,
                              const std::function<void(const std::string&)>& said);

}  // namespace gdnctl::harness
