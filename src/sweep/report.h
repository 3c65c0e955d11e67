// What can be believed of a sweep's records: rates of one chip, MFU, corrections, warnings, ranking. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "sweep/journal.h"
#include "sweep/record.h"

namespace gdnctl::sweep {

// A printed figure counts more than one chip, or one pass twice.
struct Correction {
    std::string kind;   // "shards", "chips", "combined"
    double factor = 1;  // the printed figure over the true one
    std::string text;
};

struct Warning {
    std::string file;
    std::int64_t line = 0;
    std::string kind, text;
};

struct Measured {
    Record record;
    std::optional<std::string> bucket;
    std::optional<double> forward_s, step_s;                          // of one kernel call
    std::optional<double> forward_tok_s, step_tok_s, combined_tok_s;  // of one chip
    std::optional<double> forward_mfu, step_mfu;                      // of 2BHV and 8BHV over the bf16 peak
    std::vector<Correction> corrections;
    std::vector<std::string> flags;

    bool has_flag(std::string_view flag) const;
    // May it be compared with others: ran, finite loss, the real kernel, a rate that the chip can reach.
    bool ranked() const;
};

// FLOP/s of a chip's bf16 matrix units; nullopt: no such kind is known.
std::optional<double> peak_flops(std::string_view device_kind);

// Against the base of the same shape, device kind and dtype.
struct Comparison {
    Shape shape;
    std::string device_kind, dtype, base, implementation;
    std::optional<double> forward_ratio, step_ratio, combined_ratio;
};

struct Report {
    std::vector<Measured> results;  // in the order of the logs
    std::vector<std::size_t> best;  // indices: one a bucket, device kind and dtype
    std::vector<Warning> warnings;
    std::optional<std::string> base;
    std::vector<Comparison> comparisons;
};

// `base`: an implementation to compare the others with. Error usage: no result is of that implementation.
Result<Report> make_report(std::vector<Record> records, const std::optional<std::string>& base);
Measured measure(Record record, std::vector<Warning>& warnings);

// gdnctl.sweep-report/1 without its schema.
Json report_json(const Report& report);

std::string report_table(const Report& report, bool color = false);
std::string report_markdown(const Report& report);
std::string report_patch(const Report& report);
std::string report_html(const Report& report);

// ---- what the formats share
std::string shape_text(const Record& record);        // "131072 x 512 x 128256", "?" for what is unknown
std::string rate_text(std::optional<double> tok_s);  // "607,500", "-"
std::string percent_text(std::optional<double> fraction);
std::string ratio_text(std::optional<double> ratio);  // "+12.2 %"
// Why there is no time, or a remark about it: "vmem_oom 20.2M of 16.0M", "above_peak".
std::string remark_of(const Measured& m);
std::string name_of(const Measured& m);                   // "pallas_tpu b1024_h512_v1024"
std::vector<std::string> notes_of(const Report& report);  // corrections and warnings, each a sentence

}  // namespace gdnctl::sweep
