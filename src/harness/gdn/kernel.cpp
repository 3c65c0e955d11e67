#include "harness/gdn/kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "gdn/gdn_kernel.h"
#include "harness/child/entry.h"
#include "harness/engine/operator.h"
#include "harness/timing.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/gradients.h"

namespace gdnctl::harness {

namespace {

// A loaded kernel, whose outputs become those of files.
class GdnLibrary : public LoadedKernel {
public:
    using LoadedKernel::LoadedKernel;

    Faulted place(const Asked& asked) override {
        m_inputs = &static_cast<oracle::GdnInputs&>(asked.inputs);
        GDNCTL_TRY(m_inputs->read());
        return LoadedKernel::place(asked);
    }
    Faulted collect(oracle::TensorFile& outputs) override {
        oracle::TensorFile written;
        GDNCTL_TRY_ASSIGN(auto fault, LoadedKernel::collect(written));
        if (!fault) outputs = m_inputs->in_files(written);
        return fault;
    }

private:
    oracle::GdnInputs* m_inputs = nullptr;
};

}  // namespace

Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Limits& limits, const Context& context) {
    if (spelling.starts_with("builtin:")) return oracle::find_builtin_kernel(spelling);
    if (!is_library(spelling)) return open_foreign(spelling, k_gdn_mode, limits, context);
    GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
    return std::make_unique<GdnLibrary>(std::move(library), limits, context, k_gdn_mode);
}

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelPass;

KernelPass asked_for(oracle::Pass pass) {
    switch (pass) {
        case oracle::Pass::backward: return KernelPass::backward;
        case oracle::Pass::decode: return KernelPass::decode_in_place;
        case oracle::Pass::forward: break;
    }
    return KernelPass::forward;
}

std::size_t entry_of(oracle::Pass pass) {
    switch (pass) {
        case oracle::Pass::backward: return GDN_BACKWARD;
        case oracle::Pass::decode: return GDN_DECODE;
        case oracle::Pass::forward: break;
    }
    return GDN_FORWARD;
}

// Only a run with cotangents shows whether a program computes gradients. A failed run does not show that it has none:
// the pass is then timed and reports the failure.
Result<bool> gives_gradients(Kernel& program, const Task& task) {
    const auto inputs = timed_inputs(oracle::Pass::backward, task);
    const oracle::TensorFile file = task.with_cotangents();
    inputs->set(file, {});
    GDNCTL_TRY_ASSIGN(const auto run, run_once(program, {*inputs, GDN_BACKWARD, task.threads}));
    return run.fault || oracle::has_gradients(run.outputs);
}

}  // namespace

TimedPass::TimedPass(oracle::Pass pass, const Task& task, std::shared_ptr<Kernel> kernel,
                     std::unique_ptr<TimedInputs> inputs)
    : m_pass(pass),
      m_task(task),
      m_kernel(std::move(kernel)),
      m_timed(std::move(inputs)),
      m_inputs(pass == oracle::Pass::backward ? task.with_cotangents() : task.inputs) {}

Subject TimedPass::subject(std::string name, double flop) {
    Subject subject{std::move(name), flop, [this] { run(); }, {}, {}};
    subject.before = [this] { return before(); };
    subject.after = [this] { return after(); };
    subject.counted = [this](double ours) { return m_kernel->times().wall.value_or(ours); };
    subject.device = [this] { return m_kernel->times().device; };
    return subject;
}

Status TimedPass::before(Given given) {
    if (m_fault) return {};
    const bool first = !m_first;
    const bool drawn = !first && m_task.fresh != nullptr;
    if (drawn && given == Given::fresh) {
        GDNCTL_TRY(m_task.fresh->draw(harness::secret_seed()));
        m_inputs = m_pass == oracle::Pass::backward ? m_task.fresh->with_cotangents() : m_task.fresh->file();
    }
    m_disguise = {};
    if (!drawn || given == Given::again_with_other_signs) {
        const oracle::GdnReference& reference = m_task.reference;
        m_disguise =
            oracle::Disguise(reference.problem.dims, reference.contract.value.head_map, harness::secret_seed());
    }
    m_timed->set(m_inputs, m_disguise);
    GDNCTL_TRY_ASSIGN(m_fault, m_kernel->place({*m_timed, entry_of(m_pass), m_task.threads}));
    return {};
}

