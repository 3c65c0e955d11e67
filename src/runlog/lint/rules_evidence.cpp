// L501-L507: the evidence for an entry's claims: test counts, job ids, profiles, and the settings that took effect.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

const Field* correctness_of(const Entry& entry) {
    for (const Field& field : entry.fields) {
        if (label_is(field.label, "correctness", true)) return &field;
    }
    return nullptr;
}

// A line without counts that says how a run ended: "OK", "verdict: OK", "all cases passed".
bool has_verdict_line(const Entry& entry) {
    const Field* field = correctness_of(entry);
    if (field == nullptr) return false;
    if (!entry.tests.empty()) return true;
    const std::string words = text::to_lower(field->value) + "\n" + text::to_lower(field->body);
    for (const std::string_view word : {"ok", "verdict", "passed", "pass"}) {
        if (contains_word(words, word)) return true;
    }
    return false;
}

// The largest of several runs: kernels, layer and both may each have a line.
const TestCounts* main_run(const Entry& entry) {
    const TestCounts* best = nullptr;
    for (const TestCounts& counts : entry.tests) {
        if (counts.passed && (best == nullptr || *counts.passed >= *best->passed)) best = &counts;
    }
    return best;
}

Where where(const TestCounts& counts) { return {{counts.line, counts.number}}; }

bool digits(std::string_view s, std::size_t n) { return s.size() == n && std::all_of(s.begin(), s.end(), is_digit); }

std::string_view first_word(std::string_view value) {
    value = strip_marks(value);
    return strip_marks(value.substr(0, value.find_first_of(" ,;(")));
}

// ray-run-<user>-<entry>-YYYYMMDD-HHMMSS
bool is_ray_run(std::string_view id) {
    constexpr std::string_view prefix = "ray-run-";
    if (!id.starts_with(prefix) || id.size() < prefix.size() + 3 + 16) return false;
    const std::string_view name = id.substr(prefix.size(), id.size() - prefix.size() - 16);
    const std::string_view time = id.substr(id.size() - 16);
    const std::size_t dash = name.find('-', 1);
    return dash != std::string_view::npos && dash + 1 < name.size() && time[0] == '-' && digits(time.substr(1, 8), 8) &&
           time[9] == '-' && digits(time.substr(10), 6);
}

