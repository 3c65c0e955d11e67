#include "loop/memory/log_stage.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "loop/memory/log_compose.h"
#include "runlog/records/store.h"

namespace gdnctl::loop {

namespace {

class LogStage final : public Stage {
public:
    LogStage(std::string path, const GitCheckout& repository)
        : m_path(std::move(path)), m_records(runlog::records_path(m_path).generic_string()), m_repository(repository) {}

    std::string_view name() const override { return "running-log"; }
    Policy policy() const override { return Policy::count_failure; }
    bool wants(DiffClass diff) const override { return diff != DiffClass::no_op; }

    Result<StageResult> run(const StageContext& context) override {
        StageResult result;
        const auto& files = context.candidate.files;
        if (std::none_of(files.begin(), files.end(), [&](const auto& one) { return is_of_log(one.path); })) {
            result.verdict = StageVerdict::skip;
            return result;
        }
        const std::string& base = context.base.sha;
        const std::string& head = context.candidate.head;
        const std::array names = {base + ":" + m_path, base + ":" + m_records, head + ":" + m_path,
                                  head + ":" + m_records};
        GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(names));
        std::string finding = finding_in(found[2], found[3]);
        for (const std::size_t i : {0U, 1U}) {
            if (found[i] && !found[i + 2]) finding = (i == 0 ? m_path : m_records) + " was deleted";
        }
        if (finding.empty()) return result;
        if (const std::string before = finding_in(found[0], found[1]); !before.empty()) {
            log::warning("the running log could not be read before this iteration either: {}", before);
            return result;
        }
        result.verdict = StageVerdict::fail;
        result.reason = "entries could no longer be added to the running log: " + finding;
        result.sign = "the running log cannot be read";
        result.exit_status = 1;
        return result;
    }

private:
    bool is_of_log(const std::string& path) const { return path == m_path || path == m_records; }

    std::string finding_in(const std::optional<std::string>& text, const std::optional<std::string>& records) const {
        const Status checked = check_log(m_path, text.value_or(std::string()), records.value_or(std::string()));
        return checked ? std::string() : checked.error().text();
    }

    std::string m_path, m_records;
    const GitCheckout& m_repository;
};

}  // namespace

std::unique_ptr<Stage> make_log_stage(std::string path, const GitCheckout& repository) {
    return std::make_unique<LogStage>(std::move(path), repository);
}

}  // namespace gdnctl::loop
