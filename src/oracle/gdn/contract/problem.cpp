#include "oracle/gdn/contract/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "oracle/tensor/checks.h"

namespace gdnctl::oracle {

namespace {

constexpr std::int64_t k_most_rows_without_tokens = std::int64_t{1} << 20;

Result<const Tensor*> required(const TensorFile& file, std::string_view name, std::string_view hint) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_gdn_tensor(file, name));
    if (tensor == nullptr) {
        return fail(ErrorKind::bad_input, fmt::format("tensor '{}' is missing from the inputs", name),
                    std::string(hint));
    }
    return tensor;
}

Result<std::vector<double>> required_values(const TensorFile& file, std::string_view name, const Shape& shape,
                                            std::string_view hint = {}) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, required(file, name, hint));
    return floating_values(*tensor, name, shape);
}

Result<std::vector<double>> token_values(const Tensor& tensor, std::string_view name, const GdnProblem& p,
                                         std::int64_t heads, std::int64_t width) {
    GDNCTL_TRY_ASSIGN(auto values, floating_values(tensor, name, token_shape(p, {heads, width})));
    return from_file_order(p, std::move(values), heads);
}

Status read_dims(const Tensor& q, const Tensor& v, GdnProblem& p) {
    p.packed = q.shape.size() == 3 && p.has_cu_seqlens;
    const std::size_t rank = p.packed ? 3 : 4;
    const bool swapped = p.layout == TokenLayout::heads_first;
    const auto axes = [&](std::string_view batch, std::string_view heads, std::string_view width) {
        return fmt::format("[{}{},{},{}]", batch, swapped ? heads : "T", swapped ? "T" : heads, width);
    };
    if (q.shape.size() != rank) {
        return wrong_tensor(
            "q", p.has_cu_seqlens ? axes("1,", "Hk", "dk") + " or " + axes("", "Hk", "dk") : axes("B,", "Hk", "dk"), q);
    }
    if (v.shape.size() != rank) return wrong_tensor("v", axes(p.packed ? "" : "B,", "Hv", "dv"), v);
    const std::size_t tokens = rank - (swapped ? 2 : 3);
    const std::size_t heads = rank - (swapped ? 3 : 2);
    p.dims = {p.packed ? 1 : q.shape[0], q.shape[tokens],  q.shape[heads], v.shape[heads],
              q.shape[rank - 1],         v.shape[rank - 1]};
    const GdnDims& d = p.dims;
    if (p.has_cu_seqlens && d.B != 1) return wrong_tensor("q", "a batch of 1, because there is cu_seqlens", q);
    if (d.Hk == 0 || d.Hv == 0 || d.dk == 0 || d.dv == 0) {
        return fail(ErrorKind::bad_input, fmt::format("q {} and v {}: heads and head dimensions must not be 0",
                                                      text_of(q.shape), text_of(v.shape)));
    }
    // Rows without tokens take no space in a file, but each is a sequence here.
    const bool of_nothing = d.T == 0 && d.B > k_most_rows_without_tokens;
    if (of_nothing || !memory_estimate(d, std::max<std::int64_t>(d.B, 1))) {
        return fail(ErrorKind::bad_input,
                    fmt::format("q {} and v {} are too large", text_of(q.shape), text_of(v.shape)));
    }
    return {};
}

Status check_heads(const GdnDims& d, HeadMap map) {
    if (map == HeadMap::equal && d.Hk != d.Hv) {
        return fail(ErrorKind::bad_input, fmt::format("q has {} heads and v has {}, but head_map=equal", d.Hk, d.Hv),
                    "name the map: --set head_map=interleaved (or tiled)");
    }
    if (d.Hv % d.Hk != 0) {
        return fail(ErrorKind::bad_input, fmt::format("v's {} heads are not a multiple of q's {}", d.Hv, d.Hk));
    }
    return {};
}

Status read_cu_seqlens(const Tensor& cu, GdnProblem& p) {
    const std::string expected = "[N+1] of an integer dtype";
    if (cu.shape.size() != 1 || cu.shape[0] < 1) return wrong_tensor("cu_seqlens", expected, cu);
    GDNCTL_TRY_ASSIGN(const auto offsets, integer_values(cu, "cu_seqlens", expected));
    if (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end()) || offsets.back() > p.dims.T) {
        return fail(ErrorKind::bad_input,
                    fmt::format("tensor 'cu_seqlens': must rise from 0 to at most the {} tokens", p.dims.T));
    }
    for (std::size_t n = 0; n + 1 < offsets.size(); ++n) p.sequences.push_back({offsets[n], offsets[n + 1]});
    return {};
}

