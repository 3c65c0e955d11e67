// Ignored paths of the user's checkout, such as .venv, to which a worktree slot gets links.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// The path without "." and trailing slashes. Error usage: it is absolute or empty, or leads out of the checkout or into
// .git. The link replaces whatever is at that path, so nothing else may be named.
Result<std::string> slot_link(std::string_view given);

// Error usage: git tracks one of them. Writing through the link would then change the user's checkout.
Status check_untracked(const GitCheckout& repository, const std::vector<std::string>& links);

// Creates links in `slot` to those of `links` (from slot_link()) that exist in `checkout`. Anything else at the same
// path is removed. If its folder leads out of the slot, a warning is logged and nothing is done.
Status make_links(const std::filesystem::path& slot, const std::filesystem::path& checkout,
                  const std::vector<std::string>& links);

}  // namespace gdnctl::loop
