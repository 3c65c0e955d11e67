// What a Hub sends: listings, links, errors, limits; and what a trace looks like.
#include "services/hub/transfer/download.h"

#include <limits>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include "services/hub/hf/answers.h"
#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/report.h"
#include "services/hub/transfer/retrying_client.h"
#include "services/hub/transfer/validate.h"

namespace gdnctl::hub {

namespace {
const std::string k_sha1(40, 'a');
const std::string k_sha256(64, 'b');
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("manifest: an earlier one is read back, a damaged one is none") {
    Report report;
    report.head = {{"source", "wandb"}, {"commit", ""}};
    report.asked = asked_text({{"run", "r"}, {"alias", ""}});
    report.selection = selection_text({}, false);
    const std::string md5(32, 'c');
    for (const Digest& digest : {Digest{Digest::Kind::sha256, k_sha256}, Digest{Digest::Kind::git_sha1, k_sha1},
                                 Digest{Digest::Kind::md5, md5}, Digest{Digest::Kind::md5, ""}}) {
        Wanted file;
        file.path = file.local = "a/b";
        file.size = 7;
        file.digest = digest;
        report.files.push_back(file);
        report.results.emplace_back();
    }
    report.results.back().failure = Error{ErrorKind::authentication, "it is stored at gs://x", {}, {}};
    const std::string text = report_text(report, "out");
    const auto back = parse_report(text);
    REQUIRE(back);
    CHECK(value_of(back->head, "source") == "wandb");
    CHECK(value_of(back->head, "commit").empty());
    CHECK(back->asked == report.asked);
    CHECK(back->selection == report.selection);
    REQUIRE(back->files.size() == 4);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(back->files[i].digest.kind == report.files[i].digest.kind);
        CHECK(back->files[i].etag == report.files[i].digest.hex);
        CHECK_FALSE(back->files[i].refused);
    }
    CHECK(back->files[3].refused->message == "it is stored at gs://x");
    for (const auto& [from, to] : std::map<std::string, std::string>{{"gdnctl.download/1", "x"},
                                                                     {"\"size\": 7", "\"size\": -7"},
                                                                     {k_sha1, "aa"},
                                                                     {"a/b\",\n   \"size", "\",\n   \"size"},
                                                                     {"\"files\"", "\"other\""}}) {
        CAPTURE(from);
        std::string bad = text;
        const std::size_t at = bad.find(from);
        REQUIRE(at != std::string::npos);
        CHECK_FALSE(parse_report(bad.replace(at, from.size(), to)));
    }
    CHECK_FALSE(parse_report(text.substr(0, text.size() / 2)));
}

TEST_CASE("tree: entries of a page") {
    const auto page = parse_tree_page(R"([{"type":"directory","path":"d","oid":"x"},{"type":"file","oid":")" + k_sha1 +
                                      R"(","size":5,"path":"a"},{"type":"file","oid":")" + k_sha1 +
                                      R"(","size":9,"path":"b","lfs":{"oid":")" + k_sha256 +
                                      R"(","size":9,"pointerSize":1},"xetHash":"redacted"}])");
    REQUIRE(page);
    REQUIRE(page->size() == 2);
    CHECK(page->at(0).digest().kind == Digest::Kind::git_sha1);
    CHECK(page->at(1).etag() == k_sha256);
    CHECK(page->at(1).bad_xet_hash);
    for (const char* bad :
         {"", "{}", "[1]", R"([{"type":"file"}])", R"([{"type":"file","path":"a","oid":"zz","size":1}])",
          R"([{"type":"file","path":"a","oid":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":-1}])",
          "[{\"type\":\"file\""}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_tree_page(bad));
    }
}

