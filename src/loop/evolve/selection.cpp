#include "loop/evolve/selection.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/parse/block.h"

namespace gdnctl::loop::evolve {

double unit_of(std::uint64_t first_bytes) { return static_cast<double>(first_bytes >> 11U) * 0x1p-53; }

double draw(std::uint64_t seed, std::int64_t attempt, std::string_view name, int k) {
    const std::string hex = runlog::sha256_hex(fmt::format("gdnctl-evolve/1|{}|{}|{}|{}", seed, attempt, name, k));
    std::uint64_t first = 0;
    std::from_chars(hex.data(), hex.data() + 16, first, 16);
    return unit_of(first);
}

namespace {

constexpr std::array<std::string_view, 6> k_operators = {"explore", "exploit", "repair", "cross", "simplify", "ablate"};
constexpr std::array<std::string_view, 12> k_verdicts = {"none",     "kept",        "tie",       "rejected",
                                                         "invalid",  "duplicate",   "abstained", "noop",
                                                         "tampered", "quarantined", "abandoned", "infra"};

template <class Words>
std::size_t index_of(const Words& words, std::string_view word) {
    return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

// Members stand at their numbers.
const Member& member(std::span<const Member> members, int number) { return members[static_cast<std::size_t>(number)]; }

bool is_spent(Verdict verdict) {
    return verdict != Verdict::infra && verdict != Verdict::abandoned && verdict != Verdict::none;
}

bool is_ranked(const Member& m) { return !m.gone && (m.verdict == Verdict::kept || m.verdict == Verdict::tie); }

class Picker {
public:
    Picker(std::span<const Member> members, int number, const SelectionRules& rules)
        : m_members(members),
          m_number(number),
          m_rules(rules),
          m_ranked(ranked(members)),
          m_children(children_counts(members)) {}

    Pick run() {
        m_pick.op = static_cast<Operator>(index_at(m_rules.mix, draw_next("operator", 0)));
        const double lineages = static_cast<double>(m_rules.lineages);
        m_pick.lineage =
            std::min(static_cast<int>(std::floor(lineages * draw_next("lineage", 0))), m_rules.lineages - 1);
        if (stagnant_for(m_members, m_pick.lineage) >= m_rules.stagnation) {
            restart();
        } else {
            choose_parents();
        }
        choose_inspirations();
        return std::move(m_pick);
    }

private:
    double draw_next(std::string_view name, int k) {
        const double u = draw(m_rules.seed, m_number, name, k);
        m_pick.draws.push_back({std::string(name), k, u});
        return u;
    }

    void restart() {
        m_pick.op = Operator::explore;
        m_pick.restart = true;
        const auto other = std::find_if(m_ranked.begin(), m_ranked.end(), [&](int number) {
            return member(m_members, number).lineage != m_pick.lineage;
        });
        m_pick.parents = {other == m_ranked.end() ? 0 : *other};
    }

    // One of `from`, by rank and children.
    int drawn(std::span<const int> from, int k) {
        std::vector<int> children;
        for (const int number : from) children.push_back(m_children[static_cast<std::size_t>(number)]);
        return from[index_at(parent_weights(children), draw_next("parent", k))];
    }

    int first_parent() { return m_pick.lineage == 0 ? best_of(m_members) : drawn(m_ranked, 0); }

    void choose_parents() {
        const int best = best_of(m_members);
        switch (m_pick.op) {
            case Operator::explore:
            case Operator::simplify: m_pick.parents = {first_parent()}; return;
            case Operator::exploit: m_pick.parents = {best}; return;
            case Operator::ablate:
                if (best == 0) break;  // nothing has been changed that could be reverted
                m_pick.parents = {best};
                return;
            case Operator::repair: {
                const int broken = to_repair();
                if (broken == 0) break;
                m_pick.parents = {broken};
                return;
            }
            case Operator::cross: {
                std::vector<int> others = m_ranked;
                std::erase(others, 0);
                if (others.size() < 2) break;
                const int first = m_pick.lineage == 0 ? others.front() : drawn(others, 0);
                std::erase(others, first);
                m_pick.parents = {first, drawn(others, 1)};
                return;
            }
        }
        m_pick.op = Operator::explore;
        m_pick.parents = {first_parent()};
    }

    // The last broken attempt among those with the fewest children; 0: none.
    int to_repair() const {
        int found = 0, fewest = 0;
        for (const Member& m : m_members) {
            if (!m.broken || m.gone) continue;
            const int children = m_children[static_cast<std::size_t>(m.number)];
            if (found == 0 || children <= fewest) {
                found = m.number;
                fewest = children;
            }
        }
        return found;
    }

    // Two elites of other techniques than the parent's.
    void choose_inspirations() {
        std::set<std::string> seen = {member(m_members, m_pick.parents.front()).technique};
        for (const int number : archive(m_members)) {
            const Member& elite = member(m_members, number);
            const bool is_parent =
                std::find(m_pick.parents.begin(), m_pick.parents.end(), number) != m_pick.parents.end();
            if (number == 0 || is_parent || !seen.insert(elite.technique).second) continue;
            m_pick.inspirations.push_back(number);
            if (m_pick.inspirations.size() == 2) return;
        }
    }

    std::span<const Member> m_members;
    int m_number;
    const SelectionRules& m_rules;
    std::vector<int> m_ranked, m_children;
    Pick m_pick;
};

}  // namespace

std::string_view to_text(Operator op) { return k_operators[static_cast<std::size_t>(op)]; }

std::optional<Operator> parse_operator(std::string_view word) {
    const std::size_t at = index_of(k_operators, word);
    return at == k_operators.size() ? std::nullopt : std::optional(static_cast<Operator>(at));
}

std::string_view to_text(Verdict verdict) { return k_verdicts[static_cast<std::size_t>(verdict)]; }

std::optional<Verdict> parse_verdict(std::string_view word) {
    const std::size_t at = index_of(k_verdicts, word);
    return at == k_verdicts.size() ? std::nullopt : std::optional(static_cast<Verdict>(at));
}

Result<OperatorMix> parse_mix(std::string_view text) {
    OperatorMix mix{};
    for (const std::string_view item : text::split(text, ',')) {
        const auto equals = item.find('=');
        const auto op = parse_operator(text::trim(item.substr(0, equals)));
        if (!op || equals == std::string_view::npos) {
            return fail(ErrorKind::usage, fmt::format("--operator-mix: expected OPERATOR=SHARE: {}", item),
                        "operators: explore, exploit, repair, cross, simplify, ablate");
        }
        std::string number(text::trim(item.substr(equals + 1)));
        if (number.starts_with('.')) number.insert(0, "0");
        const auto share = text::parse_double(number);
        if (!share || *share < 0 || *share > 1) {
            return fail(ErrorKind::usage, fmt::format("--operator-mix: expected a share from 0 to 1: {}", item));
        }
        mix[static_cast<std::size_t>(*op)] = *share;
    }
    double sum = 0;
    for (const double share : mix) sum += share;
    if (std::abs(sum - 1) > 1e-6) {
        return fail(ErrorKind::usage, fmt::format("--operator-mix: the shares must add up to 1, not {:g}", sum));
    }
    return mix;
}

std::string to_text(const OperatorMix& mix) {
    std::string out;
    for (std::size_t i = 0; i < mix.size(); ++i) {
        out += fmt::format("{}{}={:g}", i == 0 ? "" : ",", k_operators[i], mix[i]);
    }
    return out;
}

Pick pick(std::span<const Member> members, int number, const SelectionRules& rules) {
    return Picker(members, number, rules).run();
}

std::vector<int> ranked(std::span<const Member> members) {
    std::vector<const Member*> all;
    for (const Member& m : members) {
        if (is_ranked(m)) all.push_back(&m);
    }
    std::stable_sort(all.begin(), all.end(), [](const Member* a, const Member* b) {
        return a->gain != b->gain ? a->gain > b->gain : a->lines < b->lines;
    });
    std::vector<int> out;
    for (const Member* m : all) out.push_back(m->number);
    return out;
}

int best_of(std::span<const Member> members) {
    const Member* best = nullptr;
    for (const Member& m : members) {
        if (!m.gone && m.verdict == Verdict::kept && (best == nullptr || m.gain > best->gain)) best = &m;
    }
    return best == nullptr ? 0 : best->number;
}

std::vector<int> children_counts(std::span<const Member> members) {
    std::vector<int> counts(members.size(), 0);
    for (const Member& m : members) {
        if (!is_spent(m.verdict)) continue;
        for (const int parent : m.parents) ++counts[static_cast<std::size_t>(parent)];
    }
    return counts;
}

std::vector<double> parent_weights(std::span<const int> children) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
        weights.push_back(1.0 / (static_cast<double>(i + 1) * (1.0 + children[i])));
        sum += weights.back();
    }
    for (double& weight : weights) weight /= sum;
    return weights;
}

std::size_t index_at(std::span<const double> weights, double u) {
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        sum += weights[i];
        if (sum > u) return i;
    }
    // Rounding left the sum just below u: the last one that has a share.
    for (std::size_t i = weights.size(); i-- > 0;) {
        if (weights[i] > 0) return i;
    }
    return 0;
}

std::vector<int> archive(std::span<const Member> members) {
    std::set<std::pair<std::string, std::string>> seen;
    std::vector<int> out;
    for (const int number : ranked(members)) {
        const Member& m = member(members, number);
        if (seen.emplace(m.place, m.technique).second) out.push_back(number);
    }
    return out;
}

int stagnant_for(std::span<const Member> members, int lineage) {
    int count = 0;
    for (const Member& m : members) count_stagnant(m, lineage, count);
    return count;
}

void count_stagnant(const Member& member, int lineage, int& count) {
    if (member.number == 0 || member.lineage != lineage || !is_spent(member.verdict)) return;
    count = member.verdict == Verdict::kept || member.restart ? 0 : count + 1;
}

}  // namespace gdnctl::loop::evolve
