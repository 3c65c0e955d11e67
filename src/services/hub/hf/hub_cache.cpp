#include "services/hub/hf/hub_cache.h"

#include <system_error>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "services/hub/transfer/safe_path.h"

namespace gdnctl::hub {

namespace {

namespace fs = std::filesystem;

std::string repo_folder(RepoType type, std::string_view id) {
    std::string name = fmt::format("{}--{}", plural_of(type), id);
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    return name;
}

}  // namespace

HubCache::HubCache(const fs::path& cache, RepoType type, std::string_view id)
    : m_folder(cache / repo_folder(type, id)) {}

fs::path HubCache::blob(std::string_view etag) const { return m_folder / "blobs" / etag; }

std::optional<std::string> HubCache::commit_of(std::string_view revision) const {
    if (why_unsafe(revision)) return std::nullopt;
    const auto text = read_file_if_exists(m_folder / "refs" / revision, 1U << 10U);
    if (!text || !*text) return std::nullopt;
    std::string commit(text::trim(**text));
    return is_hex(commit, k_sha1_digits) ? std::optional(commit) : std::nullopt;
}

std::optional<std::vector<TreeFile>> HubCache::tree(std::string_view commit) const {
    const auto text = read_file_if_exists(m_folder / "trees" / fmt::format("{}.json", commit));
    if (!text || !*text) return std::nullopt;
    return parse_tree_file(**text);
}

std::optional<std::vector<TreeFile>> HubCache::snapshot(std::string_view commit) const {
    std::vector<TreeFile> files;
    const fs::path root = m_folder / "snapshots" / commit;
    std::error_code error;
    for (auto it = fs::recursive_directory_iterator(root, error); !error && it != fs::recursive_directory_iterator();
         it.increment(error)) {
        std::error_code ignored;
        const fs::path target = fs::read_symlink(it->path(), ignored);
        const auto size = fs::file_size(it->path(), ignored);
        const std::string etag = target.filename().string();
        if (ignored || target.empty()) continue;
        TreeFile file;
        file.path = it->path().lexically_relative(root).generic_string();
        file.size = static_cast<std::int64_t>(size);
        if (is_hex(etag, k_sha256_digits)) {
            file.lfs_sha256 = etag;
            file.lfs_size = file.size;
        } else if (is_hex(etag, k_sha1_digits)) {
            file.blob_id = etag;
        } else {
            continue;
        }
        files.push_back(std::move(file));
    }
    return files.empty() ? std::nullopt : std::optional(std::move(files));
}

}  // namespace gdnctl::hub
