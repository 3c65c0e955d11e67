#include "platform/env.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <unistd.h>

namespace gdnctl {

namespace {

// `git rev-parse --local-env-vars` without GIT_CONFIG_COUNT, which people set for all their repositories.
constexpr std::array<std::string_view, 17> k_of_one_repository = {"GIT_DIR",
                                                                  "GIT_WORK_TREE",
                                                                  "GIT_INDEX_FILE",
                                                                  "GIT_COMMON_DIR",
                                                                  "GIT_OBJECT_DIRECTORY",
                                                                  "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                                                                  "GIT_QUARANTINE_PATH",
                                                                  "GIT_NAMESPACE",
                                                                  "GIT_PREFIX",
                                                                  "GIT_INTERNAL_SUPER_PREFIX",
                                                                  "GIT_IMPLICIT_WORK_TREE",
                                                                  "GIT_GRAFT_FILE",
                                                                  "GIT_SHALLOW_FILE",
                                                                  "GIT_REPLACE_REF_BASE",
                                                                  "GIT_NO_REPLACE_OBJECTS",
                                                                  "GIT_CONFIG",
                                                                  "GIT_CONFIG_PARAMETERS"};

constexpr std::array<std::string_view, 12> k_active_python = {
    "VIRTUAL_ENV",           "VIRTUAL_ENV_PROMPT",   "UV_PROJECT_ENVIRONMENT", "UV_PROJECT",
    "UV_WORKING_DIR",        "UV_WORKING_DIRECTORY", "CONDA_PREFIX",           "CONDA_DEFAULT_ENV",
    "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL",          "PIPENV_ACTIVE",          "POETRY_ACTIVE"};

class ProcessEnv final : public Env {
public:
    std::optional<std::string> get(std::string_view name) const override {
        if (belongs_to_one_repository(name)) return std::nullopt;
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
            if (belongs_to_one_repository(text.substr(0, equals))) continue;
            // As with getenv(), the first of two equal names counts.
            variables.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
        return variables;
    }
};

}  // namespace

bool belongs_to_one_repository(std::string_view name) {
    return std::find(k_of_one_repository.begin(), k_of_one_repository.end(), name) != k_of_one_repository.end();
}

std::span<const std::string_view> active_python_variables() { return k_active_python; }

const Env& process_env() {
    static const ProcessEnv env;
    return env;
}

}  // namespace gdnctl
