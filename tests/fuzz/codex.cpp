// What codex prints and writes: events, rollouts, lists of models, messages of failed turns.
#include "services/agent/codex.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/text.h"
#include "fuzz/fuzz.h"
#include "services/agent/codex_events.h"
#include "services/agent/rollout.h"
#include "services/agent/verdict.h"

namespace {

using namespace gdnctl;
using namespace gdnctl::codex;

void check_stream(std::string_view text) {
    Stream stream;
    int lines = 0;
    for (const auto line : text::split(text, '\n')) {
        ++lines;
        const auto happened = stream.take(parse_event(line), {});
        if (happened) (void)render(*happened, true);
    }
    require(stream.text_lines + stream.unknown_events <= lines && stream.left_open() <= lines);
    if (stream.usage) require(stream.usage->input >= 0 && stream.usage->output >= 0);
}

void check_rollout(std::string_view text) {
    RolloutReader whole;
    RolloutReader pieces;
    whole.feed(text);
    for (std::size_t at = 0; at < text.size(); at += 3) pieces.feed(text.substr(at, 3));
    require(whole.facts().tokens == pieces.facts().tokens && whole.facts().requests == pieces.facts().requests);
    require(whole.facts().requests >= whole.facts().usages);
    require(whole.facts().compactions == pieces.facts().compactions);
}

}  // namespace

FUZZ(codex) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_stream(text);
    check_rollout(text);
    (void)parse_codex_models(text);
    Evidence evidence;
    evidence.exit_code = 1;
    evidence.thread_started = evidence.turn_failed = true;
    evidence.failure = std::string(text);
    evidence.now = WallTime(std::chrono::seconds(1'795'000'000));
    const Verdict verdict = judge(evidence);
    require(verdict.kind != AgentClass::ok && verdict.exit_status != 0);
    if (verdict.not_before) require(*verdict.not_before >= WallTime{});
    OutputFilter filter(false);
    for (const auto line : text::split(text, '\n')) (void)filter.shows(line);
    return 0;
}
