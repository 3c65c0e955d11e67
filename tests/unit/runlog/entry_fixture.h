// Entries as text, read as an import or a linter reads them, and the moment at which tests write theirs.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/time.h"
#include "runlog/import/import.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog::test {

inline const WallTime k_time = *parse_iso8601("2026-03-10T16:53:07Z");

// The record of the last entry of the text.
inline Json imported(const std::string& text) {
    const auto document = parse_document(text);
    REQUIRE(document);
    REQUIRE(!document->entries.empty());
    return import_entry(document->entries.back());
}

// The text's only entry.
inline Entry parsed(const std::string& text) {
    const auto document = parse_document(text);
    REQUIRE(document);
    REQUIRE(document->entries.size() == 1);
    return parse_entry(document->entries[0]);
}

}  // namespace gdnctl::runlog::test
