#include "services/devtpu/sync.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/machine.h"
#include "platform/signals.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_heading = "gdnctl-hashes/1";
constexpr std::size_t k_known_digits = 64;
constexpr std::size_t k_file_limit = std::size_t{256} << 20;
constexpr std::int64_t k_settled_s = 2;  // longer than a tick of any file system's clock

std::string local_key(const struct stat& info) {
    return fmt::format("L {} {} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

bool is_settled(const struct stat& info) {
    const std::int64_t limit = std::time(nullptr) - k_settled_s;
    return info.st_mtim.tv_sec < limit && info.st_ctim.tv_sec < limit;
}

Status check_link(const fs::path& root, const std::string& name) {
    std::error_code problem;
    const fs::path target = fs::canonical(root / name, problem);
    if (problem || is_inside(root, target)) return {};
    return fail(ErrorKind::local_io, "the link " + text::visible(name) + " leads out of the working tree",
                "remove it, or exclude it with .gitignore");
}

}  // namespace

FileHashes::FileHashes(fs::path file) : m_file(std::move(file)) {
    const auto text = read_file_if_exists(m_file, k_file_limit);
    if (!text || !*text) return;
    const auto records = text::split(**text, '\0');
    if (records.empty() || records.front() != k_heading || !(*text)->ends_with('\0')) return;
    for (const std::string_view record : records) {
        if (record.size() <= k_known_digits + 1 || record[k_known_digits] != ' ') continue;
        m_entries.emplace(record.substr(k_known_digits + 1), Entry{std::string(record.substr(0, k_known_digits))});
    }
}

std::optional<std::string> FileHashes::find(const std::string& key) {
    const auto it = m_entries.find(key);
    if (it == m_entries.end()) return std::nullopt;
    it->second.used = true;
    return it->second.hash;
}

void FileHashes::put(const std::string& key, std::string hash, bool settled) {
    m_entries.insert_or_assign(key, Entry{std::move(hash), true, settled});
    m_changed = m_changed || settled;
}

void FileHashes::save() const {
    if (!m_changed) return;
    std::string text(k_heading);
    text.push_back('\0');
    for (const auto& [key, entry] : m_entries) {
        if (!entry.used || !entry.settled) continue;
        text.append(entry.hash).append(" ").append(key).push_back('\0');
    }
    Status saved = make_private_directory(m_file.parent_path());
    if (saved) saved = atomic_replace(m_file, text, 0600);
    if (!saved) log::debug("{}", saved.error().text());
}

Result<std::vector<LocalFile>> local_files(const fs::path& root, const std::vector<std::string>& names,
                                           FileHashes& known, const std::stop_token& stop) {
    std::error_code problem;
    const fs::path real_root = fs::canonical(root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "read", root, problem.value()));
    std::vector<LocalFile> files;
    files.reserve(names.size());
    for (const std::string& name : names) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        const fs::path path = real_root / name;
        struct stat own{}, info{};
        if (lstat(path.c_str(), &own) != 0 || stat(path.c_str(), &info) != 0) continue;
        if (S_ISLNK(own.st_mode)) GDNCTL_TRY(check_link(real_root, name));
        if (!S_ISREG(info.st_mode)) continue;
        const std::string key = local_key(info);
        std::optional<std::string> hash = known.find(key);
        if (!hash) {
            auto computed = hash_file_hex(HashKind::sha256, path);
            if (!computed && stat(path.c_str(), &info) != 0) continue;  // removed meanwhile
            if (!computed) return tl::unexpected(std::move(computed).error());
            known.put(key, *computed, is_settled(info));
            hash = std::move(*computed);
        }
        files.push_back(
            {name, std::move(*hash), static_cast<std::uint64_t>(info.st_size), (info.st_mode & S_IXUSR) != 0});
    }
    return files;
}

namespace {

constexpr std::chrono::minutes k_look_limit{2}, k_hash_limit{15}, k_place_limit{10};
constexpr std::size_t k_sent_digits = 64;
constexpr std::size_t k_longest_answer = std::size_t{256} << 20;
constexpr int k_busy_code = 75, k_changed_code = 76;

// Names travel as "./NAME" with a NUL after each: no program takes one for an option, a comment or standard input.
std::string wire(std::string_view name) { return "./" + std::string(name) + '\0'; }

std::string wire_list(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) list += wire(name);
    return list;
}