TEST_CASE("tree: the record of a full listing, byte for byte") {
    std::map<std::string, TreeFile> files;
    files["z"] = {"z", 3, k_sha1, {}, 0, {}, false};
    files["\xc3\xbc"] = {"\xc3\xbc", 9, k_sha1, k_sha256, 9, k_sha256, false};
    const auto text = tree_file_text(files);
    CHECK(text == "{\n \"format_version\": 1,\n \"files\": {\n  \"z\": {\n   \"size\": 3,\n   \"blob_id\": \"" +
                      k_sha1 + "\"\n  },\n  \"\\u00fc\": {\n   \"size\": 9,\n   \"blob_id\": \"" + k_sha1 +
                      "\",\n   \"lfs_sha256\": \"" + k_sha256 + "\",\n   \"lfs_size\": 9,\n   \"xet_hash\": \"" +
                      k_sha256 + "\"\n  }\n }\n}");
    const auto read = parse_tree_file(*text);
    REQUIRE(read);
    CHECK(read->size() == 2);
    for (const char* bad :
         {R"({"format_version":2,"files":{}})", R"({"format_version":1,"files":[]})",
          R"({"format_version":1,"files":{"a":1}})", R"({"format_version":1,"files":{"a":[]}})",
          R"({"format_version":1,"files":{"a":{"size":1}}})", R"({"files":{}})", R"({"format_version":1)"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_tree_file(bad));
    }
    CHECK(parse_tree_file(R"({"files":{},"format_version":1,"more":{"a":{"b":1}}})")->empty());
    files["z"].bad_xet_hash = true;
    CHECK_FALSE(tree_file_text(files));
    CHECK(tree_file_text({}) == "{\n \"format_version\": 1,\n \"files\": {}\n}");
}

TEST_CASE("tree: revisions") {
    const auto revision =
        parse_revision(R"({"id":"o/r","siblings":[{"rfilename":"a","sha":"x"}],"sha":")" + k_sha1 + "\"}");
    REQUIRE(revision);
    CHECK(revision->commit == k_sha1);
    CHECK(revision->id == "o/r");
    for (const char* bad : {"", "[]", "{}", R"({"sha":"main"})", "<html>", R"({"sha":)"})
        CHECK_FALSE(parse_revision(bad));
}

TEST_CASE("link header: the next page") {
    CHECK(next_link("<https://h/a>; rel=\"next\"") == "https://h/a");
    CHECK(next_link("<https://h/a>; rel=next") == "https://h/a");
    CHECK(next_link("<http://x/a,b;c>; rel=\"prev\", <y>; title=\"a, <b>\"; rel=\"last next\"") == "y");
    for (const char* none : {"", "<a>; rel=\"prev\"", "<a", "a; rel=next", "<a>; title=\"rel=next\""})
        CHECK_FALSE(next_link(none));
}

