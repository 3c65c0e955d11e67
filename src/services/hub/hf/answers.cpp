#include "services/hub/hf/answers.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "services/hub/transfer/names.h"
#include "services/hub/transfer/retrying_client.h"

namespace gdnctl::hub {

namespace {

std::optional<std::int64_t> size_at(const Json& object, std::string_view key) {
    const auto size = json::integer(object, key);
    return size && *size >= 0 ? size : std::nullopt;
}

tl::unexpected<Error> malformed(std::string why) {
    return fail(ErrorKind::bad_input, "the listing is malformed: " + std::move(why));
}

Result<std::optional<TreeFile>> entry_of(const Json& entry) {
    if (!entry.is_object()) return malformed("an entry is not an object");
    if (json::maybe_text(entry, "type") != "file") return std::optional<TreeFile>();
    TreeFile file;
    const auto path = json::maybe_text(entry, "path");
    const auto oid = json::maybe_text(entry, "oid");
    const auto size = size_at(entry, "size");
    if (!path) return malformed("a file has no path");
    file.path = *path;
    if (!oid || !is_hex(*oid, k_sha1_digits) || !size) return malformed("no oid or size of " + text::visible(*path));
    file.blob_id = *oid;
    file.size = *size;
    if (const Json* lfs = json::object(entry, "lfs")) {
        const auto sha256 = json::maybe_text(*lfs, "oid");
        const auto content = size_at(*lfs, "size");
        if (!sha256 || !is_hex(*sha256, k_sha256_digits) || !content) {
            return malformed("no LFS oid or size of " + text::visible(*path));
        }
        file.lfs_sha256 = *sha256;
        file.lfs_size = *content;
        file.size = *content;
    }
    if (const auto xet = json::maybe_text(entry, "xetHash")) {
        if (is_hex(*xet, k_sha256_digits)) {
            file.xet_hash = *xet;
        } else {
            file.bad_xet_hash = true;
        }
    }
    return std::optional(std::move(file));
}

}  // namespace

Digest TreeFile::digest() const {
    return lfs_sha256 ? Digest{Digest::Kind::sha256, *lfs_sha256} : Digest{Digest::Kind::git_sha1, blob_id};
}

Result<Revision> parse_revision(std::string_view text) {
    // The list of all files may be as long as the repository and is not needed, so deeper levels are dropped while
    // parsing.
    const auto shallow = [](int depth, Json::parse_event_t event, Json& /*value*/) {
        return depth <= 1 || event == Json::parse_event_t::key;
    };
    const Json value = Json::parse(text, shallow, false);
    if (!value.is_object()) return fail(ErrorKind::bad_input, "the answer is not a JSON object");
    const auto commit = json::maybe_text(value, "sha");
    if (!commit || !is_hex(*commit, k_sha1_digits))
        return fail(ErrorKind::bad_input, "the answer does not name a commit");
    return Revision{*commit, json::maybe_text(value, "id").value_or("")};
}

Result<std::vector<TreeFile>> parse_tree_page(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json page, parse_json(text, "the listing"));
    if (!page.is_array()) return malformed("it is not a list");
    std::vector<TreeFile> files;
    for (const Json& entry : page) {
        GDNCTL_TRY_ASSIGN(auto file, entry_of(entry));
        if (file) files.push_back(std::move(*file));
    }
    return files;
}

