#pragma once

#include <map>
#include <string>

#include "platform/env.h"

namespace gdnctl::test {

class FakeEnv final : public Env {
public:
    FakeEnv() = default;
    FakeEnv(std::initializer_list<std::pair<const std::string, std::string>> variables) : values(variables) {}

    std::optional<std::string> get(std::string_view name) const override {
        const auto found = values.find(std::string(name));
        if (found == values.end()) return std::nullopt;
        return found->second;
    }
    std::map<std::string, std::string> all() const override { return values; }

    std::map<std::string, std::string> values;
};

}  // namespace gdnctl::test
