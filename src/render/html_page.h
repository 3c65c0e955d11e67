// An HTML page that loads nothing from the network.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::html {

// Escapes text, also for attributes in double quotes.
std::string escaped(std::string_view text);

// A complete document without scripts. Its content policy keeps a browser from loading anything, whatever the page
// contains. `title` is escaped here; `style` (CSS) and `body` are not.
std::string document(std::string_view title, std::string_view style, std::string_view body);

}  // namespace gdnctl::html
