// A verdict on any operator as one self-contained page: no scripts, nothing from elsewhere, light or dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/judge/verdict.h"

namespace gdnctl::oracle {

struct Page {
    std::string_view what;      // "Gated DeltaNet"
    std::string_view verdict;   // "WRONG"
    std::string_view reason;    // may be empty
    std::string about = {};     // sizes, in a line
    std::string why = {};       // place, stage and hints, in lines; may be empty
    std::string sections = {};  // HTML, as charts, html::Table and the functions below give it
};
std::string page_html(const Page& page);

std::string verdict_html(Verdict verdict);  // for cells of tables
// Elements with got, want and difference; those that are equal are left out.
std::string worst_html(const std::vector<Worst>& elements);
std::string contract_html(std::string_view title, const std::vector<ContractField>& fields);

}  // namespace gdnctl::oracle
