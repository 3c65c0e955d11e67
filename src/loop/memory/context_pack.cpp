#include "loop/memory/context_pack.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_last_outcomes = 5;
constexpr std::size_t k_recent_for_trouble = 5;
constexpr std::size_t k_longest_line = 400;
constexpr std::string_view k_title = "What this run knows so far (measured and recorded by the loop):\n";

// Collects lines up to a number of bytes. Keeps a heading together with its first line, and notes what did not fit.
class Pack {
public:
    explicit Pack(std::size_t bytes) : m_bytes(bytes) {}
    void section(std::string_view heading, std::span<const std::string> lines) {
        if (lines.empty()) return;
        std::string text = fmt::format("\n{}\n", heading);
        std::size_t put = 0;
        for (const std::string& line : lines) {
            const std::string next = "- " + line + "\n";
            const std::size_t left = lines.size() - put - 1;
            const std::size_t reserve = left == 0 ? 0 : more(left).size();
            if (m_text.size() + text.size() + next.size() + reserve > m_bytes) break;
            text += next;
            ++put;
        }
        if (put == 0) return;
        if (put < lines.size()) text += more(lines.size() - put);
        m_text += text;
    }
    void start(std::string_view text) { m_text = text; }
    std::string text() && { return std::move(m_text); }

private:
    static std::string more(std::size_t left) { return fmt::format("- and {} more\n", left); }
    std::size_t m_bytes;
    std::string m_text;
};

std::vector<std::string> champion_lines(const PackInput& input) {
    std::vector<std::string> lines;
    if (input.measured == nullptr || !input.measured->champion) return lines;
    const MeasuredView& champion = *input.measured->champion;
    if (champion.value) {
        lines.push_back(fmt::format("{} = {} at {}{}", shown(champion.metric, 80),
                                    quantity(*champion.value, champion.unit), shown(champion.commit.substr(0, 12)),
                                    champion.iteration > 0 ? fmt::format(", iteration {}", champion.iteration) : ""));
    }
    if (const auto noise = input.measured->noise_pct()) {
        lines.push_back(
            fmt::format("noise floor: measurements of identical code differ by {:.2f} % (one standard deviation); a "
                        "smaller change proves nothing by itself",
                        *noise));
    }
    return lines;
}

std::string outcome_line(const IterationView& i, const MeasuredRun* measured) {
    const bool other = !i.log_number.empty() && i.log_number != std::to_string(i.number);
    std::string line = fmt::format("iteration {}{}{}: {}", i.number,
                                   other ? " (" + shown(i.log_number, 20) + " in the running log)" : "",
                                   i.title.empty() ? "" : ", " + shown(i.title, 80),
                                   i.promoted ? "promoted" : shown(runlog::outcome_phrase(i.outcome), 40));
    const MeasuredView* m = measured == nullptr ? nullptr : measured->of(i);
    if (m != nullptr && m->gain) line += fmt::format(", {} {}", shown(m->metric, 60), whole_gain_text(*m->gain));
    if (!i.reason.empty()) line += ": " + runlog::reason_words(i.reason);
    return shown(line, k_longest_line);
}

std::vector<std::string> last_outcomes(const PackInput& input) {
    std::vector<std::string> lines;
    for (auto at = input.run.iterations.rbegin(); at != input.run.iterations.rend() && lines.size() < k_last_outcomes;
         ++at) {
        if (at->ended) lines.push_back(outcome_line(*at, input.measured));
    }
    return lines;
}

std::string dead_line(const DeadIdea& dead) {
    const Idea& idea = dead.idea;
    const std::string& key = idea.move.empty() ? idea.slot : idea.move;
    std::string name = key.empty() ? "" : key + (idea.title.empty() ? "" : ": ");
    name += idea.title;
    if (name.empty()) name = "a patch of " + (idea.files.empty() ? "unknown files" : idea.files.front());
    std::string iterations;
    for (const int i : dead.iterations) iterations += fmt::format("{}{}", iterations.empty() ? "" : ", ", i);
    return shown(fmt::format("{} (rejected {} times, iterations {}){}", name, dead.failed, iterations,
                             dead.last_reason.empty() ? "" : ": " + dead.last_reason),
                 k_longest_line);
}

