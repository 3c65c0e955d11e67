// What a kernel is declared to compute, and what that makes of the cases.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/contract.h"

namespace gdnctl::oracle {

struct Declared {
    std::optional<std::string> contract;  // the name that was given
    std::vector<std::string> sets;        // "field=value"
    std::vector<ContractField> fields;    // of the named contract all but chunk, and those of `sets`

    const ContractField* find(std::string_view field) const;
};

// Usage errors: an unknown contract, field or value.
Result<Declared> read_declared(std::optional<std::string> contract, std::vector<std::string> sets);

// Changes the case to what is declared. Fields of precision apply to every case. All others are fixed: a case that
// needs another value is left as it is, and the value that it needs is returned ("head_map=tiled"); else nothing is.
std::optional<std::string> declare(GdnCase& c, const Declared& declared);

}  // namespace gdnctl::oracle
