// Known mistakes of backward passes: recomputes the gradients as a faulty kernel would.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/head.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/judge/linear_algebra.h"

namespace gdnctl::oracle {

namespace {

// Takes what a gradient would be under a known mistake.
using Offer = std::function<void(const GradientEvidence& gradient, std::string stage, const std::string& text,
                                 const std::vector<double>& other)>;

class KeyGradients {
public:
    // nullptr: that gradient is right, or missing.
    KeyGradients(const GdnReference& reference, const GradientEvidence* dq, const GradientEvidence* dk, int threads);

    // Offers the known mistakes.
    void match(const Offer& offer);
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

// With fewer columns, a combination of two vectors explains almost anything.
constexpr std::size_t k_least_columns = 8;
constexpr std::size_t k_most_members = 8;

const std::vector<double>& values_of(const GdnGradients& g, bool of_q) { return of_q ? g.dq : g.dk; }

KeyGradients::KeyGradients(const GdnReference& reference, const GradientEvidence* dq, const GradientEvidence* dk,
                           int threads)
    : m_r(reference), m_threads(threads) {
    if (dq != nullptr) m_wrong.push_back({dq, true, {}, {}, {}});
    if (dk != nullptr) m_wrong.push_back({dk, false, {}, {}, {}});
    const GdnContract& c = m_r.contract.value;
    if (m_wrong.empty() || c.l2norm == L2Norm::off) return;
    GdnProblem normalised = m_r.problem;
    const auto width = static_cast<std::size_t>(normalised.dims.dk);
    for (Wrong& w : m_wrong) w.factors.reserve(normalised.q.size() / width);
    for (const bool of_q : {true, false}) {
        std::vector<double>& x = of_q ? normalised.q : normalised.k;
        for (std::size_t at = 0; at < x.size(); at += width) {
            double squares = 0;
            for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
            const double factor = 1 / std::sqrt(squares + c.eps);
            for (std::size_t i = 0; i < width; ++i) x[at + i] *= factor;
            for (Wrong& w : m_wrong) {
                if (w.of_q == of_q) w.factors.push_back(factor);
            }
        }
    }
    GdnContract off = c;
    off.l2norm = L2Norm::off;
    const GdnGradients plain = run_adjoint64(normalised, off, m_r.backward->cotangents, m_threads);
    for (Wrong& w : m_wrong) {
        w.normalised = w.of_q ? normalised.q : normalised.k;
        w.plain = values_of(plain, w.of_q);
    }
}

std::size_t KeyGradients::group_size() const {
    const GdnDims& d = m_r.problem.dims;
    return static_cast<std::size_t>(d.Hv / d.Hk);
}

const GdnGradients& KeyGradients::of_member(std::size_t member) {
    const auto found = m_members.find(member);
    if (found != m_members.end()) return found->second;
    const GdnProblem& p = m_r.problem;
    const GdnContract& c = m_r.contract.value;
    GdnCotangents some = m_r.backward->cotangents;
    const auto counted = [&](std::int64_t h) {
        const std::int64_t key = key_head_of(h, p.dims, c.head_map);
        std::size_t before = 0;
        for (std::int64_t other = 0; other < h; ++other)
            before += key_head_of(other, p.dims, c.head_map) == key ? 1 : 0;
        return before == member;
    };
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto state = static_cast<std::size_t>(p.dims.dk) * dv;
    for (std::size_t i = 0; i < some.d_out.size(); ++i) {
        if (!counted(static_cast<std::int64_t>(i / dv) % p.dims.Hv)) some.d_out[i] = 0;
    }
    for (std::size_t i = 0; i < some.d_final_state.size(); ++i) {
        if (!counted(static_cast<std::int64_t>(i / state) % p.dims.Hv)) some.d_final_state[i] = 0;
    }
    return m_members.emplace(member, run_adjoint64(p, c, some, m_threads)).first->second;
}

void KeyGradients::match(const Offer& offer) {
    const auto width = static_cast<std::size_t>(m_r.problem.dims.dk);
    for (const Wrong& w : m_wrong) {
        if (w.plain.empty()) continue;
        const GradientTruth& truth = *w.gradient->truth;
        const auto of_norm = [&](const std::string& text, const std::vector<double>& other) {
            offer(*w.gradient, "l2norm_grad", truth.canonical + text, other);
        };
        of_norm(" is that of the normalised vector: the l2norm's gradient is missing", w.plain);
        std::vector<double> other = w.plain;
        for (std::size_t i = 0; i < other.size(); ++i) other[i] *= w.factors[i / width];
        of_norm(" lacks the l2norm's projection - y (y.dy)", other);
        for (const int power : {-1, 1, 2}) {
            for (std::size_t i = 0; i < other.size(); ++i)
                other[i] = truth.want[i] * std::pow(w.factors[i / width], power);
            of_norm(power < 0
                        ? " lacks the l2norm's factor 1 / |x|"
                        : fmt::format(" has the l2norm's factor 1 / |x| {}", power == 1 ? "twice" : "three times"),
                    other);
        }
    }
    if (m_wrong.empty() || group_size() < 2) return;
    for (const bool first : {true, false}) {
        const GdnGradients& one = of_member(first ? 0 : group_size() - 1);
        for (const Wrong& w : m_wrong) {
            offer(*w.gradient, "gva_grad",
                  fmt::format("{} holds the {} value head of each key head alone, not their sum",
                              w.gradient->truth->canonical, first ? "first" : "last"),
                  values_of(one, w.of_q));
        }
    }
}

bool KeyGradients::is_in_span(const Wrong& w) const {
    const auto width = static_cast<std::size_t>(m_r.problem.dims.dk);
    if (w.plain.empty() || width < k_least_columns) return false;
    const std::vector<double>& got = *w.gradient->evidence.got;
    // A factor per row alone could have any cause.
    const std::vector<double>& truth = w.gradient->truth->want;
    std::vector<double> nearest;
    std::vector<double> multiple;
    const auto part = [width](const std::vector<double>& x, std::size_t at) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(at);
        return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(width));
    };
    const auto add = [&](std::vector<double>& to, const std::vector<std::vector<double>>& terms, std::size_t at) {
        const auto row = combined(terms, least_squares(terms, part(got, at)));
        to.insert(to.end(), row.begin(), row.end());
    };
    for (std::size_t at = 0; at < got.size(); at += width) {
        add(nearest, {part(w.plain, at), part(w.normalised, at)}, at);
        add(multiple, {part(truth, at)}, at);
    }
    return gain_under(*w.gradient, nearest) > 0 && gain_under(*w.gradient, multiple) == 0;
}

std::optional<std::string> KeyGradients::group_weights(const Wrong& w) {
    const std::size_t members = group_size();
    if (members < 2 || members > k_most_members) return std::nullopt;
    const std::vector<double>& got = *w.gradient->evidence.got;
    const auto heads = static_cast<std::size_t>(m_r.problem.dims.Hk);
    const auto width = static_cast<std::size_t>(m_r.problem.dims.dk);
    std::vector<double> nearest(got.size(), 0);
    std::vector<std::string> words;
    for (std::size_t head = 0; head < heads; ++head) {
        const auto of_head = [&](const std::vector<double>& x) {
            std::vector<double> rows;
            for (std::size_t at = head * width; at < x.size(); at += heads * width) {
                for (std::size_t i = 0; i < width; ++i) rows.push_back(x[at + i]);
            }
            return rows;
        };
        std::vector<std::vector<double>> terms;
        for (std::size_t i = 0; i < members; ++i) terms.push_back(of_head(values_of(of_member(i), w.of_q)));
        const std::vector<double> weights = least_squares(terms, of_head(got));
        const std::vector<double> sum = combined(terms, weights);
        for (std::size_t i = 0; i < sum.size(); ++i) nearest[(i / width * heads + head) * width + i % width] = sum[i];
        // To as many digits as are reported.
        if (std::all_of(weights.begin(), weights.end(), [](double f) { return std::fabs(f - 1) < 5e-3; })) continue;
        std::vector<std::string> factors;
        for (const double f : weights) factors.push_back(fmt::format("{:.3g}", f));
        words.push_back(fmt::format("{} in key head {}", text::join(factors, ", "), head));
    }
    if (words.empty() || gain_under(*w.gradient, nearest) == 0) return std::nullopt;
    constexpr std::size_t k_shown = 3;
    if (words.size() > k_shown) words.resize(k_shown);
    return text::join(words, "; ");
}

std::optional<Diagnosis> KeyGradients::explain() {
    Diagnosis d;
    for (const Wrong& w : m_wrong) {
        const std::string& name = w.gradient->truth->canonical;
        const auto& got = w.gradient->evidence.got;
        if (!got || !std::all_of(got->begin(), got->end(), [](double x) { return std::isfinite(x); })) {
            return std::nullopt;
        }
        if (const auto weights = group_weights(w)) {
            d.hints.push_back(
                {"gva_grad",
                 fmt::format("matches if {} is a sum over the value heads of a key head with other weights than 1: {}",
                             name, *weights),
                 100});
        } else if (is_in_span(w)) {
            d.hints.push_back(
                {"l2norm_grad",
                 fmt::format("{} is in every row a sum of multiples of the normalised vector and of its "
                             "gradient, and not the right one: consistent with a wrong gradient of the l2norm",
                             name),
                 100});
        } else {
            return std::nullopt;
        }
    }
    if (d.hints.empty()) return std::nullopt;
    for (const Hint& h : d.hints) {
        if (std::find(d.stages.begin(), d.stages.end(), h.stage) == d.stages.end()) d.stages.push_back(h.stage);
    }
    d.stages.push_back("bwd_shared");
    return d;
}

// Known mistakes of backward passes: recomputes the gradients as the faulty kernel would.

class BackwardSearch {
public:
    BackwardSearch(const GdnReference& r, const std::vector<GradientEvidence>& all, int threads)
        : m_r(r), m_b(*r.backward), m_all(all), m_threads(threads) {
        for (const GradientEvidence& g : all) {
            if (g.wrong) m_wrong.push_back(&g);
        }
    }

