// What `oracle bench linear-ce` times on: random matrices, and arrays of our own kernel.
#include "harness/linear_ce/operator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "gdn/linear_ce_kernel.h"
#include "harness/files.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/contract.h"
#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/judge/truth.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/report/report.h"
#include "oracle/tensor/random.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::harness::linear_ce {

namespace {

struct RandomMatrix {
    std::int64_t rows = 0, columns = 0;
    double scale = 1;
    bool bf16 = false;
    std::uint64_t seed = 1, stream = 0;
};

// Our kernel on arrays of its own, so that nothing but the pass is timed.
class OwnArrays {
public:
    OwnArrays(const oracle::linear_ce::Problem& problem, const oracle::linear_ce::Run& run) : m_p(problem), m_run(run) {
        // Moved in one by one: a list of them would be copied.
        const auto add = [this](const char* name, oracle::Tensor tensor) {
            m_out.tensors.push_back({name, std::move(tensor)});
        };
        add("loss", floats({batch()}));
        add("lse", floats({batch()}));
        add("gx", {problem.x.dtype, problem.x.shape, std::vector<std::uint8_t>(problem.x.bytes.size())});
        add("gw", {problem.w.dtype, problem.w.shape, std::vector<std::uint8_t>(problem.w.bytes.size())});
    }

    void run(bool gradients) {
        const oracle::linear_ce::Operands o = m_p.operands();
        oracle::linear_ce::forward<float>(o, {as_floats(0), as_floats(1), nullptr, nullptr}, m_run,
                                          gradients ? gradient(3) : oracle::linear_ce::Gradient<float>{});
        if (!gradients) return;
        const float* lse = as_floats(1);
        const std::vector<double> d_lse = m_p.lse_cotangents({lse, lse + m_p.batch});
        oracle::linear_ce::gradients<float>(o, {lse, m_p.d_loss.data(), d_lse.data()}, gradient(2), gradient(3),
                                            {.kept = true}, m_run);
    }

    oracle::TensorFile outputs(bool gradients) const {
        oracle::TensorFile file = m_out;
        if (!gradients) file.tensors.resize(2);
        return file;
    }

private:
    std::int64_t batch() const { return static_cast<std::int64_t>(m_p.batch); }
    static oracle::Tensor floats(oracle::Shape shape) {
        oracle::Tensor t{oracle::DType::f32, std::move(shape), {}};
        t.bytes.resize(oracle::element_count(t.shape).value_or(0) * sizeof(float));
        return t;
    }
    float* as_floats(std::size_t i) { return reinterpret_cast<float*>(m_out.tensors[i].tensor.bytes.data()); }
    oracle::linear_ce::Gradient<float> gradient(std::size_t i) {
        oracle::Tensor& t = m_out.tensors[i].tensor;
        if (t.dtype == oracle::DType::bf16) return {nullptr, reinterpret_cast<oracle::Bf16*>(t.bytes.data())};
        return {as_floats(i), nullptr};
    }

    const oracle::linear_ce::Problem& m_p;
    oracle::linear_ce::Run m_run;
    oracle::TensorFile m_out;
};

// N(0,1) times `scale`, without a copy in fp64.
oracle::Tensor random_matrix(const RandomMatrix& m) {
    oracle::Tensor t{m.bf16 ? oracle::DType::bf16 : oracle::DType::f32, {m.rows, m.columns}, {}};
    const auto count = static_cast<std::size_t>(m.rows * m.columns);
    t.bytes.resize(count * size_of(t.dtype));
    oracle::Random random(m.seed, m.stream);
    for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<float>(random.normal() * m.scale);
        if (m.bf16) {
            const oracle::Bf16 narrow = oracle::narrowed(x);
            std::memcpy(t.bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
        } else {
            std::memcpy(t.bytes.data() + i * sizeof x, &x, sizeof x);
        }
    }
    return t;
}

// Inputs that look different and mean the same, for kernels that might remember what they were asked before.

// Rows come in another order, and hidden dimensions of x and w with other signs. Logits stay as they are, bit for bit.
class Variation {
public:
    Variation(std::uint64_t seed, std::size_t batch, std::size_t hidden, oracle::linear_ce::Layout layout);

