#include "loop/memory/ideas.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/memory/ledger.h"
#include "platform/fs.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

namespace {

constexpr int k_enough_failures = 2;
constexpr std::array<std::string_view, 16> k_small_words = {"a",  "an",   "and", "as",  "by", "for", "from",  "in",
                                                            "of", "into", "on",  "the", "to", "use", "using", "with"};

const std::string& key_of(const Idea& idea) { return idea.move.empty() ? idea.slot : idea.move; }

bool shares_file(const Idea& a, const Idea& b) {
    return std::any_of(a.files.begin(), a.files.end(), [&](const std::string& file) {
        return std::find(b.files.begin(), b.files.end(), file) != b.files.end();
    });
}

std::string name_of_idea(const Idea& idea) {
    const std::string key = key_of(idea);
    if (!key.empty() && !idea.title.empty()) return fmt::format("`{}` ({})", shown(key, 40), shown(idea.title, 80));
    if (!key.empty()) return fmt::format("`{}`", shown(key, 40));
    if (!idea.title.empty()) return fmt::format("`{}`", shown(idea.title, 80));
    return "the same patch";
}

std::string iterations_text(const std::vector<int>& iterations) {
    std::string text;
    for (const int i : iterations) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
    return text;
}

// Refusals of this idea since it last won.
std::vector<const PastIdea*> refusals_of(const Idea& idea, std::span<const PastIdea> past) {
    std::vector<const PastIdea*> refused;
    for (const PastIdea& one : past) {
        if (!same_idea(idea, one.idea)) continue;
        if (one.won()) refused.clear();
        if (one.failed()) refused.push_back(&one);
    }
    return refused;
}

}  // namespace

Idea idea_of(const LedgerFacts& facts) {
    return {facts.report.title, facts.report.slot,         facts.report.move,
            facts.patch_id,     facts.report.new_argument, facts.files};
}

std::string normalised_title(std::string_view title) {
    std::vector<std::string> words(1);
    for (const char c : text::to_lower(title)) {
        const bool part =
            std::isalnum(static_cast<unsigned char>(c)) != 0 || (static_cast<unsigned char>(c) & 0x80U) != 0;
        if (part) {
            words.back() += c;
        } else if (!words.back().empty()) {
            words.emplace_back();
        }
    }
    std::erase_if(words, [](const std::string& word) {
        return word.empty() || std::find(k_small_words.begin(), k_small_words.end(), word) != k_small_words.end();
    });
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return text::join(words, " ");
}

bool same_idea(const Idea& a, const Idea& b) {
    if (!a.patch_id.empty() && a.patch_id == b.patch_id) return true;
    if (!key_of(a).empty() && key_of(a) == key_of(b) && shares_file(a, b)) return true;
    const std::string title = normalised_title(a.title);
    return !title.empty() && title == normalised_title(b.title);
}

std::string idea_id(const Idea& idea) {
    if (!idea.move.empty()) return "move:" + idea.move;
    if (!idea.slot.empty()) return "slot:" + idea.slot;
    if (std::string title = normalised_title(idea.title); !title.empty()) return "title:" + title;
    return idea.patch_id.empty() ? std::string() : "patch:" + idea.patch_id;
}

bool PastIdea::failed() const {
    return outcome == "rejected" || outcome == "test-fail" || outcome == "compile" || outcome == "oom";
}

bool PastIdea::won() const { return outcome == "accepted"; }

std::vector<PastIdea> past_ideas(std::span<const Json> ledger) {
    std::vector<PastIdea> past;
    past.reserve(ledger.size());
    for (const Json& record : ledger) {
        PastIdea one;
        one.idea.title = json::text_at(record, "/idea/title");
        one.idea.move = json::text_at(record, "/idea/move");
        one.idea.slot = json::text(record, "coverage_slot");
        one.idea.patch_id = json::text_at(record, "/idea/patch_id");
        one.idea.new_argument = json::text_at(record, "/idea/new_argument");
        one.idea.files = json::texts(record, "files");
        one.iteration = static_cast<int>(json::integer_at(record, "/loop/index").value_or(0));
        one.run = json::text_at(record, "/loop/run_id");
        one.outcome = json::text(record, "outcome");
        const auto reasons = json::texts(record, "decision_reasons");
        if (!reasons.empty()) one.reason = reasons.front();
        for (const char* table : {"metrics", "extra_metrics"}) {
            const Json* metrics = json::object(record, table);
            if (metrics == nullptr) continue;
            for (const auto& [name, value] : metrics->items()) {
                if (!one.gain_pct) one.gain_pct = json::number(value, "gain_pct");
            }
        }
        past.push_back(std::move(one));
    }
    return past;
}

IdeaVerdict check_idea(const Idea& idea, std::span<const PastIdea> past, IdeaPolicy policy) {
    const auto refused = refusals_of(idea, past);
    IdeaVerdict verdict;
    verdict.failed = static_cast<int>(refused.size());
    if (policy == IdeaPolicy::off || verdict.failed < k_enough_failures || !text::trim(idea.new_argument).empty()) {
        return verdict;
    }
    verdict.action = policy;
    std::vector<int> iterations;
    for (const PastIdea* one : refused) iterations.push_back(one->iteration);
    verdict.reason = fmt::format(
        "{} was rejected {} times before (iterations {}), and the report does not say what is different now",
        name_of_idea(idea), verdict.failed, iterations_text(iterations));
    return verdict;
}

