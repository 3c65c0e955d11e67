#include "loop/evolve/experiment_log.h"

#include <map>
#include <regex>

#include <fmt/format.h>

#include "core/text.h"
#include "loop/evolve/prompt.h"

namespace gdnctl::loop::evolve {

namespace {

constexpr std::size_t k_most_listed = 10;

std::string proven(const Attempt& one) { return fmt::format("{} (eval {})", gain_text(*one.gate), one.eval); }

std::string what_of(const Attempt& one) { return one.technique.empty() ? std::string(to_text(one.op)) : one.technique; }

std::string actions(const State& state, const Session& session) {
    std::map<std::string, int> verdicts;
    for (const Attempt& one : state.attempts) {
        if (one.number < session.first || one.verdict == Verdict::none) continue;
        ++verdicts[std::string(to_text(one.verdict))];
    }
    std::string out;
    for (const auto& [word, count] : verdicts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, word);
    return fmt::format("- Attempts {} to {}: {}.\n", session.first, state.attempts.size() - 1,
                       out.empty() ? "none has a verdict" : out);
}

std::string outcome(const State& state, const Session& session) {
    std::string kept;
    std::size_t listed = 0;
    for (std::size_t i = state.attempts.size(); i-- > 1;) {
        const Attempt& one = state.attempts[i];
        if (one.number < session.first || one.verdict != Verdict::kept || !one.gate) continue;
        if (++listed > k_most_listed) break;
        kept += fmt::format("- Kept: attempt {} ({}), commit `{}`: {}.\n", one.number, what_of(one), one.commit,
                            proven(one));
    }
    const Attempt& best = state.at(state.best);
    const std::string standing =
        state.best == 0 ? fmt::format("the base `{}`: +0.00 % (eval {})", state.base, state.noise_eval)
                        : fmt::format("attempt {}, commit `{}`: {}", best.number, best.commit, proven(best));
    return kept.empty() ? fmt::format("- No improvement. The standing best is {}.\n", standing)
                        : kept + fmt::format("- The best is {}.\n", standing);
}

std::string insight(const State& state, const Session& session) {
    std::map<std::string, int> dead;
    for (const Attempt& one : state.attempts) {
        if (one.number < session.first) continue;
        if (one.verdict == Verdict::rejected || one.verdict == Verdict::invalid) ++dead[what_of(one)];
    }
    std::string out = fmt::format("- Noise: a pair has a standard deviation of {:.2f} % (eval {}).\n",
                                  to_percent(state.noise_sd), state.noise_eval);
    for (const auto& [what, count] : dead) out += fmt::format("- Dead end: {}, {} times.\n", what, count);
    return out;
}

}  // namespace

std::string experiment_entry(const State& state, const Session& session, WallTime now) {
    const std::string goal(text::trim(session.goal));
    return text::visible(fmt::format(
        "\n## {} - Evolve run {}, attempts {} to {}\n\n### Goal\n{}\n\n### Hypothesis\n"
        "One of these candidates of {} lineages, drawn with seed {}, is faster than the best so far by more than the "
        "smallest gain that is kept.\n\n### Action\n{}\n### Outcome\n{}\n### Breakthrough / Insight\n{}\n"
        "### Next Step\n{}\n",
        format_iso8601(now).substr(0, 10), state.run, session.first, state.attempts.size() - 1,
        goal.empty() ? std::string("A better metric of the target.") : goal, state.rules.lineages, state.seed,
        actions(state, session), outcome(state, session), insight(state, session),
        fmt::format("The session ended with `{}`. {}", session.reason,
                    state.best == 0 ? "Continue it with a larger budget, or try other directives."
                                    : "Verify the best with `gdnctl evolve promote best`, or continue from it.")));
}

LogCheck check_log(std::string_view text, const std::set<int>& evals) {
    static const std::regex k_number(R"((^|[^\w.(])([-+]?\d+(?:\.\d+)?\s?(?:%|x\b|ms\b|us\b|s\b))|\(eval (\d+)\))");
    LogCheck out;
    std::size_t number = 0;
    bool fenced = false;
    for (const std::string_view view : text::split(text, '\n')) {
        ++number;
        if (text::trim(view).starts_with("```")) fenced = !fenced;
        if (fenced) continue;
        const std::string line(view.substr(0, 4096));
        std::vector<std::string> open;
        for (std::sregex_iterator it(line.begin(), line.end(), k_number), end; it != end; ++it) {
            if ((*it)[2].matched) {
                open.push_back((*it)[2].str());
                ++out.numbers;
                continue;
            }
            const int eval = static_cast<int>(text::parse_int((*it)[3].str()).value_or(0));
            if (!evals.contains(eval)) {
                out.problems.push_back({number, (*it)[0].str(), "there is no such evaluation"});
            }
            open.clear();
        }
        for (std::string& one : open) {
            out.problems.push_back({number, std::move(one), "names no evaluation: add (eval N) after it"});
        }
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