TEST_CASE("download retries: a random part of a wait that doubles up to 30 s") {
    using std::chrono::milliseconds;
    const RetryPolicy policy = retry_policy({});
    CHECK(http::retry_delay(policy, 1, {}, 1.0) == milliseconds(500));
    CHECK(http::retry_delay(policy, 3, {}, 0.5) == milliseconds(1000));
    CHECK(http::retry_delay(policy, 50, {}, 1.0) == milliseconds(30'000));
    for (const int status : {408, 429, 500, 502, 503, 504}) CHECK(http::is_worth_retrying(policy, "GET", status));
    for (const int status : {200, 206, 401, 403, 404, 410, 416})
        CHECK_FALSE(http::is_worth_retrying(policy, "GET", status));
}

TEST_CASE("answers: told apart in the official client's order") {
    const Asked asked{RepoType::dataset, "o/r",      "v9", "https://h/api/datasets/o/r/revision/v9?sig=1",
                      "$HF_TOKEN",       "https://h"};
    const auto explained = [&](int status, const HttpHeaders& headers, std::string_view body = "") {
        return explain_answer(asked, status, headers, body);
    };
    CHECK(explained(404, {{"x-error-code", "RevisionNotFound"}}).message == "Revision not found in dataset 'o/r': v9");
    CHECK(explained(404, {{"x-error-code", "EntryNotFound"}}).kind == ErrorKind::remote_missing);
    CHECK(explained(403, {{"x-error-code", "GatedRepo"}}).message == "Access denied. Dataset 'o/r' requires approval.");
    CHECK(explained(403, {{"x-error-message", "Access to this resource is disabled."}}).kind ==
          ErrorKind::authentication);
    CHECK(explained(401, {}).kind == ErrorKind::remote_missing);
    CHECK(explained(401, {{"x-error-code", "RepoNotFound"},
                          {"x-error-message", "Invalid credentials in Authorization header"}})
              .kind == ErrorKind::remote_missing);
    const Error rejected = explained(401, {}, R"({"error":"Invalid credentials in Authorization header"})");
    CHECK(rejected.kind == ErrorKind::authentication);
    CHECK(has(rejected.message, "token from $HF_TOKEN was rejected"));
    const Error limited =
        explained(429, {{"ratelimit-policy", "\"a\";q=5;w=6"}, {"x-amzn-trace-id", "T"}}, "slow down");
    CHECK(limited.kind == ErrorKind::infrastructure);
    CHECK(has(limited.message, "slow down (limit: 5 requests in 6 s) (request id T)"));
    CHECK_FALSE(has(limited.message, "sig=1"));
    CHECK(server_text({{"content-type", "text/html"}}, "<html>x</html>").empty());
    CHECK(server_text({{"x-error-message", "a"}}, R"({"error":["a","b"],"errors":[{"message":"c"}]})") == "a; b; c");
    CHECK(server_text({}, "\x1b[31mred") == "\\x1b[31mred");
}

TEST_CASE("digest: git's hash and the others") {
    const auto of = [](Digest::Kind kind, std::string_view bytes) {
        auto digester = Digester::create(kind, static_cast<std::int64_t>(bytes.size()));
        REQUIRE(digester);
        REQUIRE(digester->update(bytes));
        return digester->hex().value_or("failed");
    };
    CHECK(of(Digest::Kind::git_sha1, "") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    CHECK(of(Digest::Kind::git_sha1, "{\"a\":1}\n") == "0187f3b09d66cef7911083ad49f890f5a6589589");
    CHECK(of(Digest::Kind::md5, "") == "d41d8cd98f00b204e9800998ecf8427e");
    CHECK(of(Digest::Kind::none, "x").empty());
}

TEST_CASE("validate: JSON of a trace, in pieces of any size") {
    const auto verdict = [](std::string_view text, std::size_t piece) {
        TraceJsonCheck check;
        for (std::size_t i = 0; i < text.size(); i += piece) {
            if (const Status fed = check.feed(text.substr(i, piece)); !fed) return fed.error().message;
        }
        const Status whole = check.finish();
        return whole ? std::string("ok") : whole.error().message;
    };
    for (const std::size_t piece : {1U, 2U, 7U, 1000U}) {
        CHECK(verdict(R"({"a":[1,-2.5e+3,true,null,"x\u00e9\"]"],"traceEvents":[{"ph":"X"}]} )", piece) == "ok");
        CHECK(verdict(R"({"traceEvents":[]})", piece) == "ok");
        for (const char* cut : {"{", R"({"traceEvents":[)", R"({"traceEvents":["a)", ""})
            CHECK(has(verdict(cut, piece), "truncated"));
        for (const char* other :
             {"[]", "{}", R"({"traceEvents":{}})", R"({"a":{"traceEvents":[]}})", R"(["traceEvents",[]])", "1 "}) {
            CAPTURE(other);
            CHECK(verdict(other, piece) != "ok");
        }
        for (const char* bad : {"{,}", R"({"a":01})", R"({"a":1.})", R"({"a":tru})", R"({"a" 1})", R"({"a":"\x"})",
                                "{\"a\":\"\n\"}", "{}{}", R"({"a":[1,]})", "{\"a\":1}}"}) {
            CAPTURE(bad);
            CHECK(has(verdict(bad, piece), "offset"));
        }
    }
    CHECK(has(verdict(std::string(20'000, '['), 1000), "offset"));
}

}  // namespace gdnctl::hub

// Parts of one file: how it is cut, what a note says of them, which answer is the part that was asked for.
using namespace gdnctl::hub;

namespace {

constexpr std::int64_t k_mib = std::int64_t{1} << 20;

std::vector<std::int64_t> ends(const std::vector<Span>& spans) {
    std::vector<std::int64_t> ends;
    for (const Span& span : spans) ends.push_back(span.end);
    return ends;
}

}  // namespace

TEST_CASE("a file is cut into at most four parts of 16 MiB or more") {
    CHECK(ends(cut_into_parts(0, 63 * k_mib, 8)) == std::vector<std::int64_t>{63 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 8)) ==
          std::vector<std::int64_t>{16 * k_mib, 32 * k_mib, 48 * k_mib, 64 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 1)) == std::vector<std::int64_t>{64 * k_mib});
    CHECK(ends(cut_into_parts(0, 64 * k_mib, 0)) == std::vector<std::int64_t>{64 * k_mib});
    CHECK(cut_into_parts(0, 1000 * k_mib, 8).size() == 4);
    CHECK(ends(cut_into_parts(0, 70'000'001, 3)) == std::vector<std::int64_t>{23'333'333, 46'666'666, 70'000'001});
}

TEST_CASE("what is left of a file is cut, and the first part holds what is there") {
    const auto spans = cut_into_parts(100 * k_mib, 180 * k_mib, 2);
    REQUIRE(spans.size() == 2);
    CHECK((spans[0].begin == 0 && spans[0].at == 100 * k_mib && spans[0].end == 140 * k_mib));
    CHECK((spans[1].begin == 140 * k_mib && spans[1].at == 140 * k_mib && spans[1].end == 180 * k_mib));
    CHECK(cut_into_parts(150 * k_mib, 180 * k_mib, 8).size() == 1);
    CHECK(ends(cut_into_parts(5, 5, 8)) == std::vector<std::int64_t>{5});
    CHECK(ends(cut_into_parts(0, 0, 8)) == std::vector<std::int64_t>{0});
}

TEST_CASE("the parts in a note are believed only where they make up the file") {
    CHECK(parse_spans(R"({"spans": [[0, 5, 10], [10, 10, 20]]})", 20, 12).size() == 2);
    for (const char* note :
         {"", "[]", "{}", R"({"spans": 1})", R"({"spans": []})", R"({"spans": [[0, 5]]})",
          R"({"spans": [[0, "5", 10], [10, 10, 20]]})", R"({"spans": [[0, 5, 10]]})",
          R"({"spans": [[0, 5, 10], [11, 11, 20]]})", R"({"spans": [[0, 11, 10], [10, 10, 20]]})",
          R"({"spans": [[0, 5, 10], [10, 9, 20]]})", R"({"spans": [[0, 5, 10], [10, 15, 20]]})",
          R"({"spans": [[0, 5, 30], [30, 30, 20]]})", R"({"spans": [[0, 1e3, 10], [10, 10, 20]]})",
          R"({"spans": [[0, 5, 18446744073709551615]]})", R"({"spans": [[0, 5, 10], [10, 10, 20])"}) {
        CAPTURE(note);
        CHECK(parse_spans(note, 20, 12).empty());
    }
}

TEST_CASE("an answer is a part when begin, end and size are those asked for") {
    CHECK(is_range("bytes 0-9/20", 0, 10, 20));
    for (const char* range : {"", "bytes 0-9/*", "bytes 1-9/20", "bytes 0-10/20", "bytes 0-9/21", "bytes */20"}) {
        CAPTURE(range);
        CHECK_FALSE(is_range(range, 0, 10, 20));
    }
}

TEST_CASE("sizes that a server makes up do not overflow") {
    constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
    CHECK(total_of(1, 2) == 3);
    CHECK(total_of(k_most, 1) == k_most);
    CHECK(total_of(k_most - 1, k_most - 1) == k_most);
}
