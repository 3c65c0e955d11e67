#include "services/devtpu/sync.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/random_hex.h"
#include "platform/signals.h"
#include "services/devtpu/file_hashes.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::minutes k_idle_limit{5};         // without a byte from rsync or tar, which transfer large files
                                                        // silently
constexpr std::size_t k_batch = std::size_t{64} << 20;  // bytes; an interrupted sync loses at most one batch
constexpr int k_rounds = 4;                             // for files that change while they are sent
constexpr std::size_t k_named = 5;

std::string names_of(const std::vector<std::string>& names) {
    std::string out;
    for (std::size_t i = 0; i < std::min(names.size(), k_named); ++i) {
        out += (i == 0 ? "" : ", ") + text::visible(names[i]);
    }
    if (names.size() > k_named) out += fmt::format(" and {} more", names.size() - k_named);
    return out;
}

// A word of rsync's `-e`, which knows quotes but no backslashes.
std::string rsync_word(std::string_view word) {
    std::string out = "'";
    for (const char c : word) out.append(c == '\'' ? 2 : 1, c);
    return out + "'";
}

// rsync's way to the host: ssh, without what the host's login shell prints before rsync's own bytes. They begin after
// the mark that --rsync-path prints. `read` takes single bytes from a pipe, so the rest is left for `cat`.
std::string rsync_shell(const Road& road) {
    const std::string script = fmt::format(
        "exec 4>&1; rc=$({{ {{ \"$@\"; echo $? >&3; }} | {{ while IFS= read -r line; do case $line in *{0}) exec cat "
        ">&4;; "
        "esac; done; }} }} 3>&1); exit \"$rc\"",
        k_mark.substr(0, k_mark.size() - 1));
    std::string shell = "sh -c " + rsync_word(script) + " sh";
    for (auto word = road.ssh.begin(); word != road.ssh.end() - 1; ++word) shell += " " + rsync_word(*word);
    return shell;
}

Error transfer_error(const ProcessResult& result, const ProcessSpec& spec, std::string_view program) {
    // tar prints the second message if a file fits only partly.
    const bool full = result.err.find("No space left on device") != std::string::npos ||
                      result.err.find(": Wrote only ") != std::string::npos;
    if (full) {
        return {ErrorKind::infrastructure,
                "the disk of the TPU's host is full: the tree was not synced",
                "check with `gdnctl dev-tpu-execute --tpu-name NAME --no-sync -- df -h`",
                {}};
    }
    const bool by_ssh = result.exit_code == 255 || result.err.find("Permission denied (") != std::string::npos;
    if (by_ssh) return ssh_error(result.err);
    if (result.err.find("is your shell clean") != std::string::npos) {
        return {ErrorKind::infrastructure,
                "the login shell of the TPU's host prints text when it starts, which disturbs " + std::string(program),
                "look for `echo` and the like in ~/.bashrc there, and print only in interactive shells",
                {}};
    }
    std::string said;
    for (const auto line : text::split(text::trim(result.err), '\n')) said = text::visible(text::trim(line));
    return {ErrorKind::infrastructure,
            fmt::format("{} {}{}", program, describe_end(result, spec), said.empty() ? "" : ": " + said),
            {},
            {}};
}

bool lacks_rsync(const ProcessResult& result) {
    return result.exit_code == 127 || (result.exit_code == 12 && result.err.find("not found") != std::string::npos);
}

class Sync {
public:
    Sync(const Road& road, const SyncRequest& request, Process& process, Clock& clock, std::stop_token stop)
        : m_road(road),
          m_request(request),
          m_process(process),
          m_clock(clock),
          m_stop(std::move(stop)),
          m_known(request.hashes) {}

