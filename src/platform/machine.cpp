#include "platform/machine.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/env.h"

namespace gdnctl {

std::string expand_home(std::string_view path, std::string_view home) {
    if (!path.starts_with('~')) return std::string(path);
    const std::string_view user = path.substr(1, std::min(path.size(), path.find('/')) - 1);
    std::string folder(user.empty() ? home : "");
    if (folder.empty()) {
        const passwd* known = user.empty() ? getpwuid(geteuid()) : getpwnam(std::string(user).c_str());
        if (known == nullptr || known->pw_dir == nullptr) return std::string(path);
        folder = known->pw_dir;
    }
    return folder + std::string(path.substr(user.size() + 1));
}

std::optional<std::string> host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? std::optional<std::string>(name.data()) : std::nullopt;
}

std::vector<std::string> c_compiler(const Env& env) {
    const auto named = env.get("CC");
    const auto words = named ? text::shell_split(*named) : std::nullopt;
    return words && !words->empty() ? *words : std::vector<std::string>{"cc"};
}

bool has_c_compiler(const Env& env) {
    const std::string name = c_compiler(env).front();
    if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0;
    const std::string path = env.get("PATH").value_or("/usr/bin:/bin");
    for (const auto folder : text::split(path, ':')) {
        if (!folder.empty() && access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return true;
    }
    return false;
}

std::string random_hex(std::size_t digits) {
    std::random_device random;
    std::string text;
    while (text.size() < digits) text += fmt::format("{:08x}", random());
    return text.substr(0, digits);
}

}  // namespace gdnctl
