// What oracle verify has judged, and how it is said.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "harness/child/process.h"
#include "harness/gdn/read.h"
#include "harness/plain/verify.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness {

// One judged thing: a case that the kernel ran, or a recorded outputs file.
struct Item {
    std::string kind;  // "case", "backward", "decode", "vector" or "relation"
    std::string name;
    oracle::Verdict verdict = oracle::Verdict::ok;
    oracle::Verdict expected = oracle::Verdict::ok;
    double error_over_budget = 0;
    std::string reason;
    std::string stage, diagnosis;  // where and why, for what is wrong
    std::string same_fault_as;     // the item that was analysed for this one; empty: this one, or nothing is wrong
    std::optional<oracle::Worst> worst;
    std::optional<oracle::ResolvedContract> contract;  // that it was judged by; a relation has none
    std::optional<oracle::KernelFault> fault;          // what the kernel did instead of computing
    bool bit_equal = true;
    bool gradients = false;                      // some were compared
    std::vector<std::string> missing_gradients;  // where some were: the others

    bool failed() const { return fault || verdict != expected; }
    std::string_view verdict_name() const { return fault ? oracle::name_of(fault->kind) : oracle::name_of(verdict); }
};

Item item_of(std::string kind, std::string name, const oracle::GdnReference& reference, const oracle::GdnReport& report,
             oracle::Verdict expected);

// A copy of what an analysis found.
void note_analysis(Item& item, const oracle::GdnReference& reference, const oracle::GdnReport& report);

std::string text_of(const Item& item);
// The mistake that was found in an item, and the items that look like it.
std::string fault_text(const Item& analysed, const std::vector<std::string>& others);
Json json_of(const Item& item);

// The gravest of all: a kernel that is wrong once is wrong, and what could not be judged is not OK.
oracle::Verdict overall(const std::vector<Item>& items);
// The gravest fault of all, nullptr when there is none.
const oracle::KernelFault* gravest_fault(const std::vector<Item>& items);
std::size_t count_of(const std::vector<Item>& items, std::string_view kind);
// "68 cases, 60 backward, 30 decode, 0 vectors"
std::string counted(const std::vector<Item>& items, bool relations);
bool forward_only(const std::vector<Item>& items);  // no gradient was compared

// Cases that were asked for and that the kernel has no entry point for, or that need another contract than declared.
struct Skipped {
    int forward = 0, backward = 0, decode = 0;
    std::vector<SkippedCase> cases;
};
std::string text_of(const Skipped& skipped);  // lines, or nothing
Json json_of(const Skipped& skipped);

// oracle verify for gdn: a kernel on all cases, forward, backward and decode, on recorded vectors, or by relations
// between its own results.

struct GdnRequest {
    TruthOf truth_of;           // under what is declared
    oracle::Declared declared;  // of the kernel
    std::string kernel;
    std::vector<std::string> cases;                // empty: all
    std::optional<std::filesystem::path> vectors;  // folder of recorded inputs and outputs
    std::optional<oracle::DType> dtype;            // nullopt: as each case says
    std::string_view dtype_name;
    std::optional<std::uint64_t> seed;  // of all generated inputs, instead of each case's own
    bool unseen = false;                // other lengths than those of the cases
    bool metamorphic = false, slow = false;
    int threads = 1;
    Limits limits;
};

struct GdnVerified {
    std::vector<Item> items;
    Skipped skipped;
    std::string network;
    int not_run = 0;
};

// `said` gets the lines about each item as it is judged, then those about each distinct fault. Usage error: a case that
// is not known.
Result<GdnVerified> verify_gdn(const GdnRequest& request, Context& context,
                               const std::function<void(const std::string&)>& said);

}  // namespace gdnctl::harness
