#include "gdnctl/platform/env.h"

#include <cstdlib>

#include <unistd.h>

namespace gdnctl {

namespace {

class ProcessEnv final : public Env {
public:
    std::optional<std::string> get(std::string_view name) const override {
        const char* value = std::getenv(std::string(name).c_str());
        if (value == nullptr) return std::nullopt;
        return std::string(value);
    }

    std::map<std::string, std::string> all() const override {
        std::map<std::string, std::string> variables;
        for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
            const std::string_view text = *entry;
            const std::size_t equals = text.find('=');
            if (equals == std::string_view::npos) continue;
            // As getenv() does: the first of two equal names counts.
            variables.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
        return variables;
    }
};

}  // namespace

const Env& process_env() {
    static const ProcessEnv env;
    return env;
}

}  // namespace gdnctl
