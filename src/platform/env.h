// The process environment, injected.
#pragma once

#include <map>
#include <optional>
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

// Whether git gives the variable a meaning in one repository alone (GIT_DIR, GIT_INDEX_FILE, ...). A hook or an alias
// of git sets such variables. They would lead every git that we or our children start to that repository.
bool belongs_to_one_repository(std::string_view name);

// The variables that this process was started with, but those that belong to one repository of git.
const Env& process_env();

}  // namespace gdnctl