// What the oracle said of the last candidate, if that was wrong.
std::vector<std::string> oracle_faults(const PackInput& input) {
    std::vector<std::string> lines;
    for (auto at = input.run.iterations.rbegin(); at != input.run.iterations.rend(); ++at) {
        if (!at->ended) continue;
        for (const StageView& stage : at->stages) {
            if (stage.verdict != "fail") continue;
            for (const auto& line : runlog::oracle_lines(stage.oracle)) lines.push_back(shown(line, k_longest_line));
        }
        break;
    }
    return lines;
}

std::vector<std::string> open_slots(const PackInput& input) {
    std::vector<std::string> lines;
    for (const SlotView& view : coverage(input.slots, input.ideas)) {
        if (!view.open()) continue;
        std::string line = view.slot.slot + (view.slot.title.empty() ? "" : ": " + view.slot.title);
        if (view.tries > 0) line += fmt::format(" (tried {} time{})", view.tries, view.tries == 1 ? "" : "s");
        lines.push_back(shown(line, 160));
    }
    return lines;
}

template <class T>
std::optional<T> or_warn(Result<T> result, std::string_view what) {
    if (result) return std::move(*result);
    log::warning("the prompt's context lacks {}: {}", what, result.error().text());
    return std::nullopt;
}

}  // namespace

std::vector<StandingProblem> standing_problems(const RunView& run) {
    std::vector<StandingProblem> list;
    std::size_t seen = 0;
    for (auto at = run.iterations.rbegin(); at != run.iterations.rend() && seen < k_recent_for_trouble; ++at) {
        if (!at->ended) continue;
        ++seen;
        if (at->outcome != "infra" && at->outcome != "environment") continue;
        const std::string& sign = at->sign.empty() ? at->reason : at->sign;
        auto known = std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.sign == sign; });
        if (known == list.end()) known = list.insert(list.end(), {at->outcome, sign, 0, at->number});
        ++known->times;
    }
    return list;
}

std::string context_pack(const PackInput& input, std::size_t bytes) {
    Pack pack(bytes);
    if (bytes < 256) return {};
    pack.start(k_title);
    const auto champion = champion_lines(input);
    const auto outcomes = last_outcomes(input);
    std::vector<std::string> dead;
    for (const DeadIdea& one : dead_ideas(input.ideas)) dead.push_back(dead_line(one));
    const auto slots = open_slots(input);
    std::vector<std::string> trouble;
    for (const StandingProblem& one : standing_problems(input.run)) {
        trouble.push_back(
            shown(fmt::format("{} (seen {} time{}, last in iteration {}): {}", runlog::outcome_words(one.outcome).cause,
                              one.times, one.times == 1 ? "" : "s", one.last_iteration, one.sign),
                  k_longest_line));
    }
    if (champion.empty() && outcomes.empty() && dead.empty() && slots.empty() && trouble.empty()) return {};
    pack.section("Champion:", champion);
    pack.section("The last outcomes, the latest first:", outcomes);
    pack.section("What the oracle found wrong in the last candidate, compared with the exact result:",
                 oracle_faults(input));
    pack.section("Infrastructure problems; work around them or report them, do not try to fix them:", trouble);
    pack.section("Ideas that were rejected repeatedly; try one again only with a new argument, and state it:", dead);
    pack.section("Slots that are still open:", slots);
    return std::move(pack).text();
}

std::vector<std::string> context_directive(const std::filesystem::path& log_dir, std::span<const Record> records,
                                           const std::vector<CoverageSlot>& usual) {
    const RunView run = view_of(records);
    const auto measured = or_warn(read_measured(log_dir, records), "measurements").value_or(std::nullopt);
    const auto ledger = or_warn(read_ledger(log_dir), "ideas").value_or(std::vector<Json>());
    const auto slots = or_warn(read_coverage(log_dir, usual), "slots").value_or(std::vector<CoverageSlot>());
    const auto ideas = past_ideas(ledger);
    std::string text = context_pack({run, measured ? &*measured : nullptr, ideas, slots});
    while (text.ends_with('\n')) text.pop_back();
    if (text.empty()) return {};
    return {std::move(text)};
}

}  // namespace gdnctl::loop
