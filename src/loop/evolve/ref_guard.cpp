#include "loop/evolve/ref_guard.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop::evolve {

namespace {

std::map<std::string, std::string> by_ref(const std::vector<GitName>& names) {
    std::map<std::string, std::string> out;
    for (const GitName& name : names) {
        if (name.ref != k_stash_ref) out[name.ref] = name.object;
    }
    return out;
}

std::vector<GitName> stashes_in(const std::vector<GitName>& names) {
    std::vector<GitName> out;
    for (const GitName& name : names) {
        if (name.ref == k_stash_ref) out.push_back(name);
    }
    return out;
}

bool holds(const std::vector<GitName>& stashes, const GitName& stash) {
    return std::any_of(stashes.begin(), stashes.end(), [&](const GitName& one) { return one.object == stash.object; });
}

}  // namespace

std::set<std::string> commits_of_head(const std::filesystem::path& git_dir) {
    std::set<std::string> out;
    const auto text = read_file_if_exists(git_dir / "logs" / "HEAD");
    if (!text || !*text) return out;
    for (const std::string_view line : text::split(**text, '\n')) {
        const auto words = text::split(line.substr(0, 100), ' ');
        if (words.size() > 1) out.emplace(words[1]);
    }
    return out;
}

Result<RefGuard> RefGuard::snapshot(const GitCheckout& repository) {
    GDNCTL_TRY_ASSIGN(auto names, repository.names());
    return RefGuard(repository, std::move(names));
}

Result<RefGuard> RefGuard::read(const GitCheckout& repository, const std::filesystem::path& file) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(file));
    GDNCTL_TRY_ASSIGN(const Json list, parse_json(text, file.string()));
    std::vector<GitName> names;
    for (const Json& one : list) {
        names.push_back({json::text(one, "ref"), json::text(one, "object"), json::text(one, "said")});
    }
    return RefGuard(repository, std::move(names));
}

Status RefGuard::write(const std::filesystem::path& file) const {
    Json list = Json::array();
    for (const GitName& name : m_names) {
        list.push_back({{"ref", name.ref}, {"object", name.object}, {"said", text::repair_utf8(name.said)}});
    }
    return atomic_replace(file, list.dump(), 0600);
}

Result<std::vector<std::string>> RefGuard::put_back(const AgentHead& agent, bool after_a_kill) const {
    std::vector<std::string> undone;
    GDNCTL_TRY_ASSIGN(const auto now_names, m_repository->names());
    if (now_names == m_names) return undone;
    const auto before = by_ref(m_names), now = by_ref(now_names);
    const auto set = [&](const std::string& ref, const std::string& target, const std::string& expected,
                         std::string_view what) -> Status {
        const GitRefUpdate update{ref, target, expected};
        const Status done = m_repository->update_refs(std::span(&update, 1));
        // Another process was faster and now owns the name.
        if (!done && done.error().kind != ErrorKind::conflict) return done;
        if (done) undone.push_back(fmt::format("{} {}", ref, what));
        return {};
    };
    for (const auto& [ref, object] : before) {
        const auto at = now.find(ref);
        if (at == now.end()) {
            GDNCTL_TRY(set(ref, object, std::string(k_no_object), "was removed"));
        } else if (at->second != object && agent.commits.contains(at->second)) {
            GDNCTL_TRY(set(ref, object, at->second, "was moved"));
        }
    }
    for (const auto& [ref, object] : now) {
        if (after_a_kill || before.contains(ref) || (!agent.commits.contains(object) && ref != agent.ref)) continue;
        GDNCTL_TRY(set(ref, std::string(k_no_object), object, "was made"));
    }
    for (const GitName& stash : stashes_in(now_names)) {
        const bool is_known = holds(stashes_in(m_names), stash);
        GDNCTL_TRY_ASSIGN(const auto parent, m_repository->resolve(stash.object + "^1"));
        if (after_a_kill || is_known || !parent || !agent.commits.contains(*parent)) continue;
        GDNCTL_TRY(GitStashes(*m_repository).drop(stash.object));
        undone.push_back("a stash was made");
    }
    const auto left = stashes_in(now_names);
    std::vector<GitName> known = stashes_in(m_names);
    std::reverse(known.begin(), known.end());  // the oldest first
    for (const GitName& stash : known) {
        if (holds(left, stash)) continue;
        GDNCTL_TRY(GitStashes(*m_repository).store(stash.object, stash.said));
        undone.push_back("a stash was dropped");
    }
    return undone;
}

}  // namespace gdnctl::loop::evolve
