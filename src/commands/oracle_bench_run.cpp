#include "commands/oracle_bench_run.h"

#include <cstdlib>
#include <fstream>

#include "commands/oracle_files.h"
#include "commands/oracle_gdn.h"
#include "gdnctl/core/log.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/blas.h"

namespace gdnctl::commands::oracle_bench {

namespace {

constexpr std::size_t k_peak_steps = 2'000'000;

Machine this_machine() {
    Machine m{"unknown", "", 0};
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (!line.starts_with("model name")) continue;
        m.cpu = std::string(text::trim(std::string_view(line).substr(line.find(':') + 1)));
        break;
    }
#if defined(__clang__)
    m.compiler = fmt::format("clang {}", __clang_version__);
#else
    m.compiler = fmt::format("g++ {}", __VERSION__);
#endif
    double load[1] = {};
    if (getloadavg(load, 1) == 1) m.load = load[0];
    return m;
}

}  // namespace

Status Bench::run() {
    GDNCTL_TRY_ASSIGN(m_dims, oracle_gdn::parse_shape(m_options.shape));
    GDNCTL_TRY(oracle_files::check_memory(m_dims, static_cast<std::size_t>(m_dims.B)));
    std::vector<std::string> names = {m_options.kernel};
    names.insert(names.end(), m_options.peers.begin(), m_options.peers.end());
    std::vector<Contestant> kernels;
    for (const std::string& name : names) {
        Contestant& c = kernels.emplace_back();
        if (name.starts_with("builtin:")) {
            GDNCTL_TRY_ASSIGN(c.own, oracle::find_timed_kernel(name));
        } else {
            GDNCTL_TRY_ASSIGN(c.foreign,
                              ForeignKernel::open(name, oracle_kernel::limits_of(m_options.limits), m_context));
        }
    }
    if (!oracle::has_isa(m_isa)) {
        m_missing = fmt::format("this processor has no {}", oracle::name_of(m_isa));
        return {};
    }
    m_load = this_machine();
    GDNCTL_TRY(add_yardsticks());
    log::info("generating inputs and the exact result");
    GDNCTL_TRY_ASSIGN(
        const auto inputs,
        oracle::BenchInputs::make(m_dims, static_cast<std::uint64_t>(m_options.seed),
                                  m_options.dtype == DTypeChoice::bf16 ? oracle::Storage::bf16 : oracle::Storage::f32));
    GDNCTL_TRY_ASSIGN(const auto reference, inputs.reference(m_threads));
    m_checksum = inputs.checksum();
    GDNCTL_TRY(time_kernels(kernels, inputs, reference));
    return {};
}

Status Bench::add_yardsticks() {
    m_subjects.push_back({"multiply-adds",
                          0,
                          [this] { m_peak_flop = oracle::run_multiply_adds(k_peak_steps, m_threads, m_isa); },
                          {},
                          {}});
    auto sgemm = Sgemm::open(m_isa == oracle::Isa::avx2     ? "Haswell"
                             : m_isa == oracle::Isa::scalar ? "Nehalem"
                                                            : "",
                             m_threads);
    if (!sgemm) {
        m_no_sgemm = sgemm.error().message;
        return {};
    }
    m_sgemm_name = sgemm->description();
    constexpr std::size_t size = std::size_t{k_sgemm_size} * k_sgemm_size;
    m_matrices.assign(3, std::vector<float>(size, 1.0F));
    m_subjects.push_back({"sgemm",
                          2.0 * static_cast<double>(size) * k_sgemm_size,
                          [this, sgemm = *sgemm] {
                              sgemm.multiply(k_sgemm_size, m_matrices[0].data(), m_matrices[1].data(),
                                             m_matrices[2].data());
                          },
                          {},
                          {}});
    return {};
}

