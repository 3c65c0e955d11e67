#include "loop/engine/prompt.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_heading =
    "Session directives for this codex-loop run (must follow unless they conflict with tests/correctness):";

void replace_all(std::string& text, std::string_view what, std::string_view with) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
    }
}

// Also matches other cases and blanks: likely typos that would otherwise reach the agent.
bool is_placeholder_name(std::string_view name) {
    name = text::trim(name);
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

bool has_option(const std::vector<std::string>& words, std::string_view option, std::string_view value) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == fmt::format("{}={}", option, value)) return true;
        if (words[i] == option && i + 1 < words.size() && words[i + 1] == value) return true;
    }
    return false;
}

constexpr std::size_t k_document_limit = std::size_t{1} << 20;
constexpr std::string_view k_recipe_prompt = "scripts/gdn/codex_iteration_prompt.md";
constexpr std::array<std::string_view, 1> k_prompt_folders = {"prompts"};
constexpr std::array<std::string_view, 2> k_directive_folders = {"scripts/gdn/session_directives",
                                                                 "session_directives"};

std::span<const std::string_view> folders_of(DocumentKind kind) {
    if (kind == DocumentKind::prompt) return k_prompt_folders;
    return k_directive_folders;
}

struct FrontMatter {
    std::map<std::string, std::string, std::less<>> values;
    std::string_view body;
};

// `key: value` lines between two lines `---`, the first of which starts the text. Anything else belongs to the body.
FrontMatter front_matter(std::string_view text) {
    FrontMatter result{{}, text};
    constexpr std::string_view k_fence = "---";
    const auto line_at = [&](std::size_t at) { return text.substr(at, text.find('\n', at) - at); };
    if (text::trim(line_at(0)) != k_fence) return result;
    std::map<std::string, std::string, std::less<>> values;
    for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1)) {
        const auto line = line_at(end + 1);
        if (text::trim(line) == k_fence) {
            result.values = std::move(values);
            result.body = text.substr(std::min(text.size(), end + 1 + line.size()));
            return result;
        }
        const auto colon = line.find(':');
        if (colon == std::string_view::npos) continue;
        values.emplace(text::trim(line.substr(0, colon)), text::trim(line.substr(colon + 1)));
    }
    return result;
}

std::string first_heading(std::string_view text) {
    for (const auto line : text::split(text, '\n')) {
        const auto trimmed = text::trim(line);
        if (trimmed.starts_with('#')) {
            return std::string(text::trim(trimmed.substr(std::min(trimmed.size(), trimmed.find_first_not_of('#')))));
        }
        if (!trimmed.empty()) return std::string(trimmed);
    }
    return {};
}

Document read_document(DocumentKind kind, std::string_view name, fs::path file, std::string_view bytes) {
    Document document;
    document.kind = kind;
    document.name = name;
    document.file = std::move(file);
    if (kind == DocumentKind::prompt) {
        document.text = bytes;
        document.title = first_heading(bytes);
        return document;
    }
    auto front = front_matter(bytes);
    document.text = text::trim(front.body);
    document.title = front.values["title"];
    document.slot = front.values["slot"];
    for (const auto word : text::split(front.values["applies"], ',')) {
        if (const auto trimmed = text::trim(word); !trimmed.empty()) document.applies.emplace_back(trimmed);
    }
    if (document.title.empty()) document.title = first_heading(document.text);
    return document;
}

