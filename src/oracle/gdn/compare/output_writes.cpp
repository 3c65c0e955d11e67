// Results that were computed correctly but written to other tokens, columns or heads, or never.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

class Finished {
public:
    Finished(const GdnReference& r, const Evidence& out, const HeadErrors& errors)
        : m_out(out),
          m_heads(static_cast<Index>(r.problem.dims.Hv)),
          m_dv(static_cast<Index>(r.problem.dims.dv)),
          m_head(static_cast<Index>(errors.head)) {
        const GdnSequence s = r.problem.sequences[static_cast<Index>(errors.sequence)];
        m_begin = static_cast<Index>(s.begin);
        m_end = static_cast<Index>(s.end);
        const double budget = out.budgets[static_cast<Index>(errors.sequence) * m_heads + m_head].rms;
        m_honest = k_ok_band * k_ok_band * budget * budget;
        for (Index row = m_begin; row < m_end; ++row) {
            const double size = away(row, m_head, row);
            if (!std::isfinite(size)) return;
            if (size > m_honest * static_cast<double>(m_dv)) m_wrong.push_back(row);
        }
    }

    std::optional<Diagnosis> run() const {
        if (m_wrong.size() < 2 || m_dv < 2) return std::nullopt;
        if (auto d = other_rows()) return d;
        if (auto d = other_columns()) return d;
        return mapped();
    }

private:
    Index at(Index row, Index head) const { return (row * m_heads + head) * m_dv; }

    // Sum of squares between a row of the dump and one of the truth, while it stays below `limit`.
    double away(Index got, Index head, Index want, double limit = HUGE_VAL) const {
        double sum = 0;
        const double* x = m_out.got->data() + at(got, m_head);
        const double* y = m_out.want->data() + at(want, head);
        for (Index j = 0; j < m_dv && sum <= limit; ++j) sum += (x[j] - y[j]) * (x[j] - y[j]);
        return sum;
    }
    double allowed(double before, Index count) const {
        return std::max(before / 1e4, std::min(m_honest * static_cast<double>(count), before / 81));
    }

    static Diagnosis found(std::vector<std::string> stages, const std::string& text) {
        Diagnosis d{stages.front(), {}, {{stages.front(), text, 100}}};
        d.stages = std::move(stages);
        return d;
    }

    // Whether nearly all of some wrong rows belong to another token or head.
    std::optional<Diagnosis> other_rows() const {
        constexpr Index k_asked = 48;
        const Index step = std::max<Index>(1, m_wrong.size() / k_asked);
        Index asked = 0;
        Index tokens = 0;
        Index heads = 0;
        std::string example;
        for (Index i = 0; i < m_wrong.size(); i += step) {
            const Index row = m_wrong[i];
            const double limit = allowed(away(row, m_head, row), m_dv);
            ++asked;
            for (Index head = 0; head < m_heads && limit > 0; ++head) {
                if (head == m_head || away(row, head, row, limit) > limit) continue;
                if (heads++ == 0) example = fmt::format("token {} holds that of head {}", row - m_begin, head);
                break;
            }
            for (Index other = m_begin; other < m_end && limit > 0; ++other) {
                if (other == row || away(row, m_head, other, limit) > limit) continue;
                if (tokens++ == 0) example = fmt::format("token {} holds that of {}", row - m_begin, other - m_begin);
                break;
            }
        }
        // A single row at an edge may contain anything.
        if (asked >= 2 && tokens * 8 >= asked * 7) {
            return found({"layout", "order", "output", "tile"},
                         "matches if out is right and at other tokens: " + example);
        }
        if (asked >= 2 && heads * 8 >= asked * 7)
            return found({"head_map", "layout", "tile"}, "matches if out is right and in other heads: " + example);
        return std::nullopt;
    }

