// A repository of the Hub: which commit a revision is, and what is wanted of it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/hub/hf/access.h"
#include "services/hub/hf/answers.h"
#include "services/hub/hf/hub_cache.h"
#include "services/hub/hf/repo.h"
#include "services/hub/hf/tree.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/selection.h"
#include "services/hub/transfer/wire.h"

namespace gdnctl::hub {

struct HfListing {
    std::string id;  // the repository's present name
    std::string commit;
    std::vector<TreeFile> files;      // those wanted, sorted
    std::vector<std::string> others;  // of the rest, the first few thousand paths
    std::string tree_record;          // trees/<commit>.json, where a full listing was made; else empty
};

class HfRepo {
public:
    // `wire`: nullptr offline. All must outlive it.
    HfRepo(RepoTarget target, const HfPlaces& places, std::string token_source, Wire* wire, OutFolder& folder);

    // Errors: infrastructure, authentication, remote_missing, local_io (an unsafe name is wanted), interrupted.
    Outcome<HfListing> list(const Selection& selection);
    // HEAD of one file: whether hash and size are still those of the listing. Error: conflict, or of the request.
    Outcome<void> check_head(const TreeFile& file);

    std::vector<Wanted> wanted(const HfListing& listing) const;
    Failure explain(const std::string& url, int status, const HttpHeaders& headers, std::string_view body) const;

private:
    Outcome<std::string> resolve_revision();
    Outcome<std::string> revision_offline() const;
    void pass_on_warning(const HttpHeaders& headers);
    Outcome<void> read_pages(HfListing& listing, const Selection& selection, std::string_view prefix, bool& missing);
    Outcome<std::string> page_after(const std::string& link) const;
    void sort_out(HfListing& listing, const Selection& selection, std::vector<TreeFile> files, bool keep_all);
    bool take_known_tree(HfListing& listing, const Selection& selection);
    Outcome<void> finish(HfListing& listing, const Selection& selection);
    Asked asked(const std::string& url) const;
    Failure failed(const WireAnswer& answer) const;
    std::string api(std::string_view rest) const;
    std::string resolve_url(std::string_view path) const;

    RepoTarget m_target;
    const HfPlaces& m_places;
    const std::string m_token_source;
    Wire* m_wire;
    OutFolder& m_folder;
    std::string m_commit;
    std::map<std::string, TreeFile> m_all;  // of a full listing
    bool m_all_known = true;
    std::set<std::string> m_topics;  // of the Hub's warnings
    std::size_t m_unsafe = 0;        // names that are not wanted
};

// Hosts by which the Hub names itself.
std::vector<std::string> hub_hosts();

}  // namespace gdnctl::hub
