// Joining looks at a log, and the text in {"logs": ...}.
#include "services/ray/log.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "core/json.h"
#include "core/text.h"
#include "unit/services/ray/ray_fixture.h"

namespace gdnctl::ray {

namespace {

Joint joint(std::string_view window, std::string_view text, std::size_t& next) {
    next = 999;
    return find_joint(window, text, next);
}

std::string decoded(std::string_view json, std::size_t piece, bool& complete) {
    std::string out;
    LogsField field([&](std::string_view bytes) {
        out += bytes;
        return true;
    });
    for (std::size_t at = 0; at < json.size(); at += piece) {
        if (!field.feed(json.substr(at, piece))) break;
    }
    complete = field.complete();
    return out;
}

}  // namespace

TEST_CASE("joint: found once, not at all, or more than once") {
    std::size_t next = 0;
    CHECK(joint("abc", "xxabcyy", next) == Joint::found);
    CHECK(next == 5);
    CHECK(joint("abc", "abc", next) == Joint::found);
    CHECK(next == 3);
    CHECK(joint("abc", "abxabdab", next) == Joint::absent);
    CHECK(joint("abc", "ab", next) == Joint::absent);
    CHECK(joint("", "ab", next) == Joint::absent);
    CHECK(joint("aba", "xababax", next) == Joint::ambiguous);
    CHECK(joint("aaa", "aaaa", next) == Joint::ambiguous);
    CHECK(joint("aab", "aaaab", next) == Joint::found);
    CHECK(next == 5);
}

TEST_CASE("joint: a window that repeats itself costs no more than it is long") {
    const std::string window(k_window, 'a');
    const std::string text = std::string(k_window - 1, 'a') + "b" + std::string(4 * k_window, 'a');
    std::size_t next = 0;
    CHECK(joint(window, text, next) == Joint::ambiguous);
}

TEST_CASE("lines are counted as servers do") {
    CHECK(count_lines("") == 0);
    CHECK(count_lines("a") == 1);
    CHECK(count_lines("a\n") == 1);
    CHECK(count_lines("a\nb") == 2);
    CHECK(count_lines("\n\n") == 2);
}

TEST_CASE("a look begins in the head of a log at the start of one of its lines") {
    const std::string head = "one\ntwo\nthree\n";
    CHECK(begins_in(head, "one\ntw"));
    CHECK(begins_in(head, "two\nthr"));
    CHECK_FALSE(begins_in(head, "wo\nthree"));
    CHECK_FALSE(begins_in(head, "three\nfour"));  // the head ends before it can be told
    CHECK(begins_in(head, head + "four\n"));
    CHECK_FALSE(begins_in(head, ""));
    CHECK_FALSE(begins_in("", "one"));
}

TEST_CASE("position: lines as servers count them") {
    LogPosition position;
    CHECK(position.lines_with("") == 0);
    position.advance("a\nb");
    CHECK(position.lines_with("") == 2);
    CHECK(position.lines_with("c") == 2);
    CHECK(position.lines_with("\n") == 2);
    CHECK(position.lines_with("\nc\nd") == 4);
    CHECK(position.head() == "a\nb");
    CHECK(position.knows_start());
    LogPosition later;
    later.jump(100);
    later.advance("x");
    CHECK_FALSE(later.knows_start());
}

TEST_CASE("position: bytes, and bytes with line ends folded, over pieces of any size") {
    const std::string text = "a\r\nb\rc\n\r\n\r\r\nd\r";
    for (std::size_t size = 1; size <= text.size(); ++size) {
        LogPosition position;
        for (std::size_t at = 0; at < text.size(); at += size)
            position.advance(std::string_view(text).substr(at, size));
        CHECK(position.bytes() == text.size());
        CHECK(position.folded_bytes() == text.size() - 3);
        CHECK(position.window() == text);
    }
    LogPosition position;
    position.advance(std::string(k_window, 'a'));
    position.advance("tail");
    CHECK(position.window().size() == k_window);
    CHECK(position.window().ends_with("atail"));
}

TEST_CASE("logs field: decoded in pieces of any size as a JSON parser does") {
    const std::string text = "tab\t quote\" back\\ slash/ nl\n cr\r \x01 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 end";
    for (const bool ascii : {false, true}) {
        const std::string json = Json{{"logs", text}}.dump(-1, ' ', ascii);
        for (std::size_t size = 1; size <= json.size(); ++size) {
            bool complete = false;
            CHECK(decoded(json, size, complete) == text);
            CHECK(complete);
        }
    }
}

TEST_CASE("logs field: halves of a pair become a sign, other objects are refused, a cut is noticed") {
    bool complete = false;
    CHECK(decoded(R"({"logs": "\ud83d"})", 1, complete) == "\xef\xbf\xbd");
    CHECK(decoded(R"({"logs": "\ud83dx\ude00"})", 2, complete) == "\xef\xbf\xbdx\xef\xbf\xbd");
    CHECK(decoded(R"({"logs": "\ud83d\n"})", 3, complete) == "\xef\xbf\xbd\n");
    CHECK(complete);
    for (const char* other :
         {"<html>", "[]", R"({"log": "x"})", R"({"logs": 7})", R"({"logs": "\x"})", R"({"logs": "\u12g4"})"}) {
        decoded(other, 1, complete);
        CHECK_FALSE(complete);
    }
    CHECK(decoded(R"({"logs": "cut he)", 4, complete) == "cut he");
    CHECK_FALSE(complete);
    CHECK(decoded(R"({"logs": ""})", 1, complete).empty());
    CHECK(complete);
}

TEST_CASE("last lines: as many as asked for, whatever the pieces") {
    const std::string text = "one\ntwo\n\nfour\nfive";
    const auto last = [&](std::size_t lines, std::size_t piece) {
        LastLines held(lines, 1 << 20);
        for (std::size_t at = 0; at < text.size(); at += piece) held.feed(std::string_view(text).substr(at, piece));
        return held.take();
    };
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        CHECK(last(0, piece).empty());
        CHECK(last(1, piece) == "five");
        CHECK(last(3, piece) == "\nfour\nfive");
        CHECK(last(99, piece) == text);
    }
    LastLines small(10, 100);
    for (int i = 0; i < 1000; ++i) small.feed("0123456789");
    CHECK(small.take().size() <= 200);
}

TEST_CASE("content range: of a piece, of nothing, and nonsense") {
    CHECK(parse_content_range("bytes 100-289/290")->first == 100);
    CHECK(parse_content_range("bytes 100-289/290")->size == 290);
    CHECK_FALSE(parse_content_range("bytes */290")->first);
    for (const char* bad :
         {"", "bytes", "bytes 5-3/9", "bytes 0-9/9", "bytes -1-2/9", "bytes 0-1/*", "items 0-1/2", "bytes 0x1-2/9"}) {
        CHECK_FALSE(parse_content_range(bad));
    }
}

namespace {

// A log that grows, served as a dashboard and its agent do, and a reader of it.

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
        Json job = *parse_json(RayFixture::job("j", state.c_str()), "job");
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

struct RayLogFixture : RayFixture {
    LogHttp server;
    std::unique_ptr<JobBackend> jobs;
    std::unique_ptr<JobLog> log;
    std::string got;