std::vector<DeadIdea> dead_ideas(std::span<const PastIdea> past) {
    std::vector<DeadIdea> dead;
    for (std::size_t i = past.size(); i-- > 0;) {
        const PastIdea& last = past[i];
        if (!last.failed()) continue;
        const bool told =
            std::any_of(dead.begin(), dead.end(), [&](const DeadIdea& d) { return same_idea(d.idea, last.idea); });
        if (told) continue;
        const auto refused = refusals_of(last.idea, past);
        if (static_cast<int>(refused.size()) < k_enough_failures) continue;
        DeadIdea one{last.idea, static_cast<int>(refused.size()), {}, last.reason};
        for (const PastIdea* failed : refused) one.iterations.push_back(failed->iteration);
        dead.push_back(std::move(one));
    }
    return dead;
}

Result<std::vector<CoverageSlot>> parse_coverage(std::string_view text, std::string_view name) {
    GDNCTL_TRY_ASSIGN(const Json json, parse_json(text, name));
    const Json* slots = json.is_object() ? json::find(json, "slots") : nullptr;
    if (slots == nullptr || !slots->is_array()) {
        return fail(ErrorKind::bad_input, fmt::format("{}: no list `slots`", name),
                    R"(it reads {"slots": [{"slot": "G", "title": "decay ratios"}]})");
    }
    std::vector<CoverageSlot> list;
    for (const Json& slot : *slots) {
        CoverageSlot one{json::text(slot, "slot"), json::text(slot, "title")};
        if (one.slot.empty()) return fail(ErrorKind::bad_input, fmt::format("{}: a slot without a name", name));
        list.push_back(std::move(one));
    }
    return list;
}

Result<std::vector<CoverageSlot>> read_coverage(const std::filesystem::path& log_dir, std::vector<CoverageSlot> usual) {
    const auto path = log_dir / "coverage.json";
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, std::size_t{1} << 20));
    if (!text) return usual;
    return parse_coverage(*text, path.string());
}

std::vector<SlotView> coverage(std::span<const CoverageSlot> slots, std::span<const PastIdea> past) {
    std::vector<SlotView> views;
    for (const CoverageSlot& slot : slots) {
        const bool known =
            std::any_of(views.begin(), views.end(), [&](const SlotView& v) { return v.slot.slot == slot.slot; });
        if (!known) views.push_back({slot, 0, 0, 0, {}});
    }
    for (const PastIdea& one : past) {
        if (one.idea.slot.empty()) continue;
        auto at =
            std::find_if(views.begin(), views.end(), [&](const SlotView& v) { return v.slot.slot == one.idea.slot; });
        if (at == views.end()) at = views.insert(views.end(), {{one.idea.slot, ""}, 0, 0, 0, {}});
        ++at->tries;
        at->failed += one.failed() ? 1 : 0;
        at->won += one.won() ? 1 : 0;
        at->iterations.push_back(one.iteration);
    }
    return views;
}

namespace {

class IdeaStage final : public Stage {
public:
    IdeaStage(IdeaPolicy policy, const GitCheckout& repository) : m_policy(policy), m_repository(repository) {}

    std::string_view name() const override { return "idea"; }
    Policy policy() const override { return Policy::count_failure; }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }

    // If nothing is known about earlier ideas, none is refused.
    Result<StageResult> run(const StageContext& context) override {
        auto judged = judge(context);
        if (judged || judged.error().kind == ErrorKind::interrupted || judged.error().kind == ErrorKind::terminated) {
            return judged;
        }
        log::warning("the idea was not compared with earlier ones: {}", judged.error().text());
        return StageResult();
    }

private:
    Result<StageResult> judge(const StageContext& context) {
        LedgerFacts facts;
        for (const auto& change : context.candidate.files) facts.files.push_back(change.path);
        GDNCTL_TRY_ASSIGN(facts.patch_id, patch_id(m_repository, context.base.sha, context.candidate.head));
        if (auto report = read_agent_report(context.artefacts.folder(), context.iteration)) facts.report = *report;
        GDNCTL_TRY_ASSIGN(const auto ledger, read_ledger(context.artefacts.folder()));
        const Idea idea = idea_of(facts);
        const IdeaVerdict verdict = check_idea(idea, past_ideas(ledger), m_policy);
        StageResult result;
        if (const std::string id = idea_id(idea); !id.empty()) result.facts["idea"] = id;
        if (verdict.action == IdeaPolicy::off) return result;
        result.reason = verdict.reason;
        result.facts["failed_before"] = std::to_string(verdict.failed);
        if (verdict.action == IdeaPolicy::warn) {
            log::warning("{}", verdict.reason);
            return result;
        }
        result.verdict = StageVerdict::fail;
        result.outcome = Outcome::rejected;
        result.sign = "the idea was rejected before";
        result.exit_status = 1;
        return result;
    }

    IdeaPolicy m_policy;
    const GitCheckout& m_repository;
};

}  // namespace

std::unique_ptr<Stage> make_idea_stage(IdeaPolicy policy, const GitCheckout& repository) {
    return std::make_unique<IdeaStage>(policy, repository);
}

}  // namespace gdnctl::loop
