#include "services/hub/hf/repo.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

namespace {

struct TypeName {
    RepoType type;
    std::string_view name, title, plural;
};
constexpr std::array<TypeName, 3> k_types = {{{RepoType::dataset, "dataset", "Dataset", "datasets"},
                                              {RepoType::model, "model", "Model", "models"},
                                              {RepoType::space, "space", "Space", "spaces"}}};
const TypeName& row_of(RepoType type) {
    return *std::find_if(k_types.begin(), k_types.end(), [type](const TypeName& row) { return row.type == type; });
}
std::optional<RepoType> parse_plural(std::string_view plural) {
    for (const TypeName& row : k_types) {
        if (row.plural == plural) return row.type;
    }
    return std::nullopt;
}

constexpr std::size_t k_longest_name = 96;
constexpr std::string_view k_forms =
    "use NAMESPACE/NAME, hf://datasets/NAMESPACE/NAME[@REVISION][/PATH] or the web address";

tl::unexpected<Error> bad(std::string_view text, std::string_view why, std::string_view hint = k_forms) {
    return fail(ErrorKind::usage, fmt::format("'{}' is not the name of a repository: {}", shown(text), why),
                std::string(hint));
}

bool is_word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

std::optional<std::string_view> why_bad_name(std::string_view name) {
    if (name.empty()) return "a name is empty";
    if (name.size() > k_longest_name) return "a name has more than 96 characters";
    if (!std::all_of(name.begin(), name.end(), is_word_char))
        return "names have letters, digits, '.', '_' and '-' only";
    constexpr std::string_view k_inside_only = "-.";
    if (k_inside_only.find(name.front()) != std::string_view::npos ||
        k_inside_only.find(name.back()) != std::string_view::npos) {
        return "a name begins or ends with '-' or '.'";
    }
    if (name.find("--") != std::string_view::npos || name.find("..") != std::string_view::npos) {
        return "a name contains '--' or '..'";
    }
    return std::nullopt;
}

// Removes the revision after the '@' from the front. The Hub's own revisions may contain slashes.
std::string_view take_revision(std::string_view& rest) {
    const auto take = [&rest](std::size_t length) {
        const std::string_view revision = rest.substr(0, length);
        rest.remove_prefix(revision.size());
        return revision;
    };
    for (const std::string_view start : {std::string_view("refs/pr/"), std::string_view("refs/convert/")}) {
        if (!rest.starts_with(start)) continue;
        const bool pull = start == "refs/pr/";
        std::size_t end = start.size();
        while (end < rest.size() && (pull ? rest[end] >= '0' && rest[end] <= '9' : is_word_char(rest[end]))) ++end;
        if (end > start.size() && (end == rest.size() || rest[end] == '/')) return take(end);
    }
    return take(std::min(rest.size(), rest.find('/')));
}

Status check_path(std::string_view text, std::string_view path) {
    if (path.find("//") != std::string_view::npos) return bad(text, "'//' in its path");
    return {};
}

Result<RepoTarget> parse_uri(std::string_view text) {
    std::string_view rest = text.substr(std::string_view("hf://").size());
    RepoTarget target;
    target.is_address = true;
    target.type = RepoType::model;
    const std::string_view first = rest.substr(0, rest.find('/'));
    if (parse_repo_type(first) || first == "kernel" || first == "bucket") {
        return bad(text, fmt::format("a type is spelled in the plural, '{}s'", first));
    }
    if (first == "kernels" || first == "buckets") {
        return bad(text, fmt::format("{} are not supported, only datasets, models and spaces", first));
    }
    if (const auto type = parse_plural(first)) {
        target.type = *type;
        rest.remove_prefix(std::min(rest.size(), first.size() + 1));
    }
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return bad(text, "NAMESPACE/NAME is missing");
    const std::size_t end = std::min(rest.size(), rest.find_first_of("/@", slash + 1));
    target.id = rest.substr(0, end);
    rest.remove_prefix(end);
    if (rest.starts_with('@')) {
        rest.remove_prefix(1);
        auto revision = text::percent_decode(take_revision(rest));
        if (!revision || revision->empty()) return bad(text, "no revision follows the '@'");
        target.revision = std::move(*revision);
    }
    if (const Status ok = check_repo_id(target.id); !ok) return bad(text, ok.error().message);
    GDNCTL_TRY(check_path(text, rest));
    if (rest.starts_with('/')) rest.remove_prefix(1);
    if (rest.ends_with('/')) rest.remove_suffix(1);
    target.path = rest;
    return target;
}

bool is_route(std::string_view word) {
    constexpr std::array<std::string_view, 5> k_routes = {"blob", "resolve", "raw", "blame", "tree"};
    return std::find(k_routes.begin(), k_routes.end(), word) != k_routes.end();
}

// Pages at the root of the web site, which are not models.
bool is_site_page(std::string_view word) {
    constexpr std::array<std::string_view, 16> k_pages = {
        "api",   "docs",     "blog",    "papers", "collections", "tasks", "learn",   "chat",
        "posts", "settings", "pricing", "join",   "login",       "new",   "kernels", "buckets"};
    return std::find(k_pages.begin(), k_pages.end(), word) != k_pages.end();
}

// The path below the endpoint, in decoded segments; nullopt: not an address of a Hub.
std::optional<std::vector<std::string>> segments_of(const Url& url, std::string_view endpoint) {
    const auto base = parse_url(endpoint);
    std::string_view path = url.path;
    if (base && url.host == base->host && url.port == base->port) {
        std::string_view below = base->path;
        while (below.ends_with('/')) below.remove_suffix(1);
        if (!path.starts_with(below)) return std::nullopt;
        path.remove_prefix(below.size());
        if (!path.empty() && !path.starts_with('/')) return std::nullopt;
    } else if (url.host != "huggingface.co" && url.host != "hf.co") {
        return std::nullopt;
    }
    std::vector<std::string> segments;
    while (path.starts_with('/')) path.remove_prefix(1);
    if (path.ends_with('/')) path.remove_suffix(1);
    for (const std::string_view segment : text::split(path, '/')) {
        auto decoded = text::percent_decode(segment);
        if (!decoded || decoded->empty()) return std::nullopt;
        segments.push_back(std::move(*decoded));
    }
    return segments;
}

Result<RepoTarget> parse_web(std::string_view text, std::string_view endpoint) {
    const auto url = parse_url(text);
    if (!url) return bad(text, "not a usable web address");
    const auto segments = segments_of(*url, endpoint);
    if (!segments || segments->empty()) {
        return bad(text, fmt::format("not an address on huggingface.co, hf.co or {}", endpoint));
    }
    RepoTarget target;
    target.is_address = true;
    target.type = RepoType::model;
    std::size_t at = 0;
    if (const auto type = parse_plural(segments->front())) {
        target.type = *type;
        at = 1;
    } else if (is_site_page(segments->front())) {
        return bad(text, "that page is not a repository's");
    }
    const auto word = [&](std::size_t i) { return i < segments->size() ? std::string_view((*segments)[i]) : ""; };
    target.id = word(at++);
    if (at < segments->size() && !is_route(word(at))) target.id += fmt::format("/{}", word(at++));
    if (const Status ok = check_repo_id(target.id); !ok) return bad(text, ok.error().message);
    if (at == segments->size()) return target;
    if (!is_route(word(at)) || at + 1 == segments->size()) return bad(text, "that page is not a file's or a folder's");
    target.is_file = word(at) != "tree";
    std::string rest;
    for (std::size_t i = at + 1; i < segments->size(); ++i) rest += (i == at + 1 ? "" : "/") + (*segments)[i];
    // A revision with slashes is one encoded segment, except for those recognised without encoding.
    std::string_view left = rest;
    const std::string& single = (*segments)[at + 1];
    const std::string_view revision = single.find('/') == std::string::npos ? take_revision(left) : single;
    if (single.find('/') != std::string::npos) left.remove_prefix(single.size());
    target.revision = std::string(revision);
    if (left.starts_with('/')) left.remove_prefix(1);
    target.path = left;
    if (target.is_file && target.path.empty()) return bad(text, "no file follows the revision");
    return target;
}

}  // namespace

