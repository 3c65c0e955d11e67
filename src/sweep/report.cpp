#include "sweep/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::sweep {

namespace {

constexpr double k_rate_tolerance = 1e-3;        // tokens_per_s compared with batch / time
constexpr double k_combined_tolerance = 2e-4;    // more is no rounding
constexpr double k_bf16_share_of_f32 = 1.0 / 3;  // of the bf16 peak: multi-pass f32 products cannot reach it

bool near(double value, double want, double tolerance) { return std::abs(value - want) <= tolerance * std::abs(want); }

std::optional<double> positive(const Record& r, std::string_view name) {
    const double* f = r.figure(name);
    return f != nullptr && std::isfinite(*f) && *f > 0 ? std::optional(*f) : std::nullopt;
}

class Measuring {
public:
    Measuring(Record record, std::vector<Warning>& warnings) : m_warnings(warnings) {
        m.record = std::move(record);
        if (m.record.kernel_batch && *m.record.kernel_batch > 0) m_kernel = static_cast<double>(*m.record.kernel_batch);
        if (m.record.global_batch && m_kernel) m_shards = static_cast<double>(*m.record.global_batch) / *m_kernel;
    }

    Measured finish() {
        if (m.record.truncated) warn("truncated", "the log ends in the middle of this result");
        if (m.record.status == ResultStatus::ok) rates();
        const Record& r = m.record;
        if (m_kernel && r.hidden && r.vocab) {
            const auto key = oracle::linear_ce::device_key_of(r.device_kind);
            if (const auto b = oracle::linear_ce::bucket_of(key.value_or(""), *r.kernel_batch, *r.hidden, *r.vocab)) {
                m.bucket = std::string(*b);
            }
        }
        if (!r.real_kernel) m.flags.emplace_back("not_the_real_kernel");
        if (const double* loss = r.figure("loss"); loss != nullptr && !std::isfinite(*loss)) {
            m.flags.emplace_back("non_finite_loss");
        }
        return std::move(m);
    }

private:
    void warn(const char* kind, std::string text) {
        m.flags.emplace_back(kind);
        m_warnings.push_back({m.record.file, m.record.line, kind, std::move(text)});
    }

    void rates() {
        if (m.record.script == Script::sweep) {
            m.forward_s = positive(m.record, "forward_s");
            m.step_s = positive(m.record, "step_s");
            if (m.forward_s && m_kernel) m.forward_tok_s = *m_kernel / *m.forward_s;
            if (m.step_s && m_kernel) m.step_tok_s = *m_kernel / *m.step_s;
        } else if (m.record.script == Script::bench || m.record.forward_only) {
            pass("steady_time_s", "tokens_per_s", m.forward_s, m.forward_tok_s);
            if (!m.record.forward_only) pass("bwd_steady_time_s", "bwd_tokens_per_s", m.step_s, m.step_tok_s);
        } else {
            pass("steady_time_s", "tokens_per_s", m.step_s, m.step_tok_s);
        }
        combined();
        roofline();
    }

    // The rate of one chip from its own rows and time; the printed one is checked against them.
    void pass(const char* time, const char* rate, std::optional<double>& seconds, std::optional<double>& tok_s) {
        seconds = positive(m.record, time);
        const auto printed = positive(m.record, rate);
        if (seconds && m_kernel) {
            tok_s = *m_kernel / *seconds;
            if (!printed || near(*printed, *tok_s, k_rate_tolerance)) return;
            if (near(*printed, *tok_s * m_shards, k_rate_tolerance)) {
                shards(rate, *printed);
            } else {
                warn("rate_mismatch",
                     fmt::format("{} {} is neither {} rows in {:.6g} s ({}) nor those of all shards", rate,
                                 rate_text(printed), rate_text(m_kernel), *seconds, rate_text(tok_s)));
            }
        } else if (printed) {
            tok_s = *printed / m_shards;
            if (m_shards > 1) shards(rate, *printed);
            if (m_kernel) seconds = *m_kernel / *tok_s;
        }
    }