std::optional<std::string> tree_file_text(const std::map<std::string, TreeFile>& files) {
    // Written by hand, because an ordered Json searches all its keys for each new one.
    constexpr std::size_t k_usual_entry = 128;
    std::string text = "{\n \"format_version\": 1,\n \"files\": {";
    text.reserve(files.size() * k_usual_entry);
    bool first = true;
    for (const auto& [path, file] : files) {
        if (file.bad_xet_hash || !text::is_valid_utf8(path)) return std::nullopt;
        text += fmt::format("{}\n  {}: {{\n   \"size\": {},\n   \"blob_id\": \"{}\"", first ? "" : ",",
                            Json(path).dump(-1, ' ', true), file.size, file.blob_id);
        if (file.lfs_sha256) {
            text += fmt::format(",\n   \"lfs_sha256\": \"{}\",\n   \"lfs_size\": {}", *file.lfs_sha256, file.lfs_size);
        }
        if (file.xet_hash) text += fmt::format(",\n   \"xet_hash\": \"{}\"", *file.xet_hash);
        text += "\n  }";
        first = false;
    }
    text += first ? "}\n}" : "\n }\n}";
    return text;
}

namespace {

std::optional<TreeFile> record_of(std::string path, const Json& entry) {
    const auto blob = json::maybe_text(entry, "blob_id");
    const auto size = size_at(entry, "size");
    if (!blob || !is_hex(*blob, k_sha1_digits) || !size) return std::nullopt;
    TreeFile file;
    file.path = std::move(path);
    file.blob_id = *blob;
    file.size = *size;
    if (const auto sha256 = json::maybe_text(entry, "lfs_sha256")) {
        const auto content = size_at(entry, "lfs_size");
        if (!is_hex(*sha256, k_sha256_digits) || !content) return std::nullopt;
        file.lfs_sha256 = *sha256;
        file.lfs_size = *content;
        file.size = *content;
    }
    file.xet_hash = json::maybe_text(entry, "xet_hash");
    return file;
}

}  // namespace

std::optional<std::vector<TreeFile>> parse_tree_file(std::string_view text) {
    std::vector<TreeFile> files;
    bool sound = true;
    std::string section, path;
    // A record may have a hundred thousand entries. Each is processed when complete, and not kept as JSON.
    const auto take = [&](int depth, Json::parse_event_t event, Json& value) {
        using Event = Json::parse_event_t;
        if (event == Event::key && depth == 1) section = value.get<std::string>();
        if (event == Event::key && depth == 2) path = value.get<std::string>();
        if (section != "files" || depth != 2 || event == Event::key || event == Event::object_start) return true;
        auto file = event == Event::object_end ? record_of(path, value) : std::nullopt;
        sound = sound && file;
        if (file) files.push_back(std::move(*file));
        return false;
    };
    const auto tree = Json::parse(text, take, false);
    if (!sound || !tree.is_object()) return std::nullopt;
    if (json::number(tree, "format_version") != 1 || json::object(tree, "files") == nullptr) return std::nullopt;
    return files;
}

namespace {

// Removes the text up to the next ',' or ';' outside quotes, which stays.
std::string_view take_parameter(std::string_view& rest) {
    bool quoted = false;
    std::size_t end = 0;
    for (; end < rest.size(); ++end) {
        if (rest[end] == '"') quoted = !quoted;
        if (quoted && rest[end] == '\\') ++end;
        if (!quoted && (rest[end] == ',' || rest[end] == ';')) break;
    }
    const std::string_view parameter = rest.substr(0, std::min(end, rest.size()));
    rest.remove_prefix(parameter.size());
    return text::trim(parameter);
}

bool says_next(std::string_view parameter) {
    const std::size_t equals = parameter.find('=');
    if (equals == std::string_view::npos || text::to_lower(text::trim(parameter.substr(0, equals))) != "rel")
        return false;
    std::string_view value = text::trim(parameter.substr(equals + 1));
    if (value.size() >= 2 && value.starts_with('"') && value.ends_with('"')) value = value.substr(1, value.size() - 2);
    const std::string lowered = text::to_lower(value);
    const auto relations = text::split(lowered, ' ');
    return std::find(relations.begin(), relations.end(), "next") != relations.end();
}

}  // namespace

