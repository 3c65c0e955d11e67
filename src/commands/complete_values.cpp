#include "commands/complete_values.h"

#include <algorithm>
#include <array>

#include "commands/job_place.h"
#include "gdnctl/commands/table.h"
#include "gdnctl/core/config.h"
#include "gdnctl/core/target.h"
#include "gdnctl/platform/terminal.h"
#include "gdnctl/services/cluster.h"

namespace gdnctl::commands::complete_values {

namespace {

constexpr std::array<std::string_view, 4> k_kinds = {"target", "cluster", "local-job", "command"};

std::vector<std::string> clusters(const Context& context) {
    std::vector<std::string> names = {"local"};
    for (std::string& name : cluster_names(project_root(context))) names.push_back(std::move(name));
    const ConfigValue* configured = context.config.find("cluster");
    const std::string* name = configured == nullptr ? nullptr : configured->as_string();
    if (name != nullptr && std::find(names.begin(), names.end(), *name) == names.end()) names.push_back(*name);
    return names;
}

// The local backend keeps one folder a job.
std::vector<std::string> local_jobs(const std::filesystem::path& state) {
    std::vector<std::string> ids;
    std::error_code ignored;
    for (std::filesystem::directory_iterator it(state / "local" / "jobs", ignored), end; it != end;
         it.increment(ignored)) {
        const std::string name = it->path().filename().string();
        if (it->is_directory(ignored) && !name.starts_with('.')) ids.push_back(name);  // '.': being made or removed
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::string> command_names() {
    std::vector<std::string> names;
    for (const cli::Command& command : table()) {
        if (!command.group.empty()) names.emplace_back(command.name);
    }
    return names;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Prints the values that a completion script offers, one a line.");
    args.example("gdnctl __complete target");
    args.positional(options.kind, k_kinds, {.name = "KIND", .help = "what is being completed"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    std::vector<std::string> values;
    if (options.kind == "target") values = target_names(context.config);
    if (options.kind == "cluster") values = clusters(context);
    if (options.kind == "local-job") values = local_jobs(context.state_dir);
    if (options.kind == "command") values = command_names();
    for (const std::string& value : values) context.terminal.out(value + "\n");
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::complete_values
