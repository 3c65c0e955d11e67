#include "oracle/gdn/compare/stage_fit.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "oracle/judge/sums.h"

namespace gdnctl::oracle {

Reals damped_solution(const std::vector<Reals>& a, const Reals& b, double damping, double* log_determinant) {
    const std::size_t n = b.size();
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i][i]);
    if (!(largest > 0) || !std::isfinite(largest)) return {};
    std::vector<Reals> l(n, Reals(n, 0));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double sum = a[i][j] - inner(std::span(l[i]).first(j), std::span(l[j]).first(j));
            if (i == j) {
                sum += damping * a[i][i] + 1e-13 * largest;
                if (!(sum > 0)) return {};
                l[i][i] = std::sqrt(sum);
                if (log_determinant != nullptr) *log_determinant += std::log(sum);
            } else {
                l[i][j] = sum / l[j][j];
            }
        }
    }
    Reals x = b;
    for (std::size_t i = 0; i < n; ++i)
        x[i] = (x[i] - inner(std::span(l[i]).first(i), std::span(x).first(i))) / l[i][i];
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t j = i + 1; j < n; ++j) x[i] -= l[j][i] * x[j];
        x[i] /= l[i][i];
    }
    return x;
}

namespace {

class Fitter {
public:
    Fitter(const Family& family, const Section& s, std::size_t index, const Reals& state)
        : m_family(family),
          m_s(s),
          m_index(index),
          m_base(s.honest[index]),
          m_place{m_base, s.parts[index], s.lane.q.data() + s.parts[index].first * s.lane.dk,
                  s.lane.k.data() + s.parts[index].first * s.lane.dk} {
        if (state != m_base.state) {
            const KeyUses uses = key_uses(s.lane, s.parts[index].first, m_base.rows);
            m_base.KS = product(uses.key_state, state, m_base.dk, m_base.columns);
            m_base.QS = product(uses.query_state, state, m_base.dk, m_base.columns);
            m_base.state = state;
        }
    }

    std::optional<Explanation> run() {
        const std::size_t count = m_family.count(m_place);
        const double before = rms_of(errors_of(m_base));
        if (count == 0 || count > k_most || !(before > 0) || !std::isfinite(before)) return std::nullopt;
        OpenChunk c = m_base;
        Reals numbers(count, 0);
        double after = stepped(c, numbers, before);
        if (!explains(before, after) && m_family.scans) {
            c = m_base;
            numbers.assign(count, 0);
            scan(c, numbers);
            after = stepped(c, numbers, before);
        }
        if (!explains(before, after)) return std::nullopt;
        const Reals U = solved(c, right_hand_side(c));
        Explanation e{before, after, 0, state_after(c, U), {}};
        describe(numbers, e);
        return e;
    }

private:
    static constexpr int k_steps = 14;
    static constexpr std::size_t k_most = 256;

    Reals errors_of(const OpenChunk& c) const {
        const Reals U = solved(c, right_hand_side(c));
        if (m_family.carries && m_index + 1 < m_s.parts.size())
            return honest_errors(m_s, m_index + 1, state_after(c, U));
        Reals errors;
        if (!m_family.carries && !m_s.out.empty()) add_out_errors(m_s, m_index, out_of(c, U), errors);
        if (m_s.knows_state_after(m_index)) add_state_errors(m_s, state_after(c, U), errors);
        return errors;
    }

    // Takes steps from c while they help. Returns the remaining error.
    double stepped(OpenChunk& c, Reals& numbers, double before) const {
        Reals errors = errors_of(c);
        double now = rms_of(errors);
        double damping = 0;
        for (int step = 0; step < k_steps; ++step) {
            const double last = now;
            if (!improve(c, errors, now, numbers, damping)) break;
            const bool hopeless = (step >= 2 && now > 0.6 * before) || (step >= 5 && now > 0.2 * before);
            if (hopeless || now < 0.05 || (now > 0.9 * last && explains(before, now))) break;
        }
        return now;
    }

    // Finds each token's number from its own row of out, given those before it.
    void scan(OpenChunk& c, Reals& numbers) const {
        const auto row_error = [&](const OpenChunk& tried, std::size_t i) {
            Reals errors;
            add_out_errors(m_s, m_index, out_of(tried, solved(tried, right_hand_side(tried))), errors);
            return rms_of({errors.begin() + static_cast<std::ptrdiff_t>(i * c.columns),
                           errors.begin() + static_cast<std::ptrdiff_t>((i + 1) * c.columns)});
        };
        for (std::size_t i = 0; i < c.rows && !m_s.out.empty(); ++i) {
            double best = row_error(c, i);
            const OpenChunk start = c;
            double number = 0;
            const auto try_at = [&](double d) {
                OpenChunk tried = start;
                m_family.nudge(tried, m_place, i, d);
                const double error = row_error(tried, i);
                if (!(error < best)) return false;
                best = error;
                number = d;
                c = std::move(tried);
                return true;
            };
            for (double d = 0.05; d < 20 && best > 1; d *= 1.6) {
                try_at(d);
                try_at(-d);
            }
            double step = 0.25 * std::fabs(number);
            for (int more = 0; more < 24 && step > 0 && best > 1; ++more) {
                if (!try_at(number + step) && !try_at(number - step)) step /= 2.5;
            }
            numbers[i] += number;
        }
    }

    // One step. false: no step improves it.
    bool improve(OpenChunk& c, Reals& errors, double& now, Reals& numbers, double& damping) const {
        const std::size_t count = numbers.size();
        constexpr double k_small = 1e-6;
        std::vector<Reals> slopes(count);
        for (std::size_t i = 0; i < count; ++i) {
            OpenChunk near = c;
            m_family.nudge(near, m_place, i, k_small);
            slopes[i] = errors_of(near);
            scale_difference(slopes[i], errors, 1 / k_small);
        }
        std::vector<Reals> a(count, Reals(count));
        Reals b(count);
        for (std::size_t i = 0; i < count; ++i) {
            b[i] = -inner(slopes[i], errors);
            for (std::size_t j = 0; j <= i; ++j) a[i][j] = a[j][i] = inner(slopes[i], slopes[j]);
        }
        for (int attempt = 0; attempt < 6; ++attempt) {
            const Reals step = damped_solution(a, b, damping);
            if (step.empty()) return false;
            OpenChunk moved = c;
            for (std::size_t i = 0; i < count; ++i) m_family.nudge(moved, m_place, i, step[i]);
            Reals left = errors_of(moved);
            const double after = rms_of(left);
            if (after < now) {
                c = std::move(moved);
                errors = std::move(left);
                now = after;
                for (std::size_t i = 0; i < count; ++i) numbers[i] += step[i];
                damping = damping < 1e-9 ? 0 : damping / 10;
                return true;
            }
            damping = std::max(damping * 10, 1e-4);
        }
        return false;
    }

    void describe(const Reals& numbers, Explanation& e) const {
        const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
        const double largest = std::max(std::fabs(*low), std::fabs(*high));
        const auto moved =
            std::count_if(numbers.begin(), numbers.end(), [&](double x) { return std::fabs(x) > 1e-3 * largest; });
        e.numbers = *high - *low < 1e-3 * largest ? 1 : static_cast<std::size_t>(moved);
        e.text = m_family.what;
    }

    const Family& m_family;
    const Section& m_s;
    std::size_t m_index;
    OpenChunk m_base;
    FitPlace m_place;
};

}  // namespace

std::optional<Explanation> fit(const Family& family, const Section& s, std::size_t index, const Reals& state) {
    return Fitter(family, s, index, state).run();
}

}  // namespace gdnctl::oracle
