// What oracle bench times for gdn: forward, backward and decode, of our kernels and of others.
#include "harness/engine/bench.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "harness/child/foreign_kernel.h"
#include "harness/files.h"
#include "harness/gdn/kernel.h"
#include "harness/gdn/read.h"
#include "harness/timing.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/kernels/decode32.h"

namespace gdnctl::harness {

namespace {

// Without --kernel: the fastest of each pass.
constexpr std::string_view k_own_kernels[] = {"builtin:fused", "builtin:backward", "builtin:decode"};
constexpr oracle::Pass k_passes[] = {oracle::Pass::forward, oracle::Pass::backward, oracle::Pass::decode};

std::size_t index_of(oracle::Pass pass) {
    return static_cast<std::size_t>(std::find(std::begin(k_passes), std::end(k_passes), pass) - std::begin(k_passes));
}

// One pass of one kernel: ours, or another one in a child process.
struct GdnPass {
    oracle::Pass pass = oracle::Pass::forward;
    oracle::TimedKernel own = {};
    std::unique_ptr<TimedPass> foreign = nullptr;
    // Of the first run.
    std::optional<std::uint64_t> outputs = {};
    oracle::GdnReport report = {};
    double gradient_error = 0;  // of our own backward
};

// A kernel named by an option.
struct NamedKernel {
    std::string name;
    bool peer = false;
    oracle::TimedKernel own = {};
    std::shared_ptr<Kernel> foreign = nullptr;
};

class GdnPlan : public BenchPlan {
public:
    GdnPlan(const oracle::GdnDims& dims, std::string shape, const BenchRequest& request, Context& context)
        : m_dims(dims), m_shape(std::move(shape)), m_request(request), m_context(context) {}

    std::vector<std::string_view> passes() const override { return {"forward", "backward", "decode"}; }
    std::string_view error_unit() const override { return "budget"; }
    bool peers_count() const override { return true; }

    double nominal_flop(std::size_t pass) const override {
        switch (k_passes[pass]) {
            case oracle::Pass::backward: return oracle::nominal_backward_flop(m_dims);
            case oracle::Pass::decode: return oracle::nominal_decode_flop(m_dims);
            case oracle::Pass::forward: break;
        }
        return oracle::nominal_forward_flop(m_dims);
    }

    std::string title() const override {
        return fmt::format("B,Hk,Hv,T,dk,dv = {}, {}, nominal {:.3g} GFLOP forward, {:.3g} backward\ninputs {:016x}\n",
                           m_shape, m_request.bf16 ? "bf16" : "f32", nominal_flop(0) * 1e-9, nominal_flop(1) * 1e-9,
                           m_inputs ? m_inputs->checksum() : 0);
    }

    void add_fields(Json& report) const override {
        report["shape"] = {{"B", m_dims.B}, {"Hk", m_dims.Hk}, {"Hv", m_dims.Hv},
                           {"T", m_dims.T}, {"dk", m_dims.dk}, {"dv", m_dims.dv}};
        report["inputs_checksum"] = fmt::format("{:016x}", m_inputs ? m_inputs->checksum() : 0);
    }

    Result<std::vector<Contestant>> contestants() override {
        GDNCTL_TRY_ASSIGN(auto named, find_kernels());
        log::info("generating inputs and the exact result");
        const auto storage = m_request.bf16 ? oracle::Storage::bf16 : oracle::Storage::f32;
        GDNCTL_TRY_ASSIGN(const std::vector<std::string> declared, declared_by(named));
        GDNCTL_TRY_ASSIGN(m_inputs, oracle::BenchInputs::make(m_dims, m_request.seed, storage, declared));
        GDNCTL_TRY_ASSIGN(const auto reading, GdnReading::read(m_inputs->file(), {}, std::nullopt, {}));
        GDNCTL_TRY_ASSIGN(m_reference, reading->take_reference(m_request.threads));
        // A second set of inputs, drawn again for every run of a third-party kernel. Built-in kernels keep nothing
        // between runs.
        const bool foreign =
            std::any_of(named.begin(), named.end(), [](const NamedKernel& k) { return k.foreign != nullptr; });
        if (m_dims.T > 0 && foreign) {
            GDNCTL_TRY_ASSIGN(m_fresh, oracle::BenchInputs::make(m_dims, 1, storage, declared));
        }
        m_task.emplace(Task{m_inputs->file(), *m_reference, m_request.threads,
                            [this] { return m_inputs->with_cotangents(); }, m_fresh ? &*m_fresh : nullptr});
        std::vector<Contestant> all;
        for (const NamedKernel& k : named) GDNCTL_TRY(add_passes(k, all));
        m_inputs->poison_outputs();
        return all;
    }

