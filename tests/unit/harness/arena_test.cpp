// The memory shared with a kernel's child: where arrays lie, and what is seen of what a kernel did.
#include "harness/child/arena.h"

#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>
#include <unistd.h>

#include "harness/child/entry.h"
#include "oracle/gdn/cases/cases.h"

using namespace gdnctl;
using namespace gdnctl::harness;

namespace {

struct Arena {
    oracle::GdnDims dims;
    Call call;
    Header header;
    std::vector<std::byte> memory;

    explicit Arena(std::string_view name, bool narrow = false) {
        const auto inputs = oracle::make_inputs(*oracle::find_gdn_case(name));
        auto contract = oracle::resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const auto problem = oracle::read_problem(inputs, *contract);
        REQUIRE(problem);
        dims = problem->dims;
        call = arrays_of(oracle::make_call(*problem, contract->value, narrow), 2);
        header = lay_out(call);
        memory.resize(header.bytes);
        fill(memory.data(), header, call);
    }

    bool has(std::string_view name) const { return header.find(name) < k_most_arrays; }
    const Place& place(std::string_view name) const { return header.places.at(header.find(name)); }
    std::byte* array(std::string_view name) { return memory.data() + place(name).page + place(name).begin; }
    Unwritten unwritten(std::string_view name) const {
        return count_unwritten(memory.data(), place(name), call.arrays.at(header.find(name)));
    }
};

}  // namespace

TEST_CASE("kernel arena: arrays begin at 64 bytes and end in the last 63 of their pages") {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    for (const char* name : {"odd_dims", "gva_2", "varlen", "d128", "no_tokens", "random_bf16"}) {
        CAPTURE(name);
        const Arena arena(name, true);
        std::uint64_t end = sizeof(Header);
        for (std::size_t i = 0; i < arena.header.arrays; ++i) {
            const Place& p = arena.header.places[i];
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
    CHECK(!Arena("random_normed").has("initial_state"));
    CHECK(Arena("gva_2").has("initial_state"));
    CHECK(!Arena("gva_2").has("cu_seqlens"));
    Arena varlen("varlen");
    std::int64_t last = 0;
    std::memcpy(&last, varlen.array("cu_seqlens") + 4 * sizeof last, sizeof last);
    CHECK(last == 120);
}

TEST_CASE("kernel arena: what is not written is counted, rows outside all sequences are not") {
    Arena arena("varlen_nan_padding");  // 40 rows, of which 33 belong to sequences
    const auto row = static_cast<std::size_t>(arena.dims.Hv * arena.dims.dv);
    const Unwritten before = arena.unwritten("out");
    CHECK(before.count == 33 * row);
    CHECK(before.of == 33 * row);
    std::memset(arena.array("out"), 0, 3 * sizeof(float));
    CHECK(arena.unwritten("out").count == 33 * row - 3);
    CHECK(oracle::element(read_array(arena.memory.data(), arena.place("out")), 39 * row) == 0);
    const Unwritten state = arena.unwritten("final_state");
    CHECK(state.count == state.of);
    fill(arena.memory.data(), arena.header, arena.call);
    CHECK(arena.unwritten("out").count == 33 * row);
}

TEST_CASE("kernel arena: a byte beside an output is seen") {
    Arena arena("odd_dims");
    CHECK(written_beside(arena.memory.data(), arena.header).empty());
    const Place& out = arena.place("out");
    *(arena.array("out") + out.bytes) = std::byte{0};
    CHECK(written_beside(arena.memory.data(), arena.header) == "wrote 1 byte past the end of out");
    *(arena.array("out") + out.bytes) = std::byte{0xFF};
    std::memset(arena.array("final_state") - 8, 0, 8);
    CHECK(written_beside(arena.memory.data(), arena.header) == "wrote 8 bytes before the start of final_state");
}

TEST_CASE("kernel arena: bf16 only where inputs have it and the kernel takes it") {
    const auto dtype_of_q = [](const char* name, bool narrow) {
        const Arena arena(name, narrow);
        return arena.call.arrays.at(arena.header.find("q")).tensor.dtype;
    };
    CHECK(dtype_of_q("random_bf16", true) == oracle::DType::bf16);
    CHECK(Arena("random_bf16", true).place("q").bytes * 2 == Arena("random_bf16", false).place("q").bytes);
    CHECK(dtype_of_q("random_bf16", false) == oracle::DType::f32);
    CHECK(dtype_of_q("random_normed", true) == oracle::DType::f32);
}

TEST_CASE("kernel arena: roles say what is poisoned, and arguments without memory keep their place") {
    Call call;
    call.arrays = {{"x", Role::input, oracle::from_f64(std::vector<double>{1, 2, 3}, {3}, oracle::DType::f32)},
                   {"scale", Role::number},
                   {"none", Role::nothing},
                   {"state", Role::in_place, oracle::from_f64(std::vector<double>{4, 5}, {2}, oracle::DType::f32)},
                   {"scratch", Role::spare, {oracle::DType::f32, {2}, {}}},
                   {"y", Role::output, {oracle::DType::bf16, {4}, {}}, std::vector<Range>{{1, 3}}}};
    const Header header = lay_out(call);
    std::vector<std::byte> memory(header.bytes);
    fill(memory.data(), header, call);
    CHECK(header.arrays == 6);
    CHECK(header.places[1].page_bytes == 0);
    CHECK(header.places[2].page_bytes == 0);
    CHECK(oracle::to_f64(read_array(memory.data(), header.places[0])) == std::vector<double>{1, 2, 3});
    CHECK(oracle::to_f64(read_array(memory.data(), header.places[3])) == std::vector<double>{4, 5});
    CHECK(count_unwritten(memory.data(), header.places[3], call.arrays[3]).of == 0);
    CHECK(count_unwritten(memory.data(), header.places[4], call.arrays[4]).of == 0);
    const Unwritten y = count_unwritten(memory.data(), header.places[5], call.arrays[5]);
    CHECK(y.count == 2);
    CHECK(y.of == 2);
    CHECK(oracle::element(read_array(memory.data(), header.places[5]), 0) == 0);
    CHECK(header.find("y") == 5);
    CHECK(header.find("z") == k_most_arrays);
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
