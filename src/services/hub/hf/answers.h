// Parses what the Hub reports about a repository: revisions, listings, and the trees that the official client stores.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/http.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

struct TreeFile {
    std::string path;
    std::int64_t size = 0;  // of the content
    std::string blob_id;    // git's hash of the file or, with lfs_sha256, of its pointer
    std::optional<std::string> lfs_sha256;
    std::int64_t lfs_size = 0;
    std::optional<std::string> xet_hash;  // kept for the official client's records
    bool bad_xet_hash = false;

    // What the official client calls the file's etag and uses as the name of records.
    const std::string& etag() const { return lfs_sha256 ? *lfs_sha256 : blob_id; }
    Digest digest() const;
};

struct Revision {
    std::string commit;  // 40 hex digits
    std::string id;      // the repository's current name; empty: not given
};

// Errors of all: bad_input.
Result<Revision> parse_revision(std::string_view text);
// Skips folders and entries of unknown types.
Result<std::vector<TreeFile>> parse_tree_page(std::string_view text);

// trees/<commit>.json, byte for byte as the official client writes it. nullopt: the client would not write it (a
// malformed xetHash).
std::optional<std::string> tree_file_text(const std::map<std::string, TreeFile>& files);
// nullopt: an unknown version, or damaged.
std::optional<std::vector<TreeFile>> parse_tree_file(std::string_view text);

// The Link header (RFC 8288), which links to the next page of a listing. Pure.

// The target of the link with the relation "next"; nullopt: none.
std::optional<std::string> next_link(std::string_view header);

// Explains answers of the Hub that are errors. Pure.

// What was requested.
struct Asked {
    RepoType type = RepoType::dataset;
    std::string id, revision;
    std::string url;           // redacted when shown
    std::string token_source;  // "$HF_TOKEN"; empty: no token was sent
    std::string endpoint;
};

// Checks in the order of the official client's hf_raise_for_status, so that both name the same cause.
Error explain_answer(const Asked& asked, int status, const HttpHeaders& headers, std::string_view body);

// "... does not look like a Hugging Face Hub".
Error no_hub(const Asked& asked, std::string_view why);

// The server's own message, without markup: X-Error-Message, or the JSON members error, error_description,
// errors[].message, or a body that is not HTML.
std::string server_text(const HttpHeaders& headers, std::string_view body);

}  // namespace gdnctl::hub