// Only the call is timed: what it led to is looked at in after().
void TimedPass::run() {
    if (m_fault) return;
    m_ran = true;
    auto fault = m_kernel->call();
    if (!fault) {
        m_error = std::move(fault).error();
        return;
    }
    m_fault = std::move(*fault);
}

Status TimedPass::after() {
    if (m_error) return tl::unexpected(*m_error);
    if (m_fault) return {};
    oracle::TensorFile outputs;
    GDNCTL_TRY_ASSIGN(m_fault, m_kernel->collect(outputs));
    if (m_fault) return {};
    m_not_returned = oracle::not_returned(outputs);
    GDNCTL_TRY_ASSIGN(m_fault, m_timed->name(outputs));
    if (m_fault) return {};
    apply(m_disguise, outputs, m_task.reference.contract.value.state_layout);
    if (!m_first) return judge_first(std::move(outputs));
    if (m_report.verdict != oracle::Verdict::ok) return complain(outputs);
    if (m_task.fresh != nullptr) return judge_fresh(outputs);
    if (same_bytes(*m_first, outputs)) return {};
    note_later(judged(outputs, m_task.reference));
    return {};
}

Status TimedPass::complain(const oracle::TensorFile& outputs) {
    if (!m_task.complaint) return {};  // it has no time anyway
    if (m_task.fresh != nullptr && m_task.fresh->distance(outputs, m_pass, m_task.threads) <= 1) return {};
    GDNCTL_TRY_ASSIGN(const std::string why, m_task.complaint(outputs));
    if (!why.empty()) {
        m_fault = KernelFault{KernelFaultKind::unsteady, fmt::format("different result in a later run: {}", why), {}};
    }
    return {};
}

oracle::KernelVerdict TimedPass::judged(const oracle::TensorFile& outputs,
                                        const oracle::GdnReference& reference) const {
    return oracle::judge_run({m_timed->in_files(outputs, reference), std::nullopt}, m_inputs, reference, m_task.threads,
                             asked_for(m_pass));
}

Status TimedPass::judge_first(oracle::TensorFile outputs) {
    const auto verdict = judged(outputs, m_task.reference);
    m_first = std::move(outputs);
    m_fault = verdict.fault;
    m_report = verdict.report;
    return {};
}

// The truth takes long: it is asked where our own kernel, which is right, gives something else.
Status TimedPass::judge_fresh(const oracle::TensorFile& outputs) {
    if (m_task.fresh->distance(outputs, m_pass, m_task.threads) <= 1) return {};
    GDNCTL_TRY_ASSIGN(const auto reference, m_task.fresh->reference(m_task.threads));
    const auto verdict = judged(outputs, reference);
    if (!verdict.fault && verdict.report.verdict == oracle::Verdict::unstable_input) return {};
    if (!verdict.fault && verdict.report.verdict == oracle::Verdict::suspect && m_task.complaint) {
        return complain(outputs);
    }
    note_later(verdict);
    return {};
}

void TimedPass::note_later(const oracle::KernelVerdict& verdict) {
    if (!verdict.fault && verdict.report.verdict == m_report.verdict) return;
    const std::string& why = verdict.fault ? verdict.fault->text : verdict.report.reason;
    m_fault = KernelFault{KernelFaultKind::unsteady, fmt::format("different result in a later run: {}", why), {}};
}

Result<double> TimedPass::seconds_of(Given given, Clock& clock, const std::function<void()>& chill) {
    GDNCTL_TRY(before(given));
    if (chill) chill();
    const auto start = clock.monotonic();
    run();
    const double seconds = std::chrono::duration<double>(clock.monotonic() - start).count();
    GDNCTL_TRY(after());
    return seconds;
}

void TimedPass::check_floor(double seconds, double least) {
    if (!m_fault && m_report.verdict == oracle::Verdict::ok) m_fault = impossible_time(seconds, least, m_task.threads);
}

