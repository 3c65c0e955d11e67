// The memory that a kernel's child shares with us, and the messages between the two. The child maps each array between
// two pages that nobody may touch; our own view of the memory has no such pages and sees what was written beside an
// array within its pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/under_test/call.h"

namespace gdnctl::harness {

enum class Slot : std::uint32_t {
    q,
    k,
    v,
    g,
    beta,
    initial_state,
    cu_seqlens,
    d_out,
    d_final_state,
    a_log,  // of solutions by FlashInfer-Bench's convention
    a,
    dt_bias,
    b,
    initial_state_indices,
    x,  // of linear-ce
    w,
    labels,
    d_loss,
    d_lse,
    out,  // from here on outputs
    final_state,
    dq,
    dk,
    dv,
    dg,
    dbeta,
    d_initial_state,
    intermediate_states_buffer,
    loss,  // of linear-ce
    lse,
    argmax,
    gx,
    gw,
};
inline constexpr std::size_t k_slots = 33;
std::string_view name_of(Slot slot);
constexpr bool is_output(Slot slot) { return slot >= Slot::out; }

inline constexpr std::uint32_t k_int32 = 100, k_int64 = 101;  // beside the dtypes of gdn/gdn_kernel.h

// Where an array lies. It ends at most 63 bytes before its last page does and begins at a multiple of 64.
struct Place {
    std::uint64_t page = 0;        // offset of its pages in the shared memory
    std::uint64_t page_bytes = 0;  // whole pages; 0: there is no such array
    std::uint64_t begin = 0;       // offset of the array from `page`
    std::uint64_t bytes = 0;
    std::uint32_t dtype = 0;  // GDN_F32, ..., k_int32, k_int64
    std::uint32_t rank = 0;
    std::array<std::int64_t, 5> shape = {};
};

// An argument of a solution: a slot, or one of these.
inline constexpr std::uint32_t k_scale_argument = 1000, k_no_argument = 1001;
inline constexpr std::size_t k_most_arguments = 16;

// At the start of the shared memory.
struct Header {
    std::array<std::int64_t, 6> dims = {};  // B, T, Hk, Hv, dk, dv; of linear-ce B, H, V and the layout of w
    std::int64_t sequences = 0;
    std::uint32_t head_map = 0;
    std::uint32_t l2norm = 0;
    double l2norm_eps = 0;
    double scale = 0;  // of linear-ce: the soft cap
    double logsumexp_weight = 0;
    std::int32_t threads = 1;
    std::uint32_t has_cu_seqlens = 0;
    std::uint32_t entry = 0;     // GDN_FORWARD, ..., LINEAR_CE_FORWARD, ...
    std::uint32_t in_place = 0;  // initial_state is the memory of final_state
    std::array<Place, k_slots> places = {};
    std::uint64_t bytes = 0;  // of the whole memory
    std::int64_t steps = 0;   // of KernelCall
    std::uint64_t step_seed = 0;
    std::uint32_t arguments = 0;  // of a solution; 0: a kernel of gdn/gdn_kernel.h
    std::array<std::uint32_t, k_most_arguments> argument = {};
};

// One call of a solution by FlashInfer-Bench's convention: what it gets, in order.
struct SolutionCall {
    struct Argument {
        std::uint32_t what = k_no_argument;  // a slot, or one of the above
        oracle::Tensor tensor = {};          // of an output: dtype and shape, no values
    };
    std::vector<Argument> arguments;
    double scale = 0;
};

// One call of a kernel of gdn/linear_ce_kernel.h: its arrays are passed by name, not in order.
struct LinearCeCall {
    SolutionCall arrays;
    std::array<std::int64_t, 4> sizes = {};  // B, H, V, layout
    double soft_cap = 0, logsumexp_weight = 0;
    std::int32_t threads = 1;
    std::uint32_t entry = 0;
};

// Where each step of a decode lies among the steps in memory: shuffled, so that no call knows where the next token is.
std::vector<std::int64_t> step_order(std::int64_t steps, std::uint64_t seed);

// What we ask of the child; it answers each with one Reply.
enum class Ask : std::uint32_t {
    load,  // load the kernel
    map,   // map the arrays of the header again, at other addresses
    call,  // call the kernel's entry point that the header names
};

enum class Answer : std::uint32_t {
    loaded,   // value: dtypes; entries: bits 1 << GDN_FORWARD, ...; number: the network barrier
    mapped,   // number: bytes of workspace
    done,     // value: what the kernel returned
    fault,    // a signal: value; slot and number: the array and the byte in or beside it; detail: see Touch
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
    Slot slot = Slot::q;
    Touch touch = Touch::elsewhere;
    std::uint32_t wrote = 0;  // the faulting access was a write, as far as is known
    std::int64_t number = 0;
    std::array<char, 400> text = {};
};

// Lays out the arrays of a call: places and sizes, no contents.
Header lay_out(const oracle::KernelCall& call, int threads);
Header lay_out(const SolutionCall& call);
Header lay_out(const LinearCeCall& call);

// Copies header and inputs into the memory at `base`, and fills outputs and all that lies beside arrays with what can
// be told from results.
void fill(std::byte* base, const Header& header, const oracle::KernelCall& call);
void fill(std::byte* base, const Header& header, const SolutionCall& call);
void poison_outputs(std::byte* base, const Header& header, const oracle::KernelCall& call);

// The output arrays that this call has.
std::vector<Slot> outputs_of(const Header& header);

// The array as a tensor.
oracle::Tensor read_output(const std::byte* base, const Header& header, Slot slot);

// "wrote 12 bytes behind the end of final_state", empty if nothing beside any array has changed.
std::string written_beside(const std::byte* base, const Header& header);

struct Unwritten {
    std::size_t count = 0, of = 0;
};
// Elements that have to be written and still hold the poison.
Unwritten count_unwritten(const std::byte* base, const Header& header, Slot slot, const oracle::KernelCall& call);
// The same of an output of a solution, all of which has to be written.
Unwritten count_unwritten(const std::byte* base, const Header& header, Slot slot);

}  // namespace gdnctl::harness