    // The subjects that move the states, by their threads, each before one of bare multiply-adds on as many.
    std::vector<Subject> yardsticks() override {
        constexpr std::size_t k_peak_steps = 2'000'000;
        std::vector<Subject> all;
        for (const auto& p : m_timed) {
            if (p->pass != oracle::Pass::decode) continue;
            const int threads = floor_threads(*p);
            if (!m_floors.emplace(threads, all.size()).second) continue;
            all.push_back({fmt::format("states, {}", threads),
                           0,
                           [threads, this] { m_inputs->scale_states(threads, m_request.isa); },
                           {},
                           {}});
            all.push_back({fmt::format("multiply-adds, {}", threads),
                           0,
                           [threads, this] { oracle::run_multiply_adds(k_peak_steps, threads, m_request.isa); },
                           {},
                           {}});
        }
        return all;
    }

    Status finish(std::vector<Contestant>& all, const std::vector<Subject>& timed, const Subject& peak) override {
        for (const auto& p : m_timed) {
            if (p->foreign) GDNCTL_TRY(p->foreign->check_memory_of_results(m_context.clock));
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!m_timed[i]->foreign) continue;
            all[i].environment = m_timed[i]->foreign->kernel().facts().environment;
            all[i].times = m_timed[i]->foreign->kernel().times();
            all[i].not_returned = m_timed[i]->foreign->not_returned();
        }
        check_floors(all);
        for (std::size_t i = 0; i < all.size(); ++i) {
            set_verdict(*m_timed[i], all[i]);
            if (m_timed[i]->pass == oracle::Pass::decode) describe_decode(*m_timed[i], all[i], timed, peak);
        }
        return {};
    }

    // What the times of third-party kernels include, if that is not obvious.
    std::string notes(const std::vector<Contestant>& all) const override {
        const auto some = [&](std::string_view timed, std::optional<oracle::Pass> pass) {
            return std::any_of(all.begin(), all.end(), [&](const Contestant& c) {
                return c.verified && c.timed == timed && (!pass || c.pass == index_of(*pass));
            });
        };
        std::string out;
        std::set<std::pair<std::string, std::string>> said;
        for (const Contestant& c : all) {
            if (c.network.empty() || !said.emplace(c.kernel, c.network).second) continue;
            const bool chosen = c.environment.is_object();  // by --no-network
            out += chosen ? fmt::format("network of {}: {}\n", c.kernel, c.network)
                          : fmt::format("network blocked for {} by: {}\n", c.kernel, c.network);
        }
        if (some("call", oracle::Pass::backward)) {
            out +=
                "backward of a loaded kernel: includes recomputing the forward; builtin:backward starts from the\n  "
                "results that builtin:saving stored\n";
        }
        if (some("call", oracle::Pass::decode)) out += "decode of a loaded kernel: one token per call, in place\n";
        if (some("program", std::nullopt)) out += "cmd: a whole run of the program, from start to exit\n";
        if (some("program", oracle::Pass::backward)) out += "backward of a program: forward and backward in one run\n";
        return out;
    }

private:
    // What the kernel says that it computes of the same tensors, or the first of its peers that says so. Kernels of
    // ours have no l2norm: beside them, others have none, too.
    static Result<std::vector<std::string>> declared_by(const std::vector<NamedKernel>& named) {
        constexpr std::string_view k_fields[] = {"l2norm",   "eps",    "rounding",   "out_dtype",
                                                 "exp_clip", "matmul", "state_dtype"};
        std::vector<std::string> sets;
        for (const NamedKernel& k : named) {
            if (!k.foreign) return std::vector<std::string>();
            GDNCTL_TRY(k.foreign->entries());
            const oracle::KernelFacts facts = k.foreign->facts();
            if (!facts.contract || !sets.empty()) continue;
            GDNCTL_TRY_ASSIGN(const auto declared, oracle::read_declared(facts.contract, facts.sets));
            for (const auto& field : declared.fields) {
                if (std::find(std::begin(k_fields), std::end(k_fields), field.name) == std::end(k_fields)) continue;
                sets.push_back(fmt::format("{}={}", field.name, field.value));
            }
        }
        return sets;
    }

