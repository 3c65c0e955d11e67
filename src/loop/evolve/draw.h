// Random numbers of an evolve run, by counter: a draw depends only on its name and place, so that a resumed run and
// `evolve replay` get the same numbers. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gdnctl::loop::evolve {

struct Draw {
    std::string name;
    int k = 0;
    double u = 0.0;
    bool operator==(const Draw&) const = default;
};

// In [0, 1): the first 8 bytes (big-endian) of SHA-256 of "gdnctl-evolve/1|<seed>|<attempt>|<name>|<k>", >> 11, times
// 2^-53.
double draw(std::uint64_t seed, std::int64_t attempt, std::string_view name, int k);

// Of a number read from a draw's first 8 bytes.
double unit_of(std::uint64_t first_bytes);

}  // namespace gdnctl::loop::evolve