    // Instead of looking for them.
    std::vector<BackwardMistake> list() {
        m_listed.emplace();
        try_mistakes();
        return std::move(*m_listed);
    }

    Diagnosis run() {
        KeyGradients keys = try_mistakes();
        Diagnosis d;
        std::stable_sort(m_hints.begin(), m_hints.end(),
                         [](const Hint& a, const Hint& b) { return a.improvement > b.improvement; });
        const double best = m_hints.empty() ? 0 : m_hints.front().improvement;
        std::erase_if(m_hints, [&](const Hint& h) { return h.improvement < best / 10 && h.improvement < 1000; });
        for (const Hint& h : m_hints) {
            if (std::find(d.stages.begin(), d.stages.end(), h.stage) == d.stages.end()) d.stages.push_back(h.stage);
        }
        d.hints = m_hints;
        if (d.hints.empty()) by_tensor(d, keys);
        d.stage = d.stages.front();
        return d;
    }

private:
    KeyGradients try_mistakes() {
        whole_passes();
        match_scaled_gradients(m_r.problem, m_all, m_hints);
        for (const GradientEvidence* g : m_wrong) {
            match_rounding(g->evidence, g->truth->canonical, m_hints);
            const std::string& name = g->truth->canonical;
            if (name == "dg" || name == "d_a" || name == "d_alpha") gates(*g);
            if (g->truth->canonical == "dbeta") betas(*g);
            if (g->truth->canonical == "dv") values(*g);
            if (g->truth->canonical == "d_initial_state") states(*g);
        }
        KeyGradients keys(m_r, wrong("dq"), wrong("dk"), m_threads);
        keys.match([this](const GradientEvidence& g, std::string stage, const std::string& text,
                          const std::vector<double>& other) { offer(g, std::move(stage), text, other); });
        return keys;
    }

