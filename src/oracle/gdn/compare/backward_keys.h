// The last steps of dq and dk: the sum over a group of value heads, then the l2norm's gradient.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "oracle/gdn/compare/backward.h"

namespace gdnctl::oracle {

class KeyGradients {
public:
    // nullptr: that gradient is right, or missing.
    KeyGradients(const GdnReference& reference, const GradientEvidence* dq, const GradientEvidence* dk, int threads);

    // Adds the known mistakes that fit.
    void match(std::vector<Hint>& hints);
    // Whether any mistake is at one of these two steps: each row is a combination of the normalised vector's gradient
    // and that vector, or each key head's gradient is a combination of its value heads' contributions. nullopt: at
    // neither.
    std::optional<Diagnosis> explain();

private:
    struct Wrong {
        const GradientEvidence* gradient;
        bool of_q;
        std::vector<double> normalised;  // the vectors as the operator uses them
        std::vector<double> plain;       // their gradient
        std::vector<double> factors;     // 1 / norm, by row
    };

    void offer(const Wrong& w, std::string stage, const std::string& text, const std::vector<double>& other,
               std::vector<Hint>& hints) const;
    std::size_t group_size() const;
    // dq and dk if only one value head per key head counts.
    const GdnGradients& of_member(std::size_t member);
    bool is_in_span(const Wrong& w) const;
    std::optional<std::string> group_weights(const Wrong& w);

    const GdnReference& m_r;
    int m_threads;
    std::vector<Wrong> m_wrong;
    std::map<std::size_t, GdnGradients> m_members;
};

}  // namespace gdnctl::oracle
