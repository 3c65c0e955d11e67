// Repositories of the Hugging Face Hub: lists one at a revision, from the Hub or from the official client's cache.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/hub/hf/access.h"
#include "services/hub/hf/answers.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/retrying_client.h"
#include "services/hub/transfer/selection.h"

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

// A repository of the Hub: resolves a revision to a commit, and selects the wanted files.

struct HfListing {
    std::string id;  // the repository's current name
    std::string commit;
    std::vector<TreeFile> files;      // the selected ones, sorted
    std::vector<std::string> others;  // the first few thousand other paths
    std::string tree_record;          // trees/<commit>.json if a full listing was made; else empty
};

class HfRepo {
public:
    // `client`: nullptr when offline. All arguments must outlive it.
    HfRepo(RepoTarget target, const HfPlaces& places, std::string token_source, RetryingClient* client,
           OutFolder& folder);

    // What an earlier download knows, for when there is no client: the repository's current name, the commit, and all
    // files that the same selection takes (empty: it had another one).
    void remember(std::string id, std::string commit, std::vector<TreeFile> files);
    // Errors: infrastructure, authentication, remote_missing, local_io (a selected name is unsafe), interrupted.
    Result<HfListing> list(const Selection& selection);
    // Checks with a HEAD request whether hash and size still match the listing. Error: conflict, or that of the
    // request.
    Status check_head(const TreeFile& file);

    std::vector<Wanted> wanted(const HfListing& listing) const;
    Error explain(const std::string& url, int status, const HttpHeaders& headers, std::string_view body) const;

private:
    Result<std::string> resolve_revision();
    Result<std::string> revision_offline() const;
    void pass_on_warning(const HttpHeaders& headers);
    Status read_pages(HfListing& listing, const Selection& selection, std::string_view prefix, bool& missing);
    Result<std::string> page_after(const std::string& link) const;
    void sort_out(HfListing& listing, const Selection& selection, std::vector<TreeFile> files, bool keep_all);
    bool take_known_tree(HfListing& listing, const Selection& selection);
    Status finish(HfListing& listing, const Selection& selection);
    Asked asked(const std::string& url) const;
    Error failed(const ServiceAnswer& answer) const;
    std::string api(std::string_view rest) const;
    std::string resolve_url(std::string_view path) const;

    RepoTarget m_target;
    const HfPlaces& m_places;
    const std::string m_token_source;
    RetryingClient* m_client;
    OutFolder& m_folder;
    std::string m_commit;
    std::string m_earlier_commit;  // empty: not known
    std::vector<TreeFile> m_earlier_files;
    std::map<std::string, TreeFile> m_all;  // from a full listing
    bool m_all_known = true;
    std::set<std::string> m_topics;  // topics of the Hub's warnings shown so far
    std::size_t m_unsafe = 0;        // unsafe names that are not selected
};

// Hosts by which the Hub refers to itself.
std::vector<std::string> hub_hosts();

}  // namespace gdnctl::hub
