// Explains answers of the Hub that are errors. Pure.
#pragma once

#include <string>
#include <string_view>

#include "platform/http_pool.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/failure.h"

namespace gdnctl::hub {

// What was requested.
struct Asked {
    RepoType type = RepoType::dataset;
    std::string id, revision;
    std::string url;           // redacted when shown
    std::string token_source;  // "$HF_TOKEN"; empty: no token was sent
    std::string endpoint;
};

// Checks in the order of the official client's hf_raise_for_status, so that both name the same cause.
Failure explain_answer(const Asked& asked, int status, const HttpHeaders& headers, std::string_view body);

// "... does not look like a Hugging Face Hub".
Failure no_hub(const Asked& asked, std::string_view why);

// The server's own message, without markup: X-Error-Message, or the JSON members error, error_description,
// errors[].message, or a body that is not HTML.
std::string server_text(const HttpHeaders& headers, std::string_view body);
std::string request_id_of(const HttpHeaders& headers);

}  // namespace gdnctl::hub