// gdnctl-<kind>-<user>-YYYYMMDDTHHMMSS-<8 hex digits>, the names that job commands give
bool is_own_job(std::string_view id) {
    if (!id.starts_with("gdnctl-") || id.size() < 7 + 3 + 25) return false;
    const std::string_view tail = id.substr(id.size() - 25);
    return tail[0] == '-' && digits(tail.substr(1, 8), 8) && tail[9] == 'T' && digits(tail.substr(10, 6), 6) &&
           tail[16] == '-' &&
           std::all_of(tail.begin() + 17, tail.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

// Whether a job field names a job, and does not explain why there is none.
bool names_job(const Field& field, std::string_view word) {
    const std::string_view value = strip_marks(field.value);
    const std::string_view rest = strip_marks(value.substr(std::min(value.find(word) + word.size(), value.size())));
    const bool prose = !rest.empty() && std::string_view(",;(").find(rest[0]) == std::string_view::npos;
    const std::string lower_case = text::to_lower(word);
    return !prose && lower_case != "n/a" && lower_case != "none" && lower_case != "pending" && lower_case != "-" &&
           !word.starts_with("<");
}

bool is_raysubmit(std::string_view id) {
    constexpr std::string_view prefix = "raysubmit_";
    return id.starts_with(prefix) && id.size() >= prefix.size() + 8 &&
           std::all_of(id.begin() + prefix.size(), id.end(), [](char c) { return is_word(c); });
}

bool is_run_url(std::string_view url) {
    const std::size_t runs = url.find("/runs/");
    return url.starts_with("https://") && runs != std::string_view::npos && runs + 6 < url.size() &&
           !url.ends_with('/');
}

bool is_artifact(std::string_view value) {
    constexpr std::string_view middle = "-profiler:v";
    const std::size_t at = value.find(middle);
    if (value.find("run-") == std::string_view::npos || at == std::string_view::npos) return false;
    return at + middle.size() < value.size() && is_digit(value[at + middle.size()]);
}

constexpr std::array<std::string_view, 3> k_no_accelerator = {"No accelerator found", "Device or resource busy",
                                                              "The TPU is already in use by another process"};

void missing_counts(const EntryFacts& facts, Reporter& reporter) {
    if (facts.entry.commit_value.kind != CommitKind::committed) return;
    if (facts.run.options.evidence.counts()) {
        if (main_run(facts.entry) == nullptr) {
            reporter.add(heading_of(facts.entry), "a commit, but no test counts (`87 passed, 2 skipped`)");
        }
    } else if (!has_verdict_line(facts.entry)) {
        reporter.add(heading_of(facts.entry), "a commit, but no verdict of a correctness run");
    }
}

void weak_counts(const EntryFacts& facts, Reporter& reporter) {
    const EvidencePolicy& policy = facts.run.options.evidence;
    const TestCounts* run = main_run(facts.entry);
    if (!policy.counts() || run == nullptr || !facts.verdict.committed) return;
    const std::int64_t skipped = run->skipped.value_or(0);
    if (policy.passed_min && *run->passed < *policy.passed_min) {
        reporter.add(where(*run), fmt::format("{} passed, {} skipped: at least {} must pass", *run->passed, skipped,
                                              *policy.passed_min));
    } else if (policy.skipped_max && skipped > *policy.skipped_max) {
        reporter.add(where(*run), fmt::format("{} passed, {} skipped: at most {} may be skipped", *run->passed, skipped,
                                              *policy.skipped_max));
    }
}

void failed_but_accepted(const EntryFacts& facts, Reporter& reporter) {
    if (!facts.verdict.accepted()) return;
    for (const TestCounts& counts : facts.entry.tests) {
        const std::int64_t bad = counts.failed.value_or(0) + counts.errors.value_or(0);
        if (bad != 0) {
            reporter.add(where(counts), fmt::format("{} failed, yet the entry has a commit", bad));
        } else if (counts.said_bad()) {
            reporter.add(where(counts), fmt::format("the verdict is {}, yet the entry has a commit", counts.verdict));
        }
    }
}

void malformed_reference(const EntryFacts& facts, Reporter& reporter) {
    for (const Field& field : facts.entry.fields) {
        const std::string_view word = first_word(field.value);
        if (word.empty()) continue;
        const auto is = [&](std::string_view label) { return label_is(field.label, label); };
        const bool job = is("job id") || is("ray job") || (is("job/run") && word.starts_with("ray"));
        if (job && names_job(field, word) && !is_ray_run(word) && !is_raysubmit(word) && !is_own_job(word)) {
            reporter.add(value_of(field),
                         fmt::format("`{}` is not a job id (ray-run-<user>-<entry>-YYYYMMDD-HHMMSS, raysubmit_<id> or "
                                     "gdnctl-<kind>-<user>-<time>-<hex>)",
                                     word));
        } else if ((is("w&b run") || is("run") || is("run url")) && word.find("wandb.ai") != std::string_view::npos &&
                   !is_run_url(word)) {
            reporter.add(value_of(field), "no run URL (https://wandb.ai/<entity>/<project>/runs/<id>)");
        } else if (is("profiler artifact") && strip_marks(field.value) != "n/a" && !is_artifact(field.value)) {
            reporter.add(value_of(field), "no profiler artifact (run-<run>-profiler:v<k>)");
        }
    }
}

void missing_profile(const EntryFacts& facts, Reporter& reporter) {
    if (!facts.verdict.accepted() || is_begun(facts.entry)) return;
    for (const std::string_view label :
         {"profile run", "profile runs", "job id", "ray job", "job/run", "w&b run", "run", "profiler artifact",
          "trace location", "downloaded trace", "downloaded summary", "profiler summary"}) {
        if (has_content(facts.entry.find(label))) return;
    }
    reporter.add(heading_of(facts.entry), "accepted without a profile run: no job, run or trace is named");
}

void missing_accelerator(const EntryFacts& facts, Reporter& reporter) {
    if (!facts.verdict.accepted() || (facts.entry.metrics.empty() && facts.entry.tests.empty())) return;
    for (const std::string_view sign : k_no_accelerator) {
        const std::size_t found = facts.entry.head.text.find(sign);
        if (found == std::string_view::npos) continue;
        LineCursor cursor(facts.entry.head.text, facts.entry.head.line);
        Line line;
        const char* place = facts.entry.head.text.data() + found;
        while (cursor.next(line) && line.text.data() + line.text.size() < place) {
        }
        reporter.add({line, {place, sign.size()}}, "the quoted output says that the accelerator was missing or busy");
        return;
    }
}

// L507: a setting that took effect with a value other than the requested one.

enum class Role { requested, effective };

struct Setting {
    Role role;
    std::string name;  // normalised; empty: the bullet's name
    std::string_view value;
};

bool has_text(std::string_view text, std::string_view part) {
    return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

std::string_view word_of_setting(std::string_view s) {
    s = s.substr(std::min(s.find_first_not_of(" =:`*\"'"), s.size()));
    return s.substr(0, s.find_first_of(" ,;`*()\"'"));
}

// `requested`, `chunk requested`, `effective chunk`, `CE backend selected`, `chunk (requested)`: role and name.
std::optional<Setting> setting_of_label(std::string_view label) {
    std::string name = normalise_label(label);
    std::erase_if(name, [](char c) { return c == '(' || c == ')'; });
    for (const auto& [word, role] : {std::pair{std::string_view("requested"), Role::requested},
                                     {"effective", Role::effective},
                                     {"selected", Role::effective}}) {
        if (name == word) return Setting{role, {}, {}};
        if (name.ends_with(word) && name[name.size() - word.size() - 1] == ' ') {
            return Setting{role, name.substr(0, name.size() - word.size() - 1), {}};
        }
        if (name.starts_with(word) && name[word.size()] == ' ') return Setting{role, name.substr(word.size() + 1), {}};
    }
    return std::nullopt;
}

// The value after a role word up to the next separator: `=auto`, ` 96`, ` chunk: 96`; nullopt for prose.
std::optional<Setting> setting_behind(Role role, std::string_view rest) {
    rest = rest.substr(0, std::min(rest.find_first_of(",;()|"), rest.find("->")));
    const std::size_t ink = std::min(rest.find_first_not_of(" `*"), rest.size());
    const std::size_t sign = rest.find_first_of("=:");
    Setting setting{role, {}, {}};
    if (sign != std::string_view::npos) {
        if (sign > ink) setting.name = normalise_label(rest.substr(ink, sign - ink));
        setting.value = word_of_setting(rest.substr(sign));
    } else {
        const bool marked = ink < rest.size() && (is_digit(rest[ink]) || rest.substr(0, ink).ends_with('`'));
        if (marked) setting.value = word_of_setting(rest);
    }
    return setting.value.empty() ? std::nullopt : std::optional(setting);
}

// Every setting in a text: "requested=auto, effective=xla".
std::vector<Setting> settings_in(std::string_view text) {
    std::vector<Setting> found;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (at > 0 && is_word(text[at - 1])) continue;
        for (const auto& [word, role] :
             {std::pair{std::string_view("requested"), Role::requested}, {"effective", Role::effective}}) {
            const std::string_view rest = text.substr(at);
            if (!rest.starts_with(word) || (rest.size() > word.size() && is_word(rest[word.size()]))) continue;
            if (auto setting = setting_behind(role, rest.substr(word.size()))) found.push_back(std::move(*setting));
        }
    }
    return found;
}

bool same_setting(std::string_view a, std::string_view b) {
    if (text::to_lower(a) == text::to_lower(b)) return true;
    const auto x = text::parse_double(a), y = text::parse_double(b);
    return x && y && *x == *y;
}

// The value that was chosen instead, from "`auto` chose `xla`" or, after a selection, "auto -> xla".
std::string_view chosen_by_auto(const Field& field) {
    const std::string_view line = field.line;
    for (std::size_t at = line.find("auto"); at != std::string_view::npos; at = line.find("auto", at + 1)) {
        if ((at > 0 && is_word(line[at - 1])) || (at + 4 < line.size() && is_word(line[at + 4]))) continue;
        std::string_view rest = line.substr(at + 4);
        rest = rest.substr(std::min(rest.find_first_not_of(" `*"), rest.size()));
        for (const std::string_view verb : {"chose ", "picked ", "selected ", "resolved to ", "-> ", "=> "}) {
            const bool arrow = verb.size() == 3;
            if (!rest.starts_with(verb) || (arrow && !setting_of_label(field.label))) continue;
            const std::string_view taken = word_of_setting(rest.substr(verb.size()));
            if (!taken.empty() && taken != "auto") return taken;
        }
    }
    return {};
}

// `96 run as 128`
bool runs_as_another(std::string_view line) {
    constexpr std::string_view words = " run as ";
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) return false;
    std::size_t begin = at;
    while (begin > 0 && (is_digit(line[begin - 1]) || line[begin - 1] == '.')) --begin;
    const std::string_view asked = line.substr(begin, at - begin);
    const std::string_view taken = word_of_setting(line.substr(at + words.size()));
    return !asked.empty() && !taken.empty() && is_digit(taken[0]) && !same_setting(asked, taken);
}

// The settings of one entry by name, until requested and effective values are both known.
class Settings {
public:
    // Returns the pair once both values are known and differ.
    std::optional<std::pair<std::string_view, std::string_view>> add(const std::string& name, const Setting& setting) {
        Pair& pair = m_pairs[name];
        if (setting.role == Role::requested) {
            if (!pair.requested.empty()) pair.effective = {};  // the next run's
            pair.requested = setting.value;
        } else {
            pair.effective = setting.value;
        }
        if (pair.requested.empty() || pair.effective.empty() || same_setting(pair.requested, pair.effective)) return {};
        return std::pair{pair.requested, pair.effective};
    }

private:
    struct Pair {
        std::string_view requested, effective;
    };
    std::map<std::string, Pair> m_pairs;
};

// All settings in a bullet, with their names. A name that is missing is taken from its label or from the enclosing
// bullet.
std::vector<Setting> settings_of(const Field& field) {
    std::vector<Setting> all = settings_in(field.value);
    const auto labelled = setting_of_label(field.label);
    if (labelled) {
        const std::string_view head = field.value.substr(0, field.value.find_first_of(",;("));
        const bool own = head.find("requested") == std::string_view::npos &&
                         head.find("effective") == std::string_view::npos && !word_of_setting(head).empty();
        if (own) all.insert(all.begin(), {labelled->role, labelled->name, word_of_setting(head)});
    }
    const std::string name = labelled ? labelled->name : normalise_label(field.label);
    for (Setting& setting : all) {
        if (setting.name.empty()) setting.name = name;
        if (setting.name.empty()) setting.name = fmt::format("#{}", field.parent);
    }
    return all;
}

void not_as_requested(const EntryFacts& facts, Reporter& reporter) {
    // Most entries contain none of the words: search the whole entry once instead of each line several times.
    const std::string_view whole = facts.entry.head.text;
    const bool paired = has_text(whole, "requested") || has_text(whole, "effective");
    if (!paired && !has_text(whole, " run as ") && !has_text(whole, "auto")) return;
    const bool asked_for_auto = has_text(whole, "--ce-implementation auto");
    Settings settings;
    for (const Field& field : facts.entry.fields) {
        if (const std::string_view taken = chosen_by_auto(field); !taken.empty()) {
            reporter.add(at(field), fmt::format("requested auto, but {} took effect", taken));
            continue;
        }
        bool reported = false;
        for (const Setting& setting : settings_of(field)) {
            const auto differ = settings.add(setting.name, setting);
            if (!differ || reported) continue;
            reported = true;
            reporter.add(at(field), fmt::format("requested {}, but {} took effect", differ->first, differ->second));
        }
        if (reported) continue;
        if (asked_for_auto && label_is(field.label, "ce backend selected") && word_of_setting(field.value) == "xla") {
            reporter.add(at(field), "requested auto, but xla took effect");
        } else if (runs_as_another(field.line)) {
            reporter.add(at(field), "a setting other than the requested one took effect");
        }
    }
}

}  // namespace

