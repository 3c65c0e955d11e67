#include "loop/memory/idea_stage.h"

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "loop/memory/ledger.h"

namespace gdnctl::loop {

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