// Locks are released when their process ends for any reason. A host without flock has no locks.
constexpr std::string_view k_script_head = R"sh(LC_ALL=C; export LC_ALL; mask=$(umask); umask 077
command -v flock >/dev/null || flock() { :; }
)sh";

// Prints busy, time and the record's hash, the source, the record of what was sent, an empty record, and a stat line
// for each existing name.
constexpr std::string_view k_look = R"sh(mkdir -p "$b/incoming" && (umask "$mask"; mkdir -p "$t") && cd "$t" || exit 1
busy=0
if [ -f "$b/run.lock" ]; then (flock -w 1 8) 8>>"$b/run.lock" || busy=1; fi
mark=$(if [ -f "$b/sent" ]; then cat "$b/sent"; fi | sha256sum)
printf '%s %s %s\0' "$busy" "$(date +%s)" "${mark%% *}"
if [ -f "$b/source" ]; then cat "$b/source"; else printf '\0\0'; fi
[ ! -f "$b/sent" ] || cat "$b/sent"
printf '\0'
{ [ ! -f "$b/sent" ] || cut -z -b 66- "$b/sent"; cat; } | sort -zu |
  xargs -0 -r stat --printf '%f %s %.9Y %.9Z %i %n\0' -- 2>/dev/null || :
)sh";

// Reads records, each with a letter in front: (r)emove, set (a)side, (s)ent, s(o)urce. Folders that the removed files
// leave empty go with them. What is still in the way of a file is kept beside the tree: a file replaces the one that
// was kept from the same place before. Prints the names of what was moved there.
constexpr std::string_view k_place = R"sh(set -e
cat >"$d.list"
part() { sed -z -n "s/^$1//p" "$d.list"; }
end() { rm -rf "$d" "$d.list" "$b/sent.$id" "$b/source.$id"; exit "$1"; }
trap 'end $?' EXIT
exec 8>>"$b/run.lock"
flock -w 1 8 || exit 75
now=$(if [ -f "$b/sent" ]; then cat "$b/sent"; fi | sha256sum)
[ "${now%% *}" = "$seen" ] || exit 76
cd "$t"
part r | xargs -0 -r rm -f --
part r | xargs -0 -r dirname -z -- | sort -zu | xargs -0 -r rmdir -p --ignore-fail-on-non-empty -- 2>/dev/null || :
part a | xargs -0 -r sh -c 'k=$1 id=$2; shift 2; file() { [ -h "$1" ] || [ ! -d "$1" ]; }; for p; do
  [ -e "$p" ] || [ -h "$p" ] || continue
  to=$k/$p
  { file "$p" && file "$to" && mkdir -p "${to%/*}" 2>/dev/null; } || { to=$k/$id/$p; mkdir -p "${to%/*}"; }
  mv -f -T -- "$p" "$to" || exit 1
  printf "%s\0" "$p"
done' sh "$b/kept" "$id"
umask "$mask"
if [ -d "$d" ]; then
  cp -r -l --remove-destination "$d/." . 2>/dev/null ||
    tar -cf - -C "$d" . | tar -xf - -p --no-same-owner --no-overwrite-dir
fi
part s >"$b/sent.$id"
part o >"$b/source.$id"
mv -f "$b/sent.$id" "$b/sent"
mv -f "$b/source.$id" "$b/source"
rm -f "$b/manifest"
)sh";

std::string host_script(const HostConnection& connection, std::string_view more, std::string_view body) {
    return fmt::format("b={} t={}\n{}{}{}", connection.base, connection.tree, more, k_script_head, body);
}

Error host_error(std::string_view what, const Answer& answer) {
    return {ErrorKind::infrastructure, fmt::format("{}: {}", what, text::visible(text::trim(answer.err))), {}, {}};
}

// The next record of a list, which it is removed from.
std::string_view take_record(std::string_view& list) {
    const auto end = std::min(list.find('\0'), list.size());
    const std::string_view record = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    return record;
}

