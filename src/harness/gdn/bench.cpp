#include "harness/gdn/bench.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "harness/files.h"
#include "harness/timing.h"

namespace gdnctl::harness {

namespace {

// A phase that reaches less than this of either ceiling is held up by something else: shuffles, scalar work, waiting
// for caches.
constexpr double k_bounded = 0.3;

std::string_view bound_of(const PhaseRow& row) {
    if (std::max(row.of_peak, row.of_memory) < k_bounded) return "packing";
    return row.of_peak >= row.of_memory ? "arithmetic" : "memory";
}

std::string figure(double value, int digits) { return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-"; }

}  // namespace

void PhaseRuns::run(const oracle::TimedKernel& kernel, oracle::BenchInputs& inputs, int threads, oracle::Isa isa,
                    const Clock& clock) {
    oracle::PhaseSums sums;
    inputs.set_phases(&sums);
    const auto start = clock.monotonic();
    const std::uint64_t first = oracle::phase_ticks();
    kernel.run(inputs, threads, isa);
    const auto ticks = static_cast<double>(std::max<std::uint64_t>(oracle::phase_ticks() - first, 1));
    Run run;
    run.seconds = std::max(std::chrono::duration<double>(clock.monotonic() - start).count(), 1e-9);
    inputs.set_phases(nullptr);
    for (std::size_t i = 0; i < oracle::k_phases; ++i) {
        const oracle::PhaseWork& work = sums.times().of[i];
        run.in_phase[i] = static_cast<double>(work.ticks) / ticks * run.seconds / threads;
        run.flop[i] = work.flop;
        run.bytes[i] = work.bytes;
    }
    m_runs.push_back(run);
}

std::vector<PhaseRow> PhaseRuns::rows(const Ceilings& ceilings) const {
    if (m_runs.empty()) return {};
    // Those of one run add up to its time; medians of each would not.
    std::vector<Run> runs = m_runs;
    const auto middle = runs.begin() + static_cast<std::ptrdiff_t>((runs.size() - 1) / 2);
    std::nth_element(runs.begin(), middle, runs.end(),
                     [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
    const Run& run = *middle;
    double waiting = run.seconds;
    std::vector<PhaseRow> rows;
    for (std::size_t i = 0; i < oracle::k_phases; ++i) {
        const double seconds = run.in_phase[i];
        if (seconds <= 0) continue;
        waiting -= seconds;
        PhaseRow row;
        row.name = oracle::name_of(static_cast<oracle::Phase>(i));
        row.ms = seconds * 1e3;
        row.share = seconds / run.seconds;
        row.gflops = run.flop[i] / seconds * 1e-9;
        row.of_peak = row.gflops / ceilings.gflops;
        row.gigabytes_a_second = run.bytes[i] / seconds * 1e-9;
        row.of_memory = row.gigabytes_a_second / ceilings.gigabytes_a_second;
        row.bound = bound_of(row);
        rows.push_back(row);
    }
    if (rows.empty()) return rows;
    PhaseRow rest;
    rest.name = "waiting";
    rest.ms = std::max(waiting, 0.0) * 1e3;
    rest.share = std::max(waiting, 0.0) / run.seconds;
    rows.push_back(rest);
    return rows;
}

std::string phases_text(std::string_view kernel, const std::vector<PhaseRow>& rows) {
    if (rows.empty())
        return fmt::format("phases of {}: not measured (only our forward and backward kernels have phases)\n", kernel);
    std::string out = fmt::format("phases of {}\n", kernel);
    out += fmt::format("{:<22}{:>10}{:>9}{:>11}{:>9}{:>9}{:>11}  {}\n", "", "ms", "share", "GFLOP/s", "x peak", "GB/s",
                       "x memory", "bound by");
    for (const PhaseRow& row : rows) {
        const std::string line = fmt::format("  {:<20}{:>10.2f}{:>7.0f} %{:>11}{:>9}{:>9}{:>11}  {}", row.name, row.ms,
                                             row.share * 100, figure(row.gflops, 1), figure(row.of_peak, 2),
                                             figure(row.gigabytes_a_second, 1), figure(row.of_memory, 2), row.bound);
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
}

Json phases_json(const std::vector<PhaseRow>& rows) {
    if (rows.empty()) return nullptr;
    Json list = Json::array();
    for (const PhaseRow& row : rows) {
        list.push_back({{"name", row.name},
                        {"ms", row.ms},
                        {"share", row.share},
                        {"gflops", row.gflops},
                        {"fma_peak_fraction", row.of_peak},
                        {"gigabytes_per_s", row.gigabytes_a_second},
                        {"memory_fraction", row.of_memory},
                        {"bound", row.bound.empty() ? Json(nullptr) : Json(row.bound)}});
    }
    return list;
}

namespace {

constexpr std::size_t k_peak_steps = 2'000'000;
// Without --kernel: the fastest of each pass.
constexpr std::string_view k_own_kernels[] = {"builtin:fused", "builtin:backward", "builtin:decode"};

}  // namespace

Status GdnBench::run() {
    GDNCTL_TRY(oracle_files::check_memory(m_request.dims, static_cast<std::size_t>(m_request.dims.B)));
    GDNCTL_TRY_ASSIGN(auto named, find_kernels());
    if (!oracle::has_isa(m_request.isa)) {
        m_missing = fmt::format("this processor has no {}", oracle::name_of(m_request.isa));
        return {};
    }
    m_load = this_machine();
    GDNCTL_TRY(add_yardsticks());
    log::info("generating inputs and the exact result");
    GDNCTL_TRY_ASSIGN(auto inputs, oracle::BenchInputs::make(m_request.dims, m_request.seed, m_request.storage));
    GDNCTL_TRY_ASSIGN(const auto reference, m_request.truth_of(inputs.file(), m_request.threads));
    m_checksum = inputs.checksum();
    // A second set of inputs, drawn again for every run of a third-party kernel. Built-in kernels keep nothing between
    // runs.
    std::optional<oracle::BenchInputs> fresh;
    if (m_request.dims.T > 0 &&
        std::any_of(named.begin(), named.end(), [](const Named& k) { return k.foreign != nullptr; })) {
        GDNCTL_TRY_ASSIGN(fresh, oracle::BenchInputs::make(m_request.dims, 1, m_request.storage));
    }
    GDNCTL_TRY_ASSIGN(auto kernels,
                      contestants(named, {inputs.file(), reference, m_request.threads,
                                          [&inputs] { return inputs.with_cotangents(); }, fresh ? &*fresh : nullptr}));
    return time_kernels(kernels, inputs, reference);
}

Result<std::vector<Named>> GdnBench::find_kernels() const {
    std::vector<std::string> names(std::begin(k_own_kernels), std::end(k_own_kernels));
    if (m_request.kernel) names = {*m_request.kernel};
    const std::size_t peers = names.size();
    names.insert(names.end(), m_request.peers.begin(), m_request.peers.end());
    std::vector<Named> kernels;
    for (const std::string& name : names) {
        Named& k = kernels.emplace_back();
        k.name = name;
        k.peer = kernels.size() > peers;
        if (name.starts_with("builtin:")) {
            GDNCTL_TRY_ASSIGN(k.own, oracle::find_timed_kernel(name));
        } else {
            GDNCTL_TRY_ASSIGN(k.foreign, open_foreign(name, k_gdn_mode, m_request.limits, m_context));
        }
    }
    return kernels;
}

Result<std::vector<Contestant>> GdnBench::contestants(std::vector<Named>& kernels, const Task& task) const {
    std::vector<Contestant> all;
    for (Named& k : kernels) {
        if (!k.foreign) {
            Contestant& c = all.emplace_back();
            c.name = k.name;
            c.pass = k.own.pass;
            c.peer = k.peer;
            c.own = k.own;
            continue;
        }
        GDNCTL_TRY_ASSIGN(auto passes, timed_passes(k.foreign, task));
        for (auto& pass : passes) {
            Contestant& c = all.emplace_back();
            c.name = k.name;
            c.pass = pass->pass();
            c.peer = k.peer;
            c.timed = k.foreign->timed();
            c.foreign = std::move(pass);
        }
    }
    return all;
}

Status GdnBench::add_yardsticks() {
    m_subjects.push_back(
        {"multiply-adds",
         0,
         [this] { m_peak_flop = oracle::run_multiply_adds(k_peak_steps, m_request.threads, m_request.isa); },
         {},
         {}});
    auto sgemm = sgemm_subject(m_request.isa, m_request.threads);
    if (!sgemm) {
        m_no_sgemm = sgemm.error().message;
        return {};
    }
    m_sgemm_name = sgemm->library;
    m_subjects.push_back(std::move(sgemm->subject));
    return {};
}

Subject GdnBench::subject_of(Contestant& c, oracle::BenchInputs& inputs, const oracle::GdnReference& reference) {
    if (c.foreign) return c.foreign->subject(c.name, nominal_flop(c.pass));
    const auto run = [&c, &inputs, this] { c.own.run(inputs, m_request.threads, m_request.isa); };
    // Judges the outputs of the timed runs: the first in full, later ones by their bits. Poisoned before each round, so
    // that a kernel cannot live on what an earlier one left.
    const auto check = [&c, &inputs, &reference, this]() -> Status {
        const bool backward = c.pass == oracle::Pass::backward;
        const std::uint64_t sum = backward ? inputs.gradients_checksum() : inputs.outputs_checksum();
        if (c.outputs && *c.outputs != sum) {
            return fail(ErrorKind::check_failed, fmt::format("{}: the outputs of two rounds differ", c.name));
        }
        if (!c.outputs && backward) {
            GDNCTL_TRY_ASSIGN(c.gradient_error, inputs.gradient_error(m_request.threads));
        } else if (!c.outputs) {
            GDNCTL_TRY_ASSIGN(c.report, oracle::judge(reference, inputs.outputs(reference), {}));
        }
        c.outputs = sum;
        inputs.poison_outputs();
        return {};
    };
    return {c.name, nominal_flop(c.pass), run, check, {}};
}

Status GdnBench::time_kernels(std::vector<Contestant>& kernels, oracle::BenchInputs& inputs,
                              const oracle::GdnReference& reference) {
    for (const Contestant& c : kernels) {
        if (c.pass != oracle::Pass::decode) continue;
        const int threads = floor_threads(c);
        if (!m_floors.emplace(threads, m_subjects.size()).second) continue;
        const auto move = [&inputs, threads, this] { inputs.scale_states(threads, m_request.isa); };
        m_subjects.push_back({fmt::format("states, {}", threads), 0, move, {}, {}});
        const auto multiply = [threads, this] { oracle::run_multiply_adds(k_peak_steps, threads, m_request.isa); };
        m_subjects.push_back({fmt::format("multiply-adds, {}", threads), 0, multiply, {}, {}});
    }
    const std::size_t first = m_subjects.size();
    for (Contestant& c : kernels) m_subjects.push_back(subject_of(c, inputs, reference));
    inputs.poison_outputs();
    if (m_request.phases) add_phases(kernels, inputs, first);
    GDNCTL_TRY(run_rounds(m_subjects, m_request.rounds, m_request.runs, m_context.clock, m_context.stop));
    for (const Contestant& c : kernels) {
        if (c.foreign) GDNCTL_TRY(c.foreign->check_memory_of_results(m_context.clock));
    }
    check_floors(kernels, first, inputs);
    sum_up(kernels, first);
    return {};
}

void GdnBench::check_floors(std::vector<Contestant>& kernels, std::size_t first, oracle::BenchInputs& inputs) {
    const auto foreign = [](const Contestant& c) { return c.foreign != nullptr; };
    if (std::none_of(kernels.begin(), kernels.end(), foreign)) return;
    const double most = most_flop_a_second(m_request.threads, m_context.clock);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        Contestant& c = kernels[i];
        if (!c.foreign || c.foreign->fault()) continue;
        c.floor_s = oracle::least_flop(m_request.dims, m_request.dims.B * m_request.dims.T, c.pass, true) / most;
        if (c.pass == oracle::Pass::decode) {
            // By one thread, which waits for no other; half of its share: nearer caches than those of that array.
            const double alone = least_seconds([&] { inputs.scale_states(1, oracle::best_isa()); }, m_context.clock);
            c.floor_s = std::max(c.floor_s, alone / (2 * m_request.threads));
        }
        c.foreign->check_floor(oracle::spread_of(m_subjects[first + i].seconds).min, c.floor_s);
    }
}

void GdnBench::sum_up(const std::vector<Contestant>& kernels, std::size_t first) {
    m_subjects[0].flop = m_peak_flop;
    const Subject* sgemm = m_no_sgemm.empty() ? &m_subjects[1] : nullptr;
    m_peak = timing_of(m_subjects[0], nullptr, m_subjects[0]);
    if (sgemm != nullptr) m_sgemm = timing_of(*sgemm, nullptr, m_subjects[0]);
    if (m_request.phases) {
        const oracle::Spread memory = oracle::spread_of(m_subjects[m_memory].seconds);
        m_ceilings = {m_peak.gflops, m_memory_bytes / memory.median * 1e-9};
    }
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const Subject& subject = m_subjects[first + i];
        BenchEntry e;
        e.name = kernels[i].name;
        e.peer = kernels[i].peer;
        e.timed = kernels[i].timed;
        e.pass = kernels[i].pass;
        e.floor_s = kernels[i].floor_s;
        if (kernels[i].foreign) e.network = kernels[i].foreign->network();
        e.timing = timing_of(subject, sgemm, m_subjects[0]);
        set_verdict(kernels[i], e);
        if (m_request.phases && e.verified) e.phases = m_phases[i].rows(m_ceilings);
        if (e.pass == oracle::Pass::decode) {
            e.floor_threads = floor_threads(kernels[i]);
            e.of_floor = ratio_of_times(m_subjects[m_floors.at(e.floor_threads)], subject);
            const double least = oracle::least_flop(m_request.dims, m_request.dims.B * m_request.dims.T, e.pass, true);
            const Subject& peak = m_subjects[m_floors.at(e.floor_threads) + 1];
            const double done = m_peak_flop / m_request.threads * e.floor_threads;  // by that subject
            e.of_arithmetic = ratio_of_times(peak, subject) * least / done;
        }
        m_entries.push_back(std::move(e));
    }
}

void GdnBench::set_verdict(const Contestant& c, BenchEntry& e) {
    if (!c.foreign && c.pass == oracle::Pass::backward) {
        e.error_over_budget = c.gradient_error;
        e.verified = c.gradient_error <= oracle::k_ok_band;
        e.reason = fmt::format("a gradient is off by {:.2g} times the budget", c.gradient_error);
        return;
    }
    const oracle::GdnReport& report = c.foreign ? c.foreign->report() : c.report;
    for (const auto& t : report.tensors) e.error_over_budget = std::max(e.error_over_budget, t.error_over_budget);
    if (c.foreign) e.fault = c.foreign->fault();
    e.verified = !e.fault && report.verdict == oracle::Verdict::ok;
    e.reason = e.fault ? fmt::format("{}: {}", oracle::name_of(e.fault->kind), e.fault->text) : report.reason;
}

// Measuring phases costs a little time: that happens in runs of their own, whose outputs must be those of the others.
void GdnBench::add_phases(const std::vector<Contestant>& kernels, oracle::BenchInputs& inputs, std::size_t first) {
    m_memory = m_subjects.size();
    m_subjects.push_back(
        {"memory", 0, [&] { m_memory_bytes = inputs.move_memory(m_request.threads, m_request.isa); }, {}, {}});
    m_phases.resize(kernels.size());
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        if (kernels[i].foreign || kernels[i].own.pass == oracle::Pass::decode) continue;
        const auto run = [&, i] {
            m_phases[i].run(kernels[i].own, inputs, m_request.threads, m_request.isa, m_context.clock);
        };
        m_subjects.push_back({kernels[i].name, 0, run, m_subjects[first + i].check, {}});
    }
}

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