    std::optional<Diagnosis> other_columns() const {
        const auto apart = [&](Index got, Index want, double limit) {
            double sum = 0;
            for (Index row = m_begin; row < m_end && sum <= limit; ++row) {
                const double d = (*m_out.got)[at(row, m_head) + got] - (*m_out.want)[at(row, m_head) + want];
                sum += d * d;
            }
            return sum;
        };
        const Index rows = m_end - m_begin;
        Index wrong = 0;
        Index moved = 0;
        std::string example;
        for (Index j = 0; j < m_dv; ++j) {
            const double before = apart(j, j, HUGE_VAL);
            if (before <= m_honest * static_cast<double>(rows)) continue;
            ++wrong;
            for (Index other = 0; other < m_dv; ++other) {
                if (other == j || apart(j, other, allowed(before, rows)) > allowed(before, rows)) continue;
                if (moved++ == 0) example = fmt::format("column {} holds that of {}", j, other);
                break;
            }
        }
        if (rows < 4 || wrong < 2 || moved != wrong) return std::nullopt;
        return found({"layout", "output", "tile"}, "matches if out is right and in other columns: " + example);
    }

    // Whether each value depends only on the right one: then right values close in size have nearly the same error.
    std::optional<Diagnosis> mapped() const {
        std::vector<std::pair<double, double>> pairs;  // right value, error
        for (const Index row : m_wrong) {
            for (Index i = at(row, m_head); i < at(row, m_head) + m_dv; ++i)
                pairs.emplace_back((*m_out.want)[i], (*m_out.got)[i] - (*m_out.want)[i]);
        }
        if (pairs.size() < 256) return std::nullopt;
        std::sort(pairs.begin(), pairs.end());
        std::vector<double> jumps;
        double squares = 0;
        for (Index i = 0; i + 1 < pairs.size(); ++i) {
            jumps.push_back((pairs[i + 1].second - pairs[i].second) * (pairs[i + 1].second - pairs[i].second));
            squares += pairs[i].second * pairs[i].second;
        }
        // Drops sparse ends, and places where the map jumps.
        std::sort(jumps.begin(), jumps.end());
        const Index kept = jumps.size() - jumps.size() / 25;
        const double rough = std::accumulate(jumps.begin(), jumps.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
        if (!(rough < squares / 900)) return std::nullopt;
        return found(
            {"output", "rounding", "tile"},
            "each value of out depends on the right one alone: consistent with values that are clipped, flushed or "
            "mapped at the end");
    }

    const Evidence& m_out;
    Index m_heads, m_dv, m_head;
    Index m_begin = 0, m_end = 0;
    double m_honest = 0;
    std::vector<Index> m_wrong;
};

}  // namespace

std::optional<Diagnosis> match_finished(const GdnReference& r, const ForwardEvidence& evidence,
                                        const HeadErrors& errors) {
    if (!evidence.out) return std::nullopt;
    return Finished(r, *evidence.out, errors).run();
}

// Results that were never written: they are exactly 0.

