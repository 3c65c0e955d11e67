#include "harness/verify/items.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "harness/child/kernel.h"
#include "harness/verify/alike.h"
#include "oracle/gdn/report/report.h"

namespace gdnctl::harness {

using oracle::GdnReport;
using oracle::KernelFault;
using oracle::Verdict;

namespace {

std::string plural(std::size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

}  // namespace

Item item_of(std::string kind, std::string name, const oracle::GdnReference& reference, const GdnReport& report,
             Verdict expected) {
    Item item;
    item.kind = std::move(kind);
    item.name = std::move(name);
    item.verdict = report.verdict;
    item.expected = expected;
    item.reason = report.reason;
    item.worst = report.worst;
    item.contract = reference.contract;
    note_analysis(item, reference, report);
    for (const auto& t : report.tensors) {
        item.error_over_budget = std::max(item.error_over_budget, t.error_over_budget);
        item.gradients = item.gradients || (t.canonical != "out" && t.canonical != "final_state");
    }
    if (item.gradients) item.missing_gradients = oracle_report::missing_gradients(report);
    return item;
}

void note_analysis(Item& item, const oracle::GdnReference& reference, const GdnReport& report) {
    item.stage = report.stage;
    item.diagnosis = oracle_report::diagnosis_text(reference, report);
}

std::string text_of(const Item& item) {
    std::string line = fmt::format("{:<6} {:<58} {:<14} ", item.kind, item.name, item.verdict_name());
    if (item.fault) {
        return line + fmt::format("\n       {}\n", item.fault->text) + harness::quoted_output(*item.fault);
    }
    if (item.kind == "relation") {
        line += fmt::format("{:.2g} x tolerance", item.error_over_budget);
    } else if (item.verdict == item.expected && item.verdict != Verdict::ok) {
        line += "as expected";
    } else {
        line += fmt::format("{:.2g} x budget", item.error_over_budget);
    }
    if (!item.bit_equal) line += ", not bit-identical between calls";
    if (!item.missing_gradients.empty()) {
        line += "\n       GRADIENTS MISSING: " + text::join(item.missing_gradients, ", ");
    }
    if (item.failed() && !item.reason.empty()) line += fmt::format("\n       {}", item.reason);
    if (item.failed() && item.worst && !item.worst->index.empty()) {
        line += "\n       worst: " + oracle_report::place_text(*item.worst);
    }
    return line + "\n";
}

std::string fault_text(const Item& analysed, const std::vector<std::string>& others) {
    std::string lines = alike_text(fmt::format("{} {}", analysed.kind, analysed.name), others) + "\n";
    const std::string contract = analysed.contract ? oracle_report::contract_text(*analysed.contract) : std::string();
    for (const auto& more : {analysed.diagnosis, contract}) {
        if (more.empty()) continue;
        for (const auto part : text::split(text::trim(more), '\n')) lines += fmt::format("       {}\n", part);
    }
    return lines;
}

Json json_of(const Item& item) {
    return {{"kind", item.kind},
            {"name", item.name},
            {"verdict", item.verdict_name()},
            {"expected_verdict", oracle::name_of(item.expected)},
            {"error_over_budget", oracle_report::number(item.error_over_budget)},
            {"reason", item.reason},
            {"worst", oracle_report::worst_json(item.worst)},
            {"fault", harness::fault_json(item.fault)},
            {"bit_equal", item.bit_equal},
            {"missing_gradients", item.missing_gradients},
            {"stage", item.stage.empty() ? Json(nullptr) : Json(item.stage)},
            {"contract", item.contract ? oracle_report::contract_json(*item.contract) : Json(nullptr)},
            {"same_fault_as", item.same_fault_as.empty() ? Json(nullptr) : Json(item.same_fault_as)}};
}

Verdict overall(const std::vector<Item>& items) {
    Verdict gravest = items.empty() ? Verdict::no_data : Verdict::ok;
    const auto rank = [](Verdict v) {
        switch (v) {
            case Verdict::ok: return 0;
            case Verdict::suspect: return 1;
            case Verdict::no_data: return 2;
            case Verdict::unstable_input: return 3;
            case Verdict::wrong: return 4;
        }
        return 4;
    };
    for (const Item& item : items) {
        if (!item.failed() || item.fault) continue;
        // A finite, plausible answer where none can be told is no proof of anything.
        const Verdict verdict = item.verdict == Verdict::ok ? Verdict::no_data : item.verdict;
        if (rank(verdict) > rank(gravest)) gravest = verdict;
    }
    return gravest;
}

const KernelFault* gravest_fault(const std::vector<Item>& items) {
    const KernelFault* gravest = nullptr;
    for (const Item& item : items) {
        if (item.fault && (gravest == nullptr || item.fault->kind > gravest->kind)) gravest = &*item.fault;
    }
    return gravest;
}

std::size_t count_of(const std::vector<Item>& items, std::string_view kind) {
    return static_cast<std::size_t>(
        std::count_if(items.begin(), items.end(), [&](const Item& item) { return item.kind == kind; }));
}

bool forward_only(const std::vector<Item>& items) {
    return std::none_of(items.begin(), items.end(), [](const Item& item) { return item.gradients; });
}

// "68 cases, 60 backward, 30 decode, 0 vectors"
std::string counted(const std::vector<Item>& items, bool relations) {
    if (relations) return plural(count_of(items, "relation"), "relation");
    std::string text = plural(count_of(items, "case"), "case");
    for (const std::string_view kind : {"backward", "decode"}) {
        if (const auto n = count_of(items, kind); n > 0) text += fmt::format(", {} {}", n, kind);
    }
    return text + ", " + plural(count_of(items, "vector"), "vector");
}

std::string text_of(const Skipped& skipped) {
    std::vector<std::string> parts;
    for (const auto& [count, pass] :
         {std::pair{skipped.forward, "forward"}, {skipped.backward, "backward"}, {skipped.decode, "decode"}}) {
        if (count > 0) parts.push_back(fmt::format("{} ({})", pass, plural(static_cast<std::size_t>(count), "case")));
    }
    return (parts.empty() ? std::string() : fmt::format("skipped, not in the kernel: {}\n", text::join(parts, ", "))) +
           text_of(skipped.cases);
}

Json json_of(const Skipped& skipped) {
    Json object = {{"forward", skipped.forward}, {"backward", skipped.backward}, {"decode", skipped.decode}};
    if (!skipped.cases.empty()) object["contract"] = json_of(skipped.cases);
    return object;
}

}  // namespace gdnctl::harness
