// A page that a browser opens without asking anybody for anything.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::html {

// For text and for attributes in double quotes.
std::string escaped(std::string_view text);

// A whole document without scripts; its policy keeps a browser from loading anything, whatever the page shows. `title`
// is escaped here, `style` (CSS) and `body` are not.
std::string document(std::string_view title, std::string_view style, std::string_view body);

}  // namespace gdnctl::html
