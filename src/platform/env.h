// The process environment, injected.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gdnctl {

class Env {
public:
    virtual ~Env() = default;
    // nullopt: not set. Set but empty gives "".
    virtual std::optional<std::string> get(std::string_view name) const = 0;
    virtual std::map<std::string, std::string> all() const = 0;
};

// Whether the variable concerns a single repository (GIT_DIR, GIT_INDEX_FILE, ...). Git hooks and aliases set such
// variables, and they would point every git that we or our children start at that repository.
bool belongs_to_one_repository(std::string_view name);

// Variables that name the Python environment or project that is active in a shell (VIRTUAL_ENV, UV_PROJECT_ENVIRONMENT,
// CONDA_PREFIX, ...). A tool that heeds one installs into that environment, so jobs on this machine get none of them.
std::span<const std::string_view> active_python_variables();

// The variables that this process was started with, except those that concern a single git repository.
const Env& process_env();

}  // namespace gdnctl
