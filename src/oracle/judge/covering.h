// Covering arrays: few rows in which every allowed combination of 2 or 3 values of different factors is met.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gdnctl::oracle {

// The value of each factor, by its index.
using Row = std::vector<std::size_t>;

// A value of a factor.
struct Level {
    std::size_t factor = 0;
    std::size_t value = 0;
    bool operator==(const Level&) const = default;
};

// Two levels that exclude each other.
using Exclusion = std::array<Level, 2>;

class Covering {
public:
    // `values[f]`: how many values factor f has. Exclusions must be closed: whatever set of levels holds no excluded
    // pair can be completed to a row.
    Covering(std::vector<std::size_t> values, std::span<const Exclusion> exclusions);

    // From now on every allowed pair or triple of levels of these factors is wanted, unless a row has met it already.
    void want_pairs(std::span<const std::size_t> factors);
    void want_triples(std::span<const std::size_t> factors);

    // Adds rows until all that is wanted is met. Factors that are not `free` have the value that `fixed` says for the
    // others. Deterministic.
    void add_rows(std::span<const std::size_t> free, const std::function<void(Row&)>& fixed);

    bool allowed(Level a, Level b) const { return !m_excluded[id(a) * m_levels.size() + id(b)]; }
    const std::vector<Row>& rows() const { return m_rows; }

private:
    using Ids = std::array<std::size_t, 3>;

    std::size_t id(Level level) const { return m_first[level.factor] + level.value; }
    std::size_t place(Ids ids) const;
    void want(Ids ids);
    bool fits(std::size_t id, const std::vector<std::size_t>& chosen) const;
    std::size_t gain(std::size_t id, const std::vector<std::size_t>& chosen) const;
    std::vector<std::size_t> candidate(const Ids& start, const std::vector<std::size_t>& order) const;
    std::size_t met(const std::vector<std::size_t>& ids) const;
    void note(const Row& row);

    std::vector<Level> m_levels;       // by id; id 0 is no level: a pair is a triple with it
    std::vector<std::size_t> m_first;  // id of each factor's first value
    std::vector<std::size_t> m_values;
    std::vector<char> m_excluded;
    std::vector<char> m_wanted;
    std::vector<Ids> m_open;  // in the order in which they were wanted; some are met
    bool m_triples = false;   // some of m_open are triples
    std::vector<Row> m_rows;
};

}  // namespace gdnctl::oracle