std::optional<std::string> next_link(std::string_view header) {
    while (!header.empty()) {
        const std::size_t open = header.find('<');
        if (open == std::string_view::npos) return std::nullopt;
        header.remove_prefix(open + 1);
        const std::size_t close = header.find('>');
        if (close == std::string_view::npos) return std::nullopt;
        const std::string_view target = header.substr(0, close);
        header.remove_prefix(close + 1);
        bool next = false;
        take_parameter(header);  // nothing comes between the target and the first ';'
        while (header.starts_with(';')) {
            header.remove_prefix(1);
            next = says_next(take_parameter(header)) || next;
        }
        if (next) return std::string(text::trim(target));
    }
    return std::nullopt;
}

namespace {

constexpr int k_unauthorized = 401;
constexpr int k_forbidden = 403;
constexpr int k_not_found = 404;
constexpr int k_bad_range = 416;
constexpr int k_rate_limited = 429;
constexpr std::string_view k_disabled = "Access to this resource is disabled.";
constexpr std::string_view k_bad_credentials = "Invalid credentials in Authorization header";
constexpr std::size_t k_longest_text = 500;

bool is_html(const HttpHeaders& headers, std::string_view body) {
    const std::string type = text::to_lower(find_header(headers, "content-type").value_or(""));
    return type.find("html") != std::string::npos || text::trim(body).starts_with('<');
}

void add_strings(const Json& value, std::vector<std::string>& texts) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
    if (!value.is_array()) return;
    for (const Json& item : value) {
        if (item.is_string()) texts.push_back(item.get<std::string>());
        if (item.is_object() && item.contains("message")) add_strings(item["message"], texts);
    }
}

// The Hub deliberately gives the same answer for a private and a missing repository.
Error repo_missing(const Asked& asked) {
    const std::string_view other = asked.type == RepoType::dataset ? "model" : "dataset";
    std::string hint = fmt::format("searched as {}; try --repo-type {}", name_of(asked.type), other);
    if (asked.token_source.empty()) hint += "; no token was sent: set HF_TOKEN for a private repository";
    return {ErrorKind::remote_missing,
            fmt::format("{} '{}' not found. If the repo is private, make sure you are authenticated and your token has "
                        "the required permissions.",
                        title_of(asked.type), asked.id),
            std::move(hint),
            {}};
}

Error token_rejected(const Asked& asked) {
    const std::string source = asked.token_source.empty() ? "the request" : asked.token_source;
    return {ErrorKind::authentication,
            fmt::format("token from {} was rejected; check https://huggingface.co/settings/tokens", source),
            {},
            {}};
}

Error by_code(const Asked& asked, std::string_view code) {
    const auto failed = [](ErrorKind kind, std::string message, std::string hint) {
        return Error{kind, std::move(message), std::move(hint), {}};
    };
    const std::string_view type = name_of(asked.type);
    if (code == "RevisionNotFound") {
        return failed(ErrorKind::remote_missing,
                      fmt::format("Revision not found in {} '{}': {}", type, asked.id, shown(asked.revision)),
                      "check --revision: a branch, a tag or a commit of 40 digits");
    }
    if (code == "EntryNotFound") {
        return failed(ErrorKind::remote_missing,
                      fmt::format("File not found in {} '{}'. URL: {}", type, asked.id, shown(asked.url)), {});
    }
    return failed(
        ErrorKind::authentication,
        fmt::format("Access denied. {} '{}' requires approval.", title_of(asked.type), asked.id),
        fmt::format("ask for access at {}/{}{}, and use a token of that account", asked.endpoint,
                    asked.type == RepoType::model ? "" : fmt::format("{}/", plural_of(asked.type)), asked.id));
}

bool asks_for_repo(std::string_view url) {
    return url.find("/api/") != std::string_view::npos || url.find("/resolve/") != std::string_view::npos;
}

