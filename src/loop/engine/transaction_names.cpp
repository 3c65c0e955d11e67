// What is not the agent's: other branches, tags and stashes, of which nothing is lost if an agent removes or rewrites
// one, and how git behaves in the repository.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/engine/transaction.h"

namespace gdnctl::loop {

namespace {

// One line each: "<object> <ref>", for a stash "<object> refs/stash <message>".
std::string message_of(const std::vector<GitName>& names, const std::string& run) {
    std::string text = fmt::format("Other branches, tags and stashes\n\nGdnctl-Run: {}\n\n", run);
    for (const auto& name : names) {
        text += fmt::format("{} {}{}{}\n", name.object, name.ref, name.said.empty() ? "" : " ", name.said);
    }
    return text;
}

std::vector<GitName> names_in(std::string_view commit) {
    std::vector<GitName> names;
    const auto from = commit.find("\nGdnctl-Run: ");
    if (from == std::string_view::npos) return names;
    for (const auto line : text::split(commit.substr(from + 1), '\n')) {
        const auto object = line.find(' ');
        if (object == std::string_view::npos || line.substr(object + 1).substr(0, 5) != "refs/") continue;
        const auto ref = line.find(' ', object + 1);
        names.push_back({std::string(line.substr(object + 1, ref - object - 1)), std::string(line.substr(0, object))});
        if (ref != std::string_view::npos) names.back().said = line.substr(ref + 1);
    }
    return names;
}

// "the branch topic, which was at 0123456789ab"
std::string text_of(const GitName& name) {
    const std::string_view object = std::string_view(name.object).substr(0, 12);
    if (name.ref == k_stash_ref) return fmt::format("the stash {} ({})", object, name.said);
    std::string_view kind = "ref", rest = name.ref;
    for (const auto& [prefix, word] : {std::pair("refs/heads/", "branch"), std::pair("refs/tags/", "tag")}) {
        if (!rest.starts_with(prefix)) continue;
        kind = word;
        rest.remove_prefix(std::string_view(prefix).size());
    }
    return fmt::format("the {} {}, which was at {}", kind, rest, object);
}

std::string remedy_for(const GitName& name) {
    if (name.ref == k_stash_ref) return "git stash store " + name.object;
    return fmt::format("git update-ref {} {}", text::shell_quote(name.ref), name.object);
}

constexpr std::size_t k_most_said = 10;

}  // namespace

std::string Transactions::ref_of_names(std::string_view leaf) const {
    return fmt::format("refs/gdnctl-others/{}/{}", m_settings.run, leaf);
}

// From an earlier process of this run, since this process may collect the agent's earlier work.
Status Transactions::recall_names() {
    if (m_names) return {};
    Names known;
    if (m_resumed) {
        GDNCTL_TRY_ASSIGN(const auto last, m_repository.resolve(ref_of_names("last")));
        if (last) {
            known.commit = *last;
            GDNCTL_TRY_ASSIGN(const auto objects, m_repository.objects(std::span(&known.commit, 1)));
            if (objects.front()) known.names = names_in(*objects.front());
        }
    }
    m_names = std::move(known);
    return {};
}

// Names missing from `now`, or moved to a history that lacks the old target.
std::vector<Transactions::GoneName> Transactions::gone_since_last(const std::vector<GitName>& now) const {
    // All stashes share one ref, so each is identified by its object.
    const auto key_of = [](const GitName& name) { return name.ref == k_stash_ref ? name.object : name.ref; };
    std::map<std::string, std::string> objects;
    for (const auto& name : now) objects.emplace(key_of(name), name.object);
    std::vector<GoneName> gone;
    for (const auto& name : m_names->names) {
        const auto at = objects.find(key_of(name));
        if (at == objects.end()) {
            gone.push_back({name, false});
        } else if (at->second != name.object) {
            // An error: one of the two is missing or not a commit.
            const auto further_on = m_repository.is_ancestor(name.object, at->second);
            if (!further_on || !*further_on) gone.push_back({name, true});
        }
    }
    return gone;
}

Status Transactions::look_at_names(int iteration, std::string_view branch) {
    GDNCTL_TRY(recall_names());
    GDNCTL_TRY_ASSIGN(auto now, m_repository.names());
    // The run's own branch has a ref for each of its commits, and stashed work has one too.
    std::optional<std::string> own_stash;
    const auto is_stash = [](const GitName& name) { return name.ref == k_stash_ref; };
    if (!m_slot && std::any_of(now.begin(), now.end(), is_stash)) {
        GDNCTL_TRY_ASSIGN(own_stash, m_repository.resolve(ref(iteration, "stash")));
    }
    std::erase_if(
        now, [&](const GitName& name) { return name.ref == branch || (is_stash(name) && name.object == own_stash); });
    if (now == m_names->names) return {};
    GDNCTL_TRY(keep_gone(gone_since_last(now)));
    Names next{std::move(now), {}};
    GDNCTL_TRY_ASSIGN(next.commit, m_repository.gather(next.names, message_of(next.names, m_settings.run)));
    GDNCTL_TRY(pin(ref_of_names("last"), next.commit));
    m_names = std::move(next);
    return {};
}

Status Transactions::keep_gone(const std::vector<GoneName>& gone) {
    if (gone.empty()) return {};
    const std::string name = ref_of_names(m_names->commit.substr(0, 12));
    const Status kept = pin(name, m_names->commit);
    if (!kept && kept.error().kind == ErrorKind::local_io) return kept;
    for (std::size_t i = 0; i < gone.size(); ++i) {
        const std::string text = fmt::format("{}: {}", gone[i].rewritten ? "rewritten" : "gone", text_of(gone[i].name));
        m_gone.push_back(text);
        if (i >= k_most_said) continue;
        log::warning("{}", text);
        log::warning("hint: {}", remedy_for(gone[i].name));
    }
    if (gone.size() > k_most_said) log::warning("and {} more", gone.size() - k_most_said);
    if (kept) {
        log::warning("if that was not you: they are kept at {}", name);
    } else {
        log::warning("they cannot be kept: {}", kept.error().text());
    }
    return {};
}

Status Transactions::leave_names() {
    if (!m_names || m_names->commit.empty()) return {};
    const GitRefUpdate away{ref_of_names("last"), std::string(k_no_object)};
    return m_repository.update_refs(std::span(&away, 1));
}

// From here on, the configuration may be the agent's.
Status Transactions::distrust(std::vector<std::string>* changed) {
    GDNCTL_TRY_ASSIGN(auto keys, m_repository.trust(m_trusted));
    if (m_slot) {
        GDNCTL_TRY_ASSIGN(keys, m_slot->checkout().trust_as(m_repository, m_trusted, std::move(keys)));
    }
    if (!keys.empty() && keys != m_told) {
        log::warning("settings that name programs were changed, which this run does not use: {}",
                     text::join(keys, ", "));
    }
    m_told = keys;
    if (changed != nullptr) *changed = std::move(keys);
    return {};
}

// What the agent, or code that it wrote, changed in how the user's git behaves.
Status Transactions::restore_setup() {
    if (!m_setup) return {};
    GDNCTL_TRY_ASSIGN(const auto names, m_setup->put_back(m_repository, m_settings.run));
    m_put_back.insert(m_put_back.end(), names.begin(), names.end());
    // From here on, changes are the user's.
    m_setup.reset();
    GitSetup::forget(m_repository, m_settings.run);
    return {};
}

Status Transactions::remember_setup() {
    GDNCTL_TRY(restore_setup());
    GDNCTL_TRY_ASSIGN(m_setup, GitSetup::take(m_repository));
    return m_setup->save(m_repository, m_settings.run);
}

Status Transactions::clear_locks_of_killed(WallTime begun, WallTime ended, bool here) {
    using FileClock = std::filesystem::file_time_type::clock;
    return tree().clear_stale_locks(GitForcedEnd{FileClock::from_sys(begun), FileClock::from_sys(ended), here});
}

Result<std::string> Transactions::subject(const Base& base, const std::string& head) const {
    constexpr std::size_t k_longest = 200;
    if (head == base.sha) return std::string();
    GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(std::array{head}));
    const std::string object = found.front().value_or(std::string());
    const std::string_view message =
        text::trim(std::string_view(object).substr(std::min(object.find("\n\n"), object.size())));
    return std::string(message.substr(0, std::min(message.find('\n'), k_longest)));
}

}  // namespace gdnctl::loop
