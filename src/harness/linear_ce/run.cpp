#include "harness/linear_ce/run.h"

#include <fmt/format.h>

#include "core/text.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/cases.h"

namespace gdnctl::harness::linear_ce {

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
