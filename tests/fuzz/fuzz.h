// A fuzzer is one function of bytes, FUZZ(NAME) in tests/fuzz/NAME.cpp; it returns 0, or -1 for bytes that a corpus
// should not keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#define FUZZ(name) int fuzz_##name(const std::uint8_t* data, std::size_t size)

struct Fuzzer {
    std::string_view name;
    int (*run)(const std::uint8_t* data, std::size_t size);
};
std::span<const Fuzzer> all_fuzzers();
// nullptr: there is none of that name.
const Fuzzer* find_fuzzer(std::string_view name);

inline void require(bool holds) {
    if (!holds) std::abort();
}
