// The official client's cache of repositories, read-only.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/hub/hf/repo.h"
#include "services/hub/hf/tree.h"

namespace gdnctl::hub {

class HubCache {
public:
    // `cache`: HF_HUB_CACHE.
    HubCache(const std::filesystem::path& cache, RepoType type, std::string_view id);

    std::filesystem::path blob(std::string_view etag) const;
    // The commit of a revision when it was last fetched.
    std::optional<std::string> commit_of(std::string_view revision) const;
    // All files of a commit, from its cached listing. nullopt: none is cached.
    std::optional<std::vector<TreeFile>> tree(std::string_view commit) const;
    // The files of a commit that are cached, from its snapshot folder. nullopt: none.
    std::optional<std::vector<TreeFile>> snapshot(std::string_view commit) const;

private:
    std::filesystem::path m_folder;
};

}  // namespace gdnctl::hub