    Result<SyncReport> run() {
        for (int round = 0;;) {
            GDNCTL_TRY(look());
            if (m_files.empty() && !m_host.sent.empty()) return leave_as_it_is();
            GDNCTL_TRY(check_source());
            const Changes changes = changes_for(m_files, m_host, m_hashes, [this](const std::string& name) {
                std::error_code ignored;
                const auto status = fs::status(m_request.tree.root / name, ignored);
                return fs::exists(status) && !fs::is_directory(status);
            });
            const bool settled = changes.send.empty() && changes.remove.empty() && changes.aside.empty();
            if (settled && sent_text(changes.sent) == m_host.sent_record) return done({});
            if (round == k_rounds) return unsettled(changes);
            Placed placed = Placed::busy;
            if (!m_host.busy) {
                GDNCTL_TRY_ASSIGN(placed, apply(changes));
            }
            if (placed != Placed::done) {
                GDNCTL_TRY(wait_for_turn(placed));
                continue;
            }
            tell(changes);
            ++round;
        }
    }

private:
    // The files here and there, with their hashes.
    Status look() {
        GDNCTL_TRY_ASSIGN(m_files, local_files(m_request.tree.root, m_request.tree.files, m_known, m_stop));
        std::set<std::string> names;
        for (const LocalFile& file : m_files) {
            for (std::string& folder : folders_of(file.name)) names.insert(std::move(folder));
            names.insert(file.name);
        }
        GDNCTL_TRY_ASSIGN(m_host, look_at_host(m_road, names, m_process, m_stop));
        m_hashes.clear();
        std::vector<std::string> unknown;
        for (const auto& [name, file] : m_host.there) {
            if (!file.regular || !m_host.reachable(name)) continue;
            if (auto hash = m_known.find(key_of(file))) {
                m_hashes.emplace(name, std::move(*hash));
            } else {
                unknown.push_back(name);
            }
        }
        GDNCTL_TRY_ASSIGN(SentFiles hashed, host_hashes(m_road, unknown, m_process, m_stop));
        for (const auto& [name, hash] : hashed) {
            if (const HostFile* file = m_host.find(name)) {
                m_known.put(key_of(*file), hash, file->modified_s < m_host.now_s - 2);
            }
        }
        m_hashes.merge(hashed);
        return {};
    }

    static std::string key_of(const HostFile& file) { return "H " + file.line; }

    // A tree may replace one of the same repository, in whatever folder that was, and one of the same folder.
    Status check_source() const {
        const TreeSource& here = m_request.source;
        const TreeSource& there = m_host.source;
        if (m_request.replaces_other || m_host.sent.empty() || there.root.empty()) return {};
        const bool in_git = !here.commit.empty(), was_in_git = !there.commit.empty();
        const bool same = here.root == there.root ? in_git || !was_in_git
                                                  : in_git && was_in_git && m_request.has_commit(there.commit);
        if (same) return {};
        return fail(
            ErrorKind::usage,
            fmt::format("the tree on the TPU's host was synced from {}, and {} is not a copy of that repository",
                        text::visible(there.root), text::visible(here.root)),
            fmt::format("run this command in {}, add --no-sync to use the tree as it is, or add --sync-path {} "
                        "to replace it",
                        text::shell_quote(text::visible(there.root)), text::shell_quote(here.root)));
    }

    Result<SyncReport> leave_as_it_is() {
        log::warning("{} has no files to sync: the tree on the TPU's host stays as it is",
                     text::visible(m_request.tree.root.string()));
        return done({});
    }

    Status wait_for_turn(Placed why) {
        if (why == Placed::busy && !m_waited) {
            log::info("waiting for another command that uses the tree on the TPU's host to end");
            m_waited = true;
        }
        if (!m_deadline) m_deadline = m_clock.monotonic() + k_turn_limit;
        if (m_clock.monotonic() >= *m_deadline) return tl::unexpected(no_turn(m_road));
        if (!m_clock.sleep_for(k_turn_pause, m_stop)) return tl::unexpected(stopped_error());
        return {};
    }

