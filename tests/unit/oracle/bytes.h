// Building tensor files by hand, sound and broken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::oracle::testing {

using Bytes = std::vector<std::uint8_t>;

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

inline Bytes safetensors(std::string_view header, std::size_t data_size) {
    Bytes bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
    bytes.insert(bytes.end(), header.begin(), header.end());
    for (std::size_t i = 0; i < data_size; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
    return bytes;
}

inline Bytes npy(std::string header, const Bytes& data, std::uint8_t major = 1) {
    header += '\n';
    Bytes bytes = bytes_of("\x93NUMPY");
    bytes.push_back(major);
    bytes.push_back(0);
    for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

}  // namespace gdnctl::oracle::testing