std::string_view take_word(std::string_view& record) {
    const auto end = std::min(record.find(' '), record.size());
    const std::string_view word = record.substr(0, end);
    record.remove_prefix(std::min(end + 1, record.size()));
    return word;
}

std::string_view from_wire(std::string_view wire_name) {
    return wire_name.starts_with("./") ? wire_name.substr(2) : wire_name;
}

// "81a4 1234 1700000000.000000000 1700000000.000000000 77 ./name"
void add_file(std::string_view line, std::map<std::string, HostFile>& there) {
    HostFile file{std::string(line), false, false, false, 0};
    std::string_view rest = line;
    const std::string mode_digits(take_word(rest));
    const unsigned long mode = std::strtoul(mode_digits.c_str(), nullptr, 16);
    constexpr unsigned long k_type = 0170000, k_regular = 0100000, k_folder = 0040000, k_owner_runs = 0100;
    file.regular = (mode & k_type) == k_regular;
    file.folder = (mode & k_type) == k_folder;
    file.executable = (mode & k_owner_runs) != 0;
    take_word(rest);
    const std::string_view modified = take_word(rest);
    file.modified_s = text::parse_int(modified.substr(0, modified.find('.'))).value_or(0);
    take_word(rest);
    take_word(rest);
    there.emplace(from_wire(rest), std::move(file));
}

}  // namespace

std::string sent_text(const SentFiles& sent) {
    std::string out;
    for (const auto& [name, hash] : sent) out.append(hash).append(" ").append(wire(name));
    return out;
}

SentFiles sent_files(std::string_view text) {
    SentFiles sent;
    while (!text.empty()) {
        const std::string_view record = take_record(text);
        if (record.size() <= k_sent_digits + 1) continue;
        sent.emplace(from_wire(record.substr(k_sent_digits + 1)), record.substr(0, k_sent_digits));
    }
    return sent;
}

Result<std::string> tree_mark(std::string_view sent_text) { return hash_hex(HashKind::sha256, sent_text); }

std::vector<std::string> folders_of(std::string_view name) {
    std::vector<std::string> folders;
    for (auto slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/', slash + 1)) {
        folders.emplace_back(name.substr(0, slash));
    }
    return folders;
}

const HostFile* HostTree::find(const std::string& name) const {
    const auto it = there.find(name);
    return it == there.end() ? nullptr : &it->second;
}

bool HostTree::reachable(std::string_view name) const {
    const auto folders = folders_of(name);
    return std::all_of(folders.begin(), folders.end(), [this](const std::string& folder) {
        const HostFile* file = find(folder);
        return file != nullptr && file->folder;
    });
}

HostTree parse_host_tree(std::string_view answer) {
    HostTree host;
    std::string_view first = take_record(answer);
    host.busy = take_word(first) == "1";
    host.now_s = text::parse_int(take_word(first)).value_or(0);
    host.mark = first;
    host.source.root = take_record(answer);
    host.source.commit = take_record(answer);
    const std::string_view from = answer;
    while (!answer.empty() && answer.front() != '\0') take_record(answer);
    host.sent_record = from.substr(0, from.size() - answer.size());
    // A damaged record counts as none.
    if (tree_mark(host.sent_record) != host.mark) host.sent_record.clear();
    host.sent = sent_files(host.sent_record);
    take_record(answer);
    while (!answer.empty()) add_file(take_record(answer), host.there);
    return host;
}

Result<HostTree> look_at_host(const HostConnection& connection, const std::set<std::string>& names, Process& process,
                              std::stop_token stop) {
    const std::vector<std::string> asked(names.begin(), names.end());
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(connection, host_script(connection, {}, k_look), wire_list(asked),
                                                    k_look_limit, process, stop, k_longest_answer));
    if (answer.exit_code != 0) return tl::unexpected(host_error("cannot look at the tree on the TPU's host", answer));
    return parse_host_tree(answer.out);
}

Result<SentFiles> host_hashes(const HostConnection& connection, const std::vector<std::string>& names, Process& process,
                              std::stop_token stop) {
    SentFiles hashes;
    if (names.empty()) return hashes;
    const std::string line = "cd \"$t\" && xargs -0 -r sha256sum -z -- 2>/dev/null || :";
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(connection, host_script(connection, {}, line), wire_list(names),
                                                    k_hash_limit, process, stop, k_longest_answer));
    std::string_view rest = answer.out;
    while (!rest.empty()) {
        const std::string_view record = take_record(rest);
        if (record.size() <= k_sent_digits + 2) continue;
        hashes.emplace(from_wire(record.substr(k_sent_digits + 2)), record.substr(0, k_sent_digits));
    }
    return hashes;
}