    // In batches, each of which is placed as a whole.
    Result<Placed> apply(const Changes& all) {
        auto next = all.send.begin();
        Changes changes = all;
        HostTree seen = m_host;
        for (bool first = true; first || next != all.send.end(); first = false) {
            changes.send.clear();
            for (std::size_t bytes = 0; next != all.send.end() && bytes < k_batch; ++next) {
                bytes += next->size;
                changes.send.push_back(*next);
            }
            if (!first) changes.remove = changes.aside = {};
            changes.sent = next == all.send.end() ? all.sent : sent_after(seen.sent, changes);
            GDNCTL_TRY_ASSIGN(const Placed placed, place_batch(changes, seen));
            if (placed != Placed::done) return placed;
            seen.sent = changes.sent;
            GDNCTL_TRY_ASSIGN(seen.mark, tree_mark(sent_text(changes.sent)));
        }
        return Placed::done;
    }

    static SentFiles sent_after(SentFiles sent, const Changes& changes) {
        for (const std::string& name : changes.remove) sent.erase(name);
        for (const LocalFile& file : changes.send) {
            sent.insert_or_assign(file.name, file.hash);
            for (std::string& folder : folders_of(file.name)) {
                sent.insert_or_assign(std::move(folder), std::string(k_folder_hash));
            }
        }
        return sent;
    }

    Result<Placed> place_batch(const Changes& changes, const HostTree& seen) {
        const std::string id = random_hex(16);
        if (!changes.send.empty()) {
            if (Status sent = send(changes.send, id); !sent) {
                if (const auto discarded = ask_host(m_road, discard_line(m_road, id), {}, std::chrono::seconds(8),
                                                    m_process, std::stop_token());
                    !discarded) {
                    log::debug("{}", discarded.error().text());
                }
                return tl::unexpected(std::move(sent).error());
            }
        }
        std::vector<std::string> moved;
        auto placed = place_files(m_road, id, seen, changes, m_request.source, moved, m_process, m_stop);
        if (!moved.empty()) {
            const std::string kept =
                m_road.is_local() ? text::shell_split(m_road.base)->front() + "/kept" : "~/.gdnctl/kept";
            log::warning("in the way on the TPU's host, and moved to {} there: {}", kept, names_of(moved));
        }
        if (placed && *placed == Placed::done) {
            m_deadline.reset();
            m_waited = false;
        }
        return placed;
    }

    // Collects the files on the host. Some of them may be missing there: the next look shows it.
    Status send(const std::vector<LocalFile>& files, const std::string& id) {
        ProcessSpec spec;
        for (const LocalFile& file : files) spec.stdin_bytes.append("./").append(file.name).push_back('\0');
        spec.cwd = m_request.tree.root;
        spec.idle_limit = k_idle_limit;
        spec.stop = m_stop;
        spec.leaves_behind = [](int) { return true; };
        if (!m_road.is_local() && m_by != "tar") {
            GDNCTL_TRY_ASSIGN(const bool sent, by_rsync(spec, id));
            m_by = sent ? "rsync" : "tar";
            if (sent) return {};
        }
        if (m_road.is_local()) m_by = "copy";
        return by_tar(std::move(spec), id);
    }

    // false: rsync is missing, here or on the host.
    Result<bool> by_rsync(ProcessSpec spec, const std::string& id) {
        // The files that are there already save traffic; rsync must compare them by content.
        spec.argv = {"rsync",
                     "-Lptzc",
                     "--no-implied-dirs",
                     "--copy-dest=../../../marin",
                     "--from0",
                     "--files-from=-",
                     "-e",
                     rsync_shell(m_road),
                     "--rsync-path=" + marked("rsync"),
                     "./",
                     m_road.ssh.back() + ":.gdnctl/incoming/" + id + "/"};
        auto result = m_process.run(spec);
        if (!result) return false;
        if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
        constexpr int k_vanished = 24, k_partial = 23;
        if (result->ok() || result->exit_code == k_vanished) return true;
        // Files that disappeared during the transfer are no failure; any other error is.
        const bool only_gone =
            result->exit_code == k_partial && result->err.find("No such file") != std::string::npos &&
            result->err.find("denied") == std::string::npos && result->err.find("failed to set") == std::string::npos &&
            result->err.find("No space") == std::string::npos;
        if (only_gone) return true;
        if (lacks_rsync(*result)) return false;
        return tl::unexpected(transfer_error(*result, spec, "rsync"));
    }