Error by_status(const Asked& asked, int status, const HttpHeaders& headers, const std::string& said) {
    Error failure;
    failure.kind = status == k_unauthorized || status == k_forbidden ? ErrorKind::authentication
                   : status == k_not_found                           ? ErrorKind::remote_missing
                                                                     : ErrorKind::infrastructure;
    failure.message = fmt::format("{} answered {}", shown(asked.url), status);
    if (!said.empty()) failure.message += ": " + said;
    if (status == k_rate_limited) {
        const std::string limit = http::shown_limit(headers);
        failure.message = fmt::format("rate limit reached at {}{}", shown(asked.url), said.empty() ? "" : ": " + said);
        if (!limit.empty()) failure.message += fmt::format(" (limit: {})", limit);
        failure.hint = asked.token_source.empty() ? "wait, or set HF_TOKEN: limits are higher with a token"
                                                  : "wait, or lower --jobs";
    } else if (status == k_bad_range) {
        const auto range = find_header(headers, "content-range");
        failure.message = fmt::format("{} cannot serve the requested range; it has {}", shown(asked.url),
                                      range ? shown(*range) : "not reported a size");
    } else if (status == k_forbidden) {
        failure.hint = asked.token_source.empty() ? "set HF_TOKEN to a token that may read this repository"
                                                  : "check that the token may read this repository";
    } else if (status == k_not_found) {
        failure.hint = "check the address, and that HF_ENDPOINT is a Hugging Face Hub";
    }
    return failure;
}

}  // namespace

std::string server_text(const HttpHeaders& headers, std::string_view body) {
    std::vector<std::string> texts;
    if (const auto message = find_header(headers, "x-error-message")) texts.push_back(*message);
    const Json json = Json::parse(body, nullptr, false);
    if (json.is_object()) {
        for (const char* key : {"error", "error_description", "errors"}) {
            if (json.contains(key)) add_strings(json[key], texts);
        }
    } else if (json.is_discarded() && !is_html(headers, body)) {
        texts.emplace_back(body);
    }
    std::string joined;
    for (const std::string& text : texts) {
        const std::string one = shown(text::trim(text::repair_utf8(std::string_view(text).substr(0, k_longest_text))));
        if (one.empty() || joined.find(one) != std::string::npos) continue;
        joined += (joined.empty() ? "" : "; ") + one;
    }
    return joined;
}

Error no_hub(const Asked& asked, std::string_view why) {
    const auto url = parse_url(asked.url);
    return {ErrorKind::infrastructure,
            fmt::format("{} does not look like a Hugging Face Hub (captive portal or proxy?): {}",
                        url ? url->origin().substr(url->scheme.size() + 3) : asked.endpoint, why),
            "check HF_ENDPOINT or --endpoint; a proxy or a login page may be in between",
            {}};
}

Error explain_answer(const Asked& asked, int status, const HttpHeaders& headers, std::string_view body) {
    const std::string code = find_header(headers, "x-error-code").value_or("");
    const std::string message = find_header(headers, "x-error-message").value_or("");
    const std::string said = server_text(headers, body);
    const bool rejected = said.find(k_bad_credentials) != std::string::npos;
    Error failure;
    if (code == "RevisionNotFound" || code == "EntryNotFound" || code == "GatedRepo") {
        failure = by_code(asked, code);
    } else if (message == k_disabled) {
        failure = {ErrorKind::authentication, std::string(k_disabled), "ask the Hub why it was disabled", {}};
    } else if (code == "RepoNotFound" || (status == k_unauthorized && !rejected && asks_for_repo(asked.url))) {
        failure = repo_missing(asked);
    } else if (status == k_unauthorized && rejected) {
        failure = token_rejected(asked);
    } else {
        failure = by_status(asked, status, headers, said);
    }
    const bool adds = (code == "GatedRepo") && !said.empty();
    if (adds) failure.message += " " + said;
    if (const std::string id = request_id_of(headers); !id.empty()) {
        failure.message += fmt::format(" (request id {})", id);
    }
    return failure;
}

}  // namespace gdnctl::hub
