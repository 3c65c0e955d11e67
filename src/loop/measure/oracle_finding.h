// Reads from the output of `oracle verify` what it says about the first failing item. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

struct OracleFinding {
    std::string item;                // "case t_hand"
    std::string verdict;             // "WRONG"
    std::string stage;               // stage of the algorithm: "order; also possible: intra"; empty: not reported
    std::string where;               // "value head 0 of 1; chunk 0 (of 64 tokens)"
    std::string token;               // the first wrong token: "out[b=0,t=0,h=0], chunk 0"
    std::int64_t others = 0;         // number of further items that are not OK
    std::vector<std::string> lines;  // as printed: the item, then its details
    bool found() const { return !item.empty(); }
    // "case t_hand: WRONG, stage order"
    std::string sign() const;
    // The same with the place and the number of other items.
    std::string text() const;
};

// Call it with each line of a log.
class OracleFindingReader {
public:
    void line(std::string_view text);
    const OracleFinding& finding() const { return m_finding; }

private:
    void keep(std::string_view text);
    OracleFinding m_finding;
    std::string* m_field = nullptr;  // field that a more indented line continues
    bool m_first = false;            // the current lines belong to the first finding
};

}  // namespace gdnctl::loop