    Status by_tar(ProcessSpec spec, const std::string& id) {
        const bool local = m_road.is_local();
        const auto there = road_argv(m_road, unpack_line(m_road, id, !local));
        spec.argv = {"sh", "-c",
                     fmt::format("tar --format=posix --no-recursion --null --no-unquote --verbatim-files-from "
                                 "--hard-dereference --ignore-failed-read -h -c{}f - -T - | {}",
                                 local ? "" : "z", text::shell_join(there))};
        GDNCTL_TRY_ASSIGN(const ProcessResult result, m_process.run(spec));
        if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
        if (!result.ok()) return tl::unexpected(transfer_error(result, spec, local ? "tar" : "tar over ssh"));
        return {};
    }

    void tell(const Changes& changes) const {
        if (!changes.stay.empty()) {
            log::warning("removed here but changed on the TPU's host, where it stays: {}", names_of(changes.stay));
        }
    }

    // Some files are still not there as they are here: because they keep changing, here or there, or for good.
    Result<SyncReport> unsettled(const Changes& changes) {
        std::vector<std::string> changing, missing;
        for (const LocalFile& file : changes.send) {
            const HostFile* there = m_host.find(file.name);
            (there != nullptr && there->regular ? changing : missing).push_back(file.name);
        }
        // A file that was replaced a moment ago is not missing for good.
        std::erase_if(missing, [this, &changing](const std::string& name) {
            struct stat info{};
            constexpr std::int64_t k_recent_s = 10;
            const bool recent = stat((m_request.tree.root / name).c_str(), &info) != 0 ||
                                info.st_ctim.tv_sec >= std::time(nullptr) - k_recent_s;
            if (recent) changing.push_back(name);
            return recent;
        });
        if (!missing.empty()) {
            return fail(ErrorKind::infrastructure, "these files did not reach the TPU's host: " + names_of(missing));
        }
        if (!changing.empty()) {
            log::warning("still changing, and maybe not up to date on the TPU's host: {}", names_of(changing));
        }
        return done(changing);
    }

    Result<SyncReport> done(const std::vector<std::string>& unsettled) {
        m_known.save();
        return SyncReport{m_files.size() - std::min(m_files.size(), unsettled.size()), m_by, m_host.mark};
    }

    const Road& m_road;
    const SyncRequest& m_request;
    Process& m_process;
    Clock& m_clock;
    std::stop_token m_stop;
    FileHashes m_known;
    std::optional<Clock::Monotonic> m_deadline;  // from the first wait after the last change on
    std::vector<LocalFile> m_files;
    HostTree m_host;
    SentFiles m_hashes;  // of files on the host
    std::string m_by;
    bool m_waited = false;
};

}  // namespace

Error no_turn(const Road& road) {
    return {
        ErrorKind::conflict,
        fmt::format("another command has been using the TPU of {} for {}",
                    road.is_local() ? "this machine" : road.ssh.back(), format_duration(k_turn_limit)),
        "run it again when that command has ended; `gdnctl dev-tpu-execute --tpu-name NAME --no-sync` does not wait",
        {}};
}

Result<SyncReport> sync_tree(const Road& road, const SyncRequest& request, Process& process, Clock& clock,
                             std::stop_token stop) {
    return Sync(road, request, process, clock, std::move(stop)).run();
}

}  // namespace gdnctl::devtpu
