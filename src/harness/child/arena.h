// The memory that a kernel's child shares with us, and the messages between the two. The child maps each array between
// two inaccessible pages; our own view of the memory has no such pages and shows what was written next to an array
// within its pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/judge/kernel.h"

namespace gdnctl::harness {

inline constexpr std::uint32_t k_int32 = 100, k_int64 = 101;  // in addition to the dtypes of gdn/gdn_kernel.h

using oracle::Array;
using oracle::Call;
using oracle::Range;
using oracle::Role;

// Where an array lies. It ends at most 63 bytes before its last page does and begins at a multiple of 64.
struct Place {
    std::uint64_t page = 0;        // offset of its pages in the shared memory
    std::uint64_t page_bytes = 0;  // whole pages; 0: there is no such array
    std::uint64_t begin = 0;       // offset of the array from `page`
    std::uint64_t bytes = 0;
    std::uint32_t dtype = 0;  // GDN_F32, ..., k_int32, k_int64
    std::uint32_t rank = 0;
    std::array<std::int64_t, 5> shape = {};
    Role role = Role::nothing;
    std::array<char, 28> name_bytes = {};

    std::string_view name() const { return name_bytes.data(); }
};

inline constexpr std::size_t k_most_arrays = 24;

// At the start of the shared memory: a Call without its values.
struct Header {
    std::uint32_t arrays = 0;
    std::uint32_t entry = 0;
    std::int32_t threads = 1;
    std::array<std::int64_t, 12> integers = {};
    std::array<double, 4> reals = {};
    std::array<Place, k_most_arrays> places = {};
    std::uint64_t bytes = 0;  // of the whole memory

    // The index of an array with that name; k_most_arrays: there is none.
    std::size_t find(std::string_view name) const;
};

// What we ask of the child; it answers each with one Reply.
enum class Ask : std::uint32_t {
    enter,  // restrict itself
    load,   // load the kernel
    map,    // map the arrays of the header again, at other addresses
    call,   // call the kernel's entry point that the header names
};

enum class Answer : std::uint32_t {
    entered,  // value: whether it can still write to our memory; number: the network barrier
    loaded,   // value: dtypes; entries: bits 1 << GDN_FORWARD, ...; number: chunk length, 0: unknown
    mapped,   // number: bytes of workspace
    done,     // value: what the kernel returned
    fault,    // a signal: value; array and number: the array and the byte in or beside it; detail: see Touch
    refused,  // text: why the kernel cannot be used
    failed,   // text: why the child itself cannot go on
};

// What a faulting address was.
enum class Touch : std::uint32_t { elsewhere, before, behind, input, workspace };

// Small enough to go through a pipe in one piece.
struct Reply {
    Answer answer = Answer::failed;
    std::int32_t value = 0;
    std::uint32_t entries = 0;
    std::uint32_t array = 0;  // its index in the header
    Touch touch = Touch::elsewhere;
    std::uint32_t wrote = 0;  // the faulting access was a write, as far as is known
    std::int64_t number = 0;
    std::array<char, 400> text = {};
};

// Lays out the arrays of a call: places and sizes, no contents.
Header lay_out(const Call& call);

// Copies header and values into the memory at `base`, and fills outputs and the memory around arrays with a pattern
// that cannot be a result.
void fill(std::byte* base, const Header& header, const Call& call);

// The array as a tensor.
oracle::Tensor read_array(const std::byte* base, const Place& place);

// "wrote 12 bytes past the end of final_state"; empty if nothing outside the arrays has changed.
std::string written_beside(const std::byte* base, const Header& header);

struct Unwritten {
    std::size_t count = 0, of = 0;
};
// Elements of an output that have to be written and still hold the poison.
Unwritten count_unwritten(const std::byte* base, const Place& place, const Array& array);

}  // namespace gdnctl::harness