    const GradientEvidence* wrong(std::string_view name) const {
        for (const GradientEvidence* g : m_wrong) {
            if (g->truth->canonical == name) return g;
        }
        return nullptr;
    }

    void offer(const GradientEvidence& g, std::string stage, const std::string& text,
               const std::vector<double>& other) {
        if (!m_listed) return offer_gradient(g, std::move(stage), text, other, m_hints);
        GdnGradients all = m_b.gradients;
        gradient_of(all, g.truth->canonical) = other;
        m_listed->push_back({std::move(stage), text, std::move(all)});
    }

    // A mistake that changes the whole pass must explain every wrong tensor, and change none that is right.
    void offer_pass(std::string stage, const std::string& text, const GdnProblem& p, const GdnContract& c,
                    const GdnCotangents& cotangents) {
        GdnGradients other = run_adjoint64(p, c, cotangents, m_threads);
        if (m_listed) return m_listed->push_back({std::move(stage), text, std::move(other)});
        double least = HUGE_VAL;
        for (const GradientEvidence& g : m_all) {
            const auto& values = gradient_of(other, g.truth->canonical);
            if (g.wrong) {
                const double better = gain_under(g, values);
                if (better == 0) return;
                least = std::min(least, better);
            } else if (rms_difference(*g.evidence.got, values) > honest_error(g)) {
                return;
            }
        }
        m_hints.push_back({std::move(stage), "matches if " + text, least});
    }

