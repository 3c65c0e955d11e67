// A model's reply as foreign bytes: its trace, and the edits that it asks for; and records of a journal, one a line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/state.h"

using namespace gdnctl::loop::evolve;

namespace {

// Whatever the records say, there is a next step, and a verdict where it is due.
void use_records(std::string_view bytes) {
    State state;
    std::size_t line = 0;
    while (!bytes.empty()) {
        const std::size_t end = std::min(bytes.find('\n'), bytes.size());
        const auto record = gdnctl::Json::parse(bytes.substr(0, end), nullptr, false);
        bytes.remove_prefix(std::min(end + 1, bytes.size()));
        if (!record.is_object() || !state.apply(record, "fuzz", ++line)) continue;
        const Step step = next(state, line % 2 == 0);
        if (step.kind == StepKind::decide) require(decide(state).verdict != Verdict::none);
        if (step.kind == StepKind::begin_attempt) {
            const auto members = state.members();
            require(!pick(members, static_cast<int>(members.size()), state.rules).parents.empty());
        }
    }
}

}  // namespace

// A file, a line of four dashes, the reply.
FUZZ(evolve) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto cut = bytes.find("\n----\n");
    const std::string_view file = cut == std::string_view::npos ? std::string_view() : bytes.substr(0, cut + 1);
    const std::string_view reply = cut == std::string_view::npos ? bytes : bytes.substr(cut + 6);
    const TracedReply traced = split_trace(reply);
    require(traced.trace || traced.reply == reply);
    require(traced.reply.size() <= reply.size());
    const EditReply parsed = parse_edits(traced.reply);
    const AppliedEdits applied = apply_edits(parsed, {{"k.c", std::string(file)}});
    require(applied.results.size() == parsed.edits.size());
    require(applied.all || applied.files.empty());
    require(applied.all || !applied.near_misses.empty() || parsed.edits.empty());
    for (const auto& [name, text] : applied.files) require(name == "k.c");
    require(!applied.all || (!parsed.edits.empty() && parsed.edits.size() <= 2 && parsed.problems.empty()));
    abstains(reply);
    use_records(reply);
    return 0;
}
