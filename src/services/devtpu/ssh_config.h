// Our block in the user's ~/.ssh/config. Everything outside its markers stays unchanged, byte for byte.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/ssh_options.h"

namespace gdnctl::devtpu {

struct SshHost {
    std::string name;      // of the TPU
    std::string hostname;  // address
    std::string user;
    std::string key_alias;              // HostKeyAlias: a recreated machine has a new key
    std::filesystem::path known_hosts;  // used only by us
    std::filesystem::path identity;     // empty: none
    std::filesystem::path control;      // folder of shared connections; empty: connections are not shared
};

// How ssh reaches the host. With a key of its own only that one and those of the user's configuration are offered: a
// server accepts few attempts, and an ssh-agent may hold many keys. Pure.
SshSettings ssh_settings(const SshHost& host);

// The lines from `# BEGIN_DEV_TPU_<NAME>` to `# END_DEV_TPU_<NAME>`. They end with `Match all`, so that lines without a
// `Host` below them still apply to all hosts. Pure.
std::string ssh_block(const SshHost& host);

// The configuration with the block of this TPU replaced, or put at its top: ssh takes the first value that it finds. A
// duplicate block is removed twice; a marker without its end is the user's, and stays. Pure.
std::string with_block(std::string_view config, const SshHost& host);
// The configuration without the block of TPU `name`. Pure.
std::string without_block(std::string_view config, std::string_view name);
// Whether a `Host` line contains the alias of TPU `name` as a whole word. Pure.
bool has_alias(std::string_view config, std::string_view name);

// The same for a file, locked by a file next to it and replaced as a whole. Keeps mode and symbolic links, and once a
// copy as FILE.bak. A file or folder without write permission stays unchanged, also for root. Errors: local_io.
Status write_block(const std::filesystem::path& config, const SshHost& host);
Status remove_block(const std::filesystem::path& config, std::string_view name);

}  // namespace gdnctl::devtpu