    void whole_passes() {
        if (m_wrong.size() < 2 && wrong("d_initial_state") == nullptr && wrong("dq") == nullptr) return;
        const GdnContract& c = m_r.contract.value;
        GdnCotangents none = m_b.cotangents;
        if (!none.d_final_state.empty()) {
            none.d_final_state.clear();
            offer_pass("bwd_shared", "the gradient of the final state is ignored", m_r.problem, c, none);
        }
        GdnCotangents no_out = m_b.cotangents;
        std::fill(no_out.d_out.begin(), no_out.d_out.end(), 0.0);
        offer_pass("bwd_shared", "the gradient of out is ignored", m_r.problem, c, no_out);
        GdnCotangents ones = m_b.cotangents;
        std::fill(ones.d_out.begin(), ones.d_out.end(), 1.0);
        offer_pass("bwd_shared", "the gradient of out is taken for 1 throughout", m_r.problem, c, ones);
        if (!m_r.problem.initial_state.empty()) {
            GdnProblem p = m_r.problem;
            p.initial_state.clear();
            offer_pass("bwd_shared", "the forward pass is recomputed without the initial state", p, c, m_b.cotangents);
        }
        GdnContract scaled = c;
        const double dk = static_cast<double>(m_r.problem.dims.dk);
        for (const double factor : {std::sqrt(dk), 1 / std::sqrt(dk)}) {
            scaled.scale = c.scale.value_or(1 / std::sqrt(dk)) * factor;
            offer_pass("bwd_shared",
                       factor > 1 ? "the backward pass lacks the scale" : "the backward pass has the scale twice",
                       m_r.problem, scaled, m_b.cotangents);
        }
        cut_passes();
    }

    void cut_passes() {
        const GdnContract& c = m_r.contract.value;
        if (m_r.problem.sequences.size() < 2 && m_r.problem.rows() <= m_r.contract.value.chunk) return;
        GdnProblem cut = m_r.problem;  // makes every chunk a separate sequence: nothing flows back between chunks
        if (cut.initial_state.empty() && m_b.cotangents.d_final_state.empty()) {
            cut.sequences.clear();
            for (const GdnSequence& s : m_r.problem.sequences) {
                for (std::int64_t row = s.begin; row < s.end; row += c.chunk)
                    cut.sequences.push_back({row, std::min(s.end, row + c.chunk)});
            }
            offer_pass("bwd_shared", "the state's gradient is not carried between chunks, and neither is the state",
                       cut, c, m_b.cotangents);
        }
    }

