#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "harness/timing/gdn_bench.h"

namespace gdnctl::harness {

namespace {

constexpr oracle::Pass k_passes[] = {oracle::Pass::forward, oracle::Pass::backward, oracle::Pass::decode};

// One of ours does one pass, others may do several.
std::string label_of(const BenchEntry& e) {
    const bool plain = e.timed == "in_process" || e.pass == oracle::Pass::forward;
    return plain ? e.name : fmt::format("{}, {}", e.name, oracle::name_of(e.pass));
}

// What every pass has, measured or not.
Json not_measured() {
    return {{"kernel", nullptr}, {"median_ms", nullptr},      {"min_ms", nullptr},
            {"gflops", nullptr}, {"sgemm_fraction", nullptr}, {"verified", nullptr}};
}

}  // namespace

const BenchEntry* GdnBench::measured_of(oracle::Pass pass) const {
    const auto found = std::find_if(m_entries.begin(), m_entries.end(),
                                    [pass](const BenchEntry& e) { return !e.peer && e.pass == pass; });
    return found == m_entries.end() ? nullptr : &*found;
}

Json GdnBench::json_of(const BenchEntry& e) const {
    Json json = not_measured();
    json["kernel"] = e.name;
    json["timed"] = e.timed;
    json["verified"] = e.verified;
    json["error_over_budget"] = e.error_over_budget;
    json["network_barrier"] = e.network.empty() ? Json(nullptr) : Json(e.network);
    if (!e.verified) {
        json.update({{"reason", e.reason}, {"fault", fault_json(e.fault)}});
        return json;
    }
    json["floor_ms"] = e.floor_s == 0 ? Json(nullptr) : Json(e.floor_s * 1e3);
    const Timing& t = e.timing;
    json["median_ms"] = t.seconds.median * 1e3;
    json["min_ms"] = t.seconds.min * 1e3;
    json["gflops"] = t.gflops;
    if (t.of_sgemm) json["sgemm_fraction"] = *t.of_sgemm;
    json.update({{"max_ms", t.seconds.max * 1e3},
                 {"fma_peak_fraction", t.of_peak},
                 {"noisy", t.noisy},
                 {"phases", phases_json(e.phases)}});
    if (e.pass == oracle::Pass::decode) {
        json.update({{"steps", m_request.dims.T},
                     {"median_step_us", step_us(e)},
                     {"gigabytes_per_s", gigabytes_a_second(e)},
                     {"bandwidth_fraction", e.of_floor},
                     {"bandwidth_threads", e.floor_threads},
                     {"arithmetic_fraction", e.of_arithmetic}});
    }
    return json;
}

std::string GdnBench::text() const {
    if (!measured()) return fmt::format("{}: not measured ({})\n", kernels(), m_missing);
    std::string out =
        fmt::format("B,Hk,Hv,T,dk,dv = {}, {}, nominal {:.3g} GFLOP forward, {:.3g} backward\n", m_request.shape,
                    dtype(), nominal_flop(oracle::Pass::forward) * 1e-9, nominal_flop(oracle::Pass::backward) * 1e-9);
    out += fmt::format("inputs {:016x}\n", m_checksum);
    out += fmt::format("{}, {} thread{}, {}, {}, load {:.2f}\n", m_load.cpu, m_request.threads,
                       m_request.threads == 1 ? "" : "s", oracle::name_of(m_request.isa), m_load.compiler, m_load.load);
    out += fmt::format("{:<22}{:>10}{:>11}{:>10}{:>10}{:>9}{:>9}  {}\n", "", "min ms", "median ms", "max ms", "GFLOP/s",
                       "x sgemm", "x peak", "verified");
    for (const BenchEntry& e : m_entries) {
        // A long name gets a separate line.
        std::string name = label_of(e);
        if (name.size() >= 22) name += "\n" + std::string(22, ' ');
        if (!e.verified) {
            const bool died = e.fault && e.fault->kind == oracle::KernelFaultKind::crashed;
            out += fmt::format("{:<22}no time, because the {}: {}\n", name, died ? "kernel died" : "result is wrong",
                               e.reason);
            if (e.fault) out += quoted_output(*e.fault);
            continue;
        }
        const Timing& t = e.timing;
        out += fmt::format("{:<22}{:>10.2f}{:>11.2f}{:>10.2f}{:>10.1f}{:>9}{:>9.2f}  {:.2g} x budget\n", name,
                           t.seconds.min * 1e3, t.seconds.median * 1e3, t.seconds.max * 1e3, t.gflops,
                           t.of_sgemm ? fmt::format("{:.2f}", *t.of_sgemm) : "-", t.of_peak, e.error_over_budget);
        if (e.pass == oracle::Pass::decode) out += decode_text(e);
    }
    out += m_no_sgemm.empty()
               ? fmt::format("sgemm: {:.1f} GFLOP/s, n = {}, {}\n", m_sgemm.gflops, k_sgemm_size, m_sgemm_name)
               : fmt::format("sgemm: not measured\n  {}\n", m_no_sgemm);
    out += fmt::format("multiply-add peak: {:.1f} GFLOP/s\n", m_peak.gflops);
    if (m_request.phases) {
        out += fmt::format("memory, read and written: {:.1f} GB/s\n", m_ceilings.gigabytes_a_second);
        for (const BenchEntry& e : m_entries) {
            if (e.verified) out += phases_text(e.name, e.phases);
        }
    }
    for (const BenchEntry& e : m_entries) {
        const BenchEntry* first = measured_of(e.pass);
        if (!e.peer || first == nullptr || !e.verified || !first->verified) continue;
        out += fmt::format("{} takes {:.2f} times as long as {}\n", label_of(e),
                           e.timing.seconds.median / first->timing.seconds.median, label_of(*first));
    }
    out += notes();
    const bool noisy =
        std::any_of(m_entries.begin(), m_entries.end(), [](const BenchEntry& e) { return e.timing.noisy; });
    if (noisy) out += "noisy: a median is more than 1.35 times its minimum; compare ratios, not times\n";
    return out;
}

// What the times of third-party kernels include, if that is not obvious.
std::string GdnBench::notes() const {
    const auto some = [this](std::string_view timed, std::optional<oracle::Pass> pass) {
        return std::any_of(m_entries.begin(), m_entries.end(), [&](const BenchEntry& e) {
            return e.verified && e.timed == timed && (!pass || e.pass == *pass);
        });
    };
    std::string out;
    std::set<std::pair<std::string, std::string>> said;
    for (const BenchEntry& e : m_entries) {
        if (e.network.empty() || !said.emplace(e.name, e.network).second) continue;
        out += fmt::format("network blocked for {} by: {}\n", e.name, e.network);
    }
    if (some("call", oracle::Pass::backward)) {
        out +=
            "backward of a loaded kernel: includes recomputing the forward; builtin:backward starts from the\n  "
            "results that builtin:saving stored\n";
    }
    if (some("call", oracle::Pass::decode)) out += "decode of a loaded kernel: one token per call, in place\n";
    if (some("program", std::nullopt)) {
        out += "cmd: a whole run of the program, from start to exit\n";
    }
    if (some("program", oracle::Pass::backward)) out += "backward of a program: forward and backward in one run\n";
    return out;
}

std::string GdnBench::decode_text(const BenchEntry& e) const {
    return fmt::format(
        "  {:.2f} us a step, {:.1f} GB/s; of that, on {} thread{},\n"
        "  reading and writing the states once takes {:.2f},\n"
        "  and three multiply-adds an element at their peak {:.2f}\n",
        step_us(e), gigabytes_a_second(e), e.floor_threads, e.floor_threads == 1 ? "" : "s", e.of_floor,
        e.of_arithmetic);
}

Json GdnBench::json() const {
    Json report = {{"schema", "gdnctl.oracle-bench/1"}, {"op", m_request.op}, {"kernel", nullptr}};
    if (m_request.kernel) report["kernel"] = *m_request.kernel;
    report["not_measured"] = Json::object();
    for (const oracle::Pass pass : k_passes) {
        const std::string name(oracle::name_of(pass));
        const BenchEntry* entry = measured_of(pass);
        report[name] = entry != nullptr ? json_of(*entry) : not_measured();
        if (entry != nullptr) continue;
        report["not_measured"][name] = m_missing.empty() ? fmt::format("{} has no {}", kernels(), name) : m_missing;
    }
    if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
    report["peers"] = Json::array();
    for (const BenchEntry& e : m_entries) {
        if (!e.peer) continue;
        // The passes of one kernel follow each other; one that is named twice has two rows.
        Json& peers = report["peers"];
        const std::string pass(oracle::name_of(e.pass));
        if (peers.empty() || peers.back()["name"] != e.name || peers.back().contains(pass)) {
            peers.push_back({{"name", e.name}});
        }
        peers.back()[pass] = json_of(e);
    }
    report["sgemm"] = nullptr;
    if (m_no_sgemm.empty() && !m_entries.empty()) {
        report["sgemm"] = {{"gflops", m_sgemm.gflops}, {"size", k_sgemm_size}, {"library", m_sgemm_name}};
    }
    report["machine"] = {
        {"cpu", m_load.cpu},
        {"isa", oracle::name_of(m_request.isa)},
        {"threads", m_request.threads},
        {"compiler", m_load.compiler},
        {"load_average", m_load.load},
        {"memory_gigabytes_per_s", m_request.phases ? Json(m_ceilings.gigabytes_a_second) : Json(nullptr)},
        {"fma_peak_gflops", m_entries.empty() ? Json(nullptr) : Json(m_peak.gflops)}};
    report["shape"] = {{"B", m_request.dims.B}, {"Hk", m_request.dims.Hk}, {"Hv", m_request.dims.Hv},
                       {"T", m_request.dims.T}, {"dk", m_request.dims.dk}, {"dv", m_request.dims.dv}};
    report["dtype"] = dtype();
    report["nominal_gflop"] = {{"forward", nominal_flop(oracle::Pass::forward) * 1e-9},
                               {"backward", nominal_flop(oracle::Pass::backward) * 1e-9},
                               {"decode", nominal_flop(oracle::Pass::decode) * 1e-9}};
    report["inputs_checksum"] = fmt::format("{:016x}", m_checksum);
    report["rounds"] = m_request.rounds;
    report["runs_per_round"] = m_request.runs;
    return report;
}

}  // namespace gdnctl::harness