    void shards(const char* rate, double printed) {
        m.corrections.push_back(
            {"shards", m_shards,
             fmt::format("{} {} counts the tokens of all {:g} shards in one shard's time: a chip does {}", rate,
                         rate_text(printed), m_shards, rate_text(printed / m_shards))});
    }

    void combined() {
        const auto printed = positive(m.record, "combined_tokens_per_s");
        const bool both = m.forward_tok_s && m.step_tok_s;
        if (both) m.combined_tok_s = 1 / (1 / *m.forward_tok_s + 1 / *m.step_tok_s);
        if (!printed) return;
        const double own = *printed / m_shards;
        if (!both) {
            m.combined_tok_s = own;
            return;
        }
        m.corrections.push_back(
            {"combined", own / *m.combined_tok_s,
             fmt::format("combined {} counts the forward twice, since the backward was timed with one; a step does {}",
                         rate_text(m.combined_tok_s), rate_text(m.step_tok_s))});
        if (near(own, *m.combined_tok_s, k_combined_tolerance)) return;
        warn("combined_mismatch",
             fmt::format("combined_tokens_per_s {} is not 1/(1/forward + 1/backward) = {} ({:+.2f} %)",
                         rate_text(printed), rate_text(*m.combined_tok_s * m_shards),
                         (own / *m.combined_tok_s - 1) * 100));
    }

    void roofline() {
        const Record& r = m.record;
        const auto printed = positive(r, "roofline.tokens_per_s");
        if (printed && r.chips.value_or(1) > 1) {
            const auto chips = static_cast<double>(*r.chips);
            m.corrections.push_back({"chips", chips,
                                     fmt::format("roofline.tokens_per_s {} counts {:g} chips: the limit of one is {}",
                                                 rate_text(printed), chips, rate_text(*printed / chips))});
        }
        const auto peak = peak_flops(r.device_kind);
        if (!peak || !r.hidden || !r.vocab) return;
        const double gemm = 2 * static_cast<double>(*r.hidden) * static_cast<double>(*r.vocab);  // FLOP a row
        check_peak("forward", m.forward_tok_s, gemm, *peak, m.forward_mfu);
        check_peak("step", m.step_tok_s, 4 * gemm, *peak, m.step_mfu);
        const bool f32 = r.x_dtype == "float32";
        if (f32 && std::max(m.forward_mfu.value_or(0), m.step_mfu.value_or(0)) > k_bf16_share_of_f32) {
            m.flags.emplace_back("reduced_precision");
        }
    }

    void check_peak(const char* what, std::optional<double> tok_s, double flops, double peak,
                    std::optional<double>& mfu) {
        if (!tok_s) return;
        mfu = *tok_s * flops / peak;
        if (*mfu <= 1 || m.has_flag("above_peak")) return;
        warn("above_peak",
             fmt::format("{} tok/s of a {} is {:.0f} % of what one {} can do ({}): are these the tokens of "
                         "several shards?",
                         rate_text(tok_s), what, *mfu * 100, m.record.device_kind, rate_text(peak / flops)));
    }

    Measured m;
    std::vector<Warning>& m_warnings;
    std::optional<double> m_kernel;
    double m_shards = 1;
};

std::string group_of(const Measured& m) {
    const Record& r = m.record;
    const std::string place = m.bucket ? *m.bucket : "of " + shape_text(r);
    return fmt::format("{}|{}|{}", place, text::to_lower(r.device_kind), r.x_dtype);
}

// What ranks the results of a group: work a second, so that shapes of one bucket can be compared.
double merit(const Measured& m) {
    const double work =
        static_cast<double>(m.record.hidden.value_or(1)) * static_cast<double>(m.record.vocab.value_or(1));
    return m.step_tok_s.value_or(0) * work;
}

double forward_merit(const Measured& m) {
    const double work =
        static_cast<double>(m.record.hidden.value_or(1)) * static_cast<double>(m.record.vocab.value_or(1));
    return m.forward_tok_s.value_or(0) * work;
}

bool is_better(const Measured& a, const Measured& b) {
    return std::tuple(merit(a), forward_merit(a)) > std::tuple(merit(b), forward_merit(b));
}

void rank(Report& report) {
    std::map<std::string, std::size_t> best;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const Measured& m = report.results[i];
        if (!m.ranked() || (!m.step_tok_s && !m.forward_tok_s)) continue;
        const auto [at, fresh] = best.emplace(group_of(m), i);
        if (!fresh && is_better(m, report.results[at->second])) at->second = i;
    }
    for (const auto& [group, index] : best) report.best.push_back(index);
    std::sort(report.best.begin(), report.best.end());
}

