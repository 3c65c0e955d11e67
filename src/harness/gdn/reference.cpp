#include "harness/gdn/reference.h"

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::harness {

Result<oracle::GdnDims> parse_shape(const std::string& text) {
    const auto parts = text::split(text, ',');
    std::vector<std::int64_t> numbers;
    for (const std::string_view part : parts) {
        const auto number = text::parse_int(part);
        if (number && *number >= (numbers.size() == 3 ? 0 : 1) && *number < (std::int64_t{1} << 30U))
            numbers.push_back(*number);
    }
    if (numbers.size() != 6 || parts.size() != 6) {
        return fail(ErrorKind::usage,
                    fmt::format("--shape {}: expected B,Hk,Hv,T,dk,dv, as in 1,4,8,4096,128,128", text));
    }
    return oracle::GdnDims{numbers[0], numbers[3], numbers[1], numbers[2], numbers[4], numbers[5]};
}

}  // namespace gdnctl::harness