    void apply(std::string_view input, oracle::Tensor& tensor) const;

private:
    void flip(oracle::Tensor& tensor, bool rows) const;

    std::size_t m_batch = 0, m_first = 0;  // the row that comes first
    std::vector<bool> m_negative;          // by hidden dimension
    bool m_hv = true;
};

// Turns the order of the first axis, so that row `first` comes first.
void rotate(oracle::Tensor& tensor, std::size_t first, std::size_t rows) {
    const auto bytes = static_cast<std::ptrdiff_t>(tensor.bytes.size() / rows * first);
    std::rotate(tensor.bytes.begin(), tensor.bytes.begin() + bytes, tensor.bytes.end());
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

Variation::Variation(std::uint64_t seed, std::size_t batch, std::size_t hidden, oracle::linear_ce::Layout layout)
    : m_batch(batch), m_negative(hidden), m_hv(layout == oracle::linear_ce::Layout::hv) {
    oracle::Random random(seed, 7);
    for (std::size_t h = 0; h < hidden; ++h) m_negative[h] = (random.bits() & 1U) != 0;
    m_first = batch > 1 ? 1 + random.bits() % (batch - 1) : 0;
}

void Variation::flip(oracle::Tensor& tensor, bool rows) const {
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t size = oracle::size_of(tensor.dtype);
    for (std::size_t i = 0; i < tensor.count(); ++i) {
        // The sign is the highest bit of the last byte.
        if (m_negative[rows ? i / columns : i % columns]) tensor.bytes[(i + 1) * size - 1] ^= 0x80U;
    }
}

void Variation::apply(std::string_view input, oracle::Tensor& tensor) const {
    if (is_any_of(input, {"x", "w"})) flip(tensor, input == "w" && m_hv);
    if (is_any_of(input, {"x", "labels", "weight", "d_loss", "d_lse"})) rotate(tensor, m_first, m_batch);
}

}  // namespace

// Kernels of linear-ce by their spelling.

namespace {

namespace lce = oracle::linear_ce;
using oracle::DType;
using oracle::Tensor;
using oracle::TensorFile;

const lce::Problem& problem_of(const Asked& asked) { return static_cast<const ReadProblem&>(asked.inputs).value(); }

// Ours on arrays that it keeps, so that a call does nothing but compute.
class TimedKernel : public Kernel {
public:
    explicit TimedKernel(oracle::Isa isa) : m_isa(isa) {}

