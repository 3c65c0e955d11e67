#include "runlog/parse/home_path.h"

#include <algorithm>

#include "runlog/parse/detail.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_file_url = "file://";

bool is_name_char(char c) { return detail::is_word(c) || c == '.' || c == '-'; }

// Where the path that contains a root begins; npos: the root is in the middle of another path.
std::size_t path_begin(std::string_view text, std::size_t root, bool windows) {
    if (windows) {
        const bool drive = root > 0 && detail::is_alpha(text[root - 1]);
        return drive && (root == 1 || !is_name_char(text[root - 2])) ? root - 1 : std::string_view::npos;
    }
    if (text.substr(0, root).ends_with(k_file_url)) return root - k_file_url.size();
    const bool inside = root > 0 && (is_name_char(text[root - 1]) || text[root - 1] == '/' || text[root - 1] == '~');
    return inside ? std::string_view::npos : root;
}

}  // namespace

std::vector<HomePath> find_home_paths(std::string_view text) {
    std::vector<HomePath> found;
    for (const std::string_view root : {"/Users/", "/home/", ":\\Users\\"}) {
        for (std::size_t at = text.find(root); at != std::string_view::npos; at = text.find(root, at + root.size())) {
            const std::size_t begin = path_begin(text, at, root[0] == ':');
            if (begin == std::string_view::npos) continue;
            const std::size_t name = at + root.size();
            std::size_t end = name;
            while (end < text.size() && is_name_char(text[end])) ++end;
            while (end > name && text[end - 1] == '.') --end;
            if (end > name) found.push_back({begin, end - begin});
        }
    }
    std::sort(found.begin(), found.end(), [](const HomePath& a, const HomePath& b) { return a.offset < b.offset; });
    return found;
}

}  // namespace gdnctl::runlog
