// The kinds of places where jobs run.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace gdnctl {

enum class PlaceKind { local, ray, iris };  // this machine, a Ray cluster, an Iris cluster

inline constexpr std::array<std::string_view, 3> k_place_kinds = {"local", "ray", "iris"};

constexpr std::string_view to_text(PlaceKind kind) { return k_place_kinds[static_cast<std::size_t>(kind)]; }

// nullopt: not the name of a kind.
constexpr std::optional<PlaceKind> parse_place_kind(std::string_view text) {
    for (std::size_t i = 0; i < k_place_kinds.size(); ++i) {
        if (k_place_kinds[i] == text) return static_cast<PlaceKind>(i);
    }
    return std::nullopt;
}

}  // namespace gdnctl