// `values` by batch row and head. A row's sequence is as long as its longest head.
Status take_lengths(std::string_view name, const std::vector<std::int64_t>& values, std::int64_t heads, GdnProblem& p) {
    const GdnDims& d = p.dims;
    bool differ = false;
    for (std::int64_t b = 0; b < d.B; ++b) {
        std::int64_t longest = 0;
        for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t length = values[static_cast<std::size_t>(b * heads + h)];
            if (length < 0 || length > d.T) {
                return fail(ErrorKind::bad_input,
                            fmt::format("tensor '{}': length {} of batch row {} is not within the {} tokens", name,
                                        length, b, d.T));
            }
            differ = differ || length != values[static_cast<std::size_t>(b * heads)];
            longest = std::max(longest, length);
        }
        p.sequences.push_back({b * d.T, b * d.T + longest});
    }
    if (differ) p.head_lengths = values;
    return {};
}

// Lengths of the batch rows, given once per row or once per head; prefix sums have one more entry.
Status read_lengths(std::string_view name, const Tensor& tensor, GdnProblem& p) {
    const GdnDims& d = p.dims;
    const auto given = static_cast<std::int64_t>(tensor.count());
    const std::string expected = name == "offsets" ? "[B*Hv+1], [B*Hv], [B+1] or [B] of an integer dtype"
                                                   : "[B,Hv], [B*Hv] or [B] of an integer dtype";
    GDNCTL_TRY_ASSIGN(auto values, integer_values(tensor, name, expected));
    if (name == "offsets" && (given == d.B + 1 || given == d.B * d.Hv + 1) && given != d.B * d.Hv && !values.empty()) {
        if (values.front() < 0 || !std::is_sorted(values.begin(), values.end())) {
            return fail(ErrorKind::bad_input, "tensor 'offsets': prefix sums must rise, from 0 or more");
        }
        for (std::size_t i = 0; i + 1 < values.size(); ++i) values[i] = values[i + 1] - values[i];
        values.pop_back();
    }
    const auto count = static_cast<std::int64_t>(values.size());
    if (count != d.B && count != d.B * d.Hv) return wrong_tensor(name, expected, tensor);
    return take_lengths(name, values, d.B == 0 ? 1 : count / d.B, p);
}

Status read_sequences(const TensorFile& file, const Tensor* cu, GdnProblem& p) {
    if (cu != nullptr) GDNCTL_TRY(read_cu_seqlens(*cu, p));
    for (const std::string_view name : {"lengths", "offsets"}) {
        GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_gdn_tensor(file, name));
        if (tensor == nullptr) continue;
        if (!p.sequences.empty() || cu != nullptr) {
            return fail(ErrorKind::bad_input, fmt::format("tensor '{}': the sequences are given twice", name),
                        "keep one of cu_seqlens, lengths and offsets");
        }
        GDNCTL_TRY(read_lengths(name, *tensor, p));
    }
    if (!p.sequences.empty() || cu != nullptr) return {};
    for (std::int64_t b = 0; b < p.dims.B; ++b) p.sequences.push_back({b * p.dims.T, (b + 1) * p.dims.T});
    return {};
}

// Whether `field` has the value that its named contract gives it, and not one that somebody declared.
bool is_named(const ResolvedContract& contract, std::string_view field) {
    return std::any_of(contract.fields.begin(), contract.fields.end(),
                       [&](const ContractField& f) { return f.name == field && f.origin.starts_with("contract "); });
}

