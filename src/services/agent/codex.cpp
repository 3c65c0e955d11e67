// Codex before a session: which program, what it supports, its command line and home, and what it would reject.
#include "services/agent/codex.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/agent/codex_events.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds k_question_limit{20};

bool is_program(const fs::path& path) {
    std::error_code ec;
    return fs::is_regular_file(path, ec) && access(path.c_str(), X_OK) == 0;
}

// npm wraps the program in a script, which does not forward signals.
fs::path behind_wrapper(const fs::path& path) {
    std::error_code ec;
    const fs::path resolved = fs::canonical(path, ec);
    if (ec) return path;
    if (resolved.filename() != "codex.js") return resolved;
    // …/@openai/codex/bin/codex.js → …/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex, installed
    // next to it or below it.
    const fs::path package = resolved.parent_path().parent_path();
    std::set<fs::path> found;
    for (const fs::path& scope : {package.parent_path(), package / "node_modules" / "@openai"}) {
        for (fs::directory_iterator it(scope, ec), end; !ec && it != end; it.increment(ec)) {
            if (!it->path().filename().string().starts_with("codex-linux-")) continue;
            std::error_code inner;
            for (fs::directory_iterator vendor(it->path() / "vendor", inner), last; !inner && vendor != last;
                 vendor.increment(inner)) {
                if (is_program(vendor->path() / "bin" / "codex")) found.insert(vendor->path() / "bin" / "codex");
            }
        }
        ec.clear();
    }
    return found.size() == 1 ? *found.begin() : resolved;
}

std::vector<fs::path> candidates(const CodexWanted& wanted) {
    std::vector<fs::path> found;
    const auto add = [&](const fs::path& path) {
        if (!is_program(path)) return;
        const fs::path program = behind_wrapper(path);
        if (std::find(found.begin(), found.end(), program) == found.end()) found.push_back(program);
    };
    const auto path = wanted.environment.find("PATH");
    const auto look_in_path = [&](const std::string& name) {
        if (path == wanted.environment.end()) return;
        for (const auto folder : text::split(path->second, ':')) {
            if (!folder.empty() && is_program(fs::path(folder) / name)) return add(fs::path(folder) / name);
        }
    };
    if (!wanted.program.empty()) {
        if (wanted.program.string().find('/') == std::string::npos) {
            look_in_path(wanted.program.string());
        } else {
            add(wanted.program);
        }
        if (found.empty()) log::warning("--codex-bin {}: no such program", wanted.program.string());
    }
    look_in_path("codex");
    add("/Applications/Codex.app/Contents/Resources/codex");
    if (!wanted.home.empty()) add(wanted.home / "Applications/Codex.app/Contents/Resources/codex");
    return found;
}

// Its standard output; nullopt if it does not know the command.
std::optional<std::string> ask(const CodexWanted& wanted, const fs::path& program, std::vector<std::string> words,
                               Process& process) {
    ProcessSpec spec;
    spec.argv = {program.string()};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.clean_env = true;
    for (const auto& [name, value] : wanted.environment) spec.env.insert_or_assign(name, value);
    spec.cwd = wanted.nowhere;
    spec.wall_limit = k_question_limit;
    const auto result = process.run(spec);
    if (!result || !result->ok()) return std::nullopt;
    return result->out;
}

bool has_word(std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const char before = at == 0 ? ' ' : text[at - 1];
        const char after = at + word.size() < text.size() ? text[at + word.size()] : ' ';
        const auto inner = [](char c) {
            return c == '-' || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        };
        if (!inner(before) && !inner(after)) return true;
    }
    return false;
}

