#include "loop/measure/fingerprint.h"

#include <cstdint>

#include <fmt/format.h>

namespace gdnctl::loop {

std::string Fingerprint::key() const {
    // FNV-1a: names a few configurations; not meant to resist attacks.
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto add = [&hash](std::string_view bytes) {
        for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        hash = (hash ^ 0xffU) * 0x100000001b3U;  // occurs in no UTF-8 text: terminates a word
    };
    for (const auto& [name, value] : asked) {
        add(name);
        add(value);
    }
    return fmt::format("{:016x}", hash);
}

std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after) {
    std::vector<std::string> out;
    const auto value_in = [](const auto& map, const std::string& name) {
        const auto it = map.find(name);
        return it == map.end() ? std::string("(none)") : it->second;
    };
    std::map<std::string, std::string> all = before;
    all.insert(after.begin(), after.end());
    for (const auto& [name, unused] : all) {
        const std::string a = value_in(before, name), b = value_in(after, name);
        if (a != b) out.push_back(fmt::format("{}: {} -> {}", name, a, b));
    }
    return out;
}

}  // namespace gdnctl::loop
