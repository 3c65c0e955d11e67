// How untrusted text is shown, and who holds a log directory.
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/report/model.h"
#include "platform/descendants.h"
#include "platform/fd.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace {

// Bytes of the code point that starts with `lead`, in valid UTF-8.
std::size_t length_of(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    if (byte < 0x80U) return 1;
    if (byte < 0xE0U) return 2;
    return byte < 0xF0U ? 3 : 4;
}

std::string shown_point(std::string_view bytes) {
    if (bytes == "\n") return "\\n";
    if (bytes == "\r") return "\\r";
    if (bytes == "\t") return "\\t";
    return text::visible(bytes);
}

}  // namespace

std::string shown(std::string_view text, std::size_t columns) {
    const std::string safe = redact(text::repair_utf8(text));
    std::string line;
    std::size_t points = 0;
    std::size_t room_for_dots = 0;  // bytes of `line` that leave a column for the dots
    for (std::size_t at = 0; at < safe.size();) {
        const std::size_t length = std::min(length_of(safe[at]), safe.size() - at);
        const std::string point = shown_point(std::string_view(safe).substr(at, length));
        const std::size_t width = point.size() > length ? point.size() : 1;  // an escape is as wide as it is long
        if (points + width > columns) return line.substr(0, room_for_dots) + "…";
        if (points + width <= columns - 1) room_for_dots = line.size() + point.size();
        points += width;
        line += point;
        at += length;
    }
    return line;
}

std::string shown(std::string_view text) { return shown(text, std::string::npos); }

std::string grouped(const std::optional<std::int64_t>& number) { return number ? grouped(*number) : "unknown"; }

std::string grouped(std::int64_t number) {
    std::string digits = fmt::format("{}", number);
    const std::ptrdiff_t first = number < 0 ? 1 : 0;
    for (auto at = std::ssize(digits) - 3; at > first; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
    return digits;
}

std::optional<RunningLoop> running(const std::filesystem::path& log_dir) {
    const auto lock = log_dir / "codex-loop.lock";
    const auto holder = read_file_if_exists(lock, 64);
    if (!holder || !*holder || text::trim(**holder).empty())
        return std::nullopt;  // no holder, or it has released the lock
    RunningLoop loop;
    loop.pid = text::parse_int(text::trim(**holder)).value_or(0);
    const auto text = read_file_if_exists(lock.string() + ".json", std::size_t{64} << 10);
    const Json who = text && *text ? Json::parse(**text, nullptr, false) : Json();
    if (who.is_object() && json::integer(who, "pid").value_or(0) == loop.pid) {
        loop.since = json::text(who, "started_at");
        const auto ticks = static_cast<std::uint64_t>(json::integer(who, "start_ticks").value_or(0));
        const ProcessId id{static_cast<pid_t>(loop.pid), ticks};
        if (is_running(id)) return loop;
    }
    // Either the holder died without releasing the lock, or its process is not visible from here (a container); only
    // the lock itself can tell. A loop that died leaves its name, so this is not asked while one starts.
    const UniqueFd fd(open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd.valid() || flock(fd.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
    return loop;
}

}  // namespace gdnctl::loop
