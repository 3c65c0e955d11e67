#include "oracle/gdn/under_test/call.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>

#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"

namespace gdnctl::oracle {

namespace {

template <class Real>
Tensor tensor_of(const std::vector<Real>& values, Shape shape, DType dtype) {
    if constexpr (std::is_same_v<Real, double>) {
        return from_f64(values, std::move(shape), dtype);
    } else {
        return from_f64(std::vector<double>(values.begin(), values.end()), std::move(shape), dtype);
    }
}

void put_numbers(const KernelCall& call, int threads, Call& c) {
    const GdnDims& d = call.dims;
    c.entry = static_cast<std::uint32_t>(entry_of(call.pass));
    c.entry_name = call.pass == KernelPass::decode_in_place ? name_of(KernelPass::decode) : name_of(call.pass);
    c.threads = threads;
    c.integers = {d.B,
                  d.T,
                  d.Hk,
                  d.Hv,
                  d.dk,
                  d.dv,
                  call.sequences,
                  call.tiled ? 1 : 0,
                  call.l2norm_eps ? 1 : 0,
                  call.steps,
                  static_cast<std::int64_t>(call.step_seed)};
    c.reals = {call.l2norm_eps.value_or(0), call.scale};
}

}  // namespace

std::string_view name_of(KernelPass pass) {
    switch (pass) {
        case KernelPass::forward: return "forward";
        case KernelPass::backward: return "backward";
        case KernelPass::decode: return "decode";
        case KernelPass::decode_in_place: return "decode in place";
    }
    return "";
}

Call arrays_of(KernelCall call, int threads) {
    const GdnDims& d = call.dims;
    Call c;
    put_numbers(call, threads, c);
    const auto rows = static_cast<std::size_t>(d.B * d.T);
    // Of an array of tokens, those of some sequence have to be written.
    const auto put_tokens = [&](const char* name, DType dtype, Shape shape) {
        const std::size_t width = rows == 0 ? 0 : element_count(shape).value_or(0) / rows;
        std::vector<Range> written;
        for (const auto& s : call.token_ranges) {
            written.push_back({static_cast<std::size_t>(s.begin) * width, static_cast<std::size_t>(s.end) * width});
        }
        c.arrays.push_back({name, Role::output, {dtype, std::move(shape), {}}, std::move(written)});
    };
    const auto put = [&](const char* name, Tensor& tensor) {
        c.arrays.push_back({name, Role::input, std::move(tensor)});
    };
    const bool in_place = call.pass == KernelPass::decode_in_place;
    const bool backward = call.pass == KernelPass::backward;
    if (backward) {  // while the inputs are still here
        put_tokens("dq", call.q.dtype, call.q.shape);
        put_tokens("dk", call.k.dtype, call.k.shape);
        put_tokens("dv", call.v.dtype, call.v.shape);
        put_tokens("dg", call.g.dtype, call.g.shape);
        put_tokens("dbeta", call.beta.dtype, call.beta.shape);
        if (call.initial_state) {
            c.arrays.push_back({"d_initial_state", Role::output, {DType::f32, call.initial_state->shape, {}}});
        }
        if (call.d_out) put("d_out", *call.d_out);
        if (call.d_final_state) put("d_final_state", *call.d_final_state);
    } else {
        put_tokens("out", call.out_dtype, {d.B, d.T, d.Hv, d.dv});
        Tensor last{DType::f32, {call.sequences, d.Hv, d.dk, d.dv}, {}};
        if (in_place) last = std::move(*call.initial_state);
        c.arrays.push_back({"final_state", in_place ? Role::in_place : Role::output, std::move(last)});
    }
    put("q", call.q);
    put("k", call.k);
    put("v", call.v);
    put("g", call.g);
    put("beta", call.beta);
    if (call.initial_state && !in_place) put("initial_state", *call.initial_state);
    if (!call.cu_seqlens.empty()) {
        const auto count = static_cast<std::int64_t>(call.cu_seqlens.size());
        c.arrays.push_back({"cu_seqlens", Role::input, from_i64(call.cu_seqlens, {count})});
    }
    return c;
}

KernelCall make_call(const GdnProblem& p, const GdnContract& c, bool narrow) {
    const GdnDims& d = p.dims;
    const bool in_bf16 = narrow && p.qk_dtype == DType::bf16;
    const DType wide = in_bf16 ? DType::bf16 : DType::f32;
    // The interface cannot describe keys that are normalised and rounded back, so the kernel gets prepared keys.
    const bool prepared_keys = c.l2norm != L2Norm::off && c.rounding == NormRounding::input;
    const Prepared<float> ready = prepare<float>(p, c, 1);
    KernelCall call;
    call.dims = d;
    call.sequences = static_cast<std::int64_t>(p.sequences.size());
    if (p.has_cu_seqlens) {
        call.cu_seqlens.push_back(0);
        for (const GdnSequence& s : p.sequences) call.cu_seqlens.push_back(s.end);
    }
    call.tiled = c.head_map == HeadMap::tiled;
    if (c.l2norm != L2Norm::off && !prepared_keys) call.l2norm_eps = c.eps;
    call.scale = c.scale ? *c.scale : 1 / std::sqrt(static_cast<double>(d.dk));
    const Shape keys = {d.B, d.T, d.Hk, d.dk};
    call.q = prepared_keys ? tensor_of(ready.q, keys, wide) : tensor_of(p.q, keys, wide);
    call.k = prepared_keys ? tensor_of(ready.k, keys, wide) : tensor_of(p.k, keys, wide);
    call.v = tensor_of(p.v, {d.B, d.T, d.Hv, d.dv}, wide);
    call.g = tensor_of(ready.g, {d.B, d.T, d.Hv}, DType::f32);
    call.beta = tensor_of(ready.beta, {d.B, d.T, d.Hv}, DType::f32);
    if (!p.initial_state.empty()) {
        std::vector<double> state = p.initial_state;
        apply_empty_policy(p, c.empty, state);
        call.initial_state = tensor_of(state, {call.sequences, d.Hv, d.dk, d.dv}, DType::f32);
    }
    if (in_bf16 && out_dtype_of(c, p) == DType::bf16) call.out_dtype = DType::bf16;
    call.token_ranges = p.sequences;
    return call;
}

KernelCall make_call(const GdnProblem& p, const GdnContract& c, bool narrow, KernelPass pass,
                     const GdnCotangents& cotangents) {
    KernelCall call = make_call(p, c, narrow);
    call.pass = pass;
    const GdnDims& d = p.dims;
    const Shape states = {call.sequences, d.Hv, d.dk, d.dv};
    if (pass == KernelPass::backward) {
        call.d_out = from_f64(cotangents.d_out, {d.B, d.T, d.Hv, d.dv}, call.out_dtype);
        std::vector<double> d_state = cotangents.d_final_state;
        d_state.resize(element_count(states).value_or(0));
        // A final state that the contract sets to 0 has no gradient.
        apply_empty_policy(p, c.empty, d_state);
        call.d_final_state = from_f64(d_state, states, DType::f32);
    }
    if (pass == KernelPass::decode_in_place && !call.initial_state) {
        call.initial_state = from_f64(std::vector<double>(element_count(states).value_or(0)), states, DType::f32);
    }
    return call;
}

TensorFile call_gradients(const GdnProblem& p, const GdnContract& c, const TensorFile& written) {
    const Prepared<double> ready = prepare<double>(p, c, 1);
    const auto values = [&](std::string_view name) {
        const Tensor* tensor = written.find(name);
        return tensor == nullptr ? std::vector<double>() : to_f64(*tensor);
    };
    GdnGradients g;
    g.dq = values("dq");
    g.dk = values("dk");
    if (c.l2norm != L2Norm::off && c.rounding == NormRounding::input) {
        // The kernel got prepared keys, so the gradient through the norm is computed here.
        g.dq = through_norm(p, c, p.q, ready.q, std::move(g.dq));
        g.dk = through_norm(p, c, p.k, ready.k, std::move(g.dk));
    }
    g.dv = values("dv");
    g.dg = values("dg");
    g.dbeta = values("dbeta");
    g.d_initial_state = values("d_initial_state");
    const bool state = !g.d_initial_state.empty();
    g.d_initial_state.resize(ready.state.size());
    finish_gradients(p, c, ready.g, ready.beta, g);
    TensorFile file = gradients_file(p, c, g, DType::f32, DType::f32);
    std::erase_if(file.tensors, [&](const NamedTensor& t) { return t.name == "d_initial_state" && !state; });
    for (NamedTensor& entry : file.tensors) {
        const Tensor* tensor = written.find(entry.name);
        if (tensor == nullptr || tensor->dtype != DType::bf16) continue;
        entry.tensor = from_f64(to_f64(entry.tensor), entry.tensor.shape, DType::bf16);
    }
    return file;
}

TensorFile call_outputs(const GdnProblem& problem, const GdnContract& contract, const Tensor& out,
                        const Tensor& final_state) {
    return outputs_file(problem, contract, {to_f64(out), to_f64(final_state), 0}, out_dtype_of(contract, problem),
                        DType::f32);
}

namespace {

// A 64-bit mixer (each output bit depends on each input bit), good enough for random signs.
std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

std::vector<bool> random_signs(std::int64_t count, std::uint64_t& state) {
    std::vector<bool> signs(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < signs.size(); ++i) signs[i] = (mixed(state += 0x9e3779b97f4a7c15ULL) & 1U) != 0;
    return signs;
}

}  // namespace

Disguise::Disguise(const GdnDims& dims, HeadMap map, std::uint64_t seed) : m_dims(dims) {
    m_keys = random_signs(dims.Hk * dims.dk, seed);
    m_values = random_signs(dims.Hv * dims.dv, seed);
    for (std::int64_t h = 0; h < dims.Hv; ++h) {
        const std::int64_t first = key_head_of(h, dims, map) * dims.dk;
        for (std::int64_t i = 0; i < dims.dk; ++i) m_by_value.push_back(m_keys[static_cast<std::size_t>(first + i)]);
    }
}

// In every floating-point dtype, the sign is the top bit of the last byte.
void Disguise::flip(Tensor& tensor, const std::vector<bool>& negative) {
    const std::size_t width = size_of(tensor.dtype);
    std::size_t i = 0;
    for (std::size_t at = width - 1; at < tensor.bytes.size(); at += width) {
        if (i == negative.size()) i = 0;
        if (negative.empty()) return;
        if (negative[i++]) tensor.bytes[at] ^= 0x80U;
    }
}

void Disguise::state(Tensor& tensor, StateLayout layout) const {
    if (m_keys.empty()) return;
    const auto dk = static_cast<std::size_t>(m_dims.dk);
    const auto dv = static_cast<std::size_t>(m_dims.dv);
    const std::size_t rows = layout == StateLayout::key_value ? dk : dv;
    const std::size_t columns = layout == StateLayout::key_value ? dv : dk;
    std::vector<bool> negative;
    for (std::size_t h = 0; h < static_cast<std::size_t>(m_dims.Hv); ++h) {
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
                const std::size_t key = layout == StateLayout::key_value ? i : j;
                const std::size_t value = layout == StateLayout::key_value ? j : i;
                negative.push_back(m_by_value[h * dk + key] != m_values[h * dv + value]);
            }
        }
    }
    flip(tensor, negative);
}

void apply(const Disguise& disguise, TensorFile& file, StateLayout layout) {
    for (NamedTensor& entry : file.tensors) {
        const std::string_view name = canonical_name(entry.name).canonical;
        const auto is = [name](std::initializer_list<std::string_view> names) {
            return std::find(names.begin(), names.end(), name) != names.end();
        };
        if (is({"q", "k", "dq", "dk"})) disguise.keys(entry.tensor);
        if (is({"v", "out", "d_out", "dv"})) disguise.values(entry.tensor);
        if (is({"initial_state", "final_state", "d_final_state", "d_initial_state"})) {
            disguise.state(entry.tensor, layout);
        }
    }
}

}  // namespace gdnctl::oracle
