// What can be rejected before a request is paid for.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/agent/codex.h"
#include "services/agent/human.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds k_dry_limit{30};
// With an empty prompt, codex says this once it has accepted its arguments and configuration.
constexpr std::string_view k_accepted = "No prompt provided via stdin.";

const CodexModel* find_model(const CodexProgram& program, std::string_view slug) {
    const auto found = std::find_if(program.models.begin(), program.models.end(),
                                    [&](const CodexModel& model) { return model.slug == slug; });
    return found == program.models.end() ? nullptr : &*found;
}

std::string nearest_names(const CodexProgram& program, const std::string& name) {
    std::vector<std::pair<std::size_t, std::string>> ranked;
    for (const auto& model : program.models) {
        if (model.listed) ranked.emplace_back(text::edit_distance(name, model.slug, 32), model.slug);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> names;
    constexpr std::size_t k_most = 3;
    for (std::size_t i = 0; i < std::min(k_most, ranked.size()); ++i) names.push_back(ranked[i].second);
    return text::join(names, ", ");
}

Status check_effort(const CodexChecked& checked, const CodexModel* model) {
    const CodexSettings& settings = checked.settings;
    const auto efforts = model != nullptr ? model->efforts : codex_efforts(settings.program);
    if (settings.effort.empty() || efforts.empty()) return {};
    if (std::find(efforts.begin(), efforts.end(), settings.effort) != efforts.end()) return {};
    const std::string whose = model != nullptr ? fmt::format("the model '{}'", model->slug) : "no model of this codex";
    return fail(ErrorKind::usage,
                fmt::format("{} {} the reasoning effort '{}'", whose,
                            model != nullptr ? "does not support" : "supports", settings.effort),
                fmt::format("supported: {}", text::join(efforts, ", ")));
}

Status check_model(CodexChecked& checked) {
    CodexSettings& settings = checked.settings;
    if (settings.program.models.empty()) {
        checked.warnings.push_back("this codex cannot list its models: model and effort are not checked");
        return {};
    }
    const CodexModel* model = settings.model.empty() ? nullptr : find_model(settings.program, settings.model);
    if (model == nullptr && !settings.model.empty()) {
        const std::string names = nearest_names(settings.program, settings.model);
        if (settings.model_given && settings.strict_model) {
            return fail(ErrorKind::usage, fmt::format("codex does not know the model '{}'", settings.model),
                        fmt::format("similar names: {}", names));
        }
        if (settings.model_given) {
            checked.warnings.push_back(fmt::format(
                "codex does not know the model '{}' and will work without its patch tool; similar names: {}",
                settings.model, names));
        } else {
            checked.warnings.push_back(
                fmt::format("codex does not know the default model '{}'; its own default is used", settings.model));
            settings.model.clear();
        }
    }
    return check_effort(checked, model);
}

Status check_profile(const CodexSettings& settings, const fs::path& codex_home) {
    if (settings.profile.empty()) return {};
    const bool plain = settings.profile.find('/') == std::string::npos && settings.profile != "..";
    const fs::path file = codex_home / (settings.profile + ".config.toml");
    std::error_code ec;
    if (plain && fs::is_regular_file(file, ec)) return {};
    return fail(ErrorKind::usage, fmt::format("codex has no profile '{}'", settings.profile),
                fmt::format("a profile is a file: {}", file.string()));
}

// codex's complaint as one line; empty: no known complaint. It may continue after a first line that ends with a colon,
// and name the setting on a line of its own.
std::string complaint_in(std::string_view err) {
    std::string complaint;
    for (const auto line : text::split(err, '\n')) {
        const std::string_view words = text::trim(line);
        if (complaint.empty()) {
            const bool known = text::to_lower(line.substr(0, 6)) == "error:" || line.starts_with("Error loading ");
            if (known) complaint = words;
        } else if (!words.empty() && (complaint.ends_with(':') || words.starts_with("in `"))) {
            complaint.append(" ").append(words);
        }
    }
    return complaint;
}

// Runs the same command line with an empty prompt: no session, no request. It runs in an empty folder, because another
// program of this name might do anything. Only known complaints count.
Status check_words(CodexChecked& checked, const fs::path& nowhere,
                   const std::map<std::string, std::string>& environment, Process& process) {
    ProcessSpec spec;
    spec.argv = codex_argv(checked.settings, nowhere, {}, {});
    spec.cwd = nowhere;
    spec.clean_env = true;
    for (const auto& [name, value] : environment) spec.env.insert_or_assign(name, value);
    spec.wall_limit = k_dry_limit;
    GDNCTL_TRY_ASSIGN(const ProcessResult result, process.run(spec));
    if (result.err.find(k_accepted) != std::string::npos) return {};
    std::string complaint = complaint_in(result.err);
    // A run's own home links to the user's file, and is removed with the run.
    const fs::path config = codex_home_of(environment) / "config.toml";
    std::error_code problem;
    const fs::path own = fs::canonical(config, problem);
    if (const auto at = complaint.find(config.string()); !problem && at != std::string::npos) {
        complaint.replace(at, config.string().size(), own.string());
    }
    if (complaint.empty() || result.ok()) {
        checked.warnings.push_back(
            fmt::format("this program does not respond to an empty prompt as Codex does ({}): its arguments and "
                        "configuration are not checked",
                        describe_end(result, spec)));
        return {};
    }
    return fail(ErrorKind::config,
                fmt::format("codex rejects its command line or configuration: {}", redact(complaint)),
                fmt::format("try it: {} </dev/null", text::shell_join(codex_argv(checked.settings, ".", {}, {}))));
}

}  // namespace

Result<CodexChecked> check_codex(CodexSettings settings, const fs::path& nowhere,
                                 const std::map<std::string, std::string>& environment, Process& process) {
    CodexChecked checked;
    checked.settings = std::move(settings);
    GDNCTL_TRY(check_model(checked));
    GDNCTL_TRY(check_profile(checked.settings, codex_home_of(environment)));
    if (!checked.settings.program.has_json) checked.settings.json = false;
    if (!checked.settings.output_schema.empty()) {
        GDNCTL_TRY_ASSIGN(const std::string schema, read_file(checked.settings.output_schema));
        GDNCTL_TRY(parse_json(schema, checked.settings.output_schema.string()));
    }
    // A program that cannot list its models is old, or another program.
    if (!checked.settings.program.models.empty()) GDNCTL_TRY(check_words(checked, nowhere, environment, process));
    return checked;
}

}  // namespace gdnctl