std::span<const Rule> evidence_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        on_entry({"L501", "missing-counts", warning, "a commit without test results",
                  "Quote the line of counts (or the verdict) under `Correctness checks`."},
                 &missing_counts),
        on_entry({"L502", "weak-counts", warning, "too few tests passed or too many were skipped",
                  "Run all tests where their dependencies are installed; the target's `evidence` sets the numbers."},
                 &weak_counts),
        on_entry({"L503", "failed-but-accepted", warning, "tests failed, yet the change was accepted",
                  "Fix them, or record `none (reason)`."},
                 &failed_but_accepted),
        on_entry({"L504", "malformed-reference", note,
                  "a job id, run URL or artifact has another shape than the real ones", "Copy it from the output."},
                 &malformed_reference),
        on_entry({"L505", "missing-profile", warning, "accepted without a profile run", "Name the job, run or trace."},
                 &missing_profile),
        on_entry(
            {"L506", "missing-accelerator", warning, "the quoted output shows that the accelerator was missing or busy",
             "Run it again on the accelerator; CPU numbers are not evidence."},
            &missing_accelerator),
        on_entry({"L507", "not-as-requested", warning, "a setting other than the requested one took effect",
                  "Say which one was measured."},
                 &not_as_requested)};
    return k_rules;
}

}  // namespace gdnctl::runlog
