// Keeps secrets out of everything that is printed or stored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdnctl {

// Remembers a secret's value for the life of the process; values under 6 characters are ignored (they would blank
// ordinary words). Thread-safe.
void register_secret(std::string_view value);

// Masks registered secrets and strings that look like well-known tokens (hf_…, ghp_…, github_pat_…, sk-…, AKIA…,
// ya29.…, wandb keys after their name, bearer headers, userinfo and signatures in URLs, PEM private keys). The mask
// keeps at most 4 leading characters.
std::string redact(std::string_view text);

// Whether a variable's name contains TOKEN, KEY, SECRET, PASSW, CREDENTIAL or AUTH, in upper or lower case.
bool names_a_secret(std::string_view name);

struct SecretShape {
    std::size_t offset;  // bytes from the start of the text
    std::size_t length;
    std::string_view kind;  // "Hugging Face token", ...
};

// Finds secret-shaped strings (not the registered ones), for redact() and the log linter. Linear in the text.
std::vector<SecretShape> find_secret_shapes(std::string_view text);

}  // namespace gdnctl
