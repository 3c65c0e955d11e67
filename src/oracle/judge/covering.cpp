// Builds rows one at a time. Each is the best of several greedily built candidates, as in AETG (Cohen, Dalal, Fredman
// and Patton 1997): a candidate starts from a combination that is still required, and each further factor gets the
// value that completes the most requirements together with the values before it.
#include "oracle/judge/covering.h"

#include <algorithm>

#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

constexpr int k_candidates = 24;
constexpr std::size_t k_no_level = 0;

void shuffle(std::vector<std::size_t>& values, Random& random) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.bits() % i]);
}

}  // namespace

Covering::Covering(std::vector<std::size_t> values, std::span<const Exclusion> exclusions)
    : m_levels(1), m_values(std::move(values)) {
    for (std::size_t f = 0; f < m_values.size(); ++f) {
        m_first.push_back(m_levels.size());
        for (std::size_t v = 0; v < m_values[f]; ++v) m_levels.push_back({f, v});
    }
    const std::size_t n = m_levels.size();
    m_excluded.resize(n * n);
    m_wanted.resize(n * n * n);
    for (const auto& [a, b] : exclusions) m_excluded[id(a) * n + id(b)] = m_excluded[id(b) * n + id(a)] = 1;
}

std::size_t Covering::place(Ids ids) const {
    std::sort(ids.begin(), ids.end());
    return (ids[0] * m_levels.size() + ids[1]) * m_levels.size() + ids[2];
}

void Covering::want(Ids ids) {
    const auto is_met = [&](const Row& row) {
        return std::all_of(ids.begin(), ids.end(), [&](std::size_t i) {
            return i == k_no_level || row[m_levels[i].factor] == m_levels[i].value;
        });
    };
    if (std::any_of(m_rows.begin(), m_rows.end(), is_met)) return;
    m_wanted[place(ids)] = 1;
    m_open.push_back(ids);
}

void Covering::want_pairs(std::span<const std::size_t> factors) {
    for (std::size_t i = 0; i < factors.size(); ++i) {
        for (std::size_t j = i + 1; j < factors.size(); ++j) {
            for (std::size_t a = 0; a < m_values[factors[i]]; ++a) {
                for (std::size_t b = 0; b < m_values[factors[j]]; ++b) {
                    const Level x{factors[i], a};
                    const Level y{factors[j], b};
                    if (allowed(x, y)) want({k_no_level, id(x), id(y)});
                }
            }
        }
    }
}

void Covering::want_triples(std::span<const std::size_t> factors) {
    m_triples = true;
    std::vector<std::size_t> ids;
    for (const std::size_t f : factors) {
        for (std::size_t v = 0; v < m_values[f]; ++v) ids.push_back(id({f, v}));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t j = i + 1; j < ids.size(); ++j) {
            if (!fits(ids[j], {ids[i]})) continue;
            for (std::size_t k = j + 1; k < ids.size(); ++k) {
                if (fits(ids[k], {ids[i], ids[j]})) want({ids[i], ids[j], ids[k]});
            }
        }
    }
}

bool Covering::fits(std::size_t id, const std::vector<std::size_t>& chosen) const {
    return std::none_of(chosen.begin(), chosen.end(), [&](std::size_t other) {
        return (other != k_no_level && m_levels[other].factor == m_levels[id].factor) ||
               m_excluded[id * m_levels.size() + other] != 0;
    });
}

// How many requirements `id` completes together with the chosen levels.
std::size_t Covering::gain(std::size_t id, const std::vector<std::size_t>& chosen) const {
    std::size_t sum = 0;
    // The first chosen id is not a level; using only that one counts pairs.
    for (std::size_t i = 0; i < (m_triples ? chosen.size() : std::min<std::size_t>(chosen.size(), 1)); ++i) {
        for (std::size_t j = i + 1; j < chosen.size(); ++j) {
            sum += m_wanted[place({id, chosen[i], chosen[j]})] != 0 ? 1 : 0;
        }
    }
    return sum;
}

std::vector<std::size_t> Covering::candidate(const Ids& start, const std::vector<std::size_t>& order) const {
    std::vector<std::size_t> chosen = {k_no_level};
    std::copy_if(start.begin(), start.end(), std::back_inserter(chosen), [](std::size_t i) { return i != k_no_level; });
    for (const std::size_t factor : order) {
        std::size_t best = k_no_level;
        std::size_t most = 0;
        for (std::size_t v = 0; v < m_values[factor]; ++v) {
            // Each factor starts at another value, so that ties do not favour one.
            const std::size_t now = id({factor, (v + m_rows.size()) % m_values[factor]});
            if (!fits(now, chosen)) continue;
            const std::size_t sum = gain(now, chosen) + 1;
            if (sum > most) best = now;
            most = std::max(most, sum);
        }
        if (best != k_no_level) chosen.push_back(best);
    }
    return chosen;
}

std::size_t Covering::met(const std::vector<std::size_t>& ids) const {
    std::size_t sum = 0;
    std::vector<std::size_t> before;
    for (const std::size_t i : ids) {
        if (i != k_no_level) sum += gain(i, before);
        before.push_back(i);
    }
    return sum;
}

void Covering::note(const Row& row) {
    std::vector<std::size_t> ids = {k_no_level};
    for (std::size_t f = 0; f < row.size(); ++f) ids.push_back(id({f, row[f]}));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t j = i + 1; j < ids.size(); ++j) {
            for (std::size_t k = j + 1; k < ids.size(); ++k) m_wanted[place({ids[i], ids[j], ids[k]})] = 0;
        }
    }
    m_rows.push_back(row);
}

void Covering::add_rows(std::span<const std::size_t> free, const std::function<void(Row&)>& fixed) {
    Random random(1, m_rows.size());
    for (const Ids& start : m_open) {
        // Some requirements are only met by rows whose fixed values make them meet something else.
        if (m_wanted[place(start)] == 0) continue;
        std::vector<std::size_t> best;
        std::size_t most = 0;
        for (int i = 0; i < k_candidates; ++i) {
            std::vector<std::size_t> order(free.begin(), free.end());
            shuffle(order, random);
            std::vector<std::size_t> now = candidate(start, order);
            const std::size_t sum = met(now);
            if (sum <= most) continue;
            most = sum;
            best = std::move(now);
        }
        Row row(m_values.size());
        for (const std::size_t i : best) {
            if (i != k_no_level) row[m_levels[i].factor] = m_levels[i].value;
        }
        fixed(row);
        note(row);
    }
    m_open.clear();
    m_triples = false;
}

}  // namespace gdnctl::oracle