    Faulted place(const Asked& asked) override {
        const lce::Problem& problem = problem_of(asked);
        if (m_problem != &problem) m_arrays.emplace(problem, lce::Run{asked.threads, m_isa, {}, 0});
        m_problem = &problem;
        m_gradients = asked.pass > 0;
        return std::nullopt;
    }
    Faulted call() override {
        m_arrays->run(m_gradients);
        return std::nullopt;
    }
    Faulted collect(TensorFile& outputs) override {
        outputs = m_arrays->outputs(m_gradients);
        return std::nullopt;
    }
    std::string_view timed() const override { return "in_process"; }

private:
    oracle::Isa m_isa;
    const lce::Problem* m_problem = nullptr;
    std::optional<OwnArrays> m_arrays;
    bool m_gradients = false;
};

Tensor stored_as(const Tensor& tensor, DType dtype) {
    return tensor.dtype == dtype ? tensor : oracle::from_f64(oracle::to_f64(tensor), tensor.shape, dtype);
}

}  // namespace

Result<Call> ReadProblem::call(std::size_t pass, std::uint32_t dtypes, int threads) {
    const lce::Problem& p = m_problem;
    const bool gradients = pass > 0;
    const auto B = static_cast<std::int64_t>(p.batch);
    const bool narrow = p.x_dtype == DType::bf16 && p.w_dtype == DType::bf16 && (dtypes & (1U << GDN_BF16)) != 0;
    const DType dtype = narrow ? DType::bf16 : DType::f32;
    Call call;
    const auto put = [&](const char* name, Tensor tensor) {
        call.arrays.push_back({name, Role::input, std::move(tensor)});
    };
    const auto put_output = [&](const char* name, DType of, oracle::Shape shape) {
        call.arrays.push_back({name, Role::output, {of, std::move(shape), {}}});
    };
    put("x", stored_as(p.x, dtype));
    put("w", stored_as(p.w, dtype));
    put("labels", oracle::from_i64(p.labels, {B}));
    put_output("loss", DType::f32, {B});
    put_output("lse", DType::f32, {B});
    put_output("argmax", DType::i64, {B});
    if (gradients) {
        put("d_loss", oracle::from_f64(p.d_loss, {B}, DType::f32));
        if (p.d_lse) put("d_lse", oracle::from_f64(*p.d_lse, {B}, DType::f32));
        put_output("gx", dtype, p.x.shape);
        put_output("gw", dtype, p.w.shape);
    }
    call.integers = {B, static_cast<std::int64_t>(p.hidden), static_cast<std::int64_t>(p.vocab),
                     p.c().layout == lce::Layout::hv ? LINEAR_CE_HV : LINEAR_CE_VH};
    call.reals = {p.c().soft_cap, p.own_cotangents ? 0 : p.c().logsumexp_weight};
    call.threads = threads;
    call.entry = gradients ? LINEAR_CE_GRADIENTS : LINEAR_CE_FORWARD;
    call.entry_name = gradients ? "gradients" : "forward";
    return call;
}

TensorFile ReadProblem::file() const {
    TensorFile file = m_inputs;
    for (const auto& [field, value] : m_problem.contract.as_metadata()) file.metadata[field] = value;
    return file;
}

Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Opening& how, const Context& context) {
    if (spelling == "builtin:fused") {
        if (how.to_time) return std::make_unique<TimedKernel>(how.isa);
        return std::make_unique<OwnKernel>([isa = how.isa](const Asked& asked) {
            return lce::kernel_outputs(problem_of(asked), {asked.threads, isa, {}, 0});
        });
    }
    if (spelling.starts_with("builtin:")) {
        return fail(ErrorKind::usage, fmt::format("unknown kernel '{}'", spelling), "known: builtin:fused");
    }
    return open_foreign(spelling, k_linear_ce_mode, how.limits, context);
}

namespace {

namespace lce = oracle::linear_ce;
using oracle::TensorFile;

void add_fields(const lce::Case& c, Json& object) {
    object["shape"] = {{"batch", c.batch}, {"hidden", c.hidden}, {"vocab", c.vocab}};
    object["seed"] = c.seed;
    object["dtype"] = oracle::name_of(c.dtype);
    object["layout"] = name_of(c.layout);
    object["soft_cap"] = c.soft_cap > 0 ? Json(c.soft_cap) : Json();
    object["logsumexp_weight"] = c.logsumexp_weight;
    object["reduction"] = name_of(c.reduction);
    object["weighted"] = c.weights != lce::Weights::none;
    object["ignores_rows"] = c.ignores_rows;
    object["d_loss"] = c.d_loss;
    object["d_lse"] = c.d_lse;
    object["expected_verdict"] = "OK";
}

// `problem` must outlive it.
class Judged : public JudgementReport {
public:
    Judged(const lce::Problem& problem, const lce::CompareOptions& options, lce::Report report)
        : m_problem(problem), m_options(options), m_report(std::move(report)) {}

