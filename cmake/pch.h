#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <tl/expected.hpp>

// clang reads of a precompiled header only what a file uses; g++ reads all of it, so that json.hpp would slow every
// file down. What is declared here is instantiated once, in core/json.cpp.
#ifdef __clang__
#include <nlohmann/json.hpp>
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
#endif
