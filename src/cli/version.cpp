#include "cli/version.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/libraries.h"
#include "core/json.h"
#include "core/version.h"

namespace gdnctl::cli {

std::string version_text(const Env& env, bool json) {
    Json libraries = Json::array();
    std::string text = fmt::format("gdnctl {} (commit {})\n", version(), commit());
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
                         {"libraries", std::move(libraries)}};
    return to_text(report, 2) + "\n";
}

}  // namespace gdnctl::cli