    std::string text(const Shown& shown) const override {
        return report_text(m_problem, m_options, m_report, shown.inputs, shown.outputs);
    }
    void add_to(Json& object) const override { add_report(object, m_problem, m_options, m_report); }
    std::string page(const Json& verdict) const override { return lce::page(m_problem, m_options, m_report, verdict); }

private:
    const lce::Problem& m_problem;
    lce::CompareOptions m_options;
    lce::Report m_report;
};

class LinearCe : public Operator {
public:
    std::string_view name() const override { return k_op; }

    CaseList cases() const override {
        CaseList list{"B,H,V", 14, {}};
        for (const lce::Case& c : lce::cases()) {
            list.rows.push_back(
                {c.name, c.set, c.about, fmt::format("{},{},{}", c.batch, c.hidden, c.vocab), {}, [&c](Json& object) {
                     add_fields(c, object);
                 }});
        }
        return list;
    }

    TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed, bool bf16) const override {
        lce::Case c = *lce::find_case(case_name);
        if (seed && c.values != lce::Values::formula && c.values != lce::Values::identity) c.seed = *seed;
        if (bf16) c.dtype = oracle::DType::bf16;
        return lce::make_inputs(c);
    }

    std::optional<TensorFile> resized(std::string_view case_name, std::uint64_t seed, bool bf16) const override {
        lce::Case c = *lce::find_case(case_name);
        if (c.values == lce::Values::formula || c.values == lce::Values::identity) return std::nullopt;
        c.seed = seed;
        c.batch += 1 + static_cast<decltype(c.batch)>(seed % 5);
        if (bf16) c.dtype = oracle::DType::bf16;
        return lce::make_inputs(c);
    }

    Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets) const override {
        if (sets.empty()) return std::optional<std::string>();
        return lce::declare(inputs, sets);
    }

    Result<std::unique_ptr<Problem>> read(const TensorFile& inputs) const override {
        GDNCTL_TRY_ASSIGN(auto problem, read_problem(inputs, {}));
        return std::make_unique<ReadProblem>(std::move(problem), inputs);
    }

    std::span<const std::string_view> passes() const override {
        static constexpr std::array<std::string_view, 2> k_passes = {"forward", "gradients"};
        return k_passes;
    }

    Result<std::unique_ptr<Kernel>> open(const std::string& spelling, const Opening& how,
                                         const Context& context) const override {
        return open_kernel(spelling, how, context);
    }
};

}  // namespace

const Operator& plain() {
    static const LinearCe k_operator;
    return k_operator;
}

Status check_memory(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact) {
    return oracle_files::check_memory(lce::memory_estimate(batch, hidden, vocab, exact), "use fewer rows or columns");
}

Result<lce::Problem> read_problem(const TensorFile& file, const lce::Overrides& overrides) {
    GDNCTL_TRY_ASSIGN(auto contract, lce::resolve(file.metadata, overrides));
    return lce::read_problem(file, std::move(contract));
}

namespace {

TensorFile random_inputs(const BenchSizes& s, std::uint64_t seed, bool bf16) {
    TensorFile file;
    file.tensors.push_back({"x", random_matrix({s.batch, s.hidden, 1, bf16, seed, 1})});
    file.tensors.push_back({"w", random_matrix({s.hidden, s.vocab, 0.05, bf16, seed, 2})});
    std::vector<std::int64_t> labels(static_cast<std::size_t>(s.batch));
    oracle::Random random(seed, 3);
    for (std::int64_t& y : labels) y = static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(s.vocab));
    file.tensors.push_back({"labels", oracle::from_i64(labels, {s.batch})});
    file.metadata = {{"op", std::string(k_op)},
                     {"layout", "hv"},
                     {"logsumexp_weight", fmt::format("{}", s.logsumexp_weight)},
                     {"reduction", "mean"}};
    if (s.soft_cap > 0) file.metadata["soft_cap"] = fmt::format("{}", s.soft_cap);
    return file;
}

}  // namespace