    // dg from its parts: dc_i = dg_i - dg_{i+1} inside a chunk.
    void gates(const GradientEvidence& g) {
        const GdnProblem& p = m_r.problem;
        const auto heads = static_cast<std::size_t>(p.dims.Hv);
        const auto chunk = static_cast<std::size_t>(m_r.contract.value.chunk);
        const auto& dg = m_b.gradients.dg;
        const auto over_chunks = [&](const std::function<void(std::vector<double>&)>& change) {
            std::vector<double> other = dg;
            for (const GdnSequence& s : p.sequences) {
                const auto begin = static_cast<std::size_t>(s.begin);
                const auto end = static_cast<std::size_t>(s.end);
                for (std::size_t first = begin; first < end; first += chunk) {
                    const std::size_t rows = std::min(chunk, end - first);
                    for (std::size_t h = 0; h < heads; ++h) {
                        std::vector<double> dc(rows);
                        for (std::size_t i = 0; i < rows; ++i) {
                            const double next = i + 1 < rows ? dg[(first + i + 1) * heads + h] : 0;
                            dc[i] = dg[(first + i) * heads + h] - next;
                        }
                        change(dc);
                        for (std::size_t i = 0; i < rows; ++i) other[(first + i) * heads + h] = dc[i];
                    }
                }
            }
            return g.truth->canonical == "dg" ? other : through_gate(std::move(other));
        };
        offer(g, "dg", "the reverse sum over the chunk is missing in dg", over_chunks([](std::vector<double>&) {}));
        offer(g, "dg", "dg is summed forwards over the chunk instead of backwards",
              over_chunks([](std::vector<double>& dc) {
                  for (std::size_t i = 1; i < dc.size(); ++i) dc[i] += dc[i - 1];
              }));
        offer(g, "dg", "the reverse sum of dg is exclusive", over_chunks([](std::vector<double>& dc) {
                  double sum = 0;
                  for (std::size_t i = dc.size(); i-- > 0;) {
                      const double own = dc[i];
                      dc[i] = sum;
                      sum += own;
                  }
              }));
        offer(g, "dg", "dg lacks what the last row of each chunk gets (the state's decay)",
              over_chunks([](std::vector<double>& dc) {
                  dc.back() = 0;
                  for (std::size_t i = dc.size() - 1; i-- > 0;) dc[i] += dc[i + 1];
              }));
        if (g.truth->canonical == "dg") gate_kinds(g);
    }

    // The gradient of the gate as given, from that of its log decay.
    std::vector<double> through_gate(std::vector<double> dg) const {
        GdnGradients gradients;
        gradients.dg = std::move(dg);
        const GdnContract& c = m_r.contract.value;
        through_gates(m_r.problem, c, log_gates(m_r.problem, c), gradients);
        return gradients.d_gate;
    }

    void gate_kinds(const GradientEvidence& g) {
        const GdnProblem& p = m_r.problem;
        const auto heads = static_cast<std::size_t>(p.dims.Hv);
        const auto& dg = g.truth->want;
        std::vector<double> alpha = dg;
        const GdnGradients& all = m_b.gradients;
        offer(g, "dg", "dg is the gradient of the gate as given", all.d_gate);
        HeadInputs head_gates;
        for (std::size_t h = 0; h < heads; ++h) {
            head_gates.dk = 1;
            head_gates.gate.clear();
            for (std::size_t row = 0; row < dg.size() / heads; ++row)
                head_gates.gate.push_back(p.gate[row * heads + h]);
            if (!p.A_log.empty()) head_gates.A_log = p.A_log[h];
            if (!p.dt_bias.empty()) head_gates.dt_bias = p.dt_bias[h];
            const PreparedHead prepared = prepare_head(head_gates, m_r.contract.value);
            for (std::size_t row = 0; row < prepared.gate.size(); ++row)
                alpha[row * heads + h] /= std::exp(prepared.gate[row]);
        }
        offer(g, "dg", "dg is the gradient of alpha = exp(g)", alpha);
    }

    void betas(const GradientEvidence& g) {
        offer(g, "dbeta", "dbeta is the gradient of the logit", m_b.gradients.d_logit);
        std::vector<double> other = g.truth->want;
        for (std::size_t i = 0; i < other.size(); ++i) other[i] *= m_r.problem.beta[i];
        offer(g, "dbeta", "dbeta is multiplied by beta", other);
    }

