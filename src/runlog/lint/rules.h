// Every rule's function. The table with ids, severities and help is in rules_table.cpp.
#pragma once

#include <span>

#include "runlog/lint/lint_context.h"

namespace gdnctl::runlog {

std::span<const Rule> rules();

namespace rule {

// Commit
void pending_commit(const EntryFacts& facts, Reporter& reporter);
void pending_outside_entries(const LintRun& run, Reporter& reporter);
void this_commit(const EntryFacts& facts, Reporter& reporter);
void this_commit_outside_entries(const LintRun& run, Reporter& reporter);
void commit_grammar(const EntryFacts& facts, Reporter& reporter);
void repeated_field(const EntryFacts& facts, Reporter& reporter);
void unknown_sha(const EntryFacts& facts, Reporter& reporter);
void not_an_ancestor(const EntryFacts& facts, Reporter& reporter);
void same_as_start(const EntryFacts& facts, Reporter& reporter);
void start_mismatch(const EntryFacts& facts, Reporter& reporter);
void decision_mismatch(const EntryFacts& facts, Reporter& reporter);
// Sequence and headings
void sequence(const LintRun& run, Reporter& reporter);
void no_entries(const LintRun& run, Reporter& reporter);
void malformed_heading(const LintRun& run, Reporter& reporter);
void heading_dash(const EntryFacts& facts, Reporter& reporter);
void unclosed_block(const LintRun& run, Reporter& reporter);
void conflict_marks(const LintRun& run, Reporter& reporter);
// Fields
void required_fields(const EntryFacts& facts, Reporter& reporter);
void unknown_words(const EntryFacts& facts, Reporter& reporter);
void template_text(const EntryFacts& facts, Reporter& reporter);
// Dates
void date_format(const EntryFacts& facts, Reporter& reporter);
void date_order(const EntryFacts& facts, Reporter& reporter);
void date_plausible(const EntryFacts& facts, Reporter& reporter);
// Numbers
void unreadable_metric(const EntryFacts& facts, Reporter& reporter);
void conflicting_values(const EntryFacts& facts, Reporter& reporter);
void arithmetic(const EntryFacts& facts, Reporter& reporter);
void stated_percent(const EntryFacts& facts, Reporter& reporter);
void unit_slip(const EntryFacts& facts, Reporter& reporter);
void throughput_invariants(const EntryFacts& facts, Reporter& reporter);
void champion_baseline(const EntryFacts& facts, Reporter& reporter);
void unknown_direction(const EntryFacts& facts, Reporter& reporter);
void gain_without_step(const EntryFacts& facts, Reporter& reporter);
void few_points(const EntryFacts& facts, Reporter& reporter);
void common_factor(const EntryFacts& facts, Reporter& reporter);
void recorded_gain(const EntryFacts& facts, Reporter& reporter);
// Evidence
void missing_counts(const EntryFacts& facts, Reporter& reporter);
void weak_counts(const EntryFacts& facts, Reporter& reporter);
void failed_but_accepted(const EntryFacts& facts, Reporter& reporter);
void malformed_reference(const EntryFacts& facts, Reporter& reporter);
void missing_profile(const EntryFacts& facts, Reporter& reporter);
void missing_accelerator(const EntryFacts& facts, Reporter& reporter);
void not_as_requested(const EntryFacts& facts, Reporter& reporter);
// Hygiene
void home_paths(const LintRun& run, Reporter& reporter);
void secrets(const LintRun& run, Reporter& reporter);
void too_long(const LintRun& run, Reporter& reporter);
void white_space(const LintRun& run, Reporter& reporter);
void invalid_utf8(const LintRun& run, Reporter& reporter);
// Generated parts and records
void edited_block(const LintRun& run, Reporter& reporter);
void record_values(const EntryFacts& facts, Reporter& reporter);
void edited_trace_block(const LintRun& run, Reporter& reporter);
void repeated_idea(const EntryFacts& facts, Reporter& reporter);
// Experiment logs
void experiment_sections(const ExperimentFacts& facts, Reporter& reporter);
void experiment_template_text(const ExperimentFacts& facts, Reporter& reporter);
void experiment_date(const ExperimentFacts& facts, Reporter& reporter);
void experiment_date_order(const ExperimentFacts& facts, Reporter& reporter);
void experiment_numbers(const LintRun& run, Reporter& reporter);
void score_source(const ExperimentFacts& facts, Reporter& reporter);
void standing_best(const ExperimentFacts& facts, Reporter& reporter);

}  // namespace rule

}  // namespace gdnctl::runlog
