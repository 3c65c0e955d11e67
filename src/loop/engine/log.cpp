// The entry of an iteration in the running log.
#include "core/log.h"

#include "core/log_timed.h"
#include "loop/engine/engine.h"

namespace gdnctl::loop {

namespace {

constexpr int k_log_tries = 3;

void say(const LogEntry& entry) {
    if (entry.stamped) return log::write_as_it_is(log::Level::info, entry.said);
    log::info("{}", entry.said);
}

}  // namespace

// Without a tip, no entry is due.
Result<GitLanding> Engine::log_commit(const Step& step) {
    m_log_number.clear();
    const std::string branch = first_base().branch;
    GitLanding landing;
    if (step.again) {
        GDNCTL_TRY_ASSIGN(const auto made, m_parts.git.landed_log(step.iteration, branch));
        landing.kind = GitLanding::Kind::already;
        landing.tip = made.value_or("");
        if (made) return landing;
    }
    // Whoever just moved the branch may have changed the log: prepare the entry again on top of it.
    for (int tries = 0; tries < k_log_tries; ++tries) {
        GDNCTL_TRY_ASSIGN(const auto entry, m_parts.log_entry(step.iteration, open()));
        landing.kind = GitLanding::Kind::already;
        if (!entry) return landing;
        if (!entry->noted.empty()) {
            GDNCTL_TRY(m_parts.git.repository().add_note(entry->noted, entry->message));
            say(*entry);
            return landing;
        }
        GDNCTL_TRY_ASSIGN(landing, m_parts.git.commit_log(step.iteration, branch, *entry, step.again));
        m_log_number = entry->number;
        if (landing.kind == GitLanding::Kind::landed) say(*entry);
        if (landing.kind != GitLanding::Kind::moved) return landing;
    }
    return landing;
}

Status Engine::write_log(const Step& step) {
    const int i = step.iteration;
    if (!m_parts.log_entry) return add(RecordType::logged, i);
    if (!step.again) GDNCTL_TRY(add(RecordType::log_intent, i));
    const auto landing = log_commit(step);
    if (!landing) {
        const ErrorKind kind = landing.error().kind;
        const bool later =
            kind == ErrorKind::local_io || kind == ErrorKind::interrupted || kind == ErrorKind::terminated;
        if (later) return tl::unexpected(landing.error());
        // The judgement is valid with or without an entry.
        log::warning("no entry in the running log: {}", landing.error().text());
        if (!landing.error().hint.empty()) log::warning("hint: {}", landing.error().hint);
        return add(RecordType::logged, i, {{"result", "failed"}});
    }
    if (landing->kind == GitLanding::Kind::moved) {
        log::warning("no entry in the running log: the branch keeps moving");
        return add(RecordType::logged, i, {{"result", "failed"}});
    }
    if (landing->kind == GitLanding::Kind::blocked) {
        log::warning("the log commit cannot land: {}; it stays at {}", landing->why, m_parts.git.ref(i, "log"));
        return add(RecordType::logged, i, {{"result", "kept"}});
    }
    if (landing->tip.empty()) return add(RecordType::logged, i);
    std::map<std::string, std::string> words = {{"commit", landing->tip}};
    if (!m_log_number.empty()) words["number"] = m_log_number;
    return add(RecordType::logged, i, std::move(words));
}

}  // namespace gdnctl::loop
