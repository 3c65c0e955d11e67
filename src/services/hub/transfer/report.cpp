#include "services/hub/transfer/report.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "core/json.h"

namespace gdnctl::hub {

namespace {

Json error_json(const Error& error) {
    Json json;
    json["kind"] = kind_word(error.kind);
    json["message"] = shown(error.text());
    return json;
}

Json file_json(const Wanted& file, const FileResult& result, const std::filesystem::path& output) {
    Json json;
    json["path"] = file.path;
    json["size"] = file.size;
    if (file.digest.kind == Digest::Kind::sha256) json["sha256"] = file.digest.hex;
    if (file.digest.kind == Digest::Kind::git_sha1) json["git_sha1"] = file.digest.hex;
    if (file.digest.kind == Digest::Kind::md5) json["md5"] = base64_of_hex(file.digest.hex);
    json["local"] = (output / file.local).string();
    json["status"] = word_of(result.status);
    json["bytes_transferred"] = result.bytes_transferred;
    json["elapsed"] = static_cast<double>(result.elapsed.count()) / 1000.0;
    json["attempts"] = result.attempts;
    json["hashed"] = result.hashed;
    if (!result.failure) return json;
    Json& error = json["error"] = error_json(*result.failure);
    error["http_status"] = result.http_status > 0 ? Json(result.http_status) : Json(nullptr);
    error["request_id"] = json::or_null(result.request_id);
    return json;
}

std::optional<Wanted> recorded_file(const Json& entry) {
    Wanted file;
    file.path = file.local = json::text(entry, "path");
    file.size = json::integer(entry, "size").value_or(-1);
    if (const std::string sha256 = json::text(entry, "sha256"); !sha256.empty()) {
        file.digest = {Digest::Kind::sha256, sha256};
    } else if (const std::string git_sha1 = json::text(entry, "git_sha1"); !git_sha1.empty()) {
        file.digest = {Digest::Kind::git_sha1, git_sha1};
    } else {
        file.digest = {Digest::Kind::md5, hex_of_base64(json::text(entry, "md5"))};
    }
    file.etag = file.digest.hex;
    const std::size_t digits = file.digest.kind == Digest::Kind::sha256     ? k_sha256_digits
                               : file.digest.kind == Digest::Kind::git_sha1 ? k_sha1_digits
                                                                            : k_md5_digits;
    if (file.path.empty() || file.size < 0) return std::nullopt;
    if (is_hex(file.digest.hex, digits)) return file;
    // A file without a hash is stored elsewhere; the service cannot send it.
    const Json* error = json::object(entry, "error");
    if (error == nullptr || !file.digest.hex.empty()) return std::nullopt;
    file.refused = Error{ErrorKind::authentication, json::text(*error, "message"), {}, {}};
    return file;
}

}  // namespace

TraceKind kind_of_trace(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.ends_with("perfetto_trace.json.gz")) return TraceKind::perfetto;
    if (name.ends_with("trace.json.gz") || name.ends_with("trace.json")) return TraceKind::trace_json;
    if (name.ends_with("xplane.pb")) return TraceKind::xplane;
    if (name.ends_with("profile.json")) return TraceKind::profile;
    return TraceKind::other;
}

std::string_view word_of(TraceKind kind) {
    switch (kind) {
        case TraceKind::perfetto: return "perfetto";
        case TraceKind::trace_json: return "trace_json";
        case TraceKind::xplane: return "xplane";
        case TraceKind::profile: return "profile";
        case TraceKind::other: return "other";
    }
    return "";
}

std::string report_text(const Report& report, std::string_view output) {
    Json json;
    json["schema"] = "gdnctl.download/1";
    for (const auto& [key, value] : report.head) json[key] = json::or_null(value);
    json["asked"] = Json::parse(report.asked, nullptr, false);
    json["selection"] = Json::parse(report.selection, nullptr, false);
    for (const char* key : {"asked", "selection"}) {
        if (json[key].is_discarded()) json[key] = nullptr;
    }
    json["error"] = report.error ? error_json(*report.error) : Json(nullptr);
    Json files = Json::array();
    std::map<TraceKind, Json> kinds;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const FileStatus status = report.results[i].status;
        files.push_back(file_json(report.files[i], report.results[i], output));
        if (status == FileStatus::failed || status == FileStatus::skipped) continue;
        kinds[kind_of_trace(report.files[i].path)].push_back(
            (std::filesystem::path(output) / report.files[i].local).string());
    }
    json["files"] = std::move(files);
    Json by_kind = Json::object();
    for (auto& [kind, paths] : kinds) by_kind[std::string(word_of(kind))] = std::move(paths);
    json["by_kind"] = std::move(by_kind);
    return to_text(json, 1) + "\n";
}

std::string asked_text(const Fields& fields) {
    Json json;
    for (const auto& [key, value] : fields) json[key] = json::or_null(value);
    return to_text(json);
}

std::string selection_text(const SelectionOptions& selection, bool exact) {
    Json json;
    json["prefix"] = selection.prefix;
    json["exact"] = exact;
    json["patterns"] = selection.patterns;
    json["includes"] = selection.includes;
    json["excludes"] = selection.excludes;
    json["include_xplane"] = selection.include_xplane;
    json["latest_session"] = selection.latest_session;
    json["limit"] = json::or_null(selection.limit);
    return to_text(json);
}

std::string value_of(const Fields& fields, std::string_view name) {
    const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.first == name; });
    return found == fields.end() ? std::string() : found->second;
}

std::optional<Report> parse_report(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (json::text(json, "schema") != "gdnctl.download/1") return std::nullopt;
    const Json* files = json::array(json, "files");
    if (files == nullptr) return std::nullopt;
    Report report;
    for (const auto& [key, value] : json.items()) {
        if (value.is_string()) report.head.emplace_back(key, value.get<std::string>());
    }
    if (const Json* asked = json::object(json, "asked")) report.asked = to_text(*asked);
    if (const Json* selection = json::object(json, "selection")) report.selection = to_text(*selection);
    for (const Json& entry : *files) {
        auto file = recorded_file(entry);
        if (!file) return std::nullopt;
        report.files.push_back(std::move(*file));
    }
    return report;
}

std::string shown_bytes(std::int64_t bytes) {
    constexpr std::array<std::string_view, 5> k_units = {"B", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < k_units.size(); ++unit) value /= 1000;
    return unit == 0 ? fmt::format("{} B", bytes)
                     : fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, k_units[unit]);
}

std::string summary(const Report& report) {
    std::map<FileStatus, std::size_t> counts;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        ++counts[report.results[i].status];
        bytes = total_of(bytes, report.files[i].size);
    }
    std::string text = fmt::format("{} file{}, {}: ", report.results.size(), report.results.size() == 1 ? "" : "s",
                                   shown_bytes(bytes));
    bool first = true;
    for (const auto& [status, count] : counts) {
        text += fmt::format("{}{} {}", first ? "" : ", ", count, word_of(status));
        first = false;
    }
    return text;
}

}  // namespace gdnctl::hub
