// Options for every ssh that gdnctl starts.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gdnctl {

// Words of ssh's command line, "-o" and "Name=value", which ssh prefers to every configuration file. They undo what
// would break a command if the user's configuration sets it for all hosts: RequestTTY, RemoteCommand, LocalCommand, ...
// Routes (Port, ProxyJump, ProxyCommand) and keys stay the user's.
std::vector<std::string> ssh_overrides();

using SshSettings = std::vector<std::pair<std::string, std::string>>;
std::vector<std::string> ssh_words(const SshSettings& settings);

// A path as the value of an ssh option, where `%` starts a token, and blanks, quotes and backslashes need quotes.
// `token`: appended as it is, such as "/%C". Pure.
std::string ssh_path(const std::filesystem::path& path, std::string_view token = {});

}  // namespace gdnctl