// A name is one path component and never a hidden file.
bool is_name(std::string_view name) {
    return !name.empty() && name.front() != '.' &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Named files, in lookup order.
std::vector<std::pair<std::string, fs::path>> files_of(DocumentKind kind, const fs::path& root) {
    std::vector<std::pair<std::string, fs::path>> found;
    if (root.empty()) return found;
    std::error_code ignored;
    const fs::path recipe = root / k_recipe_prompt;
    if (kind == DocumentKind::prompt && fs::is_regular_file(recipe, ignored)) {
        found.emplace_back(recipe.stem().string(), recipe);
    }
    for (const auto folder : folders_of(kind)) {
        std::vector<std::pair<std::string, fs::path>> here;
        for (fs::directory_iterator it(root / folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
            const fs::path& path = it->path();
            std::error_code gone;
            if (path.extension() == ".md" && is_name(path.stem().string()) && fs::is_regular_file(path, gone)) {
                here.emplace_back(path.stem().string(), path);
            }
        }
        std::sort(here.begin(), here.end());
        found.insert(found.end(), here.begin(), here.end());
    }
    return found;
}

std::optional<Document> embedded(DocumentKind kind, std::string_view name) {
    for (const auto& one : embedded_documents()) {
        if (one.prompt == (kind == DocumentKind::prompt) && one.name == name) {
            return read_document(kind, name, {}, one.text);
        }
    }
    return std::nullopt;
}

std::vector<Document> documents_of(DocumentKind kind, const fs::path& root) {
    std::map<std::string, Document> by_name;
    for (auto& [name, path] : files_of(kind, root)) {
        const auto bytes = read_file(path, {.limit = k_document_limit});
        if (bytes) by_name.emplace(name, read_document(kind, name, path, *bytes));
    }
    for (const auto& one : embedded_documents()) {
        if (one.prompt != (kind == DocumentKind::prompt)) continue;
        by_name.emplace(one.name, read_document(kind, one.name, {}, one.text));
    }
    std::vector<Document> all;
    for (auto& [name, document] : by_name) all.push_back(std::move(document));
    return all;
}

Error unknown_document(DocumentKind kind, std::string_view name, const fs::path& root) {
    std::vector<std::string> names;
    for (const auto& document : documents_of(kind, root)) names.push_back(document.name);
    const auto near = text::nearest(name, names);
    return {
        ErrorKind::usage,
        fmt::format("unknown {} `{}`", kind == DocumentKind::prompt ? "prompt" : "directive preset", name),
        fmt::format("{}available: {}", near ? fmt::format("did you mean `{}`? ", *near) : "", text::join(names, ", ")),
        {}};
}

// `source`: the origin as the recipe's messages name it.
Result<std::string> directive_from_file(const fs::path& file, std::string_view source) {
    std::error_code problem;
    if (!fs::exists(file, problem) || fs::is_directory(file, problem)) {
        return fail(ErrorKind::usage, fmt::format("directive file not found for {}: {}", source, file.string()));
    }
    GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(file, {.limit = k_document_limit}));
    Document document = read_document(DocumentKind::directive, file.stem().string(), file, bytes);
    if (document.text.empty()) {
        return fail(ErrorKind::usage, fmt::format("directive file is empty for {}: {}", source, file.string()));
    }
    return std::move(document.text);
}

}  // namespace

std::string assemble_prompt(std::string_view prompt_template, const PromptFacts& facts,
                            std::span<const std::string> directives) {
    std::string prompt(prompt_template);
    replace_all(prompt, "{{ITERATION}}", std::to_string(facts.iteration));
    replace_all(prompt, "{{TOTAL_ITERATIONS}}", std::to_string(facts.total));
    replace_all(prompt, "{{HEAD_SHA}}", facts.head_sha);
    if (directives.empty()) return prompt;
    while (!prompt.empty() && text::trim(std::string_view(prompt).substr(prompt.size() - 1)).empty()) prompt.pop_back();
    prompt += fmt::format("\n\n{}\n\n", k_heading);
    for (std::size_t i = 0; i < directives.size(); ++i) {
        prompt += fmt::format("[Directive {}]\n{}\n", i + 1, directives[i]);
    }
    return prompt;
}

std::vector<std::string> unknown_placeholders(std::string_view prompt_template) {
    std::vector<std::string> found;
    for (auto at = prompt_template.find("{{"); at != std::string_view::npos; at = prompt_template.find("{{", at + 2)) {
        const auto end = prompt_template.find("}}", at);
        if (end == std::string_view::npos) break;
        const auto name = prompt_template.substr(at + 2, end - at - 2);
        if (!is_placeholder_name(name) || name == "ITERATION" || name == "TOTAL_ITERATIONS" || name == "HEAD_SHA")
            continue;
        std::string whole = fmt::format("{{{{{}}}}}", name);
        if (std::find(found.begin(), found.end(), whole) == found.end()) found.push_back(std::move(whole));
    }
    return found;
}

std::vector<std::string> trimmed_directives(std::span<const std::string> given) {
    std::vector<std::string> kept;
    for (const auto& one : given) {
        const auto trimmed = text::trim(one);
        if (!trimmed.empty()) kept.emplace_back(trimmed);
    }
    return kept;
}

std::string managed_tpu_directive(std::string_view self, std::string_view cluster, std::string_view name,
                                  std::string_view type) {
    const std::string_view tpu = type.empty() ? "v5p-8" : type;
    return fmt::format(
        "Managed dev TPU mode is active for this run.\n\n"
        "- Use only dev TPU commands for validation/profiling on `--cluster {1}` and `--tpu-name {2}`.\n"
        "- Prefer `{0} dev-tpu-test --cluster {1} --tpu-name {2} --tests both` and `{0} dev-tpu-profile --cluster {1} "
        "--tpu-name {2} --tpu {3} ...`.\n"
        "- Avoid `ray-test` and `ray-profile` while this session is active.",
        self, cluster, name, tpu);
}

std::string gates_directive(const GateFacts& facts) {
    std::string text = fmt::format(
        "The loop validates the commits of this run.\n\n"
        "- After you finish, it runs {} on what you committed, and on nothing else: commit everything that belongs to "
        "the change.\n",
        facts.tests ? "the target's tests and a profile" : "a profile");
    if (!facts.metric.empty()) {
        text += fmt::format("- It then compares `{}` ({} is better) with the champion's, in runs of both.\n",
                            facts.metric, facts.higher_is_better ? "higher" : "lower");
    }
    if (!facts.ce_implementation.empty()) {
        text +=
            fmt::format("- Profiles run with cross-entropy `{}`, backward `{}`: leave these settings as they are.\n",
                        facts.ce_implementation, facts.ce_bwd_mode);
    }
    return text +
           "- A commit that fails is removed from the branch and kept on a ref. An iteration without a code change "
           "gets no device time.";
}

