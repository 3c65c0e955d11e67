#include "services/hub/transfer/names.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::hub {

namespace {

constexpr int k_http_port = 80;
constexpr int k_https_port = 443;
constexpr int k_last_port = 65535;

int usual_port(std::string_view scheme) { return scheme == "https" ? k_https_port : k_http_port; }

// "host[:port]" or "[v6][:port]". False: malformed.
bool split_authority(std::string_view authority, Url& url) {
    if (authority.empty() || authority.find('@') != std::string_view::npos) return false;
    const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
    if (bracket == std::string_view::npos) return false;
    const std::size_t colon = authority.find(':', bracket);
    url.host = text::to_lower(authority.substr(0, colon));
    url.port = usual_port(url.scheme);
    if (colon != std::string_view::npos && colon + 1 < authority.size()) {
        const auto port = text::parse_int(authority.substr(colon + 1));
        if (!port || *port < 1 || *port > k_last_port) return false;
        url.port = static_cast<int>(*port);
    }
    return !url.host.empty();
}

}  // namespace

std::string Url::origin() const {
    return port == usual_port(scheme) ? fmt::format("{}://{}", scheme, host)
                                      : fmt::format("{}://{}:{}", scheme, host, port);
}

std::optional<Url> parse_url(std::string_view text) {
    const bool clean = std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '\\';
    });
    const std::size_t colon = text.find("://");
    if (!clean || colon == std::string_view::npos) return std::nullopt;
    Url url;
    url.scheme = text::to_lower(text.substr(0, colon));
    if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
    std::string_view rest = text.substr(colon + 3);
    rest = rest.substr(0, rest.find('#'));
    const std::size_t end = rest.find_first_of("/?");
    if (!split_authority(rest.substr(0, end), url)) return std::nullopt;
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
    const std::size_t query = rest.find('?');
    url.path = rest.substr(0, query);
    if (url.path.empty()) url.path = "/";
    if (query != std::string_view::npos) url.query = rest.substr(query);
    return url;
}

bool is_loopback(const Url& url) {
    const bool address = url.host.find_first_not_of("0123456789.") == std::string::npos;
    return url.host == "localhost" || url.host == "[::1]" || (address && url.host.starts_with("127."));
}

std::string without_queries(std::string_view text) {
    std::string kept;
    while (true) {
        const std::size_t at = std::min(text.find("http://"), text.find("https://"));
        if (at == std::string_view::npos) break;
        const std::size_t end = std::min(text.size(), text.find_first_of(" \t\r\n\"'<>`", at));
        std::string_view url = text.substr(at, end - at);
        while (url.ends_with(':') || url.ends_with(','))
            url.remove_suffix(1);  // punctuation of the surrounding sentence
        const std::size_t query = url.find('?');
        kept += text.substr(0, at);
        kept += url.substr(0, query);
        if (query != std::string_view::npos) kept += "?...";
        text.remove_prefix(at + url.size());
    }
    kept += text;
    return kept;
}

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
