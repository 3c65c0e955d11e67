#include "loop/evolve/agent_dialogue.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "loop/measure/pairs.h"
#include "loop/memory/run_view.h"
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

namespace {

struct Place {
    std::size_t from = 0, to = 0;            // of what is taken out
    std::size_t object = 0, object_end = 0;  // of the object in it
};

// The end of the object that begins at `from`, by its braces; npos: it does not end.
std::size_t end_of_object(std::string_view text, std::size_t from) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = from; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\') ++i;
            if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        if (c == '{') ++depth;
        if (c == '}' && --depth == 0) return i + 1;
    }
    return std::string_view::npos;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
    const auto found = text.find_first_not_of(" \t\r\n", at);
    return found == std::string_view::npos ? text.size() : found;
}

std::optional<Place> leading_object(std::string_view text) {
    const std::size_t from = skip_space(text, 0);
    if (from == text.size() || text[from] != '{') return std::nullopt;
    const std::size_t end = end_of_object(text, from);
    if (end == std::string_view::npos) return std::nullopt;
    return Place{0, end, from, end};
}

// The first fence, where it is a json one.
std::optional<Place> fenced_object(std::string_view text) {
    const std::size_t fence = text.starts_with("```") ? 0 : text.find("\n```");
    if (fence == std::string_view::npos) return std::nullopt;
    const std::size_t ticks = fence + (text[fence] == '\n' ? 1 : 0);
    const std::size_t line_end = text.find('\n', ticks);
    if (line_end == std::string_view::npos) return std::nullopt;
    if (text::to_lower(text::trim(text.substr(ticks + 3, line_end - ticks - 3))) != "json") return std::nullopt;
    const std::size_t close = text.find("\n```", line_end);
    if (close == std::string_view::npos) return std::nullopt;
    const std::size_t after = text.find('\n', close + 1);
    return Place{ticks, after == std::string_view::npos ? text.size() : after + 1, line_end + 1, close};
}

}  // namespace

TracedReply split_trace(std::string_view message) {
    TracedReply out;
    auto place = leading_object(message);
    if (!place) place = fenced_object(message);
    if (place) {
        const std::string_view object = message.substr(place->object, place->object_end - place->object);
        const auto parsed = parse_json(object, "trace");
        if (parsed && parsed->is_object()) {
            out.trace = std::string(text::trim(object));
            const auto technique = parsed->find("technique");
            if (technique != parsed->end() && technique->is_string())
                out.technique = shown(technique->get<std::string>(), 100);
            out.reply = std::string(message.substr(0, place->from)) +
                        std::string(message.substr(skip_space(message, place->to)));
            return out;
        }
    }
    out.reply = std::string(message);
    return out;
}