namespace {

// Truths below this share of an element's allowance are as good as 0.
constexpr double k_faint = 1e-3;

// Whether all of it is 0, and that is wrong.
bool all_zero(const std::optional<Evidence>& e) {
    if (!e || std::any_of(e->got->begin(), e->got->end(), [](double x) { return x != 0; })) return false;
    double allowed = 0;
    for (const GroupBudget& b : e->budgets) allowed = std::max(allowed, k_ok_band * b.max_abs);
    return std::any_of(e->want->begin(), e->want->end(), [allowed](double y) { return std::fabs(y) > allowed; });
}

// A block [rows, columns] of one head: which of its rows and columns are all 0, and whether these contain every wrong
// element.
struct ZeroBlock {
    std::vector<Index> rows, columns;  // all 0, although the truth is not
    Index all_rows = 0, all_columns = 0;
    bool wrong = false;           // some element
    bool wrong_in_rows = false;   // an element of a row that is all 0
    bool rows_explain = true;     // every wrong element is in such a row
    bool columns_explain = true;  // or in such a column
    bool whole = true;            // all of it is 0, and some of that is wrong
    bool explained() const { return !wrong || rows_explain || columns_explain; }
};

// `at` returns the element of a row and a column.
template <class At>
ZeroBlock zeros_of(const Evidence& e, Index group, Index rows, Index columns, const At& at) {
    std::vector<bool> row(rows, true);
    std::vector<bool> column(columns, true);
    std::vector<bool> row_truth(rows, false);
    std::vector<bool> column_truth(columns, false);
    const double allowed = k_ok_band * e.budgets[group].max_abs;
    for (Index x = 0; x < rows; ++x) {
        for (Index j = 0; j < columns; ++j) {
            const Index i = at(x, j);
            if ((*e.got)[i] != 0) row[x] = column[j] = false;
            if (std::fabs((*e.want)[i]) > k_faint * allowed) row_truth[x] = column_truth[j] = true;
        }
    }
    ZeroBlock block;
    for (Index x = 0; x < rows; ++x) {
        for (Index j = 0; j < columns; ++j) {
            const Index i = at(x, j);
            if (std::fabs((*e.got)[i] - (*e.want)[i]) <= allowed) continue;
            block.wrong = true;
            block.wrong_in_rows = block.wrong_in_rows || row[x];
            block.rows_explain = block.rows_explain && row[x];
            block.columns_explain = block.columns_explain && column[j];
        }
    }
    for (Index x = 0; x < rows; ++x) {
        // A row of zeros that the truth also has is not reported.
        if (row[x] && row_truth[x]) block.rows.push_back(x);
        block.whole = block.whole && row[x];
    }
    block.whole = block.whole && block.wrong;
    block.all_rows = rows;
    for (Index j = 0; j < columns; ++j) {
        if (column[j] && column_truth[j]) block.columns.push_back(j);
    }
    block.all_columns = columns;
    return block;
}

struct HeadZeros {
    std::int64_t sequence = 0, head = 0;
    Index tokens = 0;
    ZeroBlock out, state;
};

std::vector<HeadZeros> zeros_by_head(const GdnReference& r, const ForwardEvidence& evidence,
                                     const std::vector<HeadErrors>& errors) {
    const auto heads = static_cast<Index>(r.problem.dims.Hv);
    const auto dk = static_cast<Index>(r.problem.dims.dk);
    const auto dv = static_cast<Index>(r.problem.dims.dv);
    std::vector<HeadZeros> zeros;
    for (const HeadErrors& errors_of_head : errors) {
        HeadZeros& z = zeros.emplace_back();
        z.sequence = errors_of_head.sequence;
        z.head = errors_of_head.head;
        const auto head = static_cast<Index>(errors_of_head.head);
        const GdnSequence s = r.problem.sequences[static_cast<Index>(errors_of_head.sequence)];
        const auto begin = static_cast<Index>(s.begin);
        z.tokens = static_cast<Index>(s.end) - begin;
        const Index group = static_cast<Index>(errors_of_head.sequence) * heads + head;
        if (evidence.out) {
            z.out = zeros_of(*evidence.out, group, z.tokens, dv,
                             [&](Index t, Index j) { return ((begin + t) * heads + head) * dv + j; });
        }
        if (evidence.state) {
            z.state =
                zeros_of(*evidence.state, group, dk, dv, [&](Index x, Index j) { return (group * dk + x) * dv + j; });
        }
    }
    return zeros;
}

// "3", "3 to 7", "t with t % 64 from 48 to 63", "3 to 5, 9, ...": which of `length`.
std::string pattern_of(const std::vector<Index>& numbers, Index length, std::string_view one, std::string_view many) {
    const Index first = numbers.front();
    const Index last = numbers.back();
    if (first == last) return fmt::format("{} {}", one, first);
    if (last - first + 1 == numbers.size()) return fmt::format("{} {} to {}", many, first, last);
    for (Index period = 2; period <= 128 && 2 * period <= length; ++period) {
        Index low = period;
        Index high = 0;
        for (const Index n : numbers) {
            low = std::min(low, n % period);
            high = std::max(high, n % period);
        }
        Index expected = 0;
        for (Index n = 0; n < length; ++n) expected += n % period >= low && n % period <= high ? 1 : 0;
        if (expected != numbers.size()) continue;
        return low == high ? fmt::format("{} t with t % {} = {}", many, period, low)
                           : fmt::format("{} t with t % {} from {} to {}", many, period, low, high);
    }
    std::string text;
    int runs = 0;
    for (Index i = 0; i < numbers.size() && runs < 4; ++runs) {
        Index end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        text += fmt::format("{}{}", runs == 0 ? "" : ", ", numbers[i]);
        if (end > i) text += fmt::format(" to {}", numbers[end]);
        i = end + 1;
        if (runs == 3 && i < numbers.size()) text += ", ...";
    }
    return fmt::format("{} {}", many, text);
}

// Heads by name: "value head 1", "batch row 2", "value head 1 of sequence 2 and 3 more".
std::string heads_text(const GdnReference& r, const std::vector<const HeadZeros*>& zeros) {
    std::vector<std::int64_t> heads;
    std::vector<std::int64_t> sequences;
    for (const HeadZeros* z : zeros) {
        heads.push_back(z->head);
        sequences.push_back(z->sequence);
    }
    for (auto* list : {&heads, &sequences}) {
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    const std::string_view unit = r.problem.has_cu_seqlens ? "sequence" : "batch row";
    const bool every_head = heads.size() == static_cast<Index>(r.problem.dims.Hv);
    const bool every_sequence = sequences.size() == r.problem.sequences.size();
    const auto named = [](std::string_view noun, const std::vector<std::int64_t>& list) {
        return fmt::format("{}{} {}", noun, list.size() == 1 ? "" : "s", fmt::join(list, ", "));
    };
    if (zeros.size() != heads.size() * sequences.size() || (heads.size() > 8 && !every_head)) {
        const std::string more = zeros.size() > 1 ? fmt::format(" and {} more", zeros.size() - 1) : std::string();
        return fmt::format("value head {} of {} {}{}", zeros.front()->head, unit, zeros.front()->sequence, more);
    }
    if (every_head && !every_sequence) return named(unit, sequences);
    if (every_sequence) return named("value head", heads);
    return fmt::format("{} of {}", named("value head", heads), named(unit, sequences));
}

template <class Wanted>
std::vector<const HeadZeros*> heads_where(const std::vector<HeadZeros>& all, const Wanted& wanted) {
    std::vector<const HeadZeros*> heads;
    for (const HeadZeros& head : all) {
        if (wanted(head)) heads.push_back(&head);
    }
    return heads;
}

// "out is exactly 0 in 10 rows (first in value head 0, tokens 10 to 14)"
std::string rows_of_out(const GdnReference& r, const std::vector<const HeadZeros*>& heads) {
    Index rows = 0;
    for (const HeadZeros* head : heads) rows += head->out.rows.size();
    const HeadZeros& first = *heads.front();
    const std::string sequence =
        r.problem.sequences.size() > 1 ? fmt::format("sequence {}, ", first.sequence) : std::string();
    return fmt::format("out is exactly 0 in {} row{} ({}{}value head {}, {})", rows, rows == 1 ? "" : "s",
                       heads.size() > 1 ? "first in " : "", sequence, first.head,
                       pattern_of(first.out.rows, first.tokens, "token", "tokens"));
}

// Whether each head's rows are the tokens of its last, incomplete chunk.
bool is_tail(const GdnReference& r, const std::vector<const HeadZeros*>& heads) {
    const auto chunk = static_cast<Index>(r.contract.value.chunk);
    return std::all_of(heads.begin(), heads.end(), [chunk](const HeadZeros* head) {
        const Index first = head->out.rows.front();
        return first > 0 && first % chunk == 0 && head->tokens - first < chunk;
    });
}

std::string part_of(const GdnReference& r, std::string_view tensor, const std::vector<const HeadZeros*>& heads,
                    ZeroBlock HeadZeros::* block, bool of_out) {
    const ZeroBlock& first = heads.front()->*block;
    const auto all = [&](auto good) { return std::all_of(heads.begin(), heads.end(), good); };
    const bool everywhere = heads.size() == r.problem.sequences.size() * static_cast<Index>(r.problem.dims.Hv);
    const std::string where = everywhere ? std::string() : " of " + heads_text(r, heads);
    if (all([&](const HeadZeros* z) { return (z->*block).whole; })) {
        return fmt::format("{}{} is exactly 0", tensor, where);
    }
    if (all([&](const HeadZeros* z) { return (z->*block).rows_explain; })) {
        if (of_out) return rows_of_out(r, heads);
        return fmt::format("{}{} is exactly 0 in {} of {} rows ({})", tensor, where, first.rows.size(), first.all_rows,
                           pattern_of(first.rows, first.all_rows, "row", "rows"));
    }
    return fmt::format("{}{} is exactly 0 in {} of {} columns of v ({})", tensor, where, first.columns.size(),
                       first.all_columns, pattern_of(first.columns, first.all_columns, "column", "columns"));
}

Diagnosis unwritten(std::vector<std::string> stages, std::string_view text, std::string_view what = "results") {
    Diagnosis d;
    d.stage = stages.front();
    d.hints.push_back({d.stage, fmt::format("{}: consistent with {} that were never written", text, what), 1});
    d.stages = std::move(stages);
    return d;
}

// Everything wrong is 0: whole heads, rows or columns.
std::optional<Diagnosis> match_parts(const GdnReference& r, const std::vector<HeadZeros>& all) {
    const auto explained = [](const HeadZeros& z) { return z.out.explained() && z.state.explained(); };
    if (!std::all_of(all.begin(), all.end(), explained)) return std::nullopt;
    const auto out = heads_where(all, [](const HeadZeros& z) { return z.out.wrong; });
    const auto state = heads_where(all, [](const HeadZeros& z) { return z.state.wrong; });
    const auto none = [](const HeadZeros* z) { return z->tokens == 0; };
    // The final state of a sequence without tokens depends on the contract.
    if (out.empty() && (state.empty() || std::all_of(state.begin(), state.end(), none))) return std::nullopt;
    const auto whole = [](ZeroBlock HeadZeros::* block) {
        return [block](const HeadZeros* z) { return (z->*block).whole; };
    };
    if (!out.empty() && out == state && std::all_of(out.begin(), out.end(), whole(&HeadZeros::out)) &&
        std::all_of(out.begin(), out.end(), whole(&HeadZeros::state))) {
        return unwritten({"tile", "output", "padding"},
                         fmt::format("out and final_state of {} are exactly 0", heads_text(r, out)));
    }
    std::string text;
    if (!out.empty()) text = part_of(r, "out", out, &HeadZeros::out, true);
    if (!state.empty()) {
        text += fmt::format("{}{}", text.empty() ? "" : ", and ",
                            part_of(r, "final_state", state, &HeadZeros::state, false));
    }
    const bool rows = !out.empty() && !std::all_of(out.begin(), out.end(), whole(&HeadZeros::out)) &&
                      std::all_of(out.begin(), out.end(), [](const HeadZeros* z) { return z->out.rows_explain; });
    const std::string_view what = rows && state.empty() ? "rows" : "results";
    if (rows && is_tail(r, out)) return unwritten({"padding", "tile"}, text, what);
    if (!out.empty()) return unwritten({"tile", "padding"}, text, what);
    const bool whole_state = std::all_of(state.begin(), state.end(), whole(&HeadZeros::state));
    if (whole_state) return unwritten({"carry", "tile", "padding"}, text);
    return unwritten({"tile", "carry", "padding"}, text);
}

}  // namespace

std::optional<Diagnosis> match_zeros(const GdnReference& r, const ForwardEvidence& evidence,
                                     const std::vector<HeadErrors>& errors) {
    const bool out = all_zero(evidence.out);
    const bool state = all_zero(evidence.state);
    if (!out && !state) return match_parts(r, zeros_by_head(r, evidence, errors));
    const char* which = out && state ? "out and final_state are" : out ? "out is" : "final_state is";
    const std::string stage = out ? "output" : "carry";
    return Diagnosis{
        stage,
        {stage, "tile", "padding"},
        {{stage, fmt::format("{} exactly 0 throughout: consistent with results that were never written", which), 1}}};
}

void put_zeros_first(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<HeadErrors>& errors,
                     Diagnosis& d) {
    // A simulated mistake explains the zeros, too.
    if (!d.hints.empty() && d.hints.front().text.starts_with("matches if")) return;
    const auto all = zeros_by_head(r, evidence, errors);
    const auto heads = heads_where(all, [](const HeadZeros& z) { return z.out.wrong_in_rows && !z.out.rows.empty(); });
    if (heads.empty()) return;
    Diagnosis zeros = unwritten(
        is_tail(r, heads) ? std::vector<std::string>{"padding", "tile"} : std::vector<std::string>{"tile", "padding"},
        rows_of_out(r, heads), "rows");
    zeros.hints.insert(zeros.hints.end(), d.hints.begin(), d.hints.end());
    for (const std::string& stage : d.stages) {
        if (std::find(zeros.stages.begin(), zeros.stages.end(), stage) == zeros.stages.end())
            zeros.stages.push_back(stage);
    }
    d = std::move(zeros);
}

}  // namespace gdnctl::oracle
