#include "target/target.h"

#include <algorithm>
#include <system_error>

#include "core/text.h"
#include "target/builtin.h"

namespace gdnctl {

namespace {

constexpr std::string_view k_files = "{files}";

const ConfigTable* configured(const Config& config, std::string_view name) {
    const auto targets = config.root().find("targets");
    if (targets == config.root().end()) return nullptr;
    const ConfigTable* table = targets->second.as_table();
    if (table == nullptr) return nullptr;
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second.as_table();
}

const Target* builtin(std::string_view name) {
    for (const Target& t : detail::builtin_targets()) {
        if (t.name == name) return &t;
    }
    return nullptr;
}

Result<Target> load(const Config& config, const std::string& name) {
    Target base;
    base.name = name;
    if (const Target* t = builtin(name)) base = *t;
    const ConfigTable* table = configured(config, name);
    if (table == nullptr) return base;
    return detail::parse_target(std::move(base), *table);
}

bool is_root(const Target& target, const std::filesystem::path& root) {
    std::error_code ignored;
    return !target.root_marker.empty() && std::filesystem::exists(root / target.root_marker, ignored);
}

JobCommand as_written(const TargetJob& job, std::string_view self) {
    std::vector<std::string> argv = job.argv;
    if (argv.front() == "gdnctl") argv.front() = self;
    JobCommand command;
    if (!job.workdir.empty()) command.entrypoint = "cd " + text::shell_quote(job.workdir) + " && ";
    command.entrypoint += text::shell_join(argv);
    command.workdir = job.workdir;
    command.env = job.env;
    command.resources = job.resources;
    command.timeout_s = job.timeout_s;
    return command;
}

}  // namespace

std::vector<std::string> target_names(const Config& config) {
    std::vector<std::string> names;
    for (const Target& t : detail::builtin_targets()) names.push_back(t.name);
    if (const auto it = config.root().find("targets"); it != config.root().end()) {
        if (const ConfigTable* table = it->second.as_table()) {
            for (const auto& [name, value] : *table) names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

Result<Target> select_target(const Config& config, const std::filesystem::path& root) {
    GDNCTL_TRY_ASSIGN(const std::optional<std::string> wanted, config.string("target"));
    if (wanted) {
        const auto names = target_names(config);
        if (std::find(names.begin(), names.end(), *wanted) != names.end()) return load(config, *wanted);
        const auto near = text::nearest(*wanted, names);
        return fail(ErrorKind::config, config.find("target")->origin.text() + ": unknown target '" + *wanted + "'",
                    near ? "did you mean `" + *near + "`?" : "known targets: " + text::join(names, ", "));
    }
    for (const Target& t : detail::builtin_targets()) {
        if (is_root(t, root)) return load(config, t.name);
    }
    return load(config, detail::builtin_targets().back().name);
}

bool target_is_named(const Config& config) {
    const ConfigValue* named = config.find("target");
    return named != nullptr && named->origin.kind != ConfigOrigin::Kind::builtin;
}

Status check_configured_targets(const Config& config, Status (*check)(const Target&)) {
    const ConfigValue* targets = config.find("targets");
    const ConfigTable* table = targets == nullptr ? nullptr : targets->as_table();
    if (table == nullptr) return {};
    for (const auto& [name, value] : *table) {
        GDNCTL_TRY_ASSIGN(const Target target, load(config, name));
        GDNCTL_TRY(check(target));
    }
    return {};
}

Result<JobCommand> test_command(const Target& target, const TestSelection& selection, std::string_view self) {
    if (!target.test) return fail(ErrorKind::usage, "target '" + target.name + "' has no test");
    if (target.style == TargetStyle::levanter) return detail::levanter_test(target, selection);
    if (!text::trim(selection.pytest_args).empty()) {
        return fail(ErrorKind::usage, "target '" + target.name + "' does not accept --pytest-args",
                    "its test is run as written: " + text::shell_join(target.test->argv));
    }
    if (selection.suite != TestSelection().suite) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no suites to choose from with --tests",
                    "its test is run as written: " + text::shell_join(target.test->argv));
    }
    return as_written(*target.test, self);
}

Result<JobCommand> profile_command(const Target& target, const ProfileSettings& settings, std::string_view self) {
    if (!target.profile) {
        return fail(ErrorKind::usage, "target '" + target.name + "' has no profile",
                    "add [targets." + target.name + ".profile] with an argv to gdnctl.toml");
    }
    if (target.style == TargetStyle::levanter) return detail::levanter_profile(target, settings);
    ProfileSettings recipe = settings;
    recipe.tpu = ProfileSettings().tpu;
    recipe.dry_run = recipe.on_dev_tpu = false;
    if (recipe != ProfileSettings()) {
        return fail(ErrorKind::usage, "target '" + target.name + "' does not accept options for the model and its run",
                    "its profile runs as it is written: " + text::shell_join(target.profile->argv));
    }
    return as_written(*target.profile, self);
}

bool uses_files(const Target& target) {
    const auto here = [](const std::optional<TargetJob>& job) { return job && !job->argv_here.empty(); };
    return here(target.test) || here(target.profile);
}

Target with_files_in(Target target, const std::filesystem::path& folder) {
    for (auto* job : {&target.test, &target.profile}) {
        if (!*job || (*job)->argv_here.empty()) continue;
        (*job)->argv = (*job)->argv_here;
        for (std::string& word : (*job)->argv) {
            if (const auto at = word.find(k_files); at != std::string::npos) {
                word.replace(at, k_files.size(), folder.string());
            }
        }
    }
    return target;
}

EnvList cluster_env(const Target& target) {
    return target.style == TargetStyle::levanter ? detail::levanter_cluster_env() : EnvList();
}

}  // namespace gdnctl
