// What an Iris controller, or whatever answers in its place, says.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base64.h"
#include "core/json.h"
#include "fuzz/fuzz.h"
#include "services/iris/answers.h"

FUZZ(iris_answers) {
    using namespace gdnctl;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    HttpResponse answer;
    answer.body = text;
    for (const int status : {200, 302, 401, 404, 409, 500, 503}) {
        answer.status = status;
        require(!iris::refusal("X", answer, "http://h", "hint").message.empty());
        (void)iris::is_passing(answer);
    }
    if (const auto bytes = from_base64(text)) require(from_base64(to_base64(*bytes)) == bytes);
    const auto json = parse_json(text, "answer");
    if (!json) return 0;
    const auto tasks = iris::parse_tasks(*json);
    auto jobs = iris::parse_list(*json, "me");
    if (auto job = iris::parse_status(*json, "me")) jobs.push_back(std::move(*job));
    for (iris::JobRecord& job : jobs) {
        require(!job.name.empty() && iris::name_of("me", job.details.submission_id).starts_with('/'));
        iris::judge(job, tasks);
        (void)classify(job.details, text);
    }
    (void)iris::parse_state(*json, "/me/x");
    (void)iris::parse_exec(*json);
    (void)iris::runs_as_batch(*json, "me");
    (void)iris::parse_log_page(Json(*json));
    return 0;
}
