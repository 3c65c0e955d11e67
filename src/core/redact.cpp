#include "core/redact.h"

#include <algorithm>
#include <mutex>

namespace gdnctl {

namespace {

constexpr std::size_t k_shortest_secret = 6;
constexpr std::size_t k_shown_characters = 4;
constexpr std::string_view k_mask = "***";

struct Registry {
    std::mutex mutex;
    std::vector<std::string> values;
};

Registry& registry() {
    static Registry instance;
    return instance;
}

std::string masked(std::string_view secret) {
    // Four characters of a short secret would be most of it.
    const std::size_t shown = secret.size() >= 4 * k_shown_characters ? k_shown_characters : 0;
    return std::string(secret.substr(0, shown)) + std::string(k_mask);
}

std::string mask_registered(std::string text) {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    for (const std::string& value : known.values) {
        for (std::size_t at = text.find(value); at != std::string::npos; at = text.find(value, at)) {
            const std::string mask = masked(value);
            text.replace(at, value.size(), mask);
            at += mask.size();
        }
    }
    return text;
}

}  // namespace

void register_secret(std::string_view value) {
    if (value.size() < k_shortest_secret) return;
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (std::find(known.values.begin(), known.values.end(), value) != known.values.end()) return;
    known.values.emplace_back(value);
    // Longest first, so that a secret that contains another is masked whole.
    std::sort(known.values.begin(), known.values.end(),
              [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string redact(std::string_view text) {
    const std::string once = mask_registered(std::string(text));
    const std::vector<SecretShape> shapes = find_secret_shapes(once);
    if (shapes.empty()) return once;
    std::string safe;
    std::size_t copied = 0;
    for (const SecretShape& shape : shapes) {
        safe.append(once, copied, shape.offset - copied);
        safe += masked(std::string_view(once).substr(shape.offset, shape.length));
        copied = shape.offset + shape.length;
    }
    safe.append(once, copied);
    return safe;
}

}  // namespace gdnctl
