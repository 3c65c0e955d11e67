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

const Env& process_env();

}  // namespace gdnctl