    void values(const GradientEvidence& g) {
        if (m_r.contract.value.beta_kind != BetaKind::prob) return;
        const auto dv = static_cast<std::size_t>(m_r.problem.dims.dv);
        for (const bool twice : {false, true}) {
            std::vector<double> other = g.truth->want;
            for (std::size_t i = 0; i < other.size(); ++i) {
                const double beta = m_r.problem.beta[i / dv];
                other[i] = twice ? other[i] * beta : beta == 0 ? other[i] : other[i] / beta;
            }
            offer(g, "dv", twice ? "dv is multiplied by beta twice" : "dv is not multiplied by beta", other);
        }
    }

    void states(const GradientEvidence& g) {
        const GdnDims& d = m_r.problem.dims;
        offer(g, "dS0", "the initial state's gradient is transposed",
              to_layout(g.truth->want, d, StateLayout::value_key));
        if (!m_b.cotangents.d_final_state.empty()) {
            offer(g, "dS0", "the final state's gradient is returned as the initial state's",
                  m_b.cotangents.d_final_state);
        }
    }

    // Rows that are wrong and all zeros.
    static std::size_t zero_rows(const GradientEvidence& g) {
        const Groups& groups = g.truth->groups;
        std::size_t rows = 0;
        for (std::size_t run = 0; run < groups.of_run.size(); ++run) {
            const double allowed = k_ok_band * g.evidence.budgets[groups.of_run[run]].max_abs;
            bool zero = true;
            bool wrong = false;
            for (std::size_t i = run * groups.width; i < (run + 1) * groups.width; ++i) {
                zero = zero && (*g.evidence.got)[i] == 0;
                wrong = wrong || std::fabs((*g.evidence.want)[i]) > allowed;
            }
            rows += zero && wrong ? 1 : 0;
        }
        return rows;
    }

    void by_tensor(Diagnosis& d, KeyGradients& keys) const {
        const auto is_key = [](const GradientEvidence* g) {
            return g->truth->canonical == "dq" || g->truth->canonical == "dk";
        };
        if (std::all_of(m_wrong.begin(), m_wrong.end(), is_key)) {
            if (auto chained = keys.explain()) {
                d = std::move(*chained);
                return;
            }
        }
        std::string names;
        for (const GradientEvidence* g : m_wrong) names += (names.empty() ? "" : ", ") + g->truth->canonical;
        for (const GradientEvidence* g : m_wrong) {
            std::string stage = stage_of_gradient(g->truth->canonical);
            if (std::find(d.stages.begin(), d.stages.end(), stage) == d.stages.end())
                d.stages.push_back(std::move(stage));
        }
        d.stages.insert(d.stages.size() == 1 ? d.stages.end() : d.stages.begin(), "bwd_shared");
        for (const GradientEvidence* g : m_wrong) {
            if (const std::size_t rows = zero_rows(*g); rows > 0) {
                d.hints.push_back(
                    {d.stages.front(),
                     fmt::format("{} is exactly 0 in {} row{}: consistent with rows that were never written",
                                 g->truth->canonical, rows, rows == 1 ? "" : "s"),
                     1});
            }
        }
        d.hints.push_back(
            {d.stages.front(), fmt::format("{} wrong and no other gradient: no known mistake explains it", names), 1});
    }

    const GdnReference& m_r;
    const GdnBackward& m_b;
    const std::vector<GradientEvidence>& m_all;
    int m_threads;
    std::vector<const GradientEvidence*> m_wrong;
    std::vector<Hint> m_hints;
    std::optional<std::vector<BackwardMistake>> m_listed;  // instead of m_hints
};

}  // namespace

std::vector<BackwardMistake> known_backward_mistakes(const GdnReference& r, int threads) {
    std::vector<GradientEvidence> all;
    for (const GradientTruth& t : r.backward->truths) {
        all.push_back({&t, {&t.want, &t.want, t.budget.groups, DType::f32, &t.budget}, true});
    }
    return BackwardSearch(r, all, threads).list();
}

Diagnosis diagnose_backward(const GdnReference& r, const std::vector<GradientEvidence>& all, bool in_sequence,
                            int threads) {
    const std::string outside = in_sequence ? std::string() : written_outside(r, all);
    if (!outside.empty()) {
        return {"padding", {"padding"}, {{"padding", "rows outside every sequence are written in " + outside, 1}}};
    }
    return BackwardSearch(r, all, threads).run();
}

}  // namespace gdnctl::oracle
