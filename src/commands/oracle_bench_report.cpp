#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle_bench_run.h"

namespace gdnctl::commands::oracle_bench {

namespace {

constexpr oracle::Pass k_passes[] = {oracle::Pass::forward, oracle::Pass::backward, oracle::Pass::decode};

}  // namespace

Json Bench::json_of(const Entry& e) const {
    if (!e.verified) {
        return {{"verified", false},
                {"reason", e.reason},
                {"error_over_budget", e.error_over_budget},
                {"fault", oracle_kernel::fault_json(e.fault)}};
    }
    const Timing& t = e.timing;
    Json common = {
        {"median_ms", t.seconds.median * 1e3}, {"min_ms", t.seconds.min * 1e3}, {"max_ms", t.seconds.max * 1e3}};
    if (e.pass == oracle::Pass::decode) {
        const auto steps = static_cast<double>(std::max<std::int64_t>(m_dims.T, 1));
        common.update({{"steps", m_dims.T},
                       {"median_step_us", t.seconds.median * 1e6 / steps},
                       {"gigabytes_per_s", gigabytes_a_second(e)},
                       {"bandwidth_fraction", e.of_floor},
                       {"verified", true},
                       {"error_over_budget", e.error_over_budget},
                       {"noisy", t.noisy},
                       {"phases", phases_json(e.phases)}});
        return common;
    }
    common.update({{"gflops", t.gflops},
                   {"sgemm_fraction", t.of_sgemm ? Json(*t.of_sgemm) : Json(nullptr)},
                   {"fma_peak_fraction", t.of_peak},
                   {"verified", true},
                   {"error_over_budget", e.error_over_budget},
                   {"noisy", t.noisy},
                   {"phases", phases_json(e.phases)}});
    return common;
}

std::string Bench::text() const {
    if (!measured()) return fmt::format("{}: not measured ({})\n", m_options.kernel, m_missing);
    std::string out =
        fmt::format("B,Hk,Hv,T,dk,dv = {}, {}, nominal {:.3g} GFLOP forward, {:.3g} backward\n", m_options.shape,
                    dtype(), nominal_flop(oracle::Pass::forward) * 1e-9, nominal_flop(oracle::Pass::backward) * 1e-9);
    out += fmt::format("inputs {:016x}\n", m_checksum);
    out += fmt::format("{}, {} thread{}, {}, {}, load {:.2f}\n", m_load.cpu, m_threads, m_threads == 1 ? "" : "s",
                       oracle::name_of(m_isa), m_load.compiler, m_load.load);
    out += fmt::format("{:<22}{:>10}{:>11}{:>10}{:>10}{:>9}{:>9}  {}\n", "", "min ms", "median ms", "max ms", "GFLOP/s",
                       "x sgemm", "x peak", "verified");
    for (const Entry& e : m_entries) {
        // A long name has a line of its own.
        const std::string name = e.name.size() < 22 ? e.name : e.name + "\n" + std::string(22, ' ');
        if (!e.verified) {
            out += fmt::format("{:<22}no time, because the result is wrong: {}\n", name, e.reason);
            if (e.fault) out += oracle_kernel::quoted_output(*e.fault);
            continue;
        }
        const Timing& t = e.timing;
        if (e.pass == oracle::Pass::decode) {
            out += decode_text(e);
            continue;
        }
        out += fmt::format("{:<22}{:>10.2f}{:>11.2f}{:>10.2f}{:>10.1f}{:>9}{:>9.2f}  {:.2g} x budget\n", name,
                           t.seconds.min * 1e3, t.seconds.median * 1e3, t.seconds.max * 1e3, t.gflops,
                           t.of_sgemm ? fmt::format("{:.2f}", *t.of_sgemm) : "-", t.of_peak, e.error_over_budget);
    }
    out += m_no_sgemm.empty()
               ? fmt::format("sgemm: {:.1f} GFLOP/s, n = {}, {}\n", m_sgemm.gflops, k_sgemm_size, m_sgemm_name)
               : fmt::format("sgemm: not measured\n  {}\n", m_no_sgemm);
    out += fmt::format("multiply-add peak: {:.1f} GFLOP/s\n", m_peak.gflops);
    if (m_options.phases) {
        out += fmt::format("memory, read and written: {:.1f} GB/s\n", m_ceilings.gigabytes_a_second);
        for (const Entry& e : m_entries) {
            if (e.verified) out += phases_text(e.name, e.phases);
        }
    }
    for (std::size_t i = 1; i < m_entries.size(); ++i) {
        if (!m_entries[0].verified || !m_entries[i].verified || m_entries[i].pass != m_entries[0].pass) continue;
        out += fmt::format("{} takes {:.2f} times as long as {}\n", m_entries[i].name,
                           m_entries[i].timing.seconds.median / m_entries[0].timing.seconds.median, m_entries[0].name);
    }
    const bool noisy = std::any_of(m_entries.begin(), m_entries.end(), [](const Entry& e) { return e.timing.noisy; });
    if (noisy) out += "noisy: a median is beyond 1.35 times its minimum; compare ratios, not times\n";
    return out;
}

std::string Bench::decode_text(const Entry& e) const {
    const oracle::Spread& s = e.timing.seconds;
    const auto steps = static_cast<double>(std::max<std::int64_t>(m_dims.T, 1));
    return fmt::format(
        "{:<22}{:>10.2f}{:>11.2f}{:>10.2f}{:>10}{:>9}{:>9}  {:.2g} x budget\n"
        "  {:.2f} us a step, {:.1f} GB/s, {:.2f} of reading and writing the states once\n",
        e.name, s.min * 1e3, s.median * 1e3, s.max * 1e3, "-", "-", "-", e.error_over_budget, s.median * 1e6 / steps,
        gigabytes_a_second(e), e.of_floor);
}

Json Bench::json() const {
    Json report = {{"schema", "gdnctl.oracle-bench/1"}, {"op", m_options.op}, {"kernel", m_options.kernel}};
    report["not_measured"] = Json::object();
    for (const oracle::Pass pass : k_passes) {
        const std::string name(oracle::name_of(pass));
        report[name] = nullptr;
        if (!m_entries.empty() && m_entries[0].pass == pass) {
            report[name] = json_of(m_entries[0]);
        } else {
            report["not_measured"][name] =
                m_missing.empty() ? fmt::format("{} is no {} kernel", m_options.kernel, name) : m_missing;
        }
    }
    if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
    report["peers"] = Json::array();
    for (std::size_t i = 1; i < m_entries.size(); ++i) {
        report["peers"].push_back(
            {{"name", m_entries[i].name}, {oracle::name_of(m_entries[i].pass), json_of(m_entries[i])}});
    }
    report["sgemm"] = nullptr;
    if (m_no_sgemm.empty() && !m_entries.empty()) {
        report["sgemm"] = {{"gflops", m_sgemm.gflops}, {"size", k_sgemm_size}, {"library", m_sgemm_name}};
    }
    report["machine"] = {
        {"cpu", m_load.cpu},
        {"isa", oracle::name_of(m_isa)},
        {"threads", m_threads},
        {"compiler", m_load.compiler},
        {"load_average", m_load.load},
        {"memory_gigabytes_per_s", m_options.phases ? Json(m_ceilings.gigabytes_a_second) : Json(nullptr)},
        {"fma_peak_gflops", m_entries.empty() ? Json(nullptr) : Json(m_peak.gflops)}};
    report["shape"] = {{"B", m_dims.B}, {"Hk", m_dims.Hk}, {"Hv", m_dims.Hv},
                       {"T", m_dims.T}, {"dk", m_dims.dk}, {"dv", m_dims.dv}};
    report["dtype"] = dtype();
    report["nominal_gflop"] = {{"forward", nominal_flop(oracle::Pass::forward) * 1e-9},
                               {"backward", nominal_flop(oracle::Pass::backward) * 1e-9}};
    report["inputs_checksum"] = fmt::format("{:016x}", m_checksum);
    report["rounds"] = m_options.rounds;
    report["runs_per_round"] = m_options.runs;
    return report;
}

}  // namespace gdnctl::commands::oracle_bench
