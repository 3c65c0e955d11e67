// A cluster on which every job ends at once, as the test says.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "command_world.h"
#include "core/text.h"

namespace gdnctl::test {

class Dashboard {
public:
    struct End {
        std::string log;
        const char* status = "SUCCEEDED";
        int exit_code = 0;
    };
    static constexpr const char* k_url = "http://127.0.0.1:8265";

    std::function<End(const Json& job)> ends;  // `job`: the request that submitted it
    std::vector<Json> jobs;

    // Jobs of this world go to it, unless they name another place.
    void serve(CommandWorld& world) {
        world.env.values["RAY_ADDRESS"] = k_url;
        world.http.otherwise = [this](const HttpRequest& request) { return answer(request); };
    }
    std::size_t count(std::string_view kind) const {
        return static_cast<std::size_t>(
            std::count_if(jobs.begin(), jobs.end(), [&](const Json& job) { return job["metadata"]["kind"] == kind; }));
    }

private:
    Result<HttpResponse> answer(const HttpRequest& request) {
        const std::string path = request.url.substr(std::string_view(k_url).size());
        HttpResponse response;
        response.status = 200;
        if (path == "/api/version") {
            response.body = R"({"version":"4","ray_version":"2.60.0","session_name":"session_1"})";
        } else if (path.starts_with("/api/packages/")) {  // it has every package
            response.body = "{}";
        } else if (request.method == "POST") {
            jobs.push_back(parse_json(request.body, "job").value());
            const Json& job = jobs.back();
            const std::string id = job["submission_id"];
            m_ends[id] = ends(job);
            m_metadata[id] = job["metadata"];
            response.body = Json{{"submission_id", id}}.dump();
        } else {
            const auto words = text::split(path, '/');  // "", "api", "jobs", ID
            const End& end = m_ends.at(std::string(words.at(3)));
            response.body = path.ends_with("/logs") ? Json{{"logs", end.log}}.dump() : details(words.at(3), end);
        }
        if (request.on_chunk) {
            request.on_chunk(response.body);
            response.body.clear();
        }
        return response;
    }
    std::string details(std::string_view id, const End& end) const {
        return Json{{"type", "SUBMISSION"},
                    {"submission_id", id},
                    {"status", end.status},
                    {"entrypoint", "true"},
                    {"message", ""},
                    {"start_time", 1'773'161'000'000},
                    {"end_time", 1'773'161'060'000},
                    {"driver_exit_code", end.exit_code},
                    {"metadata", m_metadata.at(std::string(id))}}
            .dump();
    }

    std::map<std::string, End> m_ends;
    std::map<std::string, Json> m_metadata;
};

}  // namespace gdnctl::test
