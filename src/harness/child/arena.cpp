#include "harness/child/arena.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <unistd.h>

#include "gdn/gdn_kernel.h"

namespace gdnctl::harness {

namespace {

using oracle::DType;
using oracle::KernelCall;

constexpr std::uint64_t k_line = 64;
// Beside arrays: NaN as fp32 and as bf16, so that a kernel which reads there does not get away with it.
constexpr std::byte k_beside{0xFF};
// Outputs before the call: quiet NaN with a payload that no arithmetic makes out of nothing.
constexpr std::uint32_t k_poison_f32 = 0x7FD1A5C3U;
constexpr std::uint16_t k_poison_bf16 = 0x7FD1U;

std::uint64_t page_size() {
    static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

std::uint32_t abi_dtype(DType dtype) {
    switch (dtype) {
        case DType::bf16: return GDN_BF16;
        case DType::i32: return k_int32;
        case DType::i64: return k_int64;
        default: return GDN_F32;
    }
}

Place place_for(std::uint64_t& end, std::uint64_t bytes, DType dtype, const oracle::Shape& shape) {
    Place p;
    p.page = end;
    p.page_bytes = std::max(rounded_up(bytes, page_size()), page_size());
    p.begin = p.page_bytes - rounded_up(bytes, k_line);
    p.bytes = bytes;
    p.dtype = abi_dtype(dtype);
    p.rank = static_cast<std::uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), p.shape.begin());
    end += p.page_bytes;
    return p;
}

std::byte* array_at(std::byte* base, const Place& p) { return base + p.page + p.begin; }

template <class Value>
void poison_rows(std::byte* array, std::size_t first, std::size_t last, Value value) {
    for (std::size_t i = first; i < last; ++i) std::memcpy(array + i * sizeof value, &value, sizeof value);
}

template <class Value>
std::size_t count_equal(const std::byte* array, std::size_t first, std::size_t last, Value value) {
    std::size_t count = 0;
    for (std::size_t i = first; i < last; ++i) {
        count += std::memcmp(array + i * sizeof value, &value, sizeof value) == 0 ? 1 : 0;
    }
    return count;
}

struct Range {
    std::size_t first = 0, last = 0;
};

// The elements that the kernel has to write and that held nothing before.
std::vector<Range> ranges_of(Slot slot, const Place& place, const KernelCall& call) {
    const std::size_t width = place.dtype == GDN_BF16 ? 2 : 4;
    if (slot == Slot::final_state && call.pass == oracle::KernelPass::decode_in_place) return {};
    if (slot == Slot::final_state || slot == Slot::d_initial_state) return {{0, place.bytes / width}};
    const auto tokens = static_cast<std::size_t>(call.dims.B * call.dims.T);
    if (tokens == 0) return {};
    const std::size_t row = place.bytes / width / tokens;
    std::vector<Range> ranges;
    for (const auto& s : call.token_ranges) {
        ranges.push_back({static_cast<std::size_t>(s.begin) * row, static_cast<std::size_t>(s.end) * row});
    }
    return ranges;
}

// Values, or nothing, with what can be told from results beside them.
void put_array(std::byte* base, const Place& p, const void* bytes, std::size_t count) {
    std::byte* page = base + p.page;
    std::fill_n(page, p.begin, k_beside);
    if (count > 0) std::memcpy(page + p.begin, bytes, count);
    std::fill(page + p.begin + p.bytes, page + p.page_bytes, k_beside);
}

std::size_t width_of(const Place& p) { return p.dtype == GDN_BF16 ? 2 : 4; }

std::uint32_t entry_of(oracle::KernelPass pass) {
    switch (pass) {
        case oracle::KernelPass::forward: return GDN_FORWARD;
        case oracle::KernelPass::backward: return GDN_BACKWARD;
        case oracle::KernelPass::decode:
        case oracle::KernelPass::decode_in_place: return GDN_DECODE;
    }
    return GDN_FORWARD;
}

const Place& place_of(const Header& header, Slot slot) { return header.places[static_cast<std::size_t>(slot)]; }

}  // namespace

std::string_view name_of(Slot slot) {
    constexpr std::array<std::string_view, k_slots> k_names = {"q",
                                                               "k",
                                                               "v",
                                                               "g",
                                                               "beta",
                                                               "initial_state",
                                                               "cu_seqlens",
                                                               "d_out",
                                                               "d_final_state",
                                                               "A_log",
                                                               "a",
                                                               "dt_bias",
                                                               "b",
                                                               "initial_state_indices",
                                                               "x",
                                                               "w",
                                                               "labels",
                                                               "d_loss",
                                                               "d_lse",
                                                               "out",
                                                               "final_state",
                                                               "dq",
                                                               "dk",
                                                               "dv",
                                                               "dg",
                                                               "dbeta",
                                                               "d_initial_state",
                                                               "intermediate_states_buffer",
                                                               "loss",
                                                               "lse",
                                                               "argmax",
                                                               "gx",
                                                               "gw"};
    return k_names[static_cast<std::size_t>(slot)];
}

