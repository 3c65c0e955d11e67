// Right values that were moved, shifted or rounded somewhere inside a chunk: tries every such change at every point.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

// A change of rows of `width` values.
struct Change {
    std::string what;
    std::function<void(Reals&, Index width)> apply;
    bool rounds = false;
    int tokens_on = 0;  // every row moves to the next token (1) or the previous one (-1)
};

template <class From>
Change columns_change(std::string what, const From& from) {
    return {std::move(what), [from](Reals& x, Index width) {
                const Reals old = x;
                for (Index at = 0; at < x.size(); ++at) x[at] = old[at - at % width + from(at % width, width)];
            }};
}

template <class From>
Change rows_change(std::string what, const From& from) {  // from(i, rows) == rows: none
    return {std::move(what), [from](Reals& x, Index width) {
                const Reals old = x;
                const Index rows = x.size() / width;
                for (Index at = 0; at < x.size(); ++at) {
                    const Index row = from(at / width, rows);
                    x[at] = row < rows ? old[row * width + at % width] : 0;
                }
            }};
}

// Within a row.
std::vector<Change> column_changes() {
    std::vector<Change> all;
    all.push_back(
        columns_change("has its halves exchanged", [](Index j, Index w) { return w % 2 != 0 ? j : (j + w / 2) % w; }));
    all.push_back(columns_change("has neighbouring dimensions exchanged",
                                 [](Index j, Index w) { return (j ^ 1U) < w ? j ^ 1U : j; }));
    all.push_back(columns_change("has its dimensions in reverse order", [](Index j, Index w) { return w - 1 - j; }));
    all.push_back(columns_change("has its dimensions one place on", [](Index j, Index w) { return (j + w - 1) % w; }));
    all.push_back(columns_change("has its dimensions one place back", [](Index j, Index w) { return (j + 1) % w; }));
    all.push_back(columns_change("has even and odd dimensions apart instead of in turn", [](Index j, Index w) {
        const Index half = (w + 1) / 2;
        return j < half ? 2 * j : 2 * (j - half) + 1;
    }));
    all.push_back(columns_change("has dimensions in turn that should be apart",
                                 [](Index j, Index w) { return j % 2 == 0 ? j / 2 : (w + 1) / 2 + j / 2; }));
    return all;
}

// Of whole rows.
std::vector<Change> row_changes() {
    std::vector<Change> all;
    all.push_back(rows_change("is that of the token before", [](Index i, Index n) { return i == 0 ? n : i - 1; }));
    all.back().tokens_on = 1;
    all.push_back(rows_change("is that of the next token", [](Index i, Index) { return i + 1; }));
    all.back().tokens_on = -1;
    all.push_back(rows_change("has the tokens of each pair exchanged",
                              [](Index i, Index n) { return (i ^ 1U) < n ? i ^ 1U : i; }));
    all.push_back(rows_change("has its tokens in reverse order", [](Index i, Index n) { return n - 1 - i; }));
    all.push_back(rows_change("has the halves of the chunk exchanged",
                              [](Index i, Index n) { return n % 2 != 0 ? i : (i + n / 2) % n; }));
    return all;
}

std::vector<Change> roundings() {
    std::vector<Change> all;
    for (const DType dtype : {DType::bf16, DType::f16}) {
        all.push_back({fmt::format("is rounded to {}", name_of(dtype)),
                       [dtype](Reals& x, Index) {
                           for (double& value : x) value = rounded_to(value, dtype);
                       },
                       true});
    }
    return all;
}

