#include "loop/engine/room.h"

#include <cstdint>

#include <fmt/format.h>

namespace gdnctl::loop {

namespace fs = std::filesystem;

Status check_room(std::span<const fs::path> places) {
    constexpr std::uintmax_t k_next_to_nothing = std::uintmax_t{256} << 10;
    for (fs::path place : places) {
        std::error_code problem;
        while (!fs::exists(place, problem) && place.has_relative_path()) place = place.parent_path();
        const fs::space_info disk = fs::space(place, problem);
        // Some file systems do not report their size.
        if (problem || disk.capacity == 0 || disk.available >= k_next_to_nothing) continue;
        return fail(ErrorKind::local_io,
                    fmt::format("the disk that holds {} is full (No space left on device): {} KB left", place.string(),
                                disk.available >> 10U),
                    "free space there, then run the command again with --resume");
    }
    return {};
}

}  // namespace gdnctl::loop