Status TimedPass::check_memory_of_results(Clock& clock, const std::function<void()>& chill) {
    constexpr int k_needed = 5;  // noise makes an honest kernel look so once, not as often as that
    constexpr int k_spared = 3;  // and hides one that is not once or twice
    constexpr int k_more = 20;
    constexpr double k_least = 200e-6;  // less may be the start of a processor that slept
    if (m_task.fresh == nullptr || !m_first || m_report.verdict != oracle::Verdict::ok) return {};
    double fresh = std::numeric_limits<double>::infinity();
    double again = fresh;
    const auto known = [&] { return 2 * again < fresh && fresh - again > k_least; };
    for (int faster = 0, not_faster = 0; faster < k_needed;) {
        GDNCTL_TRY_ASSIGN(const double now, seconds_of(Given::fresh, clock, chill));
        fresh = std::min(fresh, now);
        again = std::numeric_limits<double>::infinity();
        for (const Given given : {Given::again, Given::again, Given::again_with_other_signs}) {
            GDNCTL_TRY_ASSIGN(const double seconds, seconds_of(given, clock, chill));
            again = std::min(again, seconds);
        }
        (known() ? faster : not_faster) += 1;
        if (m_fault || not_faster == k_spared) return {};
    }
    // On a busy machine, a few fresh runs may all have been slow; this many are not.
    for (int i = 0; i < k_more; ++i) {
        GDNCTL_TRY_ASSIGN(const double now, seconds_of(Given::fresh, clock, chill));
        fresh = std::min(fresh, now);
        if (m_fault || !known()) return {};
    }
    m_fault = KernelFault{
        KernelFaultKind::cached,
        fmt::format(
            "inputs that it has seen before (except for signs) take {:.3g} ms, new ones {:.3g} ms: it caches results",
            again * 1e3, fresh * 1e3),
        {}};
    return {};
}

Result<std::vector<std::unique_ptr<TimedPass>>> timed_passes(const std::shared_ptr<Kernel>& kernel, const Task& task) {
    GDNCTL_TRY_ASSIGN(std::uint32_t entries, kernel->entries());
    if (kernel->is_program()) entries = 1U << GDN_FORWARD;
    if (kernel->is_program() && task.with_cotangents) {
        GDNCTL_TRY_ASSIGN(const bool gradients, gives_gradients(*kernel, task));
        if (gradients) entries |= 1U << GDN_BACKWARD;
    }
    if (entries == 0) entries = 1U << GDN_FORWARD;
    // A step of a decode is timed in place.
    if (kernel->facts().takes_files) entries &= ~(1U << GDN_DECODE);
    std::vector<std::unique_ptr<TimedPass>> passes;
    for (const oracle::Pass pass : {oracle::Pass::forward, oracle::Pass::backward, oracle::Pass::decode}) {
        if ((entries & (1U << entry_of(pass))) == 0) continue;
        if (pass != oracle::Pass::forward && !task.with_cotangents) continue;
        passes.push_back(std::make_unique<TimedPass>(pass, task, kernel, timed_inputs(pass, task)));
    }
    if (passes.empty()) {
        passes.push_back(std::make_unique<TimedPass>(oracle::Pass::forward, task, kernel,
                                                     timed_inputs(oracle::Pass::forward, task)));
    }
    return passes;
}

// What kernels of gdn/gdn_kernel.h and programs over files are timed on.

namespace {

using oracle::KernelCall;
using oracle::KernelPass;
using oracle::Tensor;

// Copies token t of row b of a [B, T, ...] tensor to row b of step order[t], or back.
Tensor rearranged(const Tensor& tensor, std::int64_t batch, const std::vector<std::int64_t>& order, bool to_steps) {
    Tensor result = tensor;
    const auto rows = static_cast<std::size_t>(batch);
    const std::size_t steps = order.size();
    const std::size_t width = tensor.bytes.size() / std::max<std::size_t>(rows * steps, 1);
    for (std::size_t b = 0; b < rows; ++b) {
        for (std::size_t t = 0; t < steps; ++t) {
            const std::size_t by_token = (b * steps + t) * width;
            const std::size_t by_step = (static_cast<std::size_t>(order[t]) * rows + b) * width;
            std::memcpy(result.bytes.data() + (to_steps ? by_step : by_token),
                        tensor.bytes.data() + (to_steps ? by_token : by_step), width);
        }
    }
    return result;
}

KernelPass asked_pass(oracle::Pass pass) {
    switch (pass) {
        case oracle::Pass::backward: return KernelPass::backward;
        case oracle::Pass::decode: return KernelPass::decode_in_place;
        case oracle::Pass::forward: break;
    }
    return KernelPass::forward;
}

class GdnInputs : public TimedInputs {
public:
    GdnInputs(oracle::Pass pass, const Task& task) : m_pass(pass), m_task(task) {}