CodexProgram question(const CodexWanted& wanted, const fs::path& path, Process& process) {
    CodexProgram program;
    program.path = path;
    program.version = std::string(text::trim(ask(wanted, path, {"--version"}, process).value_or("")));
    if (const auto list = ask(wanted, path, {"debug", "models", "--bundled"}, process)) {
        if (auto models = parse_codex_models(*list)) program.models = std::move(*models);
    }
    if (const auto list = ask(wanted, path, {"features", "list"}, process)) {
        for (const auto line : text::split(*list, '\n')) {
            const auto name = line.substr(0, line.find_first_of(" \t"));
            if (!name.empty()) program.features.emplace_back(name);
        }
    }
    if (const auto help = ask(wanted, path, {"exec", "--help"}, process)) {
        program.search_flag = has_word(*help, "--search");
        program.has_json = has_word(*help, "--json");
    }
    return program;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

Result<std::vector<CodexModel>> parse_codex_models(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json json, parse_json(text, "codex's list of models"));
    const Json& list = json::field(json, "models");
    if (!list.is_array()) return fail(ErrorKind::bad_input, "codex's list of models has no \"models\"");
    std::vector<CodexModel> models;
    for (const Json& entry : list) {
        CodexModel model;
        model.slug = json::text(entry, "slug");
        if (model.slug.empty()) continue;
        model.listed = json::text(entry, "visibility") != "hide";
        if (const Json& levels = json::field(entry, "supported_reasoning_levels"); levels.is_array()) {
            for (const Json& level : levels) {
                if (auto effort = json::text(level, "effort"); !effort.empty())
                    model.efforts.push_back(std::move(effort));
            }
        }
        models.push_back(std::move(model));
    }
    return models;
}

std::vector<std::string> codex_efforts(const CodexProgram& program) {
    std::vector<std::string> efforts;
    for (const auto& model : program.models) {
        for (const auto& effort : model.efforts) {
            if (!contains(efforts, effort)) efforts.push_back(effort);
        }
    }
    return efforts;
}

Result<CodexProgram> find_codex(const CodexWanted& wanted, Process& process) {
    const auto paths = candidates(wanted);
    if (paths.empty()) {
        return fail(ErrorKind::usage,
                    "Could not find a `codex` binary. Install Codex CLI or pass --codex-bin /path/to/codex.",
                    std::string(k_codex_install));
    }
    std::optional<CodexProgram> silent;
    std::vector<std::string> refusals;
    for (const auto& path : paths) {
        CodexProgram program = question(wanted, path, process);
        const auto efforts = codex_efforts(program);
        if (wanted.effort.empty() || contains(efforts, wanted.effort)) return program;
        if (efforts.empty()) {
            if (!silent) silent = std::move(program);
        } else {
            refusals.push_back(fmt::format("{}: {}", path.string(), text::join(efforts, ", ")));
        }
    }
    if (silent) {
        log::warning("{} does not say which reasoning efforts it supports; continuing with '{}'", silent->path.string(),
                     wanted.effort);
        return *silent;
    }
    return fail(
        ErrorKind::usage,
        fmt::format("no codex supports the reasoning effort '{}' ({})", wanted.effort, text::join(refusals, "; ")),
        "choose one of those with --reasoning-effort");
}

namespace {

// The state that a run keeps separate. Everything else in a user's home is configuration, credentials or instructions.
bool is_state(const std::string& name) {
    constexpr std::array<std::string_view, 9> k_own = {
        "sessions",  "archived_sessions", "history.jsonl", "session_index.jsonl", "log", "tmp",
        "worktrees", "shell_snapshots",   "cache"};
    if (std::find(k_own.begin(), k_own.end(), name) != k_own.end()) return true;
    return name.find(".sqlite") != std::string::npos || name.ends_with(".lock");
}

// "a.b.c" of `a . "b".c`
std::string plain_key(std::string_view words) {
    std::string key;
    for (const auto part : text::split(words, '.')) {
        auto name = text::trim(part);
        if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'')) name = name.substr(1, name.size() - 2);
        key += (key.empty() ? "" : ".") + std::string(name);
    }
    return key;
}

// The string at a key such as "a.b.c" of a TOML file, read line by line; empty: none found.
std::string setting_in(const fs::path& file, std::string_view key) {
    const auto toml = read_file_if_exists(file);
    if (!toml || !*toml) return {};
    std::string section;
    for (const auto raw : text::split(**toml, '\n')) {
        const auto line = text::trim(raw);
        if (line.starts_with('[')) {
            section = plain_key(line.substr(1, line.find(']') - 1)) + ".";
            continue;
        }
        const auto equals = line.find('=');
        if (equals == std::string_view::npos || section + plain_key(line.substr(0, equals)) != key) continue;
        const auto value = text::trim(line.substr(equals + 1));
        if (value.empty() || (value.front() != '"' && value.front() != '\'')) return {};
        const auto end = value.find(value.front(), 1);
        return end == std::string_view::npos ? std::string() : std::string(value.substr(1, end - 1));
    }
    return {};
}

}  // namespace