Status Bench::time_kernels(const std::vector<Contestant>& kernels, oracle::BenchInputs inputs,
                           const oracle::GdnReference& reference) {
    const bool decodes = std::any_of(kernels.begin(), kernels.end(), [](const Contestant& k) {
        return !k.foreign && k.own.pass == oracle::Pass::decode;
    });
    if (decodes) {
        m_floor = m_subjects.size();
        m_subjects.push_back({"states", 0, [&] { inputs.scale_states(m_threads, m_isa); }, {}, {}});
    }
    const std::size_t first = m_subjects.size();
    std::vector<std::optional<std::uint64_t>> seen(kernels.size());
    std::vector<oracle::GdnReport> reports(kernels.size());
    std::vector<double> gradient_errors(kernels.size());
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        if (kernels[i].foreign) {
            const double flop = nominal_flop(oracle::Pass::forward);
            GDNCTL_TRY_ASSIGN(auto subject, kernels[i].foreign->subject(reference, m_threads, flop));
            m_subjects.push_back(std::move(subject));
            continue;
        }
        const auto run = [&, i] { kernels[i].own.run(inputs, m_threads, m_isa); };
        const bool backward = kernels[i].own.pass == oracle::Pass::backward;
        // The outputs of the timed runs are what is judged, the first time in full and then by their bits. Poisoned
        // before each round, so that a kernel cannot live on what an earlier one left.
        const auto check = [&, i, backward]() -> Status {
            const std::uint64_t sum = backward ? inputs.gradients_checksum() : inputs.outputs_checksum();
            if (!seen[i] && backward) {
                seen[i] = sum;
                GDNCTL_TRY_ASSIGN(gradient_errors[i], inputs.gradient_error(m_threads));
            } else if (!seen[i]) {
                seen[i] = sum;
                GDNCTL_TRY_ASSIGN(reports[i], oracle::judge(reference, inputs.outputs(reference), {}));
            } else if (*seen[i] != sum) {
                return fail(ErrorKind::check_failed,
                            fmt::format("{}: the outputs of two rounds differ", kernels[i].name()));
            }
            inputs.poison_outputs();
            return {};
        };
        m_subjects.push_back({kernels[i].name(), nominal_flop(kernels[i].own.pass), run, check, {}});
    }
    inputs.poison_outputs();
    if (m_options.phases) add_phases(kernels, inputs, first);
    GDNCTL_TRY(run_rounds(m_subjects, m_options.rounds, m_options.runs, m_context.clock, m_context.stop));
    sum_up(kernels, first, reports, gradient_errors);
    return {};
}

void Bench::sum_up(const std::vector<Contestant>& kernels, std::size_t first, std::vector<oracle::GdnReport>& reports,
                   const std::vector<double>& gradient_errors) {
    m_subjects[0].flop = m_peak_flop;
    const Subject* sgemm = m_no_sgemm.empty() ? &m_subjects[1] : nullptr;
    m_peak = timing_of(m_subjects[0], nullptr, m_subjects[0]);
    if (sgemm != nullptr) m_sgemm = timing_of(*sgemm, nullptr, m_subjects[0]);
    if (m_options.phases) {
        const oracle::Spread memory = oracle::spread_of(m_subjects[m_memory].seconds);
        m_ceilings = {m_peak.gflops, m_memory_bytes / memory.median * 1e-9};
    }
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const Subject& subject = m_subjects[first + i];
        Entry e{kernels[i].name(), kernels[i].own.pass, timing_of(subject, sgemm, m_subjects[0]), 0, false, {}, 0};
        if (kernels[i].foreign) {
            reports[i] = kernels[i].foreign->report();
            e.fault = kernels[i].foreign->fault();
        }
        set_verdict(reports[i], gradient_errors[i], e);
        if (m_options.phases && e.verified) e.phases = m_phases[i].rows(m_ceilings);
        if (e.pass == oracle::Pass::decode) e.of_floor = ratio_of_times(m_subjects[m_floor], subject);
        m_entries.push_back(std::move(e));
    }
}

// Measuring phases costs a little time: that happens in runs of their own, whose outputs must be those of the others.
void Bench::add_phases(const std::vector<Contestant>& kernels, oracle::BenchInputs& inputs, std::size_t first) {
    m_memory = m_subjects.size();
    m_subjects.push_back({"memory", 0, [&] { m_memory_bytes = inputs.move_memory(m_threads, m_isa); }, {}, {}});
    m_phases.resize(kernels.size());
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        if (kernels[i].foreign || kernels[i].own.pass == oracle::Pass::decode) continue;
        const auto run = [&, i] { m_phases[i].run(kernels[i].own, inputs, m_threads, m_isa, m_context.clock); };
        m_subjects.push_back({kernels[i].name(), 0, run, m_subjects[first + i].check, {}});
    }
}

}  // namespace gdnctl::commands::oracle_bench