// If the named contract takes raw gates and logits, g, alpha and beta in the inputs count as what their names say.
Status read_kinds(const TensorFile& file, ResolvedContract& contract) {
    const auto has = [&](std::string_view name) {
        return file.any_name([name](std::string_view other) { return other == name; });
    };
    const bool raw = contract.value.g_kind == GateKind::raw;
    const std::string_view gate = has("g") ? "g" : "alpha";
    if (is_named(contract, "g_kind") && !has("a") && has(gate) && (raw || gate == "alpha")) {
        GDNCTL_TRY(set_field(contract, "g_kind", gate == "g" ? "log" : gate, fmt::format("inputs tensor {}", gate)));
    }
    const bool was_raw = raw && contract.value.g_kind != GateKind::raw;
    if (!was_raw || !is_named(contract, "beta_kind") || has("b") || !has("beta")) return {};
    return set_field(contract, "beta_kind", "prob", "inputs tensor beta");
}

Status read_gates(const TensorFile& file, const GdnContract& contract, GdnProblem& p) {
    const Shape per_head = token_shape(p, {p.dims.Hv});
    if (contract.g_kind == GateKind::raw) {
        GDNCTL_TRY_ASSIGN(auto a, required_values(file, "a", per_head, "the contract says g_kind=raw"));
        p.gate = from_file_order(p, std::move(a), p.dims.Hv);
        GDNCTL_TRY_ASSIGN(p.A_log, required_values(file, "A_log", {p.dims.Hv}, "the contract says g_kind=raw"));
        GDNCTL_TRY_ASSIGN(p.dt_bias, required_values(file, "dt_bias", {p.dims.Hv}, "the contract says g_kind=raw"));
    } else {
        GDNCTL_TRY_ASSIGN(auto g,
                          required_values(file, "g", per_head,
                                          "for gates before activation: --set g_kind=raw --set beta_kind=logit"));
        p.gate = from_file_order(p, std::move(g), p.dims.Hv);
    }
    const bool logit = contract.beta_kind != BetaKind::prob;
    GDNCTL_TRY_ASSIGN(const Tensor* gate, find_gdn_tensor(file, contract.g_kind == GateKind::raw ? "a" : "g"));
    p.gate_dtype = gate->dtype;
    const Tensor* b = nullptr;
    if (logit) {
        GDNCTL_TRY_ASSIGN(b, find_gdn_tensor(file, "b"));
    }
    const std::string_view name = b != nullptr ? "b" : "beta";
    GDNCTL_TRY_ASSIGN(auto beta,
                      required_values(file, name, per_head, logit ? "the contract says beta is a logit" : ""));
    p.beta = from_file_order(p, std::move(beta), p.dims.Hv);
    return {};
}

Status read_scale(const TensorFile& file, ResolvedContract& contract) {
    GDNCTL_TRY_ASSIGN(const Tensor* scale, find_gdn_tensor(file, "scale"));
    if (scale == nullptr) return {};
    if (!is_floating(scale->dtype) || scale->count() != 1) return wrong_tensor("scale", "a floating scalar", *scale);
    for (const ContractField& f : contract.fields) {
        if (f.name == "scale" && f.origin == "--set") return {};
    }
    const double value = element(*scale, 0);
    // FlashInfer passes 0 for "the default".
    const Status set =
        set_field(contract, "scale", value == 0 ? "dk^-0.5" : fmt::format("{}", value), "inputs tensor scale");
    if (!set) return fail(ErrorKind::bad_input, "tensor 'scale': " + set.error().message);
    return {};
}

// `matmul` and `state_dtype` if the contract leaves them to the inputs: the 16-bit format that holds all of q, k and v,
// however they are stored. A state is kept in bf16 or f32.
Status read_roundings(const GdnProblem& p, ResolvedContract& contract) {
    const std::array operands = {&p.q, &p.k, &p.v};
    const auto hold = [&](DType dtype) {
        return std::all_of(operands.begin(), operands.end(), [&](const std::vector<double>* values) {
            return std::all_of(values->begin(), values->end(),
                               [&](double x) { return !std::isfinite(x) || rounded_to(x, dtype) == x; });
        });
    };
    const auto left_open = [](const ContractField& f) {
        return (f.name == "matmul" || f.name == "state_dtype") && f.value == "input";
    };
    for (const ContractField& f : std::vector<ContractField>(contract.fields)) {
        if (!left_open(f)) continue;
        const bool bf16 = p.qk_dtype != DType::f16 && hold(DType::bf16);
        const bool f16 = f.name == "matmul" && !bf16 && hold(DType::f16);
        GDNCTL_TRY(set_field(contract, f.name,
                             bf16  ? "bf16"
                             : f16 ? "f16"
                                   : "f32",
                             fmt::format("{}: {}=input", f.origin, f.name)));
    }
    return {};
}

