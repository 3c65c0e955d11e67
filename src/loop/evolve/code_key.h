// The parts of a source file that a compiler reads: two changes that differ only in comments and white space are the
// same.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::loop::evolve {

// The content without comments, blank lines and white space at the ends of lines; runs of it are one blank. Which
// comments there are is told by the name's ending: those of C (.c, .h, .cc, .cpp, .hpp, .cu) or those with `#` (.py,
// .sh; the indentation of .py stays). Any other file is as it is. Strings are left alone.
std::string without_comments(std::string_view path, std::string_view content);

}  // namespace gdnctl::loop::evolve