    Result<std::vector<NamedKernel>> find_kernels() const {
        std::vector<std::string> names(std::begin(k_own_kernels), std::end(k_own_kernels));
        if (m_request.kernel) names = {*m_request.kernel};
        const std::size_t peers = names.size();
        names.insert(names.end(), m_request.peers.begin(), m_request.peers.end());
        std::vector<NamedKernel> kernels;
        for (const std::string& name : names) {
            NamedKernel& k = kernels.emplace_back();
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

    // In the order of the table.
    Status add_passes(const NamedKernel& k, std::vector<Contestant>& all) {
        std::vector<std::unique_ptr<TimedPass>> foreign;
        if (k.foreign) {
            GDNCTL_TRY_ASSIGN(foreign, timed_passes(k.foreign, *m_task));
        }
        for (std::size_t i = 0; i < std::max<std::size_t>(foreign.size(), 1); ++i) {
            GdnPass& p = *m_timed.emplace_back(std::make_unique<GdnPass>());
            p.own = k.own;
            if (k.foreign) p.foreign = std::move(foreign[i]);
            p.pass = p.foreign ? p.foreign->pass() : k.own.pass;
            Contestant& c = all.emplace_back();
            c.kernel = k.name;
            c.pass = index_of(p.pass);
            c.peer = k.peer;
            // One of ours does one pass, others may do several.
            const bool plain = !k.foreign || p.pass == oracle::Pass::forward;
            c.label = plain ? k.name : fmt::format("{}, {}", k.name, oracle::name_of(p.pass));
            if (k.foreign) c.timed = k.foreign->timed();
            c.subject = p.foreign ? p.foreign->subject(k.name, nominal_flop(c.pass)) : own_subject(p, k.name);
        }
        return {};
    }

    // Judges the outputs of the timed runs: the first in full, later ones by their bytes. Poisoned before each round,
    // so that a kernel cannot live on what an earlier one left.
    Subject own_subject(GdnPass& p, const std::string& name) {
        const auto check = [&p, name, this]() -> Status {
            const bool backward = p.pass == oracle::Pass::backward;
            const std::uint64_t sum = backward ? m_inputs->gradients_checksum() : m_inputs->outputs_checksum();
            if (p.outputs && *p.outputs != sum) {
                return fail(ErrorKind::check_failed, fmt::format("{}: the outputs of two rounds differ", name));
            }
            if (!p.outputs && backward) {
                GDNCTL_TRY_ASSIGN(p.gradient_error, m_inputs->gradient_error(m_request.threads));
            } else if (!p.outputs) {
                GDNCTL_TRY_ASSIGN(p.report, oracle::judge(*m_reference, m_inputs->outputs(*m_reference), {}));
            }
            p.outputs = sum;
            m_inputs->poison_outputs();
            return {};
        };
        return {name,
                nominal_flop(index_of(p.pass)),
                [&p, this] { p.own.run(*m_inputs, m_request.threads, m_request.isa); },
                check,
                {}};
    }

    // Whether others are faster than can be.
    void check_floors(std::vector<Contestant>& all) {
        const auto foreign = [](const auto& p) { return p->foreign != nullptr; };
        if (std::none_of(m_timed.begin(), m_timed.end(), foreign)) return;
        const double most = most_flop_a_second(m_request.threads, m_context.clock);
        for (std::size_t i = 0; i < all.size(); ++i) {
            GdnPass& p = *m_timed[i];
            if (!p.foreign || p.foreign->fault() || is_on_accelerator(all[i].environment)) continue;
            double& floor = all[i].floor_s;
            floor = oracle::least_flop(m_dims, m_dims.B * m_dims.T, p.pass, true) / most;
            if (p.pass == oracle::Pass::decode) {
                // By one thread, which waits for no other; half of its share: nearer caches than those of that array.
                const double alone =
                    least_seconds([&] { m_inputs->scale_states(1, oracle::best_isa()); }, m_context.clock);
                floor = std::max(floor, alone / (2 * m_request.threads));
            }
            p.foreign->check_floor(all[i].timing.seconds.min, floor);
        }
    }

    static void set_verdict(const GdnPass& p, Contestant& c) {
        if (!p.foreign && p.pass == oracle::Pass::backward) {
            c.error = p.gradient_error;
            c.verified = p.gradient_error <= oracle::k_ok_band;
            c.reason = fmt::format("a gradient is off by {:.2g} times the budget", p.gradient_error);
            return;
        }
        const oracle::GdnReport& report = p.foreign ? p.foreign->report() : p.report;
        for (const auto& t : report.tensors) c.error = std::max(c.error, t.error_over_budget);
        if (p.foreign) c.fault = p.foreign->fault();
        if (p.foreign) c.network = p.foreign->network();
        c.verified = !c.fault && report.verdict == oracle::Verdict::ok;
        c.reason = c.fault ? fmt::format("{}: {}", oracle::name_of(c.fault->kind), c.fault->text) : report.reason;
    }

    // Medians over rounds: of the time that moving the states takes on as many threads as a step uses, over the
    // kernel's, and of the multiply-adds that no step can do without, at their peak.
    void describe_decode(const GdnPass& p, Contestant& c, const std::vector<Subject>& timed,
                         const Subject& peak) const {
        const int threads = floor_threads(p);
        const std::size_t floor = m_floors.at(threads);
        const double of_floor = ratio_of_times(timed[floor], c.subject);
        const double least = oracle::least_flop(m_dims, m_dims.B * m_dims.T, p.pass, true);
        const double done = peak.flop / m_request.threads * threads;  // by that subject
        const double of_arithmetic = ratio_of_times(timed[floor + 1], c.subject) * least / done;
        const double seconds = c.timing.seconds.median;
        const double step_us = seconds * 1e6 / static_cast<double>(std::max<std::int64_t>(m_dims.T, 1));
        const double gigabytes = oracle::nominal_decode_bytes(m_dims) / seconds * 1e-9;
        c.text = fmt::format(
            "  {:.2f} us a step, {:.1f} GB/s; of that, on {} thread{},\n"
            "  reading and writing the states once takes {:.2f},\n"
            "  and three multiply-adds an element at their peak {:.2f}\n",
            step_us, gigabytes, threads, threads == 1 ? "" : "s", of_floor, of_arithmetic);
        c.fields = [=, steps = m_dims.T](Json& json) {
            json.update({{"steps", steps},
                         {"median_step_us", step_us},
                         {"gigabytes_per_s", gigabytes},
                         {"bandwidth_fraction", of_floor},
                         {"bandwidth_threads", threads},
                         {"arithmetic_fraction", of_arithmetic}});
        };
    }

    // That the states are moved on to compare a decoding kernel with. How many another's uses is not known: all.
    int floor_threads(const GdnPass& p) const {
        return p.foreign ? m_request.threads
                         : oracle::decode_threads(m_dims, static_cast<std::size_t>(m_dims.B), m_request.threads);
    }

    oracle::GdnDims m_dims;
    std::string m_shape;
    const BenchRequest& m_request;
    Context& m_context;
    std::optional<oracle::BenchInputs> m_inputs, m_fresh;
    std::optional<oracle::GdnReference> m_reference;
    std::optional<Task> m_task;
    std::vector<std::unique_ptr<GdnPass>> m_timed;  // of each contestant
    std::map<int, std::size_t> m_floors;            // where yardsticks() has those of so many threads
};

}  // namespace

std::unique_ptr<BenchPlan> gdn_plan(const oracle::GdnDims& dims, const std::string& shape, const BenchRequest& request,
                                    Context& context) {
    return std::make_unique<GdnPlan>(dims, shape, request, context);
}

}  // namespace gdnctl::harness