Result<BenchCase> bench_inputs(const BenchSizes& s, std::uint64_t seed, bool bf16) {
    GDNCTL_TRY(check_memory(static_cast<std::size_t>(s.batch), static_cast<std::size_t>(s.hidden),
                            static_cast<std::size_t>(s.vocab), false));
    log::info("generating inputs");
    BenchCase timed;
    timed.inputs = random_inputs(s, seed, bf16);
    timed.fresh = [s, bf16](std::uint64_t other) { return random_inputs(s, other, bf16); };
    timed.title = fmt::format("B {}, H {}, V {}", s.batch, s.hidden, s.vocab);
    timed.shape = [s](Json& report) {
        report["shape"] = {{"batch", s.batch}, {"hidden", s.hidden}, {"vocab", s.vocab}};
    };
    return timed;
}

Result<Judgement> ReadProblem::judge(const TensorFile& outputs, const Judging& how) {
    lce::CompareOptions options = m_how.value_or(lce::CompareOptions{});
    if (!m_how) options.level = how.thorough ? lce::Level::exact : lce::Level::sampled;
    options.hints = how.thorough && how.explain;
    if (!m_how && !how.thorough) {
        options.rows = 8;
        options.columns = 32;
        options.seed = how.seed;
    }
    options.work = {how.threads, how.stop};
    GDNCTL_TRY_ASSIGN(auto report, lce::compare(m_problem, outputs, options));
    // Invariants that hold accept nothing and refuse nothing.
    Judgement j{report.invariants_hold ? oracle::Verdict::ok : report.verdict,
                report.reason,
                report.stage,
                diagnosis_text(report),
                0,
                report.worst,
                report.forward_only};
    for (const lce::TensorVerdict& t : report.tensors) {
        j.error = std::max(j.error, t.error_over_limit);
        if (t.verdict != oracle::Verdict::ok) j.wrong += (j.wrong.empty() ? "" : " ") + t.name;
    }
    if (!report.hints.empty()) j.hint = report.hints.front().text;
    if (!m_how) return j;
    for (const std::string& name : m_problem.unknown) report.unknown.push_back(name);
    const auto equal = [](const lce::TensorVerdict& t) { return t.max_abs == 0 && t.nonfinite == 0; };
    report.outputs_are_truth = is_written_truth(outputs, "exact64", report.tensors, equal);
    j.report = std::make_shared<Judged>(m_problem, options, std::move(report));
    return j;
}

Result<std::optional<Disguised>> ReadProblem::disguised(std::uint64_t seed) {
    const Variation variation(seed, m_problem.batch, m_problem.hidden, m_problem.c().layout);
    Disguised other{std::make_unique<TensorFile>(m_inputs), nullptr, {}};
    for (oracle::NamedTensor& t : other.file->tensors) variation.apply(t.name, t.tensor);
    GDNCTL_TRY_ASSIGN(other.problem, plain().read(*other.file));
    return other;
}

double ReadProblem::flop(std::size_t pass) const {
    return (pass > 0 ? 6.0 : 2.0) * static_cast<double>(m_problem.batch) * static_cast<double>(m_problem.hidden) *
           static_cast<double>(m_problem.vocab);
}

