#include "platform/http_pool.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "unit/platform/http_support.h"

namespace gdnctl::test {

namespace {

// Writes down what it is told.
struct Notes final : HttpReceiver {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    bool head_first = true, want_head = true, want_body = true;
    std::optional<HttpEnd> end;
    std::function<void()> then;

    bool on_head(int got, const HttpHeaders& lines) override {
        status = got;
        headers = lines;
        return want_head;
    }
    bool on_body(std::string_view bytes) override {
        head_first = head_first && status != 0;
        body += bytes;
        return want_body;
    }
    void on_end(const HttpEnd& how) override {
        end = how;
        if (then) then();
    }
};

struct PoolWorld : HttpWorld {
    std::unique_ptr<HttpPool> pool;
    PoolWorld() {
        auto opened = http.open_pool({"tests", ""});
        REQUIRE(opened);
        pool = std::move(*opened);
    }
    void run_until_asked() {
        while (server.requests().empty()) REQUIRE(pool->step(std::chrono::milliseconds(20)));
    }
    void run() {
        while (!pool->idle()) REQUIRE(pool->step(std::chrono::milliseconds(20)));
    }
};

}  // namespace

TEST_CASE_FIXTURE(PoolWorld, "pool: the head comes before the body, at its place the redirect") {
    server.then(reply(307, "ignored", {{"Location", "/there?x=1"}, {"X-Repo-Commit", "abc"}}));
    server.then(reply(200, "hello"));
    Notes first, second;
    REQUIRE(pool->start(get("/here"), first));
    run();
    REQUIRE(first.end);
    CHECK(first.status == 307);
    CHECK(find_header(first.headers, "x-repo-commit") == "abc");
    CHECK(first.end->redirect_url == server.url("/there?x=1"));
    HttpRequest next = get();
    next.url = first.end->redirect_url;
    REQUIRE(pool->start(next, second));
    run();
    CHECK(second.status == 200);
    CHECK(second.head_first);
    CHECK(second.body == "hello");
    CHECK_FALSE(second.end->error);
    CHECK(server.connections() == 1);  // kept for the second
    CHECK(has(server.requests()[1].header("user-agent"), "gdnctl/9.9; libcurl/"));
    CHECK(has(server.requests()[1].header("user-agent"), "; origin/tests"));
}

TEST_CASE_FIXTURE(PoolWorld, "pool: many at a time, one started from the end of another") {
    server.always([](Peer& peer) { reply(200, "of " + peer.request().target)(peer); });
    std::vector<Notes> notes(9);
    notes[0].then = [&] { REQUIRE(pool->start(get("/8"), notes[8])); };
    for (std::size_t i = 0; i < 8; ++i) REQUIRE(pool->start(get(fmt::format("/{}", i)), notes[i]));
    CHECK_FALSE(pool->idle());
    run();
    for (std::size_t i = 0; i < 9; ++i) CHECK(notes[i].body == fmt::format("of /{}", i));
}

TEST_CASE_FIXTURE(PoolWorld, "pool: a body that is cut is worth another try, with what came of it kept") {
    server.then([](Peer& peer) {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        peer.close();
    });
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.body == "01234");
    REQUIRE(notes.end->error);
    CHECK(notes.end->error->kind == ErrorKind::infrastructure);
    CHECK(notes.end->worth_another_try);
}

TEST_CASE_FIXTURE(PoolWorld, "pool: a range is asked for and its status told apart") {
    for (const int status : {206, 200, 416}) {
        server.then(reply(status, "tail", {{"Content-Range", "bytes 5-8/9"}}));
        HttpRequest request = get();
        request.headers.emplace_back("Range", "bytes=5-");
        Notes notes;
        REQUIRE(pool->start(request, notes));
        run();
        CHECK(notes.status == status);
        CHECK(find_header(notes.headers, "content-range") == "bytes 5-8/9");
        CHECK_FALSE(notes.end->error);
    }
    CHECK(server.requests()[0].header("range") == "bytes=5-");
}

TEST_CASE_FIXTURE(PoolWorld, "pool: who wants no body gets none, nor an error") {
    for (const bool at_head : {true, false}) {
        server.then(reply(200, "unwanted"));
        Notes notes;
        notes.want_head = !at_head;
        notes.want_body = false;
        REQUIRE(pool->start(get(), notes));
        run();
        CHECK(notes.end->unwanted);
        CHECK_FALSE(notes.end->error);
        CHECK(notes.body.empty() == at_head);
    }
}

TEST_CASE_FIXTURE(PoolWorld, "pool: an answer without a body still has its head") {
    server.then(reply(204));
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.status == 204);
    CHECK_FALSE(notes.end->error);
}

TEST_CASE_FIXTURE(PoolWorld, "pool: a body stays as it is on the wire") {
    server.then(reply(200, "not gzip at all", {{"Content-Encoding", "gzip"}}));
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.body == "not gzip at all");
    CHECK_FALSE(notes.end->error);
}

TEST_CASE_FIXTURE(PoolWorld, "pool: cancelled means not a word more") {
    server.then([](Peer& peer) { peer.wait_until_gone(); });
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run_until_asked();
    pool->cancel(notes);
    CHECK(pool->idle());
    CHECK_FALSE(notes.end);
}

TEST_CASE_FIXTURE(PoolWorld, "pool: nobody there, and a bad URL") {
    Notes notes;
    HttpRequest request = get();
    request.url = "http://127.0.0.1:1/";
    REQUIRE(pool->start(request, notes));
    run();
    REQUIRE(notes.end->error);
    CHECK(notes.end->worth_another_try);
    CHECK(notes.status == 0);
    request.url = "ftp://127.0.0.1/";
    const Status bad = pool->start(request, notes);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().kind == ErrorKind::usage);
}

TEST_CASE_FIXTURE(PoolWorld, "pool: a silent server is given up") {
    server.then([](Peer& peer) { peer.wait_until_gone(); });
    HttpRequest request = get();
    request.first_byte_timeout = std::chrono::milliseconds(100);
    Notes notes;
    REQUIRE(pool->start(request, notes));
    run_until_asked();
    for (int i = 0; i < 200 && !pool->idle(); ++i) {
        REQUIRE(pool->step(std::chrono::milliseconds(10)));
        clock.advance(std::chrono::milliseconds(5));
    }
    REQUIRE(notes.end);
    REQUIRE(notes.end->error);
    CHECK(notes.end->worth_another_try);
}

}  // namespace gdnctl::test