// The gate and beta, in the contract's form, of a token that does nothing.
double gate_of_none(GateKind kind) {
    return kind == GateKind::log ? 0 : kind == GateKind::alpha ? 1 : -std::numeric_limits<double>::infinity();
}

double beta_of_none(BetaKind kind) { return kind == BetaKind::prob ? 0 : -std::numeric_limits<double>::infinity(); }

// Whether value heads of one key head have different lengths.
bool groups_end_apart(const GdnContract& c, const GdnProblem& p) {
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    for (std::size_t first = 0; first < p.head_lengths.size(); first += Hv) {
        std::vector<std::int64_t> length(Hk, -1);  // of each key head's first value head
        for (std::size_t h = 0; h < Hv; ++h) {
            auto& seen =
                length[static_cast<std::size_t>(key_head_of(static_cast<std::int64_t>(h), p.dims, c.head_map))];
            if (seen >= 0 && seen != p.head_lengths[first + h]) return true;
            seen = p.head_lengths[first + h];
        }
    }
    return false;
}

void repeat_keys(const GdnContract& c, GdnProblem& p) {
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    for (std::vector<double>* x : {&p.q, &p.k}) {
        std::vector<double> repeated;
        repeated.reserve(static_cast<std::size_t>(p.rows() * p.dims.Hv) * dk);
        for (std::int64_t row = 0; row < p.rows(); ++row) {
            for (std::int64_t h = 0; h < p.dims.Hv; ++h) {
                const std::int64_t run = row * p.dims.Hk + key_head_of(h, p.dims, c.head_map);
                const auto from = x->begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(run) * dk);
                repeated.insert(repeated.end(), from, from + static_cast<std::ptrdiff_t>(dk));
            }
        }
        *x = std::move(repeated);
    }
    p.dims.Hk = p.dims.Hv;
    p.repeated_keys = true;
}

// Writes zeros where heads end before their sequence.
void mask_heads(const GdnContract& c, GdnProblem& p) {
    if (groups_end_apart(c, p)) repeat_keys(c, p);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto clear = [](std::vector<double>& x, std::size_t run, std::size_t width) {
        std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(run * width), width, 0.0);
    };
    for (std::size_t head = 0; head < p.head_lengths.size(); ++head) {
        const std::size_t n = head / Hv;
        const std::size_t h = head % Hv;
        const auto key = static_cast<std::size_t>(key_head_of(static_cast<std::int64_t>(h), p.dims, c.head_map));
        for (std::int64_t at = p.sequences[n].begin + p.head_lengths[head]; at < p.sequences[n].end; ++at) {
            const auto row = static_cast<std::size_t>(at);
            clear(p.q, row * Hk + key, dk);
            clear(p.k, row * Hk + key, dk);
            clear(p.v, row * Hv + h, dv);
            p.gate[row * Hv + h] = gate_of_none(c.g_kind);
            p.beta[row * Hv + h] = beta_of_none(c.beta_kind);
        }
    }
}

}  // namespace

