// Failures that look alike, one of which is analysed for all: to judge a kernel is cheap, to find its mistake is not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "harness/plain/operator.h"

namespace gdnctl::harness {

// `Kept` is what the analysis needs.
template <class Kept>
class Alike {
public:
    struct Group {
        std::string look;
        std::vector<std::size_t> items;  // in the order of adding
        std::size_t analysed = 0;        // the item to analyse: the smallest
        double size = 0;
        Kept kept;
    };

    void add(std::string look, std::size_t item, double size, Kept kept) {
        for (Group& group : m_groups) {
            if (group.look != look) continue;
            group.items.push_back(item);
            if (size >= group.size) return;
            group.analysed = item;
            group.size = size;
            group.kept = std::move(kept);
            return;
        }
        m_groups.push_back({std::move(look), {item}, item, size, std::move(kept)});
    }

    std::vector<Group>& groups() { return m_groups; }

private:
    std::vector<Group> m_groups;
};

// "fault in case gva_2; 3 more look like it: d128, varlen, g1"; `analysed` is "case gva_2".
std::string alike_text(const std::string& analysed, const std::vector<std::string>& others);

// Cases that a declared contract leaves out.

struct SkippedCase {
    std::string name;
    std::string reason;  // "needs head_map=tiled"
};

// "skipped, not as declared: 23 cases", and a line for each reason with its count; or nothing.
std::string text_of(const std::vector<SkippedCase>& cases);
// [{name, reason}]
Json json_of(const std::vector<SkippedCase>& cases);

// Recorded inputs and outputs of real implementations.

struct RecordedVector {
    std::filesystem::path inputs;
    std::vector<std::filesystem::path> outputs;
};

// NAME.inputs.safetensors with all NAME.*.outputs.safetensors beside it, in the order of their names. Errors: the
// folder cannot be read, or holds none.
Result<std::vector<std::pair<std::string, RecordedVector>>> find_vectors(const std::filesystem::path& folder);

// oracle verify for a PlainOperator: its kernels on its cases.

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
