#include "loop/evolve/draw.h"

#include <charconv>

#include <fmt/format.h>

#include "runlog/parse/block.h"

namespace gdnctl::loop::evolve {

double unit_of(std::uint64_t first_bytes) { return static_cast<double>(first_bytes >> 11U) * 0x1p-53; }

double draw(std::uint64_t seed, std::int64_t attempt, std::string_view name, int k) {
    const std::string hex = runlog::sha256_hex(fmt::format("gdnctl-evolve/1|{}|{}|{}|{}", seed, attempt, name, k));
    std::uint64_t first = 0;
    std::from_chars(hex.data(), hex.data() + 16, first, 16);
    return unit_of(first);
}

}  // namespace gdnctl::loop::evolve
