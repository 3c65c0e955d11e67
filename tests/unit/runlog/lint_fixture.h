// A log as text, linted; history and records as literal tables.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/commit_facts.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog::test {

// History as a literal table; a question that a test did not foresee has the answer "nothing known".
struct FakeFacts final : CommitFacts {
    std::map<std::string, CommitInfo, std::less<>> commits;
    std::map<std::string, CommitInfo, std::less<>> lines, trailers;
    std::vector<std::string> ancestors, parked, reverted;

    static bool has(const std::vector<std::string>& list, std::string_view sha) {
        return std::find(list.begin(), list.end(), sha) != list.end();
    }
    static std::optional<CommitInfo> look(const std::map<std::string, CommitInfo, std::less<>>& table,
                                          std::string_view key) {
        const auto found = table.find(key);
        return found == table.end() ? std::nullopt : std::optional(found->second);
    }
    Result<std::optional<CommitInfo>> resolve(std::string_view revision) override { return look(commits, revision); }
    bool shallow = false;
    Result<bool> is_shallow() override { return shallow; }
    Result<bool> is_ancestor_of_head(std::string_view sha) override { return has(ancestors, sha); }
    Result<bool> on_parked_ref(std::string_view sha) override { return has(parked, sha); }
    Result<bool> is_reverted(std::string_view sha) override { return has(reverted, sha); }
    Result<std::optional<CommitInfo>> introduced_line(std::string_view, std::string_view line) override {
        return look(lines, line);
    }
    Result<std::optional<CommitInfo>> with_iteration_trailer(std::string_view id) override {
        return look(trailers, id);
    }
    Result<std::optional<std::string>> file_at(std::string_view, std::string_view) override { return std::nullopt; }
};

struct Linted {
    explicit Linted(std::string bytes, LintOptions lint_options = {}, FakeFacts* facts = nullptr,
                    const std::vector<RecordFacts>* records = nullptr, const Document* base = nullptr)
        : text(std::move(bytes)), options(std::move(lint_options)) {
        auto parsed = parse_document(text);
        REQUIRE(parsed);
        document = *parsed;
        LintInput input;
        input.document = &document;
        input.repository_path = "log.md";
        input.open_facts = [facts] { return facts; };
        input.records = records;
        input.base = base;
        report = lint(input, options);
    }
    std::size_t count(std::string_view rule) const {
        std::size_t n = 0;
        for (const Finding& f : report.findings) n += f.rule->id == rule ? 1 : 0;
        return n;
    }
    const Finding& find(std::string_view rule) const {
        for (const Finding& f : report.findings) {
            if (f.rule->id == rule) return f;
        }
        FAIL("no finding of ", rule);
        return report.findings.front();
    }
    std::string ids() const {
        std::string all;
        for (const Finding& f : report.findings) all += std::string(f.rule->id) + " ";
        return all;
    }
    std::string text;
    LintOptions options;
    Document document;
    LintReport report;
};

inline LintOptions all_entries() {
    LintOptions options;
    options.all_entries = true;
    return options;
}
inline LintOptions marin() {
    LintOptions options;
    options.evidence = {87, 2};
    return options;
}

// A whole entry without a fault; `more` is added at its end.
inline std::string entry(const std::string& commit, const std::string& more = {}, const std::string& number = "1") {
    return "### Iteration " + number + " - wider tiles\n\n- Date: 2026-02-18T12:55:20Z\n- Commit: " + commit +
           "\n- Hypothesis: wider tiles keep the unit busy\n- Change summary: tile of 256\n"
           "- Correctness checks:\n  - Command: `run tests`\n  - Result: `87 passed, 2 skipped`\n"
           "- Profile run:\n  - Job ID: raysubmit_0123456789abcdef\n"
           "- Hotspots observed (champion -> candidate):\n  - Step duration: `167.000 ms -> 160.000 ms`\n" +
           more + "- Next hypothesis: overlap the gather\n";
}

inline CommitInfo commit(const char* sha, bool merge = false) {
    return {sha, WallTime(std::chrono::milliseconds(1'771'419'320'000)), "summary", merge};
}
inline const char* const k_sha = "0123456789abcdef0123456789abcdef01234567";

}  // namespace gdnctl::runlog::test
