// What a dashboard, or whatever answers in its place, says: lists and records of jobs, versions, logs as JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "services/job/job.h"
#include "services/job/route_client.h"
#include "services/ray/jobs_api.h"
#include "services/ray/log.h"

namespace {

using namespace gdnctl;

std::vector<std::string> split(std::string_view text, std::size_t piece) {
    std::vector<std::string> items;
    ray::ArraySplitter splitter([&](std::string_view item) { items.emplace_back(item); });
    for (std::size_t at = 0; at < text.size(); at += piece) splitter.feed(text.substr(at, piece));
    return items;
}

void check_list(std::string_view text) {
    const auto items = split(text, text.size() + 1);
    require(items == split(text, 3));
    const auto whole = parse_json(text, "list");
    if (whole && whole->is_array()) {
        std::size_t nested = 0;
        for (const Json& item : *whole) nested += item.is_structured() ? 1 : 0;
        require(items.size() == nested);
    }
    for (const std::string& item : items) {
        if (const auto job = parse_job_details(item)) (void)classify(*job, text);
    }
}

void check_logs(std::string_view text) {
    std::string decoded;
    ray::LogsField field([&](std::string_view bytes) {
        decoded += bytes;
        return true;
    });
    for (std::size_t at = 0; at < text.size(); at += 5) {
        if (!field.feed(text.substr(at, 5))) break;
    }
    const auto whole = parse_json(text, "logs");
    if (!whole || !whole->is_object() || whole->size() != 1 || !whole->contains("logs")) return;
    const Json& logs = (*whole)["logs"];
    if (logs.is_string() && field.complete()) require(decoded == logs.get<std::string>());
}

void check_joint(std::string_view text) {
    if (text.size() < 4) return;
    const std::size_t size = 1 + static_cast<unsigned char>(text[0]) % 8;
    const std::string_view window = text.substr(1, size);
    const std::string_view rest = text.substr(1 + window.size());
    std::size_t next = 0;
    const ray::Joint joint = ray::find_joint(window, rest, next);
    const std::size_t first = rest.find(window);
    const bool twice = first != std::string_view::npos && rest.find(window, first + 1) != std::string_view::npos;
    require((joint == ray::Joint::absent) == (first == std::string_view::npos));
    require((joint == ray::Joint::ambiguous) == twice);
    if (joint == ray::Joint::found) require(next == first + window.size());
}

}  // namespace

FUZZ(ray_answers) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_list(text);
    check_logs(text);
    check_joint(text);
    (void)ray::parse_version(text);
    (void)ray::parse_flag(text, "stopped");
    (void)ray::parse_content_range(text);
    require(gist(text).size() <= 1200);
    return 0;
}
