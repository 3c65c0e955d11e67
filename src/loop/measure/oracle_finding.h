// What `oracle verify` says of the first thing that a kernel gets wrong, read from its output. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

struct OracleFinding {
    std::string item;                // "case t_hand"
    std::string verdict;             // "WRONG"
    std::string stage;               // of the algorithm: "order; also possible: intra"; empty: it was not told
    std::string where;               // "value head 0 of 1; chunk 0 (of 64 tokens)"
    std::string token;               // the first wrong one: "out[b=0,t=0,h=0], chunk 0"
    std::int64_t others = 0;         // further items that are not OK
    std::vector<std::string> lines;  // as they were printed: the item, and details below it
    bool found() const { return !item.empty(); }
    // "case t_hand: WRONG, stage order"
    std::string sign() const;
    // The same with where, and how many others.
    std::string text() const;
};

// Feed it the lines of a log.
class OracleFindingReader {
public:
    void line(std::string_view text);
    const OracleFinding& finding() const { return m_finding; }

private:
    void keep(std::string_view text);
    OracleFinding m_finding;
    std::string* m_field = nullptr;  // that a deeper line goes on with
    bool m_first = false;            // lines are of the first finding
};

}  // namespace gdnctl::loop
