// The memory shared with a kernel's child: where arrays lie, and what is seen of what a kernel did.
#include "harness/child/arena.h"

#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>
#include <unistd.h>

#include "oracle/gdn/cases/cases.h"

using namespace gdnctl;
using namespace gdnctl::harness;

namespace {

struct Arena {
    oracle::KernelCall call;
    Header header;
    std::vector<std::byte> memory;

    explicit Arena(std::string_view name, bool narrow = false) {
        const auto inputs = oracle::make_inputs(*oracle::find_gdn_case(name));
        auto contract = oracle::resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const auto problem = oracle::read_problem(inputs, *contract);
        REQUIRE(problem);
        call = oracle::make_call(*problem, contract->value, narrow);
        header = lay_out(call, 2);
        memory.resize(header.bytes);
        fill(memory.data(), header, call);
    }

    const Place& place(Slot slot) const { return header.places[static_cast<std::size_t>(slot)]; }
    std::byte* array(Slot slot) { return memory.data() + place(slot).page + place(slot).begin; }
};

}  // namespace

TEST_CASE("kernel arena: arrays begin at 64 bytes and end in the last 63 of their pages") {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    for (const char* name : {"odd_dims", "gva_2", "varlen", "d128", "no_tokens", "random_bf16"}) {
        CAPTURE(name);
        const Arena arena(name, true);
        std::uint64_t end = sizeof(Header);
        for (std::size_t i = 0; i < k_slots; ++i) {
            const Place& p = arena.header.places[i];
            if (p.page_bytes == 0) continue;
            CHECK(p.page % page == 0);
            CHECK(p.page >= end);
            CHECK(p.begin % 64 == 0);
            CHECK(p.begin + p.bytes <= p.page_bytes);
            CHECK(p.begin + p.bytes + 63 >= p.page_bytes);
            end = p.page + p.page_bytes;
        }
        CHECK(end == arena.header.bytes);
    }
}

TEST_CASE("kernel arena: optional arrays are absent, cu_seqlens are offsets") {
    CHECK(Arena("random_normed").place(Slot::initial_state).page_bytes == 0);
    CHECK(Arena("gva_2").place(Slot::initial_state).page_bytes > 0);
    CHECK(Arena("gva_2").place(Slot::cu_seqlens).page_bytes == 0);
    Arena varlen("varlen");
    CHECK(varlen.header.has_cu_seqlens == 1);
    std::int64_t last = 0;
    std::memcpy(&last, varlen.array(Slot::cu_seqlens) + 4 * sizeof last, sizeof last);
    CHECK(last == 120);
}

TEST_CASE("kernel arena: what is not written is counted, rows outside all sequences are not") {
    Arena arena("varlen_nan_padding");  // 40 rows, of which 33 belong to sequences
    const auto& d = arena.call.dims;
    const auto row = static_cast<std::size_t>(d.Hv * d.dv);
    const Unwritten before = count_unwritten(arena.memory.data(), arena.header, Slot::out, arena.call);
    CHECK(before.count == 33 * row);
    CHECK(before.of == 33 * row);
    std::memset(arena.array(Slot::out), 0, 3 * sizeof(float));
    CHECK(count_unwritten(arena.memory.data(), arena.header, Slot::out, arena.call).count == 33 * row - 3);
    CHECK(oracle::element(read_output(arena.memory.data(), arena.header, Slot::out), 39 * row) == 0);
    const Unwritten state = count_unwritten(arena.memory.data(), arena.header, Slot::final_state, arena.call);
    CHECK(state.count == state.of);
    poison_outputs(arena.memory.data(), arena.header, arena.call);
    CHECK(count_unwritten(arena.memory.data(), arena.header, Slot::out, arena.call).count == 33 * row);
}

TEST_CASE("kernel arena: a byte beside an output is seen") {
    Arena arena("odd_dims");
    CHECK(written_beside(arena.memory.data(), arena.header).empty());
    const Place& out = arena.place(Slot::out);
    *(arena.array(Slot::out) + out.bytes) = std::byte{0};
    CHECK(written_beside(arena.memory.data(), arena.header) == "wrote 1 byte behind the end of out");
    *(arena.array(Slot::out) + out.bytes) = std::byte{0xFF};
    std::memset(arena.array(Slot::final_state) - 8, 0, 8);
    CHECK(written_beside(arena.memory.data(), arena.header) == "wrote 8 bytes before the start of final_state");
}

TEST_CASE("kernel arena: bf16 only where inputs have it and the kernel takes it") {
    CHECK(Arena("random_bf16", true).call.q.dtype == oracle::DType::bf16);
    CHECK(Arena("random_bf16", true).place(Slot::q).bytes * 2 == Arena("random_bf16", false).place(Slot::q).bytes);
    CHECK(Arena("random_bf16", false).call.q.dtype == oracle::DType::f32);
    CHECK(Arena("random_normed", true).call.q.dtype == oracle::DType::f32);
}

TEST_CASE("kernel arena: steps of a decode lie in an order that depends on the seed alone") {
    const auto order = step_order(50, 7);
    CHECK(order == step_order(50, 7));
    CHECK(order != step_order(50, 8));
    std::vector<std::int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) CHECK(sorted[i] == static_cast<std::int64_t>(i));
    CHECK(order != sorted);
    CHECK(step_order(0, 1).empty());
    CHECK(step_order(1, 1) == std::vector<std::int64_t>{0});
}
