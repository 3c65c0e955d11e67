#include "services/hub/transfer/names.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "core/text.h"

namespace gdnctl::hub {

namespace {

constexpr std::size_t k_longest_name = 255;

std::optional<std::string_view> why_segment_unsafe(std::string_view segment) {
    if (segment.empty()) return "it has an empty part";
    if (segment == "." || segment == "..") return "it leads out of its folder";
    if (segment.size() > k_longest_name) return "a part of it is longer than 255 bytes";
    const bool letter = (segment[0] >= 'a' && segment[0] <= 'z') || (segment[0] >= 'A' && segment[0] <= 'Z');
    if (letter && segment.size() > 1 && segment[1] == ':') return "it names a drive";
    return std::nullopt;
}

}  // namespace

std::string_view kind_word(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::usage:
        case ErrorKind::config: return "usage";
        case ErrorKind::nothing_done: return "no_match";
        case ErrorKind::authentication: return "auth";
        case ErrorKind::remote_missing: return "not_found";
        case ErrorKind::conflict: return "integrity";
        case ErrorKind::local_io: return "local";
        case ErrorKind::interrupted:
        case ErrorKind::terminated: return "interrupted";
        default: return "network";
    }
}

ErrorKind worst_of(std::span<const ErrorKind> kinds) {
    constexpr std::array k_order = {ErrorKind::interrupted,    ErrorKind::terminated,     ErrorKind::local_io,
                                    ErrorKind::conflict,       ErrorKind::authentication, ErrorKind::remote_missing,
                                    ErrorKind::infrastructure, ErrorKind::timeout};
    for (const ErrorKind kind : k_order) {
        if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return kind;
    }
    return kinds.empty() ? ErrorKind::internal : kinds.front();
}

std::string request_id_of(const HttpHeaders& headers) {
    for (const char* name : {"x-request-id", "x-amzn-trace-id", "x-amz-cf-id"}) {
        if (auto id = find_header(headers, name); id && !id->empty()) return shown(*id);
    }
    return {};
}

std::optional<std::string_view> why_unsafe(std::string_view path) {
    if (path.empty()) return "it is empty";
    const bool control = std::any_of(path.begin(), path.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
    if (control) return "it contains a control character";
    std::string plain(path);
    std::replace(plain.begin(), plain.end(), '\\', '/');
    if (plain.front() == '/') return "it is absolute";
    std::vector<std::string_view> segments = text::split(plain, '/');
    for (const std::string_view segment : segments) {
        if (const auto why = why_segment_unsafe(segment)) return why;
    }
    const bool ours =
        segments.size() > 1 && text::to_lower(segments[0]) == ".cache" && text::to_lower(segments[1]) == "huggingface";
    if (ours) return "that folder is reserved for download records";
    if (text::to_lower(plain) == ".cache" || plain.starts_with(".gdnctl-manifest.json")) {
        return "that name is reserved for download records";
    }
    return std::nullopt;
}

std::optional<std::string> find_clash(std::span<const std::string> paths) {
    const std::set<std::string_view> all(paths.begin(), paths.end());
    if (all.size() != paths.size()) {
        std::set<std::string_view> seen;
        for (const std::string& path : paths) {
            if (!seen.insert(path).second) return path;
        }
    }
    for (const std::string& path : paths) {
        for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
            const std::string_view folder = std::string_view(path).substr(0, at);
            if (all.contains(folder)) return std::string(folder);
        }
    }
    return std::nullopt;
}

std::optional<std::string> find_case_clash(std::span<const std::string> paths) {
    std::set<std::string> seen;
    for (const std::string& path : paths) {
        if (!seen.insert(text::to_lower(path)).second) return path;
    }
    return std::nullopt;
}

}  // namespace gdnctl::hub
