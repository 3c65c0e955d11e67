// Finds codex programs and what they support. Starts no session.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "services/agent/codex.h"
#include "services/agent/json_fields.h"

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

}  // namespace gdnctl
