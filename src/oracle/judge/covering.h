// Covering arrays: few rows that contain every allowed combination of 2 or 3 values of different factors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gdnctl::oracle {

// The value of each factor, by index.
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
    // `values[f]`: number of values of factor f. Exclusions must be closed: any set of levels without an excluded pair
    // can be completed to a row.
    Covering(std::vector<std::size_t> values, std::span<const Exclusion> exclusions);

    // From now on, requires every allowed pair or triple of levels of these factors that no row contains yet.
    void want_pairs(std::span<const std::size_t> factors);
    void want_triples(std::span<const std::size_t> factors);

    // Adds rows until all requirements are met. `fixed` sets the factors that are not `free`. Deterministic.
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

    std::vector<Level> m_levels;       // by id; id 0 is not a level: a pair is a triple with it
    std::vector<std::size_t> m_first;  // id of each factor's first value
    std::vector<std::size_t> m_values;
    std::vector<char> m_excluded;
    std::vector<char> m_wanted;
    std::vector<Ids> m_open;  // in the order in which they were required; some are already met
    bool m_triples = false;   // some of m_open are triples
    std::vector<Row> m_rows;
};

}  // namespace gdnctl::oracle