namespace {

class Comparison {
public:
    Comparison(const HostTree& host, const SentFiles& hashes) : m_host(host), m_hashes(hashes) {}

    bool is_there(const LocalFile& file) const {
        const HostFile* there = m_host.find(file.name);
        return there != nullptr && there->regular && m_host.reachable(file.name) &&
               there->executable == file.executable && hash(file.name) == file.hash;
    }
    // A file that an earlier sync sent, with that content.
    bool is_ours(const std::string& name) const {
        const HostFile* there = m_host.find(name);
        const auto sent = m_host.sent.find(name);
        return there != nullptr && there->regular && sent != m_host.sent.end() && hash(name) == sent->second;
    }
    // What has to give way to a file.
    std::optional<std::string> obstacle(const LocalFile& file) const {
        for (const std::string& folder : folders_of(file.name)) {
            const HostFile* there = m_host.find(folder);
            if (there == nullptr) return std::nullopt;
            if (!there->folder) return is_ours(folder) ? std::nullopt : std::optional(folder);
        }
        const HostFile* there = m_host.find(file.name);
        if (there == nullptr || is_ours(file.name)) return std::nullopt;
        if (there->regular && hash(file.name) == file.hash) return std::nullopt;
        return file.name;
    }

private:
    std::string_view hash(const std::string& name) const {
        const auto it = m_hashes.find(name);
        return it == m_hashes.end() ? std::string_view() : std::string_view(it->second);
    }
    const HostTree& m_host;
    const SentFiles& m_hashes;
};

}  // namespace

Changes changes_for(const std::vector<LocalFile>& files, const HostTree& host, const SentFiles& host_hashes,
                    const std::function<bool(const std::string&)>& exists_here) {
    const Comparison comparison(host, host_hashes);
    Changes changes;
    std::set<std::string> aside;
    for (const LocalFile& file : files) {
        changes.sent.emplace(file.name, file.hash);
        for (std::string& folder : folders_of(file.name)) {
            changes.sent.emplace(std::move(folder), std::string(k_folder_hash));
        }
        if (comparison.is_there(file)) continue;
        changes.send.push_back(file);
        if (auto obstacle = comparison.obstacle(file)) aside.insert(std::move(*obstacle));
    }
    changes.aside.assign(aside.begin(), aside.end());
    for (const auto& [name, hash] : host.sent) {
        const auto now = changes.sent.find(name);
        const bool is_file_here = now != changes.sent.end() && now->second != k_folder_hash;
        if (hash == k_folder_hash || is_file_here || exists_here(name)) continue;
        const HostFile* there = host.find(name);
        if (there == nullptr || there->folder || !host.reachable(name)) continue;
        if (comparison.is_ours(name)) {
            changes.remove.push_back(name);
        } else if (!aside.contains(name)) {
            changes.stay.push_back(name);
        }
    }
    return changes;
}

std::string incoming_folder(const HostConnection& connection, std::string_view id) {
    return fmt::format("{}/incoming/{}", connection.base, id);
}

// What syncs that were killed have left is removed after six hours.
std::string unpack_line(const HostConnection& connection, std::string_view id, bool compressed) {
    return fmt::format(
        "b={}; d={}; find \"$b/incoming\" -mindepth 1 -maxdepth 1 -mmin +360 -exec rm -rf -- {{}} +; "
        "mkdir -p \"$d\" && tar -x{}f - -p --no-same-owner -C \"$d\" || {{ rm -rf \"$d\"; exit 1; }}",
        connection.base, incoming_folder(connection, id), compressed ? "z" : "");
}

std::string discard_line(const HostConnection& connection, std::string_view id) {
    return "rm -rf " + incoming_folder(connection, id);
}