Result<GdnProblem> read_problem(const TensorFile& file, ResolvedContract& contract) {
    GdnProblem p;
    p.layout = contract.value.layout;
    GDNCTL_TRY_ASSIGN(const Tensor* cu_seqlens, find_gdn_tensor(file, "cu_seqlens"));
    p.has_cu_seqlens = cu_seqlens != nullptr;
    GDNCTL_TRY_ASSIGN(const Tensor* q, required(file, "q", ""));
    GDNCTL_TRY_ASSIGN(const Tensor* v, required(file, "v", ""));
    GDNCTL_TRY(read_dims(*q, *v, p));
    GDNCTL_TRY(read_scale(file, contract));
    GDNCTL_TRY(read_kinds(file, contract));
    GDNCTL_TRY(check_heads(p.dims, contract.value.head_map));
    GDNCTL_TRY(read_sequences(file, cu_seqlens, p));
    p.qk_dtype = q->dtype;
    p.in_bf16 = q->dtype == DType::bf16 && v->dtype == DType::bf16;
    GDNCTL_TRY_ASSIGN(p.q, token_values(*q, "q", p, p.dims.Hk, p.dims.dk));
    GDNCTL_TRY_ASSIGN(const Tensor* k, required(file, "k", ""));
    if (contract.value.rounding == NormRounding::input && k->dtype != q->dtype) {
        return fail(
            ErrorKind::bad_input,
            fmt::format("q is {} and k is {}: this contract rounds the normalised q and k to their common dtype",
                        name_of(q->dtype), name_of(k->dtype)),
            "dump both as the kernel got them, or choose another rounding with --set");
    }
    p.in_bf16 = p.in_bf16 && k->dtype == DType::bf16;
    GDNCTL_TRY_ASSIGN(p.k, token_values(*k, "k", p, p.dims.Hk, p.dims.dk));
    GDNCTL_TRY_ASSIGN(p.v, token_values(*v, "v", p, p.dims.Hv, p.dims.dv));
    GDNCTL_TRY(read_gates(file, contract.value, p));
    GDNCTL_TRY(read_roundings(p, contract));
    mask_heads(contract.value, p);
    GDNCTL_TRY_ASSIGN(const Tensor* state, find_gdn_tensor(file, "initial_state"));
    if (state != nullptr) {
        const StateLayout layout = contract.value.state_layout;
        GDNCTL_TRY_ASSIGN(p.initial_state, floating_values(*state, "initial_state", state_shape(p, layout)));
        if (layout == StateLayout::value_key) {
            GdnDims swapped = p.dims;
            std::swap(swapped.dk, swapped.dv);
            p.initial_state = to_layout(p.initial_state, swapped, StateLayout::value_key);
        }
    }
    return p;
}

std::int64_t key_head_of(std::int64_t h, const GdnDims& dims, HeadMap map) {
    return map == HeadMap::tiled ? h % dims.Hk : h / (dims.Hv / dims.Hk);
}

DType out_dtype_of(const GdnContract& contract, const GdnProblem& problem) {
    switch (contract.out_dtype) {
        case OutDType::f32: return DType::f32;
        case OutDType::bf16: return DType::bf16;
        case OutDType::f16: return DType::f16;
        case OutDType::query: return problem.qk_dtype == DType::f64 ? DType::f32 : problem.qk_dtype;
    }
    return DType::f32;
}

TensorFile outputs_file(const GdnProblem& problem, const GdnContract& contract, const GdnOutputs& outputs, DType out,
                        DType final_state) {
    TensorFile file;
    file.tensors.push_back(
        {"out", from_f64(in_file_order(problem, outputs.out, problem.dims.Hv), out_shape(problem), out)});
    file.tensors.push_back({"final_state", from_f64(to_layout(outputs.final_state, problem.dims, contract.state_layout),
                                                    state_shape(problem, contract.state_layout), final_state)});
    return file;
}

std::optional<std::size_t> memory_estimate(const GdnDims& d, std::int64_t sequences, Passes passes) {
    constexpr std::int64_t k_largest = std::int64_t{1} << 30;
    if (std::max({d.B, d.T, d.Hk, d.Hv, d.dk, d.dv}) >= k_largest) return std::nullopt;
    const std::int64_t per_token = 2 * d.Hk * d.dk + 2 * d.Hv * d.dv + 2 * d.Hv;
    const auto tokens = element_count({d.B, d.T, per_token});
    const auto states = element_count({sequences, d.Hv, d.dk, d.dv});
    constexpr std::size_t k_values = std::size_t{1} << 50U;
    if (!tokens || !states || *tokens > k_values || *states > k_values) return std::nullopt;
    // Inputs in fp64, the truth, and at the same time one perturbed run and three in fp32, each with its own inputs.
    const std::size_t forward = (*tokens + *states) * sizeof(double) * 6;
    if (passes == Passes::forward) return forward;
    // The gradients, those of three perturbed runs and of one in fp32, the dump's, and during a run dq and dk of every
    // value head. Judging six shapes (T 512 to 4096, d 16 to 256) took between 0.74 and 0.91 of this.
    const auto by_value_head = element_count({d.B, d.T, d.Hv, 2 * d.dk});
    if (!by_value_head || *by_value_head > k_values) return std::nullopt;
    return forward / 4 * 7 + *by_value_head * sizeof(double);
}

}  // namespace gdnctl::oracle
