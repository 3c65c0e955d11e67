#include "loop/engine/lock.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "platform/descendants.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

// Next to the lock, since it says more than a process id. Only for people.
void say_who(const fs::path& lock, const fs::path& log_dir, WallTime now) {
    const auto self = process_info(getpid());
    const Json who = {{"pid", getpid()},
                      {"start_ticks", self ? self->id.start_ticks : 0},
                      {"started_at", format_iso8601(now)},
                      {"log_dir", log_dir.string()}};
    // A full disk must not prevent locking.
    [[maybe_unused]] const auto written = atomic_replace(lock.string() + ".json", gdnctl::to_text(who) + "\n", 0600);
}

std::string who_holds(const fs::path& lock) {
    const auto text = read_file_if_exists(lock.string() + ".json", std::size_t{64} << 10);
    if (!text || !*text) return {};
    const Json who = Json::parse(**text, nullptr, false);
    if (!who.is_object()) return {};
    const auto word = [&](const char* key) { return json::maybe_text(who, key).value_or("?"); };
    return fmt::format(": process {}, since {}, log directory {}", json::integer(who, "pid").value_or(0),
                       local_time_of(word("started_at")), word("log_dir"));
}

Result<FileLock> take(const fs::path& lock, std::string_view what, const fs::path& place) {
    auto taken = FileLock::acquire(lock, {k_after_a_kill});
    if (taken || taken.error().kind != ErrorKind::conflict) return taken;
    return fail(ErrorKind::conflict,
                fmt::format("another codex-loop is running {} {}{}", what, place.string(), who_holds(lock)),
                "wait for it, or create a file STOP in its log directory to end it after the current iteration");
}

}  // namespace

Result<LoopLock> LoopLock::acquire(const fs::path& log_dir, const fs::path& git_common_dir, WallTime now) {
    const fs::path ours = log_dir / "codex-loop.lock";
    const fs::path repositorys = git_common_dir / "gdnctl-codex-loop.lock";
    GDNCTL_TRY_ASSIGN(FileLock first, take(ours, "with the log directory", log_dir));
    GDNCTL_TRY_ASSIGN(FileLock second, take(repositorys, "on the repository of", git_common_dir));
    say_who(ours, log_dir, now);
    say_who(repositorys, log_dir, now);
    return LoopLock(std::move(first), std::move(second));
}

}  // namespace gdnctl::loop
