// What the views share: their builders, and how they write numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trace/report/budgets.h"
#include "trace/views/kernels.h"
#include "trace/views/view.h"

namespace gdnctl::trace {

// What `trace report` says, for those who need its parts.
struct Report {
    Json json;
    std::string digest;    // Markdown of at most 8,000 bytes
    std::string markdown;  // the whole report, without its last line
    std::vector<std::string> log_lines;
    Budgets budgets;
    std::optional<Diff> diff;
    std::vector<Warning> warnings;
};
Result<Report> report_of(const Source& source, const Asked& asked);

// Parts of which other views are made.
Json steps_json(const Model& model);
struct HotspotRows {
    Json json;  // the member `hotspots`
    Block table;
};
HotspotRows hotspot_rows(const Model& model, const Asked& asked);

// The comparison of two inputs, with the warnings that belong to it.
Result<Diff> compare_sources(const Source& before, const Source& after, const Asked& asked,
                             std::vector<Warning>& warnings);
Block diff_block(const Diff& diff, std::int64_t top);

// One of the questions that a trace answers or not.
struct Told {
    std::string question;
    std::string can;        // "yes", "degraded", "no"
    std::string why, flag;  // empty: none
};
std::vector<Told> answers_of(const Source& source);

// Of step times in ps; all 0 and no cv without steps.
struct StepSpread {
    double median = 0, mean = 0, mad = 0, p10 = 0, p90 = 0;
    std::optional<double> cv;  // sample standard deviation over mean; nullopt: fewer than two steps
};
StepSpread spread_of(const std::vector<double>& steps);
StepSpread step_spread(const Model& model);

// Model FLOPs utilisation of the counted steps, and without rows that claim more than the device can do.
struct Mfu {
    std::optional<double> device, credible;
};
Mfu mfu_of(const Model& model);
Json time_json(const Model& model);  // the member `time` of `trace steps`

std::string ms(double ps);                          // "220.291"
std::string us(double ps);                          // "75.785"
std::string percent(double share, int digits = 1);  // "28.0%"
std::string short_p(double p);                      // "0.785", "1.6e-4"
Json ps_or_null(std::optional<double> ps);          // rounded

}  // namespace gdnctl::trace