namespace {

namespace lce = oracle::linear_ce;

Result<lce::Case> shape_case(const Generated& from) {
    lce::Case c;
    c.name = "shape";
    const struct {
        const char* name;
        const std::optional<std::int64_t>& given;
        std::size_t& to;
    } sizes[] = {
        {"--batch", from.batch, c.batch}, {"--hidden", from.hidden, c.hidden}, {"--vocab", from.vocab, c.vocab}};
    for (const auto& size : sizes) {
        if (!size.given) {
            return fail(ErrorKind::usage, fmt::format("{} is missing", size.name),
                        "pass --batch, --hidden and --vocab, or --case, or --inputs");
        }
        if (*size.given < 1 || *size.given >= std::int64_t{1} << 31U) {
            return fail(ErrorKind::usage, fmt::format("{} {}: expected 1 to 2147483647", size.name, *size.given));
        }
        size.to = static_cast<std::size_t>(*size.given);
    }
    GDNCTL_TRY(check_memory(c.batch, c.hidden, c.vocab, true));
    return c;
}

Status set_weights(const std::string& text, lce::Case& c) {
    constexpr std::string_view k_prefix = "zero-every=";
    const auto every =
        std::string_view(text).starts_with(k_prefix) ? text::parse_int(text.substr(k_prefix.size())) : std::nullopt;
    if (!every || *every < 1) {
        return fail(ErrorKind::usage, fmt::format("--weights {}: expected zero-every=K, K at least 1", text));
    }
    c.weights = lce::Weights::zero_every;
    c.zero_every = static_cast<std::size_t>(*every);
    return {};
}

void add(oracle::TensorFile& file, const char* name, oracle::Tensor tensor) {
    file.tensors.push_back({name, std::move(tensor)});
}

// [columns, H] as the layout has it.
oracle::Tensor gw_tensor(const lce::Problem& p, std::vector<double> gw) {
    const auto H = static_cast<std::int64_t>(p.hidden);
    const auto V = static_cast<std::int64_t>(p.vocab);
    if (p.c().layout == lce::Layout::vh) return oracle::from_f64(gw, {V, H}, oracle::DType::f64);
    std::vector<double> turned(gw.size());
    for (std::size_t v = 0; v < p.vocab; ++v) {
        for (std::size_t h = 0; h < p.hidden; ++h) turned[h * p.vocab + v] = gw[v * p.hidden + h];
    }
    return oracle::from_f64(turned, {H, V}, oracle::DType::f64);
}

}  // namespace

Result<oracle::TensorFile> generate(const Generated& from) {
    lce::Case c;
    if (from.case_name) {
        const lce::Case* found = lce::find_case(*from.case_name);
        if (found == nullptr) {
            const auto near = text::nearest(*from.case_name, lce::case_names());
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", *from.case_name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases linear-ce lists them");
        }
        c = *found;
    } else {
        GDNCTL_TRY_ASSIGN(c, shape_case(from));
    }
    if (from.seed) c.seed = static_cast<std::uint64_t>(*from.seed);
    if (from.bf16) c.dtype = oracle::DType::bf16;
    if (from.weights) GDNCTL_TRY(set_weights(*from.weights, c));
    // Written in the layout that w has in the file.
    if (from.layout) c.layout = *from.layout == "vh" ? lce::Layout::vh : lce::Layout::hv;
    return lce::make_inputs(c);
}

void add_results(const lce::Problem& p, const lce::Work& work, oracle::TensorFile& file) {
    std::erase_if(file.tensors, [](const oracle::NamedTensor& t) { return lce::is_output_name(t.name); });
    const auto B = static_cast<std::int64_t>(p.batch);
    const lce::RowTruth rows = lce::truth_of_rows(p, lce::all_of(p.batch), true, work);
    std::vector<double> gw = lce::truth_of_columns(p, lce::all_of(p.vocab), rows.lse, work);
    const oracle::DType exact = oracle::DType::f64;
    add(file, "loss", oracle::from_f64(rows.loss, {B}, exact));
    add(file, "lse", oracle::from_f64(rows.lse, {B}, exact));
    add(file, "gx", oracle::from_f64(rows.gx, {B, static_cast<std::int64_t>(p.hidden)}, exact));
    add(file, "gw", gw_tensor(p, std::move(gw)));
    add(file, "argmax", oracle::from_i64(rows.argmax, {B}));
    if (p.c().reduction == lce::Reduction::none) return;
    add(file, "reduced", oracle::from_f64(std::vector<double>{lce::reduced_of(p, rows.loss, rows.lse)}, {}, exact));
}

}  // namespace gdnctl::harness::linear_ce