    void set(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) override {
        m_inputs = &inputs;
        m_disguise = disguise;
        m_called = false;
    }

    Result<Call> call(std::size_t /*pass*/, std::uint32_t dtypes, int threads) override {
        if (!m_plain) {
            GDNCTL_TRY_ASSIGN(m_plain, call_of(dtypes));
        }
        m_called = true;
        KernelCall placed = *m_plain;
        if (m_task.fresh != nullptr) take(placed);
        for (Tensor* keys : {&placed.q, &placed.k}) m_disguise.keys(*keys);
        m_disguise.values(placed.v);
        if (placed.d_out) m_disguise.values(*placed.d_out);
        for (auto* state : {&placed.initial_state, &placed.d_final_state}) {
            if (*state) m_disguise.state(**state, oracle::StateLayout::key_value);
        }
        if (placed.steps > 0) {
            placed.step_seed = ++m_plain->step_seed;
            m_order = step_order(placed.steps, placed.step_seed);
            for (Tensor* tensor : {&placed.q, &placed.k, &placed.v, &placed.g, &placed.beta}) {
                *tensor = rearranged(*tensor, placed.dims.B, m_order, true);
            }
        }
        return arrays_of(std::move(placed), threads);
    }

    oracle::TensorFile file() const override {
        oracle::TensorFile file = *m_inputs;
        apply(m_disguise, file, m_task.reference.contract.value.state_layout);
        for (const auto& [field, value] : m_task.reference.contract.as_metadata()) file.metadata[field] = value;
        return file;
    }

    Faulted name(oracle::TensorFile& outputs) override {
        if (!m_called || m_plain->steps == 0) return std::nullopt;
        for (oracle::NamedTensor& entry : outputs.tensors) {
            if (entry.name == "out") entry.tensor = rearranged(entry.tensor, m_plain->dims.B, m_order, false);
        }
        return std::nullopt;
    }

    oracle::TensorFile in_files(oracle::TensorFile outputs, const oracle::GdnReference& of) const override {
        if (!m_called || m_pass != oracle::Pass::backward) return outputs;
        return call_gradients(of.problem, of.contract.value, outputs);
    }

private:
    Result<KernelCall> call_of(std::uint32_t dtypes) const {
        const oracle::GdnProblem& problem = m_task.reference.problem;
        const oracle::GdnContract& contract = m_task.reference.contract.value;
        const bool takes_bf16 = (dtypes & (1U << GDN_BF16)) != 0;
        oracle::GdnCotangents cotangents;
        if (m_pass == oracle::Pass::backward) {
            GDNCTL_TRY_ASSIGN(auto given, read_cotangents(m_task.with_cotangents(), problem, contract));
            if (given) cotangents = std::move(*given);
        }
        KernelCall call = make_call(problem, contract, takes_bf16, asked_pass(m_pass), cotangents);
        if (m_pass == oracle::Pass::decode) call.steps = problem.dims.T;
        return call;
    }

    // The inputs of oracle bench are those of a call, but for their dtypes.
    void take(KernelCall& placed) const {
        const auto put = [&](std::string_view name, Tensor& to) {
            const Tensor* from = m_inputs->find(name);
            if (from == nullptr) return;
            to = from->dtype == to.dtype ? *from : oracle::from_f64(to_f64(*from), to.shape, to.dtype);
        };
        put("q", placed.q);
        put("k", placed.k);
        put("v", placed.v);
        put("g", placed.g);
        put("beta", placed.beta);
        if (placed.initial_state) put("initial_state", *placed.initial_state);
        if (placed.d_out) put("d_out", *placed.d_out);
        if (placed.d_final_state) put("d_final_state", *placed.d_final_state);
    }

    oracle::Pass m_pass;
    Task m_task;
    const oracle::TensorFile* m_inputs = nullptr;
    oracle::Disguise m_disguise;
    std::optional<KernelCall> m_plain;
    bool m_called = false;              // as arrays, not as a file
    std::vector<std::int64_t> m_order;  // of steps in memory
};

}  // namespace

std::unique_ptr<TimedInputs> timed_inputs(oracle::Pass pass, const Task& task) {
    return std::make_unique<GdnInputs>(pass, task);
}

}  // namespace gdnctl::harness
