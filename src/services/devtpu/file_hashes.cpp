#include "services/devtpu/file_hashes.h"

#include <ctime>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/signals.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_heading = "gdnctl-hashes/1";
constexpr std::size_t k_known_digits = 64;
constexpr std::size_t k_file_limit = std::size_t{256} << 20;
constexpr std::int64_t k_settled_s = 2;  // longer than a tick of any file system's clock

std::string local_key(const struct stat& info) {
    return fmt::format("L {} {} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

bool is_settled(const struct stat& info) {
    const std::int64_t limit = std::time(nullptr) - k_settled_s;
    return info.st_mtim.tv_sec < limit && info.st_ctim.tv_sec < limit;
}

Status check_link(const fs::path& root, const std::string& name) {
    std::error_code problem;
    const fs::path target = fs::canonical(root / name, problem);
    if (problem || is_inside(root, target)) return {};
    return fail(ErrorKind::local_io, "the link " + text::visible(name) + " leads out of the working tree",
                "remove it, or exclude it with .gitignore");
}

}  // namespace

FileHashes::FileHashes(fs::path file) : m_file(std::move(file)) {
    const auto text = read_file_if_exists(m_file, k_file_limit);
    if (!text || !*text) return;
    const auto records = text::split(**text, '\0');
    if (records.empty() || records.front() != k_heading || !(*text)->ends_with('\0')) return;
    for (const std::string_view record : records) {
        if (record.size() <= k_known_digits + 1 || record[k_known_digits] != ' ') continue;
        m_entries.emplace(record.substr(k_known_digits + 1), Entry{std::string(record.substr(0, k_known_digits))});
    }
}

std::optional<std::string> FileHashes::find(const std::string& key) {
    const auto it = m_entries.find(key);
    if (it == m_entries.end()) return std::nullopt;
    it->second.used = true;
    return it->second.hash;
}

void FileHashes::put(const std::string& key, std::string hash, bool settled) {
    m_entries.insert_or_assign(key, Entry{std::move(hash), true, settled});
    m_changed = m_changed || settled;
}

void FileHashes::save() const {
    if (!m_changed) return;
    std::string text(k_heading);
    text.push_back('\0');
    for (const auto& [key, entry] : m_entries) {
        if (!entry.used || !entry.settled) continue;
        text.append(entry.hash).append(" ").append(key).push_back('\0');
    }
    Status saved = make_private_directory(m_file.parent_path());
    if (saved) saved = atomic_replace(m_file, text, 0600);
    if (!saved) log::debug("{}", saved.error().text());
}

Result<std::vector<LocalFile>> local_files(const fs::path& root, const std::vector<std::string>& names,
                                           FileHashes& known, const std::stop_token& stop) {
    std::error_code problem;
    const fs::path real_root = fs::canonical(root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "read", root, problem.value()));
    std::vector<LocalFile> files;
    files.reserve(names.size());
    for (const std::string& name : names) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        const fs::path path = real_root / name;
        struct stat own{}, info{};
        if (lstat(path.c_str(), &own) != 0 || stat(path.c_str(), &info) != 0) continue;
        if (S_ISLNK(own.st_mode)) GDNCTL_TRY(check_link(real_root, name));
        if (!S_ISREG(info.st_mode)) continue;
        const std::string key = local_key(info);
        std::optional<std::string> hash = known.find(key);
        if (!hash) {
            auto computed = hash_file_hex(HashKind::sha256, path);
            if (!computed && stat(path.c_str(), &info) != 0) continue;  // removed meanwhile
            if (!computed) return tl::unexpected(std::move(computed).error());
            known.put(key, *computed, is_settled(info));
            hash = std::move(*computed);
        }
        files.push_back(
            {name, std::move(*hash), static_cast<std::uint64_t>(info.st_size), (info.st_mode & S_IXUSR) != 0});
    }
    return files;
}

}  // namespace gdnctl::devtpu