std::optional<double> ratio(std::optional<double> of, std::optional<double> to) {
    return of && to ? std::optional(*of / *to) : std::nullopt;
}

// The best of each implementation at each shape, compared with the base's.
void compare(Report& report) {
    using Key = std::tuple<std::string, std::string, std::string>;  // shape, device kind, dtype
    std::vector<std::pair<Key, std::vector<const Measured*>>> groups;
    for (const Measured& m : report.results) {
        const Record& r = m.record;
        if (!m.ranked() || !r.kernel_batch || !r.hidden || !r.vocab) continue;
        const Key key{shape_text(r), text::to_lower(r.device_kind), r.x_dtype};
        auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == key; });
        if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
        auto& members = group->second;
        const auto same = std::find_if(members.begin(), members.end(), [&](const Measured* other) {
            return other->record.implementation == r.implementation;
        });
        if (same == members.end()) {
            members.push_back(&m);
        } else if (is_better(m, **same)) {
            *same = &m;
        }
    }
    for (const auto& [key, members] : groups) {
        const auto base = std::find_if(members.begin(), members.end(),
                                       [&](const Measured* m) { return m->record.implementation == *report.base; });
        if (base == members.end()) continue;
        for (const Measured* m : members) {
            if (m == *base) continue;
            const Record& r = m->record;
            report.comparisons.push_back({{*r.kernel_batch, *r.hidden, *r.vocab},
                                          r.device_kind,
                                          r.x_dtype,
                                          *report.base,
                                          r.implementation,
                                          ratio(m->forward_tok_s, (*base)->forward_tok_s),
                                          ratio(m->step_tok_s, (*base)->step_tok_s),
                                          ratio(m->combined_tok_s, (*base)->combined_tok_s)});
        }
    }
}

}  // namespace

bool Measured::has_flag(std::string_view flag) const {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

bool Measured::ranked() const {
    return record.status == ResultStatus::ok && record.real_kernel && !has_flag("non_finite_loss") &&
           !has_flag("above_peak");
}

std::optional<double> peak_flops(std::string_view device_kind) {
    constexpr std::array<std::pair<std::string_view, double>, 5> k_peaks = {
        {{"TPU v4", 275e12}, {"TPU v5p", 459e12}, {"TPU v5", 459e12}, {"TPU v5e", 197e12}, {"TPU v6", 918e12}}};
    const auto key = oracle::linear_ce::device_key_of(device_kind);
    for (const auto& [name, flops] : k_peaks) {
        if (key && *key == name) return flops;
    }
    return std::nullopt;
}

Measured measure(Record record, std::vector<Warning>& warnings) {
    return Measuring(std::move(record), warnings).finish();
}

Result<Report> make_report(std::vector<Record> records, const std::optional<std::string>& base) {
    Report report;
    for (Record& r : records) report.results.push_back(measure(std::move(r), report.warnings));
    rank(report);
    report.base = base;
    if (!base) return report;
    std::vector<std::string> names;
    for (const Measured& m : report.results) {
        const std::string& name = m.record.implementation;
        if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    if (std::find(names.begin(), names.end(), *base) == names.end()) {
        return fail(ErrorKind::usage, fmt::format("--comparisons: no result is of the implementation '{}'", *base),
                    names.empty() ? "no line of these logs names one" : "the logs have: " + text::join(names, ", "));
    }
    compare(report);
    return report;
}

}  // namespace gdnctl::sweep
