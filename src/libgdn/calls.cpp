#include "libgdn/calls.h"

#include <algorithm>

#include "oracle/gdn/kernels/backward32.h"

namespace gdnctl::libgdn {

using namespace oracle;

gdn_tensor array_of(const void* data, std::uint32_t dtype, std::initializer_list<std::int64_t> shape) {
    gdn_tensor t{};
    if (data == nullptr) return t;
    t.data = const_cast<void*>(data);  // inputs and outputs share one type; inputs are not written
    t.dtype = dtype;
    t.rank = static_cast<std::uint32_t>(shape.size());
    std::uint64_t stride = 1;  // overflows for sizes that every entry point rejects
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        t.shape[axis] = shape.begin()[axis];
        t.strides[axis] = static_cast<std::int64_t>(stride);
        stride *= static_cast<std::uint64_t>(t.shape[axis]);
    }
    return t;
}

int check(const gdn_tensor& t, std::initializer_list<std::int64_t> shape, Need need, Storage allowed) {
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (t.data == nullptr) return need == Need::optional || empty ? GDN_OK : GDN_INVALID;
    if (t.dtype != GDN_F32 && (t.dtype != GDN_BF16 || allowed != Storage::bf16)) return GDN_UNSUPPORTED;
    const gdn_tensor plain = array_of(t.data, t.dtype, shape);
    if (t.rank != plain.rank || !std::equal(shape.begin(), shape.end(), t.shape)) return GDN_INVALID;
    for (std::uint32_t axis = 0; axis < t.rank; ++axis) {
        if (t.shape[axis] > 1 && t.strides[axis] != plain.strides[axis]) return GDN_UNSUPPORTED;
    }
    return GDN_OK;
}

int first_of(std::initializer_list<int> results) {
    for (const int result : results) {
        if (result != GDN_OK) return result;
    }
    return GDN_OK;
}

namespace {

// Whether every array, including those internal to the backward, has at most 2^50 elements.
bool countable(const gdn_call& c) {
    const auto of = [](std::int64_t n) { return static_cast<double>(n); };
    const double rows = of(c.batch) * of(c.tokens);
    const double state = of(c.value_heads) * of(c.key_dim) * of(c.value_dim);
    const double states = of(c.sequences) * 2 + rows / k_backward_tokens;
    const double row = std::max(of(c.key_heads) * of(c.key_dim), of(c.value_heads) * of(c.value_dim));
    return std::max(rows * row, states * state) <= 0x1p50;
}

}  // namespace

int check_sizes(const gdn_call& c) {
    if (c.abi_version != GDN_ABI_VERSION || c.struct_size < sizeof(gdn_call)) return GDN_INVALID;
    constexpr std::int64_t k_most = std::int64_t{1} << 30;
    for (const std::int64_t n : {c.key_heads, c.value_heads, c.key_dim, c.value_dim}) {
        if (n < 1 || n >= k_most) return GDN_INVALID;
    }
    for (const std::int64_t n : {c.batch, c.tokens, c.sequences}) {
        if (n < 0 || n >= k_most) return GDN_INVALID;
    }
    if (c.value_heads % c.key_heads != 0 || c.head_map > GDN_HEADS_TILED || !countable(c)) return GDN_INVALID;
    if (c.cu_seqlens == nullptr) return c.sequences == c.batch ? GDN_OK : GDN_INVALID;
    if (c.batch != 1 || c.cu_seqlens[0] != 0 || c.cu_seqlens[c.sequences] > c.tokens) return GDN_INVALID;
    for (std::int64_t n = 0; n < c.sequences; ++n) {
        if (c.cu_seqlens[n] > c.cu_seqlens[n + 1]) return GDN_INVALID;
    }
    return GDN_OK;
}

int check_inputs(const gdn_call& c) {
    if (const int bad = check_sizes(c); bad != GDN_OK) return bad;
    return first_of({check(c.q, {c.batch, c.tokens, c.key_heads, c.key_dim}, Need::required, Storage::bf16),
                     check(c.k, {c.batch, c.tokens, c.key_heads, c.key_dim}, Need::required, Storage::bf16),
                     check(c.v, {c.batch, c.tokens, c.value_heads, c.value_dim}, Need::required, Storage::bf16),
                     check(c.g, {c.batch, c.tokens, c.value_heads}, Need::required),
                     check(c.beta, {c.batch, c.tokens, c.value_heads}, Need::required),
                     check(c.initial_state, {c.sequences, c.value_heads, c.key_dim, c.value_dim}, Need::optional)});
}

std::vector<GdnSequence> sequences_of(const gdn_call& c) {
    std::vector<GdnSequence> sequences;
    for (std::int64_t n = 0; n < c.sequences; ++n) {
        if (c.cu_seqlens != nullptr) {
            sequences.push_back({c.cu_seqlens[n], c.cu_seqlens[n + 1]});
        } else {
            sequences.push_back({n * c.tokens, (n + 1) * c.tokens});
        }
    }
    return sequences;
}

int check_forward(const gdn_call& c, Need final_state) {
    return first_of({check_inputs(c),
                     check(c.out, {c.batch, c.tokens, c.value_heads, c.value_dim}, Need::required, Storage::bf16),
                     check(c.final_state, {c.sequences, c.value_heads, c.key_dim, c.value_dim}, final_state)});
}

HeadMap head_map_of(const gdn_call& c) { return c.head_map == GDN_HEADS_TILED ? HeadMap::tiled : HeadMap::interleaved; }

Forward32 forward_of(const gdn_call& c, std::span<const GdnSequence> sequences) {
    Forward32 f;
    f.dims = {c.batch, c.tokens, c.key_heads, c.value_heads, c.key_dim, c.value_dim};
    f.sequences = sequences;
    f.head_map = head_map_of(c);
    f.q = values<ConstValues>(c.q);
    f.k = values<ConstValues>(c.k);
    f.v = values<ConstValues>(c.v);
    f.g = floats(c.g);
    f.beta = floats(c.beta);
    f.initial_state = floats(c.initial_state);
    f.out = values<Values>(c.out);
    f.final_state = floats(c.final_state);
    f.scale = static_cast<float>(c.scale);
    if (c.l2norm != 0) f.l2norm_eps = static_cast<float>(c.l2norm_eps);
    return f;
}

}  // namespace gdnctl::libgdn
