#include "services/devtpu/host_tree.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/hash.h"
#include "platform/signals.h"

namespace gdnctl::devtpu {

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

std::string host_script(const Road& road, std::string_view more, std::string_view body) {
    return fmt::format("b={} t={}\n{}{}{}", road.base, road.tree, more, k_script_head, body);
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

Result<HostTree> look_at_host(const Road& road, const std::set<std::string>& names, Process& process,
                              std::stop_token stop) {
    const std::vector<std::string> asked(names.begin(), names.end());
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(road, host_script(road, {}, k_look), wire_list(asked), k_look_limit,
                                                    process, stop, k_longest_answer));
    if (answer.exit_code != 0) return tl::unexpected(host_error("cannot look at the tree on the TPU's host", answer));
    return parse_host_tree(answer.out);
}

Result<SentFiles> host_hashes(const Road& road, const std::vector<std::string>& names, Process& process,
                              std::stop_token stop) {
    SentFiles hashes;
    if (names.empty()) return hashes;
    const std::string line = "cd \"$t\" && xargs -0 -r sha256sum -z -- 2>/dev/null || :";
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(road, host_script(road, {}, line), wire_list(names), k_hash_limit,
                                                    process, stop, k_longest_answer));
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

std::string incoming_folder(const Road& road, std::string_view id) {
    return fmt::format("{}/incoming/{}", road.base, id);
}

// What syncs that were killed have left is removed after six hours.
std::string unpack_line(const Road& road, std::string_view id, bool compressed) {
    return fmt::format(
        "b={}; d={}; find \"$b/incoming\" -mindepth 1 -maxdepth 1 -mmin +360 -exec rm -rf -- {{}} +; "
        "mkdir -p \"$d\" && tar -x{}f - -p --no-same-owner -C \"$d\" || {{ rm -rf \"$d\"; exit 1; }}",
        road.base, incoming_folder(road, id), compressed ? "z" : "");
}

std::string discard_line(const Road& road, std::string_view id) { return "rm -rf " + incoming_folder(road, id); }

Result<Placed> place_files(const Road& road, std::string_view id, const HostTree& seen, const Changes& changes,
                           const TreeSource& source, std::vector<std::string>& moved, Process& process,
                           std::stop_token stop) {
    std::string list;
    for (const std::string& name : changes.remove) list += "r" + wire(name);
    for (const std::string& name : changes.aside) list += "a" + wire(name);
    for (const auto& [name, hash] : changes.sent) list += "s" + hash + " " + wire(name);
    list += "o" + source.root + '\0';
    list += "o" + source.commit + '\0';
    const std::string words = fmt::format("d={} id={} seen={}\n", incoming_folder(road, id), id, seen.mark);
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(road, host_script(road, words, k_place), std::move(list),
                                                    k_place_limit, process, stop, k_longest_answer));
    for (std::string_view rest = answer.out; !rest.empty();) moved.emplace_back(from_wire(take_record(rest)));
    if (answer.exit_code == k_busy_code) return Placed::busy;
    if (answer.exit_code == k_changed_code) return Placed::changed;
    if (answer.exit_code != 0) return tl::unexpected(host_error("cannot place the files on the TPU's host", answer));
    return Placed::done;
}

}  // namespace gdnctl::devtpu
