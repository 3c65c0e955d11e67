#include "harness/timing/gdn_bench.h"

#include "core/log.h"
#include "harness/files.h"
#include "harness/timing/floor.h"

namespace gdnctl::harness {

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

}  // namespace gdnctl::harness