    explicit RayLogFixture(bool with_agent) {
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

}  // namespace

// Reading a log by each of the three ways: every byte exactly once, whatever happens on the way.

TEST_CASE("log: the agent's file by ranges, 416 means nothing new, a pump is one request") {
    RayLogFixture world(true);
    world.server.log = lines(0, 100);
    world.open({std::nullopt, true});
    CHECK(*world.pump() == world.server.log.size());
    const std::size_t before = world.server.asked.size();
    CHECK(*world.pump() == 0);
    CHECK(world.server.asked.size() == before + 1);
    world.server.log += "more";
    CHECK(*world.pump() == 4);
    CHECK((world.got == world.server.log));
    CHECK(world.server.count("/api/v0/") == 0);
}

TEST_CASE("log: an agent out of reach is asked once, then the dashboard is") {
    RayLogFixture world(true);
    world.server.agent = false;
    world.server.log = lines(0, 100);
    world.open({std::nullopt, true});
    world.settle();
    CHECK((world.got == world.server.log));
    CHECK(world.server.count(k_agent) == 1);
}

TEST_CASE("log: an agent lost in the middle, no byte twice") {
    RayLogFixture world(true);
    world.server.log = lines(0, 9000);
    world.open({std::nullopt, true});
    world.settle();
    world.server.agent = false;
    for (int i = 0; i < 10; ++i) {
        world.server.log += lines(9000 + i * 20, 9000 + i * 20 + 20);
        world.settle();
    }
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: the dashboard's looks join without gap or overlap, and cost what is new") {
    RayLogFixture world(false);
    world.server.log = lines(0, 20'000);
    world.open({std::nullopt, true});
    world.settle();
    const std::uint64_t before = world.server.sent;
    for (int i = 0; i < 50; ++i) {
        world.server.log += lines(20'000 + i * 10, 20'010 + i * 10);
        REQUIRE(world.pump());
    }
    CHECK((world.got == world.server.log));
    CHECK(world.server.count("/api/jobs/j/logs") == 0);
    CHECK(world.server.sent - before < 50 * 5 * k_window);
}

TEST_CASE("log: a burst larger than a look is caught up with") {
    RayLogFixture world(false);
    world.server.log = lines(0, 20'000);
    world.open({std::nullopt, true});
    world.settle();
    world.server.log += lines(20'000, 60'000);
    world.settle();
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: equal lines, periodic lines, no line end: each byte once") {
    for (const std::string& unit :
         {std::string("waiting\n"), std::string("a\nb\nc\n"), std::string("x"), std::string("\n"),
          std::string(700, 'q') + "\n", std::string(100'000, 'z') + "\n"}) {
        RayLogFixture world(false);
        world.open({std::nullopt, true});
        for (int i = 0; i < 12; ++i) {
            const std::size_t amount = i == 5 ? 300'000 : 1'000;
            for (std::size_t n = 0; n < amount; n += unit.size()) world.server.log += unit;
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
        }
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: blocks that repeat beyond the window: each byte once") {
    const std::string block = lines(0, 6000);
    RayLogFixture world(false);
    world.open({std::nullopt, true});
    for (int i = 0; i < 6; ++i) {
        world.server.log += block + (i % 2 == 0 ? "end\n" : "");
        world.settle();
        REQUIRE((world.got == world.server.log));
    }
}

TEST_CASE("log: a second copy of a long text that comes within one look: each byte once") {
    const std::string block = lines(0, 20'000);  // more than a look
    for (const char* first : {"begins\n", ""}) {
        for (const char* last : {"", "ends\n", "ends without a line end"}) {
            CAPTURE(first);
            CAPTURE(last);
            RayLogFixture world(false);
            world.open({std::nullopt, true});
            world.server.log = first + block;
            world.settle();
            world.server.log += block + last;
            world.settle();
            world.server.state = "SUCCEEDED";
            REQUIRE(world.jobs->details("j"));
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
            CHECK((world.got == world.server.log));
        }
    }
}

TEST_CASE("log: two copies of a long text and what follows, each within one look: each byte once, in order") {
    const std::string block = lines(0, 20'000);
    RayLogFixture world(false);
    world.open({std::nullopt, true});
    world.server.log = "begins\n" + block.substr(0, block.size() / 2);
    world.settle();
    world.server.log += block.substr(block.size() / 2) + block + "ends\n";
    world.settle();
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: lines that come between a look and the question whether that was all do not matter") {
    RayLogFixture world(false);
    world.open({std::nullopt, true});
    world.server.log = lines(0, 20'000);
    world.settle();
    int looks = 0;
    world.server.before = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
        if (request.url.find("lines=") != std::string::npos) world.server.log += lines(30'000 + looks, 30'001 + looks);
        ++looks;
        return std::nullopt;
    };
    const std::uint64_t before = world.server.sent;
    for (int i = 0; i < 20; ++i) REQUIRE(world.pump());
    CHECK((world.got == world.server.log.substr(0, world.got.size())));
    CHECK(world.got.size() > world.server.log.size() - 100);
    CHECK(world.server.sent - before < 20 * 6 * k_window);  // never the whole log
}

TEST_CASE("log: bytes that are not UTF-8, NUL, a line of 5 MB, no last newline") {
    for (const bool with_agent : {true, false}) {
        RayLogFixture world(with_agent);
        world.open({std::nullopt, true});
        for (const std::string& part : {std::string("ok\n\xff\xfe\0bad\n", 10), std::string(5'000'000, 'a'),
                                        std::string("\nmore\n"), std::string("no newline at end")}) {
            world.server.log += part;
            world.settle();
            REQUIRE(world.got.size() == world.server.log.size());
        }
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: connections cut at random places on random logs, every byte exactly once") {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        const auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random()) % n; };
        RayLogFixture world(seed % 3 == 0);
        if (seed % 5 == 4) world.server.file = false;
        world.open({std::nullopt, true});
        for (int round = 0; round < 30; ++round) {
            for (std::uint32_t n = upto(400); n > 0; --n) {
                const std::uint32_t kind = upto(4);
                if (kind == 0) world.server.log += "same line\n";
                if (kind == 1) world.server.log += std::to_string(random()) + "\n";
                if (kind == 2) world.server.log += std::string(upto(300), '-');
                if (kind == 3) world.server.log += std::string(upto(3), '\n');
            }
            if (upto(2) == 0) world.server.cut_after = upto(1 + static_cast<std::uint32_t>(world.server.log.size()));
            (void)world.pump();
            if (seed % 3 == 0 && round == 20) world.server.agent = false;
        }
        world.settle();
        CHECK((world.got == world.server.log));
    }
}

TEST_CASE("log: as JSON at last, what was read raw before is not read again, whatever the line ends") {
    RayLogFixture world(true);
    world.server.log = "a\r\nb\rc\n\r\n";
    world.open({std::nullopt, true});
    world.settle();
    world.server.agent = world.server.file = false;
    world.server.log += "d \xe2\x82\xac\n";
    world.settle();
    CHECK(world.got == "a\r\nb\rc\n\r\nd \xe2\x82\xac\n");
    world.server.file = true;  // once folded, always folded
    world.server.log += "e\r\n";
    world.settle();
    CHECK(world.got.ends_with("\ne\n"));
}

TEST_CASE("log: the last lines in one request, of none, none") {
    RayLogFixture world(true);
    world.server.log = lines(0, 5000);
    world.open({7});
    const std::size_t before = world.server.asked.size();
    REQUIRE(world.pump());
    CHECK(world.got == lines(4993, 5000));
    CHECK(world.server.asked.size() == before + 1);
    CHECK(world.server.asked.back().ends_with("&lines=7"));
    CHECK(*world.pump() == 0);
    world.got.clear();
    world.open({0});
    CHECK(*world.pump() == 0);
}

TEST_CASE("log: last lines first, then what comes, by each way") {
    for (const int way : {0, 1, 2}) {
        for (const std::size_t tail : {0U, 1U, 3U, 9000U}) {
            RayLogFixture world(way == 0);
            if (way == 2) world.server.file = false;
            world.server.log = lines(0, 3000) + "open";
            world.open({tail, true});
            REQUIRE(world.pump());
            CHECK(world.got == (tail == 0   ? std::string()
                                : tail > 99 ? world.server.log
                                            : lines(3001 - static_cast<int>(tail), 3000) + "open"));
            world.server.log += "ed\nnext\n";
            world.settle();
            CHECK(world.got.ends_with("ed\nnext\n"));
            if (tail == 1) CHECK(world.got == "opened\nnext\n");
        }
    }
}

TEST_CASE("log: a tail of long lines is found backwards through the agent") {
    RayLogFixture world(true);
    world.server.log = "first\n" + std::string(9'000'000, 'x') + "\nlast\n";
    world.open({2, true});
    world.settle();
    CHECK((world.got == world.server.log.substr(6)));
}

TEST_CASE("log: nothing is asked while the job waits, all of it is there when it has started") {
    RayLogFixture world(false);
    world.server.state = "PENDING";
    world.server.node = false;
    world.open({std::nullopt, true});
    CHECK(*world.pump() == 0);
    CHECK(world.server.count("logs") == 0);
    world.server.state = "RUNNING";
    world.server.node = true;
    world.server.log = "started\n";
    REQUIRE(world.jobs->poll("j"));
    world.settle();
    CHECK(world.got == "started\n");
}

TEST_CASE("log: the stream is never asked for") {
    RayLogFixture world(true);
    world.server.log = "x\n";
    world.open({std::nullopt, true});
    world.settle();
    CHECK(world.server.count("/stream") == 0);
    CHECK(world.server.count("/tail") == 0);
}

TEST_CASE("log: gone with its node: said once and for all when the job is over, later when it runs") {
    for (const char* state : {"RUNNING", "FAILED"}) {
        RayLogFixture world(false);
        world.server.state = state;
        world.server.before = [](const HttpRequest& r) -> std::optional<Result<HttpResponse>> {
            if (r.url.find("/logs") == std::string::npos) return std::nullopt;
            HttpResponse a;
            a.status = 500;
            a.body = "Agent for node id: node1 doesn't exist.";
            return a;
        };
        world.open({std::nullopt, true});
        const auto read = world.pump();
        REQUIRE_FALSE(read);
        const bool over = std::string(state) == "FAILED";
        CHECK(read.error().kind == (over ? ErrorKind::remote_missing : ErrorKind::infrastructure));
        if (over) CHECK(read.error().message.starts_with("logs are gone with the node"));
    }
}

TEST_CASE("log: not UTF-8 and no raw way to it is said") {
    RayLogFixture world(false);
    world.server.file = false;
    world.server.state = "FAILED";
    world.server.log = "\xff";
    world.open({});
    const auto read = world.pump();
    REQUIRE_FALSE(read);
    CHECK(read.error().message.find("not UTF-8") != std::string::npos);
}

TEST_CASE("log: a dashboard that its own agents refuse: one look goes to the agent") {
    for (const bool agent : {true, false}) {
        RayLogFixture world(true);
        world.server.state = "SUCCEEDED";
        world.server.agent = agent;
        world.server.log = agent ? "first\nbad \xff byte\nlast\n" : "first\nlast\n";
        world.server.before = [](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
            if (request.url.find("/api/v0/") == std::string::npos) return std::nullopt;
            HttpResponse refused;
            refused.status = 500;
            refused.body = "debug_error_string = \"UNAUTHENTICATED:Invalid or missing authentication token\"";
            return Result<HttpResponse>(refused);
        };
        for (const std::optional<std::size_t> tail : {std::optional<std::size_t>(), std::optional<std::size_t>(1)}) {
            world.got.clear();
            world.open({tail, false});
            CHECK(world.pump());
            CHECK(world.got == (tail ? "last\n" : world.server.log));
        }
        CHECK(world.server.count("/api/v0/") == 2);
        CHECK(world.clock.sleeps().empty());
    }
}

TEST_CASE("log: one look bears with a dashboard that is away, and keeps its place") {
    RayLogFixture world(false);
    world.server.log = lines(0, 5000);
    int faults = 3;
    world.open({});
    world.server.before = [&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
        if (faults-- > 0) return Result<HttpResponse>(tl::unexpected(RayFixture::refused()));
        return std::nullopt;
    };
    world.server.cut_after = 50'000;
    REQUIRE(world.pump());
    CHECK((world.got == world.server.log));
}

TEST_CASE("log: a hundred megabytes pass through without being kept") {
    RayLogFixture world(false);
    const std::string block = lines(0, 4000);
    while (world.server.log.size() < (std::size_t{100} << 20)) world.server.log += block;
    world.open({});
    std::uint64_t bytes = 0;
    std::size_t largest = 0;
    REQUIRE(world.log->pump([&](std::string_view piece) {
        bytes += piece.size();
        largest = std::max(largest, piece.size());
        return true;
    }));
    CHECK(bytes == world.server.log.size());
    CHECK(largest <= (std::size_t{8} << 20));
}

TEST_CASE("log: enough is enough") {
    for (const bool with_agent : {true, false}) {
        RayLogFixture world(with_agent);
        world.server.log = lines(0, 500'000);
        world.open({std::nullopt, true});
        const auto n = world.log->pump([](std::string_view) { return false; });
        REQUIRE(n);
        CHECK(*n < world.server.log.size());
    }
}

}  // namespace gdnctl::ray