std::vector<Change> joined(std::vector<Change> a, const std::vector<Change>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

enum class Point { keys, M, P, v, KS, QS, rhs, U, U_read, U_written, PU, out, state_read, state };

// Where a change may be made, and the stage it belongs to.
struct Site {
    std::vector<std::string> stages;
    std::string name;
    Point point;
    std::vector<Reals KeyUses::*> uses;  // of Point::keys
    bool carries = false;
};

const std::vector<Site>& sites() {
    using K = KeyUses;
    static const std::vector<Site> k_all = {
        {{"layout", "head_map", "l2norm"}, "q", Point::keys, {&K::query_state, &K::query_gram}},
        {{"layout", "head_map", "l2norm"},
         "k",
         Point::keys,
         {&K::key_state, &K::key_solve, &K::key_intra, &K::key_write}},
        {{"output", "layout"}, "q in Q S", Point::keys, {&K::query_state}},
        {{"intra", "layout"}, "q in P", Point::keys, {&K::query_gram}},
        {{"wu", "layout"}, "k in K S", Point::keys, {&K::key_state}},
        {{"solve", "layout"}, "k in M", Point::keys, {&K::key_solve}},
        {{"intra", "layout"}, "k in P", Point::keys, {&K::key_intra}},
        {{"carry", "layout"}, "k in what is written to the state", Point::keys, {&K::key_write}, true},
        {{"solve", "decay"}, "M", Point::M, {}},
        {{"intra", "decay"}, "P", Point::P, {}},
        {{"wu", "layout"}, "v", Point::v, {}},
        {{"wu", "layout"}, "K S", Point::KS, {}},
        {{"output", "layout"}, "Q S", Point::QS, {}},
        {{"wu", "solve"}, "the right-hand side", Point::rhs, {}},
        {{"solve", "wu"}, "U", Point::U, {}},
        {{"intra", "output"}, "U in P U", Point::U_read, {}},
        {{"carry", "wu"}, "U in what is written to the state", Point::U_written, {}, true},
        {{"intra", "output"}, "P U", Point::PU, {}},
        {{"layout", "output", "tile"}, "out", Point::out, {}},
        {{"carry", "layout"}, "the state that the chunk reads", Point::state_read, {}},
        {{"carry", "layout"}, "the state after the chunk", Point::state, {}, true},
    };
    return k_all;
}

// One chunk with one change at one site.
class Moved {
public:
    Moved(const Section& s, Index index, const Site& site, const Change& change)
        : m_s(s), m_index(index), m_site(site), m_change(change), m_chunk(s.honest[index]) {}

    std::optional<Explanation> run(const Reals& state) {
        const Reals wrong = m_site.carries ? without(state) : Reals{};
        open(state);
        Reals U = solved(m_chunk, changed(right_hand_side(m_chunk), Point::rhs));
        U = changed(std::move(U), Point::U);
        Reals errors;
        Explanation e;
        if (!m_site.carries) {
            Reals out = changed(times_p(m_chunk, changed(U, Point::U_read)), Point::PU);
            add_read(m_chunk, out);
            if (!m_s.out.empty()) add_out_errors(m_s, m_index, changed(std::move(out), Point::out), errors);
        }
        e.state = changed(state_after(m_chunk, changed(std::move(U), Point::U_written)), Point::state);
        if (m_site.carries && m_index + 1 < m_s.parts.size()) {
            errors = honest_errors(m_s, m_index + 1, e.state);
        } else if (m_s.knows_state_after(m_index)) {
            add_state_errors(m_s, e.state, errors);
        }
        e.before = rms_of(m_site.carries ? wrong : honest_errors(m_s, m_index, state));
        e.after = rms_of(errors);
        const bool fits = m_change.rounds ? e.after <= e.before / 12 : explains(e.before, e.after);
        if (!(e.before > 0) || !fits) return std::nullopt;
        e.text = fmt::format("{} {}", m_site.name, m_change.what);
        return e;
    }

private:
    Reals without(const Reals& state) const {
        Reals after;
        honest_errors(m_s, m_index, state, &after);
        if (m_index + 1 < m_s.parts.size()) return honest_errors(m_s, m_index + 1, after);
        Reals errors;
        if (m_s.knows_state_after(m_index)) add_state_errors(m_s, after, errors);
        return errors;
    }

    Reals changed(Reals x, Point point) const {
        if (m_site.point == point)
            m_change.apply(x, point == Point::M || point == Point::P ? m_chunk.rows : m_chunk.columns);
        return x;
    }

    // The row that comes from the next chunk, or from the previous one.
    void add_neighbour(Reals& rows, const Reals& all, Index width) const {
        const Index first = m_s.parts[m_index].first;
        const auto take = [&](Index from, Index to) {
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                        rows.begin() + static_cast<std::ptrdiff_t>(to * width));
        };
        if (m_change.tokens_on == 1 && first > 0) take(first - 1, 0);
        const Index end = first + m_chunk.rows;
        if (m_change.tokens_on == -1 && end < m_s.lane.tokens) take(end, m_chunk.rows - 1);
    }

    void open(const Reals& state) {
        const Reals read = changed(state, Point::state_read);
        KeyUses uses = key_uses(m_s.lane, m_s.parts[m_index].first, m_chunk.rows);
        for (Reals KeyUses::* use : m_site.uses) {
            m_change.apply(uses.*use, m_chunk.dk);
            const bool of_q = use == &KeyUses::query_state || use == &KeyUses::query_gram;
            add_neighbour(uses.*use, of_q ? m_s.lane.q : m_s.lane.k, m_chunk.dk);
        }
        if (m_site.point == Point::keys) {
            m_chunk = open_chunk(m_s.parts[m_index], uses, read);
        } else if (read != m_chunk.state) {
            m_chunk.KS = product(uses.key_state, read, m_chunk.dk, m_chunk.columns);
            m_chunk.QS = product(uses.query_state, read, m_chunk.dk, m_chunk.columns);
            m_chunk.state = read;
        }
        m_chunk.M = changed(std::move(m_chunk.M), Point::M);
        m_chunk.P = changed(std::move(m_chunk.P), Point::P);
        m_chunk.v = changed(std::move(m_chunk.v), Point::v);
        if (m_site.point == Point::v) add_neighbour(m_chunk.v, m_s.lane.v, m_chunk.columns);
        m_chunk.KS = changed(std::move(m_chunk.KS), Point::KS);
        m_chunk.QS = changed(std::move(m_chunk.QS), Point::QS);
    }

    const Section& m_s;
    Index m_index;
    const Site& m_site;
    const Change& m_change;
    OpenChunk m_chunk;
};

}  // namespace

std::vector<Suspicion> move_suspicions() {
    static const std::vector<Change> k_columns_rows = joined(joined(column_changes(), row_changes()), roundings());
    static const std::vector<Change> k_states = joined(column_changes(), roundings());
    static const std::vector<Change> k_roundings = roundings();
    std::vector<Suspicion> all;
    for (const Site& site : sites()) {
        const bool matrix = site.point == Point::M || site.point == Point::P;
        const bool state = site.point == Point::state || site.point == Point::state_read;
        for (const Change& change : matrix ? k_roundings : state ? k_states : k_columns_rows) {
            Suspicion s;
            s.stages = site.stages;
            if (change.rounds) s.stages.insert(s.stages.begin(), "rounding");
            s.carries = site.carries;
            s.all_columns = true;
            s.attempt = [&site, &change](const Section& section, std::size_t index, const Reals& before) {
                return Moved(section, index, site, change).run(before);
            };
            all.push_back(std::move(s));
        }
    }
    return all;
}

}  // namespace gdnctl::oracle