std::vector<std::string> post_check_warnings(std::span<const std::string> post_checks, std::string_view cluster,
                                             std::string_view name) {
    const auto has = [](const std::string& text, std::string_view word) {
        return text.find(word) != std::string::npos;
    };
    std::vector<std::string> warnings;
    for (const auto& command : post_checks) {
        if (has(command, "ray-test") || has(command, "ray-profile")) {
            warnings.emplace_back(
                "WARNING: --hold-dev-tpu is active but --post-check contains a Ray TPU command. Prefer "
                "dev-tpu-test/dev-tpu-profile for this loop session.");
        }
        if (!has(command, "dev-tpu-test") && !has(command, "dev-tpu-profile")) continue;
        const auto words = text::shell_split(command);
        if (words && has_option(*words, "--cluster", cluster) && has_option(*words, "--tpu-name", name)) continue;
        warnings.push_back(fmt::format(
            "WARNING: --hold-dev-tpu is active but --post-check does not target --cluster {} --tpu-name {}.", cluster,
            name));
    }
    return warnings;
}

std::string_view to_text(DocumentKind kind) { return kind == DocumentKind::prompt ? "prompt" : "directive"; }

std::vector<Document> documents(const fs::path& root) {
    std::vector<Document> all = documents_of(DocumentKind::prompt, root);
    for (auto& directive : documents_of(DocumentKind::directive, root)) all.push_back(std::move(directive));
    return all;
}

Result<Document> find_document(DocumentKind kind, std::string_view name, const fs::path& root) {
    for (const auto& [found, path] : files_of(kind, root)) {
        if (found != name) continue;
        GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(path, {.limit = k_document_limit}));
        Document document = read_document(kind, name, path, bytes);
        if (kind == DocumentKind::directive && document.text.empty()) {
            return fail(ErrorKind::usage,
                        fmt::format("directive file is empty for preset {}: {}", name, path.string()));
        }
        return document;
    }
    if (auto document = embedded(kind, name)) return std::move(*document);
    return tl::unexpected(unknown_document(kind, name, root));
}

Result<std::string> preset_text(std::string_view name, const fs::path& root) {
    GDNCTL_TRY_ASSIGN(Document document, find_document(DocumentKind::directive, name, root));
    return std::move(document.text);
}

Result<Document> prompt_from_file(const fs::path& file) {
    std::error_code problem;
    if (!fs::exists(file, problem) || fs::is_directory(file, problem)) {
        return fail(ErrorKind::usage, fmt::format("prompt file not found: {}", file.string()),
                    "`gdnctl prompts list` lists the prompts");
    }
    GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(file, {.limit = k_document_limit}));
    return read_document(DocumentKind::prompt, file.stem().string(), file, bytes);
}

Result<Document> default_prompt(const Target& target, const fs::path& root) {
    std::error_code problem;
    // A checkout without a prompt in the recipe's place gets the embedded one; a different configured file must exist.
    if (!target.prompt.empty() && target.prompt != k_recipe_prompt) return prompt_from_file(root / target.prompt);
    if (fs::exists(root / k_recipe_prompt, problem)) return prompt_from_file(root / k_recipe_prompt);
    auto document = find_document(DocumentKind::prompt, target.name, root);
    if (!document && document.error().kind == ErrorKind::usage) {
        return fail(
            ErrorKind::usage, fmt::format("no iteration prompt for target `{}`", target.name),
            fmt::format("pass --prompt-file, set `prompt` in [targets.{0}], or write prompts/{0}.md", target.name));
    }
    return document;
}

std::vector<std::pair<std::string, std::string_view>> recipe_files(std::string_view prompt) {
    std::vector<std::pair<std::string, std::string_view>> files;
    for (const auto& one : embedded_documents()) {
        if (one.prompt && one.name == prompt) files.emplace_back(k_recipe_prompt, one.text);
        if (!one.prompt) files.emplace_back(fmt::format("{}/{}.md", k_directive_folders.front(), one.name), one.text);
    }
    return files;
}

Result<std::vector<std::string>> session_directives(const DirectiveSources& sources, const fs::path& root) {
    std::vector<std::string> texts;
    for (const auto& name : sources.presets) {
        GDNCTL_TRY_ASSIGN(std::string text, preset_text(name, root));
        texts.push_back(std::move(text));
    }
    for (const auto& file : sources.files) {
        GDNCTL_TRY_ASSIGN(std::string text, directive_from_file(root / file, file));
        texts.push_back(std::move(text));
    }
    for (auto& text : trimmed_directives(sources.inlines)) texts.push_back(std::move(text));
    return texts;
}

}  // namespace gdnctl::loop