Result<Placed> place_files(const HostConnection& connection, std::string_view id, const HostTree& seen,
                           const Changes& changes, const TreeSource& source, std::vector<std::string>& moved,
                           Process& process, std::stop_token stop) {
    std::string list;
    for (const std::string& name : changes.remove) list += "r" + wire(name);
    for (const std::string& name : changes.aside) list += "a" + wire(name);
    for (const auto& [name, hash] : changes.sent) list += "s" + hash + " " + wire(name);
    list += "o" + source.root + '\0';
    list += "o" + source.commit + '\0';
    const std::string words = fmt::format("d={} id={} seen={}\n", incoming_folder(connection, id), id, seen.mark);
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(connection, host_script(connection, words, k_place),
                                                    std::move(list), k_place_limit, process, stop, k_longest_answer));
    for (std::string_view rest = answer.out; !rest.empty();) moved.emplace_back(from_wire(take_record(rest)));
    if (answer.exit_code == k_busy_code) return Placed::busy;
    if (answer.exit_code == k_changed_code) return Placed::changed;
    if (answer.exit_code != 0) return tl::unexpected(host_error("cannot place the files on the TPU's host", answer));
    return Placed::done;
}

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
std::string rsync_shell(const HostConnection& connection) {
    const std::string script = fmt::format(
        "exec 4>&1; rc=$({{ {{ \"$@\"; echo $? >&3; }} | {{ while IFS= read -r line; do case $line in *{0}) exec cat "
        ">&4;; "
        "esac; done; }} }} 3>&1); exit \"$rc\"",
        k_mark.substr(0, k_mark.size() - 1));
    std::string shell = "sh -c " + rsync_word(script) + " sh";
    for (auto word = connection.ssh.begin(); word != connection.ssh.end() - 1; ++word) shell += " " + rsync_word(*word);
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
    Sync(const HostConnection& connection, const SyncRequest& request, Process& process, Clock& clock,
         std::stop_token stop)
        : m_connection(connection),
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
        GDNCTL_TRY_ASSIGN(m_host, look_at_host(m_connection, names, m_process, m_stop));
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
        GDNCTL_TRY_ASSIGN(SentFiles hashed, host_hashes(m_connection, unknown, m_process, m_stop));
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
        if (m_clock.monotonic() >= *m_deadline) return tl::unexpected(no_turn(m_connection));
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
                if (const auto discarded = ask_host(m_connection, discard_line(m_connection, id), {},
                                                    std::chrono::seconds(8), m_process, std::stop_token());
                    !discarded) {
                    log::debug("{}", discarded.error().text());
                }
                return tl::unexpected(std::move(sent).error());
            }
        }
        std::vector<std::string> moved;
        auto placed = place_files(m_connection, id, seen, changes, m_request.source, moved, m_process, m_stop);
        if (!moved.empty()) {
            const std::string kept =
                m_connection.is_local() ? text::shell_split(m_connection.base)->front() + "/kept" : "~/.gdnctl/kept";
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
        if (!m_connection.is_local() && m_by != "tar") {
            GDNCTL_TRY_ASSIGN(const bool sent, by_rsync(spec, id));
            m_by = sent ? "rsync" : "tar";
            if (sent) return {};
        }
        if (m_connection.is_local()) m_by = "copy";
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
                     rsync_shell(m_connection),
                     "--rsync-path=" + marked("rsync"),
                     "./",
                     m_connection.ssh.back() + ":.gdnctl/incoming/" + id + "/"};
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
        const bool local = m_connection.is_local();
        const auto there = host_argv(m_connection, unpack_line(m_connection, id, !local));
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

    const HostConnection& m_connection;
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

Error no_turn(const HostConnection& connection) {
    return {
        ErrorKind::conflict,
        fmt::format("another command has been using the TPU of {} for {}",
                    connection.is_local() ? "this machine" : connection.ssh.back(), format_duration(k_turn_limit)),
        "run it again when that command has ended; `gdnctl dev-tpu-execute --tpu-name NAME --no-sync` does not wait",
        {}};
}

Result<SyncReport> sync_tree(const HostConnection& connection, const SyncRequest& request, Process& process,
                             Clock& clock, std::stop_token stop) {
    return Sync(connection, request, process, clock, std::move(stop)).run();
}

}  // namespace gdnctl::devtpu
