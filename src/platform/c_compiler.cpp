#include "platform/c_compiler.h"

#include <filesystem>

#include <unistd.h>

#include "core/text.h"
#include "platform/env.h"

namespace gdnctl {

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

}  // namespace gdnctl
