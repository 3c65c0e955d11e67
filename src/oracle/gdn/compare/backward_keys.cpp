#include "oracle/gdn/compare/backward_keys.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/judge/least_squares.h"

namespace gdnctl::oracle {

namespace {

// With fewer columns, a combination of two vectors explains almost anything.
constexpr std::size_t k_least_columns = 8;
constexpr std::size_t k_most_members = 8;

const std::vector<double>& values_of(const GdnGradients& g, bool of_q) { return of_q ? g.dq : g.dk; }

}  // namespace

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

void KeyGradients::offer(const Wrong& w, std::string stage, const std::string& text, const std::vector<double>& other,
                         std::vector<Hint>& hints) const {
    offer_gradient(*w.gradient, std::move(stage), w.gradient->truth->canonical + text, other, hints);
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

void KeyGradients::match(std::vector<Hint>& hints) {
    const auto width = static_cast<std::size_t>(m_r.problem.dims.dk);
    for (const Wrong& w : m_wrong) {
        if (w.plain.empty()) continue;
        offer(w, "l2norm_grad", " is that of the normalised vector: the l2norm's gradient is missing", w.plain, hints);
        std::vector<double> other = w.plain;
        for (std::size_t i = 0; i < other.size(); ++i) other[i] *= w.factors[i / width];
        offer(w, "l2norm_grad", " lacks the l2norm's projection - y (y.dy)", other, hints);
        const auto& truth = w.gradient->truth->want;
        for (const int power : {-1, 1, 2}) {
            for (std::size_t i = 0; i < other.size(); ++i) other[i] = truth[i] * std::pow(w.factors[i / width], power);
            offer(w, "l2norm_grad",
                  power < 0 ? " lacks the l2norm's factor 1 / |x|"
                            : fmt::format(" has the l2norm's factor 1 / |x| {}", power == 1 ? "twice" : "three times"),
                  other, hints);
        }
    }
    if (m_wrong.empty() || group_size() < 2) return;
    for (const bool first : {true, false}) {
        const GdnGradients& one = of_member(first ? 0 : group_size() - 1);
        for (const Wrong& w : m_wrong) {
            offer(
                w, "gva_grad",
                fmt::format(" holds the {} value head of each key head alone, not their sum", first ? "first" : "last"),
                values_of(one, w.of_q), hints);
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

}  // namespace gdnctl::oracle
