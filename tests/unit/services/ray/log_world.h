// A log that grows, served as a dashboard and its agent do, and a reader of it.
#pragma once

#include <algorithm>

#include "core/text.h"
#include "ray_world.h"
#include "services/ray/log_join.h"

namespace gdnctl::ray {

// Serves one log that grows, as a dashboard and its agent do.
class LogHttp final : public Http {
public:
    std::string log;
    bool agent = true, file = true, whole = true, node = true;
    std::string state = "RUNNING";
    std::function<std::optional<Result<HttpResponse>>(const HttpRequest&)> before;  // a fault instead of an answer
    std::optional<std::size_t> cut_after;  // the next body is cut behind so many bytes
    std::vector<std::string> asked;
    std::uint64_t sent = 0;

    Result<HttpResponse> send(const HttpRequest& request) override {
        asked.push_back(request.url);
        if (before) {
            if (auto fault = before(request)) return *fault;
        }
        const std::string& url = request.url;
        if (url.starts_with(k_agent)) return from_agent(request);
        if (url.find("/api/v0/logs/file?") != std::string::npos) return from_file(request);
        if (url.ends_with("/logs")) return from_whole(request);
        Json job = *parse_json(RayWorld::job("j", state.c_str()), "job");
        if (!node) job["driver_node_id"] = nullptr;
        if (!request.on_chunk) return answer(200, job.dump());
        request.on_chunk(job.dump());
        return answer(200);
    }

    std::size_t count(std::string_view part) const {
        return static_cast<std::size_t>(std::count_if(
            asked.begin(), asked.end(), [&](const std::string& url) { return url.find(part) != std::string::npos; }));
    }

private:
    static HttpResponse answer(int status, std::string body = {}) {
        HttpResponse a;
        a.status = status;
        a.body = std::move(body);
        return a;
    }
    static Result<HttpResponse> broken() { return gdnctl::fail(ErrorKind::infrastructure, "receiving failed: cut"); }

    Result<HttpResponse> deliver(const HttpRequest& request, const std::string& body) {
        std::string_view bytes = body;
        const bool cut = cut_after && *cut_after < bytes.size();
        if (cut) bytes = bytes.substr(0, *cut_after);
        cut_after.reset();
        if (!request.on_chunk) {
            sent += bytes.size();
            return cut ? broken() : Result<HttpResponse>(answer(200, std::string(bytes)));
        }
        constexpr std::size_t k_piece = 16'000;
        for (std::size_t at = 0; at < bytes.size(); at += k_piece) {
            const std::string_view piece = bytes.substr(at, k_piece);
            sent += piece.size();
            if (!request.on_chunk(piece)) return answer(200);
        }
        return cut ? broken() : Result<HttpResponse>(answer(200));
    }

    Result<HttpResponse> from_agent(const HttpRequest& request) {
        if (!agent) return gdnctl::fail(ErrorKind::infrastructure, "connecting to 10.0.0.7 failed");
        std::string range;
        for (const auto& [name, value] : request.headers) {
            if (name == "Range") range = value.substr(6);
        }
        std::size_t first = 0;
        std::size_t last = log.size();
        if (range.starts_with("-")) {
            first = log.size() - std::min<std::size_t>(log.size(), std::stoul(range.substr(1)));
        } else {
            first = std::stoul(range);
            last = std::min<std::size_t>(log.size(), std::stoul(range.substr(range.find('-') + 1)) + 1);
        }
        if (first >= log.size()) {
            HttpResponse a = answer(416);
            a.headers = {{"content-range", fmt::format("bytes */{}", log.size())}};
            return a;
        }
        if (cut_after) {
            cut_after.reset();
            return broken();
        }
        HttpResponse a = answer(206, log.substr(first, last - first));
        sent += a.body.size();
        a.headers = {{"content-range", fmt::format("bytes {}-{}/{}", first, last - 1, log.size())}};
        return a;
    }

    Result<HttpResponse> from_file(const HttpRequest& request) {
        if (!file) return answer(404, "404: Not Found");
        const long lines = std::stol(request.url.substr(request.url.find("&lines=") + 7));
        REQUIRE(lines != 0);
        if (lines < 0) return deliver(request, log);
        std::size_t at = log.ends_with('\n') ? log.size() - 1 : log.size();
        for (long i = 0; i < lines; ++i) {
            const std::size_t newline = at == 0 ? std::string::npos : log.rfind('\n', at - 1);
            if (newline == std::string::npos) return deliver(request, log);
            at = newline;
        }
        return deliver(request, log.substr(at + 1));
    }

    Result<HttpResponse> from_whole(const HttpRequest& request) {
        if (!whole) return answer(500, "Traceback\nRuntimeError: node is gone");
        if (!text::is_valid_utf8(log)) return answer(500, "Traceback\nUnicodeDecodeError: byte 0xff");
        // This way line ends are read as Python reads them.
        std::string folded;
        for (std::size_t i = 0; i < log.size(); ++i) {
            if (log[i] == '\r') {
                if (i + 1 < log.size() && log[i + 1] == '\n') continue;
                folded += '\n';
            } else {
                folded += log[i];
            }
        }
        return deliver(request, Json{{"logs", folded}}.dump());
    }
};

struct LogWorld : RayWorld {
    LogHttp server;
    std::unique_ptr<JobBackend> jobs;
    std::unique_ptr<JobLog> log;
    std::string got;

    explicit LogWorld(bool with_agent) {
        route->has_agent = with_agent;
        jobs = backend(&server);
    }
    void open(const LogStart& start) {
        auto opened = jobs->open_log("j", start);
        REQUIRE(opened);
        log = std::move(*opened);
    }
    Result<std::size_t> pump() {
        return log->pump([this](std::string_view bytes) {
            got += bytes;
            return true;
        });
    }
    void settle() {
        for (int quiet = 0; quiet < 3;) {
            const auto n = pump();
            quiet = n && *n == 0 ? quiet + 1 : 0;
        }
    }
};

inline std::string lines(int first, int last) {
    std::string out;
    for (int i = first; i < last; ++i) out += fmt::format("step {} loss {}\n", i, i % 5000 * 7919 % 10007);
    return out;
}

}  // namespace gdnctl::ray
