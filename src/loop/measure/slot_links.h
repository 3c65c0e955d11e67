// Ignored paths of the user's checkout, such as .venv, that a slot gets links to.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// The path without "." and slashes at its end. Error usage: it is absolute, empty, or leads out of the checkout or into
// .git. What a link replaces is removed, so that nothing else may be named.
Result<std::string> slot_link(std::string_view given);

// Error usage: git tracks one of them: whoever writes there would write into the user's checkout.
Status check_untracked(const GitCheckout& repository, const std::vector<std::string>& links);

// Links in `slot` to what `checkout` has of `links`, each of slot_link(). What is there instead, and is no such link,
// is removed; where its folder leads out of the slot nothing is done, and that is said.
Status make_links(const std::filesystem::path& slot, const std::filesystem::path& checkout,
                  const std::vector<std::string>& links);

}  // namespace gdnctl::loop
