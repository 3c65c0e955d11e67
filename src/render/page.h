// The one template of pages that a browser opens without a network or scripts, light or dark as the reader's system is.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace gdnctl::html {

// Escapes text, also for attributes in double quotes.
std::string escaped(std::string_view text);

// A complete document of a report. `title` and `body` are Mustache templates of HTML, filled from `data`, which is a
// command's --json with the words and charts that only a page has. Its content policy keeps a browser from loading
// anything, whatever the page contains.
//
//   {{a/b}}            escaped text of a value; the first name is looked up in the innermost section that has it, "."
//   is
//                      the section's own value; a list's elements are joined by commas
//   {{a|FORMAT}}       a number as FORMAT says: people, grouped, duration (of milliseconds), or a format like .3g; a
//                      text cut to as many columns
//   {{&a}}             HTML: a chart
//   {{#a}}...{{/}}     once for each element of a list, or once inside an object or another value; left out for null,
//                      false, 0, "", {} and []
//   {{*a}}...{{/}}     once for each member of an object, whose name is {{@}}
//   {{?a}}...{{/}}     once where {{#a}} would be there, without entering it
//   {{^a}}...{{/}}     once where {{#a}} would be left out
std::string page(std::string_view title, std::string_view body, const Json& data);

}  // namespace gdnctl::html
