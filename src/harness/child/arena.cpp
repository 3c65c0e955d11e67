#include "harness/child/arena.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "gdn/gdn_kernel.h"

namespace gdnctl::harness {

namespace {

using oracle::DType;

constexpr std::uint64_t k_line = 64;
// Fills memory around arrays: NaN both as fp32 and as bf16, so that reading it shows in the results.
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

Place place_for(std::uint64_t& end, const Array& array) {
    Place p;
    p.role = array.role;
    std::copy_n(array.name.begin(), std::min(array.name.size(), p.name_bytes.size() - 1), p.name_bytes.begin());
    if (array.role == Role::number || array.role == Role::nothing) return p;
    const oracle::Shape& shape = array.tensor.shape;
    p.bytes = oracle::element_count(shape).value_or(0) * size_of(array.tensor.dtype);
    p.page = end;
    p.page_bytes = std::max(rounded_up(p.bytes, page_size()), page_size());
    p.begin = p.page_bytes - rounded_up(p.bytes, k_line);
    p.dtype = abi_dtype(array.tensor.dtype);
    p.rank = static_cast<std::uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), p.shape.begin());
    end += p.page_bytes;
    return p;
}

template <class Value>
void poison(std::byte* array, const Range& range, Value value) {
    for (std::size_t i = range.first; i < range.last; ++i) std::memcpy(array + i * sizeof value, &value, sizeof value);
}

template <class Value>
std::size_t count_equal(const std::byte* array, const Range& range, Value value) {
    std::size_t count = 0;
    for (std::size_t i = range.first; i < range.last; ++i) {
        count += std::memcmp(array + i * sizeof value, &value, sizeof value) == 0 ? 1 : 0;
    }
    return count;
}

// The elements that the kernel has to write and that held nothing before.
std::vector<Range> ranges_of(const Place& place, const Array& array) {
    if (array.role == Role::in_place) return {};
    if (array.written) return *array.written;
    return {{0, place.bytes / (place.dtype == GDN_BF16 ? sizeof k_poison_bf16 : sizeof k_poison_f32)}};
}

}  // namespace

std::size_t Header::find(std::string_view name) const {
    for (std::size_t i = 0; i < arrays; ++i) {
        if (places[i].name() == name) return i;
    }
    return k_most_arrays;
}

Header lay_out(const Call& call) {
    Header h;
    h.arrays = static_cast<std::uint32_t>(call.arrays.size());
    h.entry = call.entry;
    h.threads = call.threads;
    h.integers = call.integers;
    h.reals = call.reals;
    std::uint64_t end = rounded_up(sizeof(Header), page_size());
    for (std::size_t i = 0; i < call.arrays.size(); ++i) h.places[i] = place_for(end, call.arrays[i]);
    h.bytes = end;
    return h;
}

void fill(std::byte* base, const Header& header, const Call& call) {
    std::memcpy(base, &header, sizeof header);
    for (std::size_t i = 0; i < header.arrays; ++i) {
        const Place& p = header.places[i];
        if (p.page_bytes == 0) continue;
        std::byte* page = base + p.page;
        std::byte* array = page + p.begin;
        std::fill_n(page, p.begin, k_beside);
        std::fill(array + p.bytes, page + p.page_bytes, k_beside);
        const std::vector<std::uint8_t>& values = call.arrays[i].tensor.bytes;
        if (p.role == Role::input || p.role == Role::in_place) {
            if (!values.empty()) std::memcpy(array, values.data(), values.size());
            continue;
        }
        std::fill_n(array, p.bytes, std::byte{0});  // tokens outside all sequences are never written
        for (const Range& r : ranges_of(p, call.arrays[i])) {
            if (p.dtype == GDN_BF16) poison(array, r, k_poison_bf16);
            if (p.dtype != GDN_BF16) poison(array, r, k_poison_f32);
        }
    }
}

oracle::Tensor read_array(const std::byte* base, const Place& p) {
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
    for (std::size_t i = 0; i < header.arrays; ++i) {
        const Place& p = header.places[i];
        if (!is_output(p.role)) continue;
        const std::byte* page = base + p.page;
        if (const auto n = changed(page, page + p.begin); n > 0) {
            return fmt::format("wrote {} byte{} before the start of {}", n, n == 1 ? "" : "s", p.name());
        }
        if (const auto n = changed(page + p.begin + p.bytes, page + p.page_bytes); n > 0) {
            return fmt::format("wrote {} byte{} past the end of {}", n, n == 1 ? "" : "s", p.name());
        }
    }
    return {};
}

Unwritten count_unwritten(const std::byte* base, const Place& p, const Array& array) {
    const std::byte* at = base + p.page + p.begin;
    Unwritten result;
    if (p.role == Role::spare) return result;
    for (const Range& r : ranges_of(p, array)) {
        result.of += r.last - r.first;
        result.count += p.dtype == GDN_BF16 ? count_equal(at, r, k_poison_bf16) : count_equal(at, r, k_poison_f32);
    }
    return result;
}

}  // namespace gdnctl::harness
