// Failures that look alike, one of which is analysed for all: to judge a kernel is cheap, to find its mistake is not.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace gdnctl::harness
