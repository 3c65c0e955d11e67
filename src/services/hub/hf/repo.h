// Names of repositories on the Hub: ids, hf:// URIs, web addresses. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::hub {

enum class RepoType { dataset, model, space };

std::string_view name_of(RepoType type);    // "dataset"
std::string_view title_of(RepoType type);   // "Dataset"
std::string_view plural_of(RepoType type);  // "datasets"
std::optional<RepoType> parse_repo_type(std::string_view name);

struct RepoTarget {
    RepoType type = RepoType::dataset;
    std::string id;  // "name" or "namespace/name"
    std::optional<std::string> revision;
    std::string path;         // path in the repository
    bool is_address = false;  // a URI or web address, which includes type, revision and path
    bool is_file = false;     // a web address of a single file
};

// A plain id, hf://[TYPE/]ns/name[@REVISION][/PATH], or a web address on huggingface.co, hf.co or the endpoint's host
// (`endpoint`: "https://huggingface.co"). A plain id is a dataset; a URI or address without a type is a model. Errors:
// usage.
Result<RepoTarget> parse_repo_target(std::string_view text, std::string_view endpoint);

Status check_repo_id(std::string_view id);

}  // namespace gdnctl::hub
