// How verdicts on any operator look: lines for people, objects for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "oracle/judge/metrics.h"
#include "oracle/judge/verdict.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle_report {

ExitCode exit_code_of(oracle::Verdict verdict, bool allow_suspect);
// Words joined by ", " and broken before 73 columns; later lines are indented by two.
std::string wrapped(std::string_view first, const std::vector<std::string>& words);
std::string place_text(const oracle::Worst& worst);  // "out[b=0,t=3,h=1,v=2] got 0.5, want 0.25"
// By reason, so that eight tensors of one reason take one line.
std::string not_compared_text(const std::vector<oracle::NotCompared>& missing);
std::vector<std::string> unread_names(const std::vector<oracle::UnreadTensor>& unread);  // "scales (F8_E8M0)"
// For a dump that is the exact result itself.
inline constexpr std::string_view k_truth_note =
    "note: --outputs is a truth file that `gdnctl oracle run` wrote, so no kernel is judged here\n";
// The lines about unexpected tensors; empty if there are none.
std::string left_alone_text(const std::vector<std::string>& unknown, const std::vector<oracle::UnreadTensor>& unread);
// "FORWARD ONLY: ..." where there are not even some, "GRADIENTS MISSING: ..."; nothing where all are there.
std::string missing_gradients_text(bool some, const std::vector<std::string>& missing);
// JSON has no NaN and no infinity: they become the strings "NaN", "Infinity", "-Infinity".
Json number(double x);
// Sets `unknown_tensors` and `unread_tensors`.
void add_left_alone(Json& object, const std::vector<std::string>& unknown,
                    const std::vector<oracle::UnreadTensor>& unread);
Json worst_json(const std::optional<oracle::Worst>& worst);
Json not_compared_json(const std::vector<oracle::NotCompared>& missing);
// Metrics of one tensor, on one or two lines. `name_width`: of the longest name, 15 at least.
std::string tensor_text(const oracle::TensorReport& tensor, std::size_t name_width);
Json tensor_json(const oracle::TensorReport& tensor);
// "FIRST: layout=hv (inputs metadata), ..."; an origin that is `usual` is left out.
std::string contract_text(const std::string& first, const std::vector<oracle::ContractField>& fields,
                          std::string_view usual);
Json contract_json(std::string_view name, const std::vector<oracle::ContractField>& fields);
std::string stages_text(const std::vector<std::string>& stages);  // most likely first; empty without any
// Sets `stage`, `stages`, `hint` and `hints`.
void add_diagnosis(Json& object, const std::vector<std::string>& stages, const std::vector<oracle::Hint>& hints);
std::string verdict_text(std::string_view verdict, std::string_view reason);  // the last line

}  // namespace gdnctl::oracle_report

namespace gdnctl::oracle {

// Where an error is: along the named axes of an operator.

struct PlaceAxis {
    std::string_view name, several;     // "value head", "value heads"
    std::vector<std::int64_t> at = {};  // in ascending order; empty: the name says it all
    std::int64_t extent = 0;            // of the axis; 0: not told
    std::string_view note = {};         // "(of 64 tokens)"
    bool whole = false;                 // all from the first of `at` to the second
};

// "where: value heads 0-2 of 8; chunk 3 (of 64 tokens)"
std::string place_text(const std::vector<PlaceAxis>& axes);

// What the page of a verdict shows besides its --json.
struct Page {
    std::string what;      // "Gated DeltaNet"
    std::string about;     // sizes, in a line
    std::string why = {};  // place, stage and hints, in lines; may be empty
    std::string_view unit = "budget";
    std::vector<std::pair<std::string, std::string>> charts = {};  // titles, and HTML as charts.h gives it
    std::vector<Worst> worst = {};
};
// A verdict on any operator as one self-contained page. `verdict`: gdnctl.oracle-compare/1, with the object `compared`
// (inputs and outputs: paths; date, version) that only the page shows, if the tensors come from files.
std::string page_html(Json verdict, const Page& page);

}  // namespace gdnctl::oracle
