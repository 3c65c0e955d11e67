// The second kind of running log: `## YYYY-MM-DD - name` entries with `### Goal` … `### Next Step` sections.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runlog/parse/log.h"

namespace gdnctl::runlog {

struct ExperimentSection {
    std::string_view name;  // as written ("Breakthrough / Insight")
    std::string_view body;
    Line heading;
};

// `### Experiment <n> - <title>` inside an entry, with its bullets.
struct NumberedExperiment {
    std::int64_t number = 0;
    std::string_view title;
    std::string_view body;
    Line heading;
};

struct ExperimentEntry {
    std::string_view date;  // ten characters of the form YYYY-MM-DD
    std::string_view name;
    std::string_view text;  // from the heading to the end of the entry
    Line heading;
    std::vector<ExperimentSection> sections;
    std::vector<NumberedExperiment> numbered;

    // Treats "Breakthrough" and "Breakthrough / Insight" as the same section; ignores case.
    const ExperimentSection* section(std::string_view wanted_name) const;
};

// In file order. Linear and never fails. The result points into the document's text.
std::vector<ExperimentEntry> parse_experiments(const Document& document);

}  // namespace gdnctl::runlog
