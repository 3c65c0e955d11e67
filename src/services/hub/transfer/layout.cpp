#include "services/hub/transfer/layout.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/hash.h"

namespace gdnctl::hub {

namespace {

constexpr std::string_view k_cachedir_tag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by huggingface_hub.\n"
    "# For information about cache directory tags, see:\n"
    "#\thttps://bford.info/cachedir/\n";

std::string record(std::string_view local, std::string_view suffix) {
    return fmt::format("{}/download/{}{}", k_records, local, suffix);
}

// RFC 4648 section 5, with '='.
std::string base64_url(const std::vector<unsigned char>& bytes) {
    constexpr std::string_view k_url_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const unsigned group = (static_cast<unsigned>(bytes[i]) << 16U) |
                               (left > 1 ? static_cast<unsigned>(bytes[i + 1]) << 8U : 0U) |
                               (left > 2 ? static_cast<unsigned>(bytes[i + 2]) : 0U);
        text += k_url_digits[group >> 18U];
        text += k_url_digits[(group >> 12U) & 63U];
        text += left > 1 ? k_url_digits[(group >> 6U) & 63U] : '=';
        text += left > 2 ? k_url_digits[group & 63U] : '=';
    }
    return text;
}

std::vector<unsigned char> bytes_of(std::string_view hex) {
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        unsigned value = 0;
        std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
        bytes.push_back(static_cast<unsigned char>(value));
    }
    return bytes;
}

}  // namespace

bool has_room_for_records(std::string_view local) {
    constexpr std::size_t k_longest_name = 255;
    const std::string_view name = local.substr(local.rfind('/') + 1);
    return name.size() + std::string_view(".metadata").size() <= k_longest_name;
}

std::string metadata_path(std::string_view local) { return record(local, ".metadata"); }
std::string lock_path(std::string_view local) { return record(local, ".lock"); }
std::string tree_path(std::string_view commit) { return fmt::format("{}/trees/{}.json", k_records, commit); }

Result<std::string> part_path(std::string_view local, std::string_view etag, std::string_view owner) {
    const std::size_t slash = local.rfind('/');
    const bool in_folder = slash != std::string_view::npos;
    const std::string_view name = in_folder ? local.substr(slash + 1) : local;
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha1, std::string(name) + ".metadata"));
    const std::string part = fmt::format("{}.{}{}.gdnctl.part", base64_url(bytes_of(hash)), etag, owner);
    return record(in_folder ? local.substr(0, slash + 1) : "", part);
}

std::string sidecar_path(std::string_view part) {
    constexpr std::string_view k_end = ".part";
    return std::string(part.substr(0, part.size() - k_end.size())) + ".json";
}

std::string python_time(double seconds) {
    std::array<char, 64> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), seconds, std::chars_format::fixed);
    std::string text(digits.data(), end.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
}

std::string metadata_text(const Metadata& metadata) {
    return fmt::format("{}\n{}\n{}\n", metadata.commit, metadata.etag, python_time(metadata.time));
}

std::optional<Metadata> parse_metadata(std::string_view text) {
    const auto lines = text::split(text, '\n');
    if (lines.size() < 3) return std::nullopt;
    const auto time = text::parse_double(text::trim(lines[2]));
    Metadata metadata{std::string(text::trim(lines[0])), std::string(text::trim(lines[1])), time.value_or(0)};
    if (!time || metadata.commit.empty() || metadata.etag.empty()) return std::nullopt;
    return metadata;
}

Outcome<void> write_markers(OutFolder& folder) {
    const std::array<std::pair<std::string, std::string_view>, 2> markers = {
        {{fmt::format("{}/.gitignore", k_records), "*"}, {fmt::format("{}/CACHEDIR.TAG", k_records), k_cachedir_tag}}};
    for (const auto& [path, bytes] : markers) {
        const auto there = folder.facts(path);
        if (!there) return tl::unexpected(there.error());
        if (*there) continue;
        if (auto written = folder.replace(path, bytes); !written) return written;
    }
    return {};
}

}  // namespace gdnctl::hub
