#include <array>

#include "runlog/lint/rules.h"

namespace gdnctl::runlog {

namespace {

using enum Severity;

constexpr Rule on_entry(RuleInfo info, EntryRule function) { return {info, function, nullptr, nullptr}; }
constexpr Rule on_document(RuleInfo info, DocumentRule function) { return {info, nullptr, function, nullptr}; }
constexpr Rule on_experiment(RuleInfo info, ExperimentRule function) { return {info, nullptr, nullptr, function}; }

constexpr std::array k_rules = {
    Rule{{"L001", "pending-commit", error, "the commit value is still pending",
          "Write the sha, `this commit` or `none (failed attempt)`."},
         &rule::pending_commit,
         &rule::pending_outside_entries,
         nullptr},
    Rule{{"L002", "this-commit", warning, "`this commit` cannot be resolved, or was left in an older entry",
          "Write the sha; `--fix` does this if the git history has it."},
         &rule::this_commit,
         &rule::this_commit_outside_entries,
         nullptr},
    on_document({"L003", "sequence", error, "iteration numbers do not increase",
                 "Number entries upwards; a repeated attempt gets a letter (12, 12a, 12b)."},
                &rule::sequence),
    on_document({"L004", "no-entries", warning, "the file has no entries", "`gdnctl log new` starts one."},
                &rule::no_entries),
    Rule{{"L101", "heading", warning, "a heading is meant as an entry but is not one, or has another separator",
          "Write `### Iteration 12 - title`."},
         &rule::heading_dash,
         &rule::malformed_heading,
         nullptr},
    Rule{{"L102", "required-field", warning, "a field is missing that this kind of entry needs",
          "Always Date, Commit and Hypothesis; with a sha also the change, its tests, profile and step duration; with "
          "`none` the reason and the next hypothesis."},
         &rule::required_fields,
         nullptr,
         &rule::experiment_sections},
    on_entry({"L103", "commit-grammar", warning, "the commit value is none of the known forms",
              "Use a sha of 7 to 40 digits, `this commit` or `none (reason)`."},
             &rule::commit_grammar),
    on_entry({"L104", "unknown-word", warning, "a change class or field label is misspelt, or a decision is unknown",
              "Use a known spelling, or allow a class with `change-class = NAME` in a rules file."},
             &rule::unknown_words),
    on_entry({"L105", "repeated-field", warning, "an identity field is given twice", "Keep the first."},
             &rule::repeated_field),
    Rule{{"L106", "template-text", warning, "text of the template is left, or a field is empty",
          "Fill it in or remove the line."},
         &rule::template_text,
         nullptr,
         &rule::experiment_template_text},
    on_document(
        {"L107", "unclosed-fence", warning, "a code fence or an HTML comment is not closed and hides later entries",
         "Close a fence with as many marks as it was opened with, a comment with `-->`."},
        &rule::unclosed_block),
    on_document({"L108", "conflict-marks", warning, "markers of an unresolved merge conflict",
                 "Keep the entries of both sides, renumber them and delete the markers."},
                &rule::conflict_marks),
    on_entry({"L201", "unknown-sha", warning, "a sha is not in the repository", "Check the sha, or fetch."},
             &rule::unknown_sha),
    on_entry({"L202", "not-an-ancestor", warning, "the commit is not in the history of HEAD",
              "The commit was rebased or dropped: record the existing one, or `none (reason)`."},
             &rule::not_an_ancestor),
    on_entry({"L203", "commit-is-start", warning, "the commit equals the starting commit",
              "Record the commit that the iteration made, or `none (reason)`."},
             &rule::same_as_start),
    on_entry({"L204", "start-mismatch", note, "the starting commit is not the head that the previous entry left",
              "Other commits came between, or an entry is missing."},
             &rule::start_mismatch),
    on_entry({"L205", "decision-mismatch", warning, "decision and commit disagree",
              "A promoted change has a commit; a reverted one has a commit that reverts it."},
             &rule::decision_mismatch),
    Rule{{"L301", "date-format", warning, "the date is not ISO 8601 in UTC",
          "Write 2026-02-18 or 2026-02-18T12:55:20Z."},
         &rule::date_format,
         nullptr,
         &rule::experiment_date},
    Rule{{"L302", "date-order", warning, "the date is earlier than the previous entry's",
          "Keep entries in chronological order."},
         &rule::date_order,
         nullptr,
         &rule::experiment_date_order},
    on_entry({"L303", "date-plausible", warning, "the date is in the future, or far from the commit's own",
              "Take the time from the commit."},
             &rule::date_plausible),
    on_entry({"L401", "metric-spelling", warning, "a known metric has no readable value, or one that other tools miss",
              "Write label: `1.000 ms -> 2.000 ms` with the label outside the backticks."},
             &rule::unreadable_metric),
    on_entry({"L402", "conflicting-values", warning, "one metric has different values in one entry",
              "Keep each number in one place."},
             &rule::conflicting_values),
    on_entry({"L403", "arithmetic", warning, "a sum, difference or share does not follow from its parts",
              "Recompute it, or correct the part."},
             &rule::arithmetic),
    on_entry({"L404", "stated-percent", warning, "a stated percentage does not match its two values",
              "Recompute it; `--fix` does."},
             &rule::stated_percent),
    on_entry({"L405", "unit-slip", warning, "throughput/duration and step duration disagree",
              "One is in seconds, the other in milliseconds."},
             &rule::unit_slip),
    on_entry({"L406", "throughput-invariant", warning, "throughput values do not belong to one model and batch",
              "tokens/s x duration and MFU x duration stay the same within a model and batch: look for a value of "
              "another run."},
             &rule::throughput_invariants),
    on_entry({"L407", "champion-baseline", warning, "a baseline is not what the champion recorded",
              "Measure the champion again, or say what is compared."},
             &rule::champion_baseline),
    on_entry({"L408", "unknown-direction", warning, "it is unclear what an arrow compares, or whose value it is",
              "Say it in the group's heading: champion -> candidate, previous -> this, control -> hybrid."},
             &rule::unknown_direction),
    on_entry({"L409", "gain-without-step", warning, "a bucket got smaller, but no step duration is given",
              "Time that leaves one bucket may be in another: give the step duration."},
             &rule::gain_without_step),
    on_entry({"L410", "few-points", warning, "a value rests on too few points, or only on the last step",
              "Take the median of a window."},
             &rule::few_points),
    on_entry({"L411", "common-factor", warning, "three or more buckets changed by one factor",
              "The base or the measurement changed: measure both again in one session."},
             &rule::common_factor),
    on_entry({"L412", "recorded-gain", warning, "a recorded gain does not match the recorded values",
              "Correct the record: the gain, or the values before and after that it was computed from."},
             &rule::recorded_gain),
    on_entry({"L501", "missing-counts", warning, "a commit without test results",
              "Quote the line of counts (or the verdict) under `Correctness checks`."},
             &rule::missing_counts),
    on_entry({"L502", "weak-counts", warning, "too few tests passed or too many were skipped",
              "Run all tests where their dependencies are installed; the target's `evidence` sets the numbers."},
             &rule::weak_counts),
    on_entry({"L503", "failed-but-accepted", warning, "tests failed, yet the change was accepted",
              "Fix them, or record `none (reason)`."},
             &rule::failed_but_accepted),
    on_entry({"L504", "malformed-reference", note, "a job id, run URL or artifact has another shape than the real ones",
              "Copy it from the output."},
             &rule::malformed_reference),
    on_entry({"L505", "missing-profile", warning, "accepted without a profile run", "Name the job, run or trace."},
             &rule::missing_profile),
    on_entry(
        {"L506", "missing-accelerator", warning, "the quoted output shows that the accelerator was missing or busy",
         "Run it again on the accelerator; CPU numbers are not evidence."},
        &rule::missing_accelerator),
    on_entry({"L507", "not-as-requested", warning, "a setting other than the requested one took effect",
              "Say which one was measured."},
             &rule::not_as_requested),
    on_document({"L601", "home-path", warning, "a path in someone's home directory",
                 "Write it relative to the repository, or with `~`."},
                &rule::home_paths),
    on_document({"L602", "secret", error, "the log contains a secret", "Revoke it, then mask it (`--fix-unsafe`)."},
                &rule::secrets),
    on_document({"L603", "too-long", note, "an entry or the file is long, or a number is repeated",
                 "Move details to the record, and state each number once."},
                &rule::too_long),
    on_document({"L604", "white-space", note, "mixed line endings or trailing white space", "`--fix` removes them."},
                &rule::white_space),
    Rule{{"L605", "generated-part", warning, "a generated part was edited, or entries and records do not match",
          "Change the record and render it again."},
         &rule::record_values,
         &rule::edited_block,
         nullptr},
    on_document({"L606", "trace-block", warning, "an embedded trace report was edited", "Paste the report again."},
                &rule::edited_trace_block),
    on_document(
        {"L607", "invalid-text", warning, "bytes that are not UTF-8, control characters or invisible characters",
         "Save the file as UTF-8, and delete the character; `gdnctl log render` does so in generated entries."},
        &rule::invalid_utf8),
    on_entry({"L701", "repeated-idea", note, "the same idea failed twice before", "Say what is different now."},
             &rule::repeated_idea),
    on_document({"L801", "experiment-number", warning, "experiment numbers repeat or go back",
                 "Number experiments consecutively through the whole file."},
                &rule::experiment_numbers),
    on_experiment({"L802", "score-source", note, "a score names no evidence", "Name the file or the run id."},
                  &rule::score_source),
    on_experiment({"L803", "standing-best", warning, "no improvement, but the standing best is not given",
                   "State the best score so far."},
                  &rule::standing_best),
};

constexpr auto infos() {
    std::array<RuleInfo, k_rules.size()> out{};
    for (std::size_t i = 0; i < k_rules.size(); ++i) out[i] = k_rules[i].info;
    return out;
}
constexpr auto k_infos = infos();

}  // namespace

std::span<const Rule> rules() { return k_rules; }
std::span<const RuleInfo> lint_rules() { return k_infos; }

const RuleInfo* find_lint_rule(std::string_view id) {
    for (const RuleInfo& info : k_infos) {
        if (info.id == id || info.name == id) return &info;
    }
    return nullptr;
}

}  // namespace gdnctl::runlog