fs::path codex_home_of(const std::map<std::string, std::string>& environment) {
    const auto value = [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    };
    return value("CODEX_HOME").empty() ? fs::path(value("HOME")) / ".codex" : fs::path(value("CODEX_HOME"));
}

bool codex_login_needs_home(const fs::path& user_home) {
    const std::string store = setting_in(user_home / "config.toml", "cli_auth_credentials_store");
    std::error_code ec;
    return store == "keyring" || (store == "auto" && !fs::exists(user_home / "auth.json", ec));
}

std::string codex_provider_variable(const fs::path& user_home, const std::string& profile) {
    std::vector<fs::path> layers = {user_home / "config.toml"};  // later ones override earlier ones
    if (!profile.empty()) layers.push_back(user_home / (profile + ".config.toml"));
    const auto last = [&](const std::string& key) {
        std::string value;
        for (const auto& layer : layers) {
            if (auto found = setting_in(layer, key); !found.empty()) value = std::move(found);
        }
        return value;
    };
    const std::string provider = last("model_provider");
    return provider.empty() ? std::string() : last(fmt::format("model_providers.{}.env_key", provider));
}

Status make_codex_home(const fs::path& folder, const fs::path& user_home) {
    std::error_code ec;
    if (!fs::is_directory(user_home, ec)) {
        return fail(ErrorKind::config, fmt::format("codex has no home: {}", user_home.string()),
                    "run `codex login` once, or set CODEX_HOME");
    }
    GDNCTL_TRY(make_private_directory(folder));
    const fs::path from = fs::absolute(user_home, ec);
    for (fs::directory_iterator it(from, ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        if (is_state(name)) continue;
        const fs::path link = folder / name;
        std::error_code of_link;
        if (fs::is_symlink(link, of_link) && fs::read_symlink(link, of_link) == it->path()) continue;
        if (fs::exists(fs::symlink_status(link, of_link))) continue;  // codex has already created its own
        of_link.clear();
        fs::create_symlink(it->path(), link, of_link);
        if (of_link) return tl::unexpected(file_error(ErrorKind::local_io, "make", link, of_link.value()));
    }
    if (ec) return tl::unexpected(file_error(ErrorKind::local_io, "read", from, ec.value()));
    return {};
}

namespace {

// As JSON, which for these values is also valid TOML.
std::string setting(std::string_view key, std::string_view value) {
    return std::string(key) + "=" + to_text(Json(std::string(value)));
}

}  // namespace

std::vector<std::string> codex_argv(const CodexSettings& settings, const std::filesystem::path& worktree,
                                    const std::filesystem::path& message_file, std::string_view resume_thread) {
    std::vector<std::string> words = {settings.program.path.string(), "exec", "-C", worktree.string()};
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    const bool resumes = !resume_thread.empty();
    // `resume` supports fewer options than `exec`, so they go before it.
    if (resumes && !settings.profile.empty()) add({"-p", settings.profile});
    if (resumes) add({"resume", std::string(resume_thread)});
    add({"--dangerously-bypass-approvals-and-sandbox"});
    if (settings.json) add({"--json"});
    if (!message_file.empty()) add({"-o", message_file.string()});
    if (!settings.model.empty()) add({"-m", settings.model});
    if (!settings.effort.empty()) add({"-c", setting("model_reasoning_effort", settings.effort)});
    if (!settings.program.search_flag) {
        add({"-c", setting("web_search", settings.search ? "live" : "disabled")});
    } else if (settings.search) {
        add({"--search"});
    }
    if (!resumes && !settings.profile.empty()) add({"-p", settings.profile});
    const auto& features = settings.program.features;
    const std::string endless = "unbounded_connection_retries";
    if (std::find(features.begin(), features.end(), endless) != features.end()) add({"--disable", endless});
    if (settings.ephemeral) add({"--ephemeral"});
    add({"-"});
    return words;
}

// What can be rejected before a request is paid for.

namespace {

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
    // A program that cannot list its models is old, or another program.
    if (!checked.settings.program.models.empty()) GDNCTL_TRY(check_words(checked, nowhere, environment, process));
    return checked;
}

}  // namespace gdnctl
