#include "services/hub/hf/tree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/text.h"

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
    if (!commit || !is_hex(*commit, k_sha1_digits)) return fail(ErrorKind::bad_input, "the answer names no commit");
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

}  // namespace gdnctl::hub
