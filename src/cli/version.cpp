#include "cli/version.h"

#include <array>

#include <fmt/format.h>
#include <unistd.h>

#include "core/json.h"
#include "core/text.h"
#include "core/version.h"

namespace gdnctl::cli {

namespace {

constexpr std::array k_libraries = {
    OptionalLibrary{"libcurl", "libcurl.so.4", "libcurl4", "everything that talks to a server"},
    OptionalLibrary{"libgit2", "libgit2.so.1.5", "libgit2-1.5",
                    "fast reading of repositories (the git program is used instead)"},
    OptionalLibrary{"libcrypto", "libcrypto.so.3", "libssl3", "fast hashes"},
    OptionalLibrary{"isa-l", "libisal.so.2", "libisal2", "fast decompression (zlib is used instead)"},
};

constexpr std::array<std::string_view, 8> k_folders = {"/usr/local/lib",
                                                       "/lib/x86_64-linux-gnu",
                                                       "/usr/lib/x86_64-linux-gnu",
                                                       "/lib/aarch64-linux-gnu",
                                                       "/usr/lib/aarch64-linux-gnu",
                                                       "/lib64",
                                                       "/usr/lib64",
                                                       "/usr/lib"};

}  // namespace

std::span<const OptionalLibrary> optional_libraries() { return k_libraries; }

std::optional<std::filesystem::path> find_library(const Env& env, std::string_view soname) {
    const auto in = [&](std::string_view folder) -> std::optional<std::filesystem::path> {
        if (folder.empty()) return std::nullopt;
        std::filesystem::path path = std::filesystem::path(folder) / soname;
        if (access(path.c_str(), R_OK) != 0) return std::nullopt;
        return path;
    };
    const std::string own = env.get("LD_LIBRARY_PATH").value_or("");
    for (const std::string_view folder : text::split(own, ':')) {
        if (auto found = in(folder)) return found;
    }
    for (const std::string_view folder : k_folders) {
        if (auto found = in(folder)) return found;
    }
    return std::nullopt;
}

std::string version_text(const Env& env, bool json, int indent) {
    Json libraries = Json::array();
    std::string text =
        fmt::format("gdnctl {} ({})\n", version(), is_release() ? "release" : fmt::format("commit {}", commit()));
    for (const OptionalLibrary& library : optional_libraries()) {
        const auto path = find_library(env, library.soname);
        text += fmt::format("{:<10} {}\n", library.name, path ? path->string() : "not found");
        Json entry = {{"name", library.name}, {"soname", library.soname}, {"found", path.has_value()}};
        if (path) entry["path"] = path->string();
        libraries.push_back(std::move(entry));
    }
    if (!json) return text;
    const Json report = {{"schema", "gdnctl.version/1"},
                         {"version", version()},
                         {"commit", commit()},
                         {"release", is_release()},
                         {"libraries", std::move(libraries)}};
    return to_text(report, indent) + "\n";
}

}  // namespace gdnctl::cli