std::vector<std::int64_t> step_order(std::int64_t steps, std::uint64_t seed) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(steps));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        std::swap(order[i - 1], order[static_cast<std::size_t>((seed >> 33U) % i)]);
    }
    return order;
}

Header lay_out(const KernelCall& call, int threads) {
    const oracle::GdnDims& d = call.dims;
    Header h;
    h.dims = {d.B, d.T, d.Hk, d.Hv, d.dk, d.dv};
    h.sequences = call.sequences;
    h.head_map = call.tiled ? GDN_HEADS_TILED : GDN_HEADS_INTERLEAVED;
    h.l2norm = call.l2norm_eps ? 1 : 0;
    h.l2norm_eps = call.l2norm_eps.value_or(0);
    h.scale = call.scale;
    h.threads = threads;
    h.steps = call.steps;
    h.step_seed = call.step_seed;
    std::uint64_t end = rounded_up(sizeof(Header), page_size());
    const auto put = [&](Slot slot, std::uint64_t bytes, DType dtype, const oracle::Shape& shape) {
        h.places[static_cast<std::size_t>(slot)] = place_for(end, bytes, dtype, shape);
    };
    const auto put_tensor = [&](Slot slot, const oracle::Tensor& t) { put(slot, t.bytes.size(), t.dtype, t.shape); };
    put_tensor(Slot::q, call.q);
    put_tensor(Slot::k, call.k);
    put_tensor(Slot::v, call.v);
    put_tensor(Slot::g, call.g);
    put_tensor(Slot::beta, call.beta);
    h.entry = entry_of(call.pass);
    h.in_place = call.pass == oracle::KernelPass::decode_in_place ? 1 : 0;
    if (call.initial_state && h.in_place == 0) put_tensor(Slot::initial_state, *call.initial_state);
    if (!call.cu_seqlens.empty()) {
        h.has_cu_seqlens = 1;
        put(Slot::cu_seqlens, call.cu_seqlens.size() * sizeof(std::int64_t), DType::i64, {});
    }
    if (call.pass == oracle::KernelPass::backward) {
        if (call.d_out) put_tensor(Slot::d_out, *call.d_out);
        if (call.d_final_state) put_tensor(Slot::d_final_state, *call.d_final_state);
        put_tensor(Slot::dq, call.q);
        put_tensor(Slot::dk, call.k);
        put_tensor(Slot::dv, call.v);
        put_tensor(Slot::dg, call.g);
        put_tensor(Slot::dbeta, call.beta);
        if (call.initial_state) put_tensor(Slot::d_initial_state, *call.initial_state);
        h.bytes = end;
        return h;
    }
    const auto tokens = static_cast<std::uint64_t>(d.B * d.T * d.Hv * d.dv);
    put(Slot::out, tokens * size_of(call.out_dtype), call.out_dtype, {d.B, d.T, d.Hv, d.dv});
    const auto state = static_cast<std::uint64_t>(call.sequences * d.Hv * d.dk * d.dv);
    put(Slot::final_state, state * sizeof(float), DType::f32, {call.sequences, d.Hv, d.dk, d.dv});
    h.bytes = end;
    return h;
}

Header lay_out(const SolutionCall& call) {
    Header h;
    h.scale = call.scale;
    std::uint64_t end = rounded_up(sizeof(Header), page_size());
    for (const auto& [what, tensor] : call.arguments) {
        h.argument[h.arguments++] = what;
        if (what >= k_slots) continue;
        const std::size_t bytes = oracle::element_count(tensor.shape).value_or(0) * size_of(tensor.dtype);
        h.places[what] = place_for(end, bytes, tensor.dtype, tensor.shape);
    }
    h.bytes = end;
    return h;
}

Header lay_out(const LinearCeCall& call) {
    Header h = lay_out(call.arrays);
    h.arguments = 0;
    std::copy(call.sizes.begin(), call.sizes.end(), h.dims.begin());
    h.scale = call.soft_cap;
    h.logsumexp_weight = call.logsumexp_weight;
    h.threads = call.threads;
    h.entry = call.entry;
    return h;
}

void fill(std::byte* base, const Header& header, const SolutionCall& call) {
    std::memcpy(base, &header, sizeof header);
    for (const auto& [what, tensor] : call.arguments) {
        if (what >= k_slots) continue;
        const Place& p = header.places[what];
        put_array(base, p, tensor.bytes.data(), tensor.bytes.size());
        if (!is_output(static_cast<Slot>(what))) continue;
        const std::size_t count = p.bytes / width_of(p);
        if (p.dtype == GDN_BF16) poison_rows(array_at(base, p), 0, count, k_poison_bf16);
        if (p.dtype != GDN_BF16) poison_rows(array_at(base, p), 0, count, k_poison_f32);
    }
}

