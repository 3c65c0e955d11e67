#include "loop/evolve/prompt.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "core/text.h"
#include "loop/measure/pairs.h"
#include "runlog/records/gain.h"

namespace gdnctl::loop::evolve {

namespace {

constexpr std::size_t k_most_lines = 60;

std::string_view task_of(Operator op) {
    switch (op) {
        case Operator::explore:
            return "Try a new direction. Say in one sentence how it differs from what was tried before.";
        case Operator::exploit: return "Refine the best candidate so far: make the same idea work better.";
        case Operator::repair: return "This candidate failed a gate. Keep its idea and fix the failure shown below.";
        case Operator::cross: return "Merge the second candidate's change, shown below, into the one in your worktree.";
        case Operator::simplify: return "Make the code shorter and clearer without making it slower.";
        case Operator::ablate: return "Revert one part of the best change, to see whether that part earns its place.";
    }
    return {};
}

void section(std::string& out, std::string_view title, std::string_view text) {
    if (text.empty()) return;
    out += fmt::format("\n## {}\n\n{}{}", title, text, text.ends_with('\n') ? "" : "\n");
}

std::string fenced(std::string_view text, std::string_view kind) {
    return text.empty() ? std::string() : fmt::format("```{}\n{}{}```\n", kind, text, text.ends_with('\n') ? "" : "\n");
}

std::string rules_of(const PromptParts& parts) {
    std::string out = "- You may change: " + text::join(parts.kernel, ", ") + "\n";
    if (!parts.guarded.empty()) out += "- Changes to these end the attempt: " + text::join(parts.guarded, ", ") + "\n";
    out += "- Changes anywhere else are dropped.\n";
    if (!parts.edits) out += "- Do not commit: the loop takes the files as you leave them.\n";
    out +=
        "- If you have no idea that is worth measuring, change nothing and print the line <NO_VALID_EDIT/>.\n"
        "- Begin your final message with one JSON object: {\"technique\": \"one_or_two_words\", \"hypothesis\": "
        "\"...\", \"risk\": \"...\"}.\n";
    return out;
}

constexpr std::string_view k_edit_rules =
    "Answer with at most two edits, each in this form, every marker on its own line:\n\n"
    "EDIT v1 FILE\n<<<<<<< SEARCH\nold lines\n=======\nnew lines\n>>>>>>> REPLACE\n\n"
    "The old lines must be whole lines that occur exactly once in FILE, copied with their indentation. Either all "
    "edits apply or none.\n";

runlog::Gain factors(double est, double lo, double hi, int pairs) {
    runlog::Gain out;
    out.pairs = pairs;
    out.factor = std::exp(est);
    if (lo < hi) {
        out.low = std::exp(lo);
        out.high = std::exp(hi);
    }
    return out;
}

}  // namespace

std::string gain_text(const Gain& gain) { return runlog::gain_text(factors(gain.est, gain.lo, gain.hi, gain.n)); }

std::string against_base_text(const Attempt& one, double earlier) {
    const Gain step = one.gate.value_or(Gain{});
    const double total = earlier + one.gate_gain;
    const auto whole = factors(total, total - step.est + step.lo, total - step.est + step.hi, std::max(1, step.n));
    const std::string text = runlog::speed_text(whole);
    return text + (text == "as fast" ? " as the base" : " than the base");
}

std::string attempt_prompt(const State& state, const PromptParts& parts) {
    const Attempt& one = state.at(state.open.number);
    const Attempt& parent = state.at(one.parents.front());
    std::string out =
        fmt::format("# Attempt {} of run {}: {}\n\n{}\n", one.number, state.run, to_text(one.op), task_of(one.op));
    out += parts.goal;
    out += fmt::format("\nYour {} {} ({}).\n", parts.edits ? "starting point is" : "worktree holds",
                       parent.number == 0 ? std::string("the base commit")
                                          : fmt::format("attempt {}: {}", parent.number, to_text(parent.verdict)),
                       parent.commit.substr(0, 12));
    section(out, "Rules", rules_of(parts));
    if (parts.edits) section(out, "Form of the answer", k_edit_rules);
    section(out, "What is known", insights(state));
    if (one.op == Operator::repair) section(out, "Why it failed", text::visible(parent.reason));
    section(out, "Output of the last failure", fenced(text::visible(parts.failure), ""));
    section(out, "The second candidate's change", fenced(parts.second_parent, "diff"));
    section(out, "The best change so far", fenced(parts.best_diff, "diff"));
    for (const auto& diff : parts.inspirations) section(out, "Another change that held", fenced(diff, "diff"));
    for (const auto& [path, content] : parts.files) section(out, "File " + path, fenced(content, ""));
    for (std::size_t i = 0; i < parts.directives.size(); ++i) {
        section(out, fmt::format("Directive {}", i + 1), parts.directives[i]);
    }
    return out;
}

std::string retry_prompt(std::string_view prompt, std::string_view near_misses) {
    std::string out(prompt);
    section(out, "Your last answer did not apply; nothing was changed",
            fmt::format("{}\nSend all edits again, corrected.\n", near_misses));
    return out;
}

std::string insights(const State& state) {
    std::vector<std::string> lines;
    if (state.noise_measured) {
        lines.push_back(fmt::format("- noise: one pair has a standard deviation of {:.2f} % ({} pairs)",
                                    to_percent(state.noise_sd), state.noise_pairs));
    }
    std::map<std::string, int> dead;
    std::vector<std::string> ties;
    for (std::size_t i = state.attempts.size(); i-- > 1;) {
        const Attempt& one = state.attempts[i];
        const std::string what = one.technique.empty() ? std::string(to_text(one.op)) : one.technique;
        if (one.verdict == Verdict::kept && one.gate && lines.size() < 25) {
            lines.push_back(fmt::format("- kept: attempt {} ({}): {}", one.number, what, gain_text(*one.gate)));
        } else if (one.verdict == Verdict::tie && one.gate && ties.size() < 10) {
            ties.push_back(fmt::format("- open: attempt {} ({}) is not distinguishable from its champion: {}",
                                       one.number, what, gain_text(*one.gate)));
        } else if (one.verdict == Verdict::rejected || one.verdict == Verdict::invalid) {
            ++dead[fmt::format("{} ({})", what, to_text(one.verdict))];
        }
    }
    lines.insert(lines.end(), ties.begin(), ties.end());
    for (const auto& [what, count] : dead) {
        if (lines.size() == k_most_lines) break;
        lines.push_back(fmt::format("- dead end: {}, {} time{}", what, count, count == 1 ? "" : "s"));
    }
    std::string out;
    for (const auto& line : lines) out += text::visible(line) + "\n";
    return out;
}

}  // namespace gdnctl::loop::evolve
