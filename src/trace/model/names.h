// Names of operations and texts of HLO instructions, without what changes from one compilation to the next.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::trace {

// Removes every part `.N`: "fusion.12" -> "fusion", "copy-done.2.clone.1" -> "copy-done.clone".
std::string base_name(std::string_view name);

// The name under which the numbered copies of an operation are grouped: base_name(), and on a GPU (kind "gpu") also
// without `_N` at the end: "loop_fusion_3" -> "loop_fusion".
std::string canonical_name(std::string_view name, std::string_view kind);

// The first shape of an instruction's result, without its layout: "bf16[16,2048]". Empty: the text has none.
std::string output_shape(std::string_view text);

// HLO text with base names in place of names, and without channel ids, so that two compilations of one program give
// equal texts: "%fusion.7 = f32[2]{0} fusion(f32[2]{0} %copy.3)" -> "%fusion = f32[2]{0} fusion(f32[2]{0} %copy)".
std::string anonymise(std::string_view text);

}  // namespace gdnctl::trace