void fill(std::byte* base, const Header& header, const KernelCall& call) {
    std::memcpy(base, &header, sizeof header);
    const auto put = [&](Slot slot, const void* bytes, std::size_t count) {
        put_array(base, place_of(header, slot), bytes, count);
    };
    const auto put_tensor = [&](Slot slot, const oracle::Tensor& t) { put(slot, t.bytes.data(), t.bytes.size()); };
    put_tensor(Slot::q, call.q);
    put_tensor(Slot::k, call.k);
    put_tensor(Slot::v, call.v);
    put_tensor(Slot::g, call.g);
    put_tensor(Slot::beta, call.beta);
    const bool in_place = header.in_place != 0;
    if (call.initial_state && !in_place) put_tensor(Slot::initial_state, *call.initial_state);
    if (call.pass == oracle::KernelPass::backward && call.d_out) put_tensor(Slot::d_out, *call.d_out);
    if (call.pass == oracle::KernelPass::backward && call.d_final_state) {
        put_tensor(Slot::d_final_state, *call.d_final_state);
    }
    if (!call.cu_seqlens.empty()) {
        put(Slot::cu_seqlens, call.cu_seqlens.data(), call.cu_seqlens.size() * sizeof(std::int64_t));
    }
    for (const Slot slot : outputs_of(header)) put(slot, nullptr, 0);
    poison_outputs(base, header, call);
    if (in_place) put_tensor(Slot::final_state, *call.initial_state);
}

void poison_outputs(std::byte* base, const Header& header, const KernelCall& call) {
    for (const Slot slot : outputs_of(header)) {
        const Place& p = place_of(header, slot);
        if (slot == Slot::final_state && header.in_place != 0) continue;
        std::byte* array = array_at(base, p);
        std::fill_n(array, p.bytes, std::byte{0});  // tokens outside all sequences are never written
        for (const Range& r : ranges_of(slot, p, call)) {
            if (p.dtype == GDN_BF16) poison_rows(array, r.first, r.last, k_poison_bf16);
            if (p.dtype == GDN_F32) poison_rows(array, r.first, r.last, k_poison_f32);
        }
    }
}

std::vector<Slot> outputs_of(const Header& header) {
    std::vector<Slot> slots;
    for (std::size_t i = 0; i < k_slots; ++i) {
        const auto slot = static_cast<Slot>(i);
        if (is_output(slot) && header.places[i].page_bytes > 0) slots.push_back(slot);
    }
    return slots;
}

oracle::Tensor read_output(const std::byte* base, const Header& header, Slot slot) {
    const Place& p = place_of(header, slot);
    oracle::Tensor t;
    t.dtype = p.dtype == GDN_BF16 ? DType::bf16 : p.dtype == k_int64 ? DType::i64 : DType::f32;
    t.shape.assign(p.shape.begin(), p.shape.begin() + p.rank);
    t.bytes.resize(p.bytes);
    if (p.bytes > 0) std::memcpy(t.bytes.data(), base + p.page + p.begin, p.bytes);
    return t;
}

std::string written_beside(const std::byte* base, const Header& header) {
    const auto changed = [](const std::byte* first, const std::byte* last) {
        return static_cast<std::size_t>(std::count_if(first, last, [](std::byte b) { return b != k_beside; }));
    };
    for (const Slot slot : outputs_of(header)) {
        const Place& p = place_of(header, slot);
        const std::byte* page = base + p.page;
        if (const auto n = changed(page, page + p.begin); n > 0) {
            return fmt::format("wrote {} byte{} before the start of {}", n, n == 1 ? "" : "s", name_of(slot));
        }
        if (const auto n = changed(page + p.begin + p.bytes, page + p.page_bytes); n > 0) {
            return fmt::format("wrote {} byte{} behind the end of {}", n, n == 1 ? "" : "s", name_of(slot));
        }
    }
    return {};
}

Unwritten count_unwritten(const std::byte* base, const Header& header, Slot slot, const KernelCall& call) {
    const Place& p = place_of(header, slot);
    const std::byte* array = base + p.page + p.begin;
    Unwritten result;
    for (const Range& r : ranges_of(slot, p, call)) {
        result.of += r.last - r.first;
        result.count += p.dtype == GDN_BF16 ? count_equal(array, r.first, r.last, k_poison_bf16)
                                            : count_equal(array, r.first, r.last, k_poison_f32);
    }
    return result;
}

Unwritten count_unwritten(const std::byte* base, const Header& header, Slot slot) {
    const Place& p = place_of(header, slot);
    const std::byte* array = base + p.page + p.begin;
    const std::size_t all = p.bytes / width_of(p);
    return {p.dtype == GDN_BF16 ? count_equal(array, 0, all, k_poison_bf16) : count_equal(array, 0, all, k_poison_f32),
            all};
}

}  // namespace gdnctl::harness