std::string_view name_of(RepoType type) { return row_of(type).name; }
std::string_view title_of(RepoType type) { return row_of(type).title; }
std::string_view plural_of(RepoType type) { return row_of(type).plural; }

std::optional<RepoType> parse_repo_type(std::string_view name) {
    for (const TypeName& row : k_types) {
        if (row.name == name) return row.type;
    }
    return std::nullopt;
}

Status check_repo_id(std::string_view id) {
    const std::vector<std::string_view> names = text::split(id, '/');
    if (names.size() == 3 && (parse_plural(names[0]) || parse_repo_type(names[0]))) {
        std::string_view type = names[0];
        if (type.ends_with('s')) type.remove_suffix(1);
        return fail(ErrorKind::usage, fmt::format("'{}' contains a repository type in addition to the name", shown(id)),
                    fmt::format("use --repo-type {} with {}/{}", type, shown(names[1]), shown(names[2])));
    }
    if (names.size() > 2) return bad(id, "more than one '/'");
    for (const std::string_view name : names) {
        if (const auto why = why_bad_name(name)) return bad(id, *why);
    }
    if (id.ends_with(".git")) return bad(id, "it ends in '.git'");
    return {};
}

Result<RepoTarget> parse_repo_target(std::string_view text, std::string_view endpoint) {
    text = text::trim(text);
    if (text.starts_with("hf://")) return parse_uri(text);
    if (text.find("://") != std::string_view::npos) return parse_web(text, endpoint);
    GDNCTL_TRY(check_repo_id(text));
    RepoTarget target;
    target.id = text;
    return target;
}

}  // namespace gdnctl::hub
