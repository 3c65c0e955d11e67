// What the tests of child processes share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "core/text.h"
#include "platform/descendants.h"
#include "platform/process.h"

namespace gdnctl::test {

inline ProcessSpec shell(const std::string& script) {
    ProcessSpec spec;
    spec.argv = {"/bin/sh", "-c", script};
    return spec;
}

inline ProcessSpec helper(const std::string& name, std::vector<std::string> words = {}) {
    ProcessSpec spec;
    spec.argv = {std::string(GDNCTL_TEST_BIN) + "/" + name};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    return spec;
}

inline ProcessResult must_run(const ProcessSpec& spec) {
    auto result = system_process().run(spec);
    REQUIRE_MESSAGE(result, (result ? "" : result.error().text()));
    return *result;
}

inline Error must_fail(const ProcessSpec& spec) {
    auto result = system_process().run(spec);
    REQUIRE_FALSE(result);
    return result.error();
}

inline pid_t pid_in(std::string_view text) { return static_cast<pid_t>(text::parse_int(text::trim(text)).value_or(0)); }

inline bool is_gone(pid_t pid) {
    const auto info = process_info(pid);
    return !info || info->dead();
}

}  // namespace gdnctl::test
