// Prepares the tree for the agent: sets the user's work aside, pins the base, puts away what an earlier attempt left.
#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/engine/engine.h"
#include "loop/engine/messages.h"

namespace gdnctl::loop {

std::map<std::string, std::string> facts_of(const Candidate& candidate) {
    std::map<std::string, std::string> facts = {{"head", candidate.head},
                                                {"diff", std::string(to_text(candidate.diff))}};
    if (!candidate.subject.empty()) facts["title"] = text::visible(candidate.subject);
    if (candidate.leftovers) {
        facts["leftovers"] = candidate.leftovers->commit;
        if (!candidate.leftovers->patch.empty()) facts["patch"] = candidate.leftovers->patch.filename().string();
    }
    const auto put = [&](const char* key, const std::vector<std::string>& list) {
        if (!list.empty()) facts[key] = text::join(list, "\n");
    };
    put("protected", candidate.protected_changes);
    put("hidden", candidate.hidden);
    put("config_changes", candidate.config_changes);
    put("bare_links", candidate.bare_links);
    put("local_links", candidate.local_links);
    put("submodules", candidate.submodules);
    put("gone", candidate.gone);
    if (!candidate.broken.empty()) facts["broken"] = candidate.broken;
    return facts;
}

Base Engine::first_base() const {
    const Record* base = last_of(open(), RecordType::base);
    return base == nullptr ? Base() : Base{base->word("sha"), base->word("branch")};
}

// A candidate that followed a moved branch has its own base.
Base Engine::base() const {
    Base base = first_base();
    const Record* candidate = last_of(open(), RecordType::candidate);
    if (candidate != nullptr && !candidate->word("base").empty()) base.sha = candidate->word("base");
    return base;
}

Status Engine::set_aside(const Step& step) {
    std::string message = step.stash_message;
    if (!step.again) {
        const auto now = std::chrono::duration_cast<std::chrono::seconds>(m_parts.clock.wall().time_since_epoch());
        message = message::stash(step.iteration, now.count());
        GDNCTL_TRY(add(RecordType::stash_intent, step.iteration, {{"message", message}}));
    }
    const auto stash = m_parts.git.set_aside(step.iteration, message, step.again);
    if (!stash) {
        // Interrupted halfway: the stash exists, and some of its files may already be gone from the tree.
        if (const auto made = m_parts.git.stash_named(message); made && *made) {
            log::warning("your uncommitted work is in the stash {}: --resume restores it", **made);
        }
        return tl::unexpected(stash.error());
    }
    if (*stash)
        log::info("your uncommitted work is in the stash {} until this iteration ends", (*stash)->substr(0, 12));
    return add(RecordType::stashed, step.iteration, {{"commit", stash->value_or("")}});
}

// The user has to put that away.
Status Engine::refuse_dirty() {
    if (!clean_tree() || m_settings.options.dirty_policy != DirtyPolicy::fail) return {};
    return m_parts.git.check_clean();
}

Status Engine::take_base(const Step& step) {
    const Record* first = first_of(records(), RecordType::base);
    const std::string branch = first == nullptr ? std::string() : first->word("branch");
    GDNCTL_TRY(m_parts.git.check_branch(branch));
    // Files that an interrupted merge left are not the user's.
    const bool merging = last_of(open(), RecordType::merge_intent) != nullptr;
    if (!merging) GDNCTL_TRY(refuse_dirty());
    if (m_parts.prepare) GDNCTL_TRY(m_parts.prepare(branch, open()));
    if (merging) GDNCTL_TRY(refuse_dirty());
    GDNCTL_TRY_ASSIGN(const Base base, m_parts.git.begin(step.iteration, step.again, branch));
    return add(RecordType::base, step.iteration, {{"sha", base.sha}, {"branch", base.branch}});
}

Status Engine::put_away(const Step& step) {
    const Record* ended = last_of(open(), RecordType::attempt_end);
    const bool done = ended != nullptr && ended->count("attempt") == step.attempt && ended->count("put_away") > 0;
    if (!done) {
        GDNCTL_TRY(m_parts.git.put_away(step.iteration, step.attempt, first_base()));
        if (clean_tree()) GDNCTL_TRY(m_parts.git.clear(step.iteration, first_base()));
        say_what_is_kept(step.iteration);
    } else {
        GDNCTL_TRY(refuse_dirty());
    }
    return run_attempt(step.iteration, step.attempt + 1);
}

// The iteration stays open or ends with an error: restores the user's work now.
Status Engine::give_back(int iteration) {
    if (!stashes()) return {};
    const auto records = open();
    const Record* stashed = last_of(records, RecordType::stashed);
    const Record* restored = last_of(records, RecordType::restored);
    if (stashed == nullptr || (restored != nullptr && restored > stashed)) return {};
    if (stashed->word("commit").empty()) return add(RecordType::restored, iteration, {{"result", "none"}});
    return restore({StepKind::restore_stash, iteration});
}

Status Engine::restore(const Step& step) {
    const std::string stash = last_of(open(), RecordType::stashed)->word("commit");
    GDNCTL_TRY_ASSIGN(const GitRestore result, m_parts.git.bring_back(stash));
    const bool back = result == GitRestore::restored || result == GitRestore::was_there;
    if (result == GitRestore::unproven) {
        log::warning("your uncommitted work is restored, but not completely; it also stays in the stash {}", stash);
    } else if (!back) {
        log::warning("your uncommitted work conflicts with the iteration's result; it stays in the stash {}", stash);
    }
    return add(RecordType::restored, step.iteration, {{"result", back ? "restored" : "kept"}});
}

}  // namespace gdnctl::loop