namespace {

constexpr std::string_view k_head = "EDIT v1 ", k_search = "<<<<<<< SEARCH",
                           k_middle = "=======", k_replace = ">>>>>>> REPLACE";

std::string_view without_cr(std::string_view line) {
    return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

bool is_marker(std::string_view line, std::string_view marker) {
    line = without_cr(line);
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    return line == marker;
}

// Lines without their ends. A text that ends with a newline has no further, empty line.
std::vector<std::string_view> lines_of(std::string_view text) {
    auto lines = text::split(text, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
}

bool matches_at(const std::vector<std::string_view>& lines, std::size_t at, const std::vector<std::string>& old) {
    for (std::size_t i = 0; i < old.size(); ++i) {
        if (without_cr(lines[at + i]) != old[i]) return false;
    }
    return true;
}

std::vector<std::size_t> matches(const std::vector<std::string_view>& lines, const std::vector<std::string>& old) {
    std::vector<std::size_t> found;
    for (std::size_t at = 0; at + old.size() <= lines.size(); ++at) {
        if (matches_at(lines, at, old)) found.push_back(at);
    }
    return found;
}

// Where the old lines agree best: the most lines equal but for white space, then the first line nearest.
std::size_t closest(const std::vector<std::string_view>& lines, const std::vector<std::string>& old) {
    constexpr std::size_t k_compared = 200, k_far = 60;
    std::size_t best = 0, best_equal = 0, best_distance = k_far + 1;
    for (std::size_t at = 0; at < lines.size(); ++at) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i < std::min(old.size(), lines.size() - at) && i < 20; ++i) {
            if (text::trim(lines[at + i]) == text::trim(old[i])) ++equal;
        }
        if (equal < best_equal) continue;
        const std::size_t distance = text::edit_distance(lines[at].substr(0, k_compared),
                                                         std::string_view(old.front()).substr(0, k_compared), k_far);
        if (equal == best_equal && distance >= best_distance) continue;
        best = at;
        best_equal = equal;
        best_distance = distance;
    }
    return best;
}

std::string near_miss(const Edit& edit, const std::vector<std::string_view>& lines, std::size_t count) {
    if (count > 1) {
        return fmt::format("{}: the SEARCH lines occur {} times; add lines around them until they occur once.\n",
                           edit.file, count);
    }
    if (lines.empty()) return fmt::format("{}: the file is empty.\n", edit.file);
    const std::size_t at = closest(lines, edit.old_lines);
    std::string out = fmt::format("{}: the SEARCH lines occur 0 times. Closest, from line {}:\n", edit.file, at + 1);
    for (std::size_t i = 0; i < edit.old_lines.size() && i < 20; ++i) {
        const std::string_view have = at + i < lines.size() ? without_cr(lines[at + i]) : std::string_view();
        if (at + i < lines.size() && have == edit.old_lines[i]) {
            out += fmt::format("  {}\n", have);
            continue;
        }
        out += fmt::format("- {}\n", edit.old_lines[i]);
        if (at + i < lines.size()) out += fmt::format("+ {}\n", have);
    }
    return out;
}

std::string replaced(const std::vector<std::string_view>& lines, std::size_t at, const Edit& edit, bool ends) {
    std::string out;
    const std::string_view end = lines[at].ends_with('\r') ? "\r\n" : "\n";
    for (std::size_t i = 0; i < at; ++i) out.append(lines[i]).append("\n");
    for (const auto& line : edit.new_lines) out.append(line).append(end);
    for (std::size_t i = at + edit.old_lines.size(); i < lines.size(); ++i) out.append(lines[i]).append("\n");
    if (!ends && !out.empty()) out.pop_back();  // the file's last line had no newline
    return out;
}

// Reads one block whose head is at `at`; returns the first line behind it.
std::size_t read_block(const std::vector<std::string_view>& lines, std::size_t at, EditReply& reply) {
    Edit edit;
    edit.file = std::string(text::trim(without_cr(lines[at]).substr(k_head.size())));
    std::size_t i = at + 1;
    if (i >= lines.size() || !is_marker(lines[i], k_search)) {
        reply.problems.push_back(fmt::format("{}: no line `{}` after the head", edit.file, k_search));
        return at + 1;
    }
    for (++i; i < lines.size() && !is_marker(lines[i], k_middle); ++i) {
        edit.old_lines.emplace_back(without_cr(lines[i]));
    }
    if (i == lines.size()) {
        reply.problems.push_back(fmt::format("{}: no line `{}`", edit.file, k_middle));
        return i;
    }
    for (++i; i < lines.size() && !is_marker(lines[i], k_replace); ++i) {
        edit.new_lines.emplace_back(without_cr(lines[i]));
    }
    if (i == lines.size()) {
        reply.problems.push_back(fmt::format("{}: no line `{}`: was the reply cut off?", edit.file, k_replace));
        return i;
    }
    reply.edits.push_back(std::move(edit));
    return i + 1;
}

}  // namespace

bool abstains(std::string_view reply) {
    const auto lines = text::split(reply, '\n');
    return std::any_of(lines.begin(), lines.end(),
                       [](std::string_view line) { return text::trim(line) == k_no_valid_edit; });
}

EditReply parse_edits(std::string_view reply) {
    EditReply out;
    const auto lines = lines_of(reply);
    for (std::size_t i = 0; i < lines.size();) {
        i = lines[i].starts_with(k_head) ? read_block(lines, i, out) : i + 1;
    }
    return out;
}

AppliedEdits apply_edits(const EditReply& reply, const std::map<std::string, std::string>& files, std::size_t most) {
    AppliedEdits out;
    std::map<std::string, std::string> changed;
    bool failed = !reply.problems.empty() || reply.edits.empty();
    for (const auto& problem : reply.problems) out.near_misses += problem + "\n";
    if (reply.edits.size() > most) {
        failed = true;
        out.near_misses += fmt::format("{} edits; at most {} are allowed.\n", reply.edits.size(), most);
    }
    for (const Edit& edit : reply.edits) {
        EditResult result{edit.file, false, {}};
        const auto original = files.find(edit.file);
        if (original == files.end()) {
            result.reason = "not a file that may be changed";
            out.near_misses += fmt::format("{}: {}\n", edit.file, result.reason);
        } else if (edit.old_lines.empty()) {
            result.reason = "no SEARCH lines";
            out.near_misses += fmt::format("{}: {}\n", edit.file, result.reason);
        } else {
            const std::string text = changed.contains(edit.file) ? changed[edit.file] : original->second;
            const auto lines = lines_of(text);
            const auto found = matches(lines, edit.old_lines);
            if (found.size() == 1) {
                result.applied = true;
                changed[edit.file] = replaced(lines, found.front(), edit, text.ends_with('\n'));
            } else {
                result.reason = fmt::format("the SEARCH lines occur {} times", found.size());
                out.near_misses += near_miss(edit, lines, found.size());
            }
        }
        failed = failed || !result.applied;
        out.results.push_back(std::move(result));
    }
    out.all = !failed;
    if (failed) {
        for (EditResult& result : out.results) {
            if (result.applied) result = {result.file, false, "another edit of the reply failed"};
        }
        return out;
    }
    out.files = std::move(changed);
    return out;
}

}  // namespace gdnctl::loop::evolve
