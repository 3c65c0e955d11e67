#include "jobs/metric.h"

#include <cmath>
#include <string>

#include <doctest/doctest.h>

namespace gdnctl {

namespace {

std::optional<double> read(const std::string& from, std::string_view log, std::size_t piece = 7) {
    auto reader = MetricReader::create({"m", "ms", true, from});
    REQUIRE(reader);
    for (std::size_t at = 0; at < log.size(); at += piece) reader->feed(log.substr(at, piece));
    reader->finish();
    CHECK(reader->value().has_value() == reader->lack().empty());
    return reader->value();
}

std::string lack(const std::string& from, std::string_view log) {
    auto reader = MetricReader::create({"m", "ms", true, from});
    REQUIRE(reader);
    reader->feed(log);
    reader->finish();
    CHECK_FALSE(reader->value());
    return reader->lack();
}

}  // namespace

TEST_CASE("metric: a JSON pointer into the last whole object of the log, on one line or many") {
    const std::string pointer = "json:/forward/median_ms";
    const std::string log =
        "noise {\"forward\": {\"median_ms\": 9}}\n{\"forward\": {\"median_ms\": 1.5}}\n"
        "{\n  \"name\": \"a } b { \\\" {\",\n  \"forward\": {\n    \"median_ms\": 2.25\n  }\n} and more\nthe end";
    for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, log.size()})
        CHECK(read(pointer, log, piece) == 2.25);
    CHECK(read("json:/a/1", "{\"a\": [1, 20, 3]}\n") == 20);
    CHECK(read("json:/a~1b", "{\"a/b\": -4e3}") == -4000);
}

TEST_CASE("metric: what looks like an object and is none hides no object") {
    CHECK(read("json:/a", "{\"a\": 1}\n{'a': 2}\n") == 1);  // balanced, no JSON
    CHECK(read("json:/a", "{ left open\n{\"a\": 1}\n{\"b\n{\"a\": 2}\ntext\n") == 2);
    CHECK(read("json:/a", "{\"a\": 1}\n" + std::string(3'000'000, '{') + "\n{\"a\": 5}\n", 100'000) == 5);
    std::string nested;
    for (int i = 0; i < 20'000; ++i) nested += "{\"a\":\n";
    CHECK(read("json:/a", nested + "\n\n{\"a\": 6}\n", 100'000) == 6);
    CHECK(read("json:/a", "{\"a\": 7, \"s\": \"\xff\xfe\"}\n") == 7);
    CHECK(read("json:/a", "{\"a\": 9}\nusage() {\n  echo {\"a\"\n}\n{main} ended\n{}x\n{\"a\": 3} {\"a\": 4}\n") == 4);
}

TEST_CASE("metric: an earlier object does not stand in for a last one that is cut off or no JSON") {
    const std::string warm_up = "{\"phase\": \"warm-up\", \"a\": 5}\n";
    const std::string cut = "the last JSON object of the log is cut off";
    const std::string invalid =
        "the last JSON object of the log is not valid JSON (NaN, Infinity and numbers that a double cannot hold are "
        "not)";
    for (const char* last : {"{\"a\": 12", "{\"a\": 12, \"b", "{\"a\":", "{", "{\n", "{\"a\": 12,\nKilled\nmore\n",
                             "{\n  \"b\": {\n    \"a\": 2\n  },\n  \"a\": 7", "{\"a\": \"x\nand {\"a\": 4}\n"}) {
        CAPTURE(last);
        CHECK(lack("json:/a", warm_up + last) == cut);
    }
    CHECK(lack("json:/a", warm_up + "{\"a\": 8, \"big\": \"" + std::string(2'000'000, 'x') + "\"}\n") == cut);
    for (const char* last :
         {"{\"a\": NaN}", "{\"a\": Infinity}", "{\"a\": -Infinity}", "{\"a\": nan}", "{\"a\": 1e999}",
          "{\"a\": -1e999}", "{\"a\": 12abc}", "{\"a\": 3, \"b\": NaN}", "{\"a\": 3,}"}) {
        CAPTURE(last);
        CHECK(lack("json:/a", warm_up + last + "\ndone\n") == invalid);
        CHECK(lack("json:/a", "{\"a\": 5}" + std::string(last) + "\n") == invalid);  // on the same line
    }
    CHECK(read("json:/a", std::string("{\"a\": NaN}\n{\"a\": 1") + "\n" + warm_up) == 5);
}

TEST_CASE("metric: which ends of a log are a failure") {
    const auto broken = [](const std::string& from, const std::string& log) {
        auto reader = MetricReader::create({"m", "ms", true, from});
        REQUIRE(reader);
        reader->feed(log);
        reader->finish();
        return reader->broken();
    };
    CHECK(broken("json:/a", "{\"a\": 1}\n{\"a\": NaN}\n"));
    CHECK(broken("json:/a", "{\"a\": null}\n"));
    CHECK(broken("json:/a", "{\"a\": \"1\"}\n"));
    CHECK(broken("regex:a=(\\S+)", "a=1\na=nan\n"));
    CHECK(broken("regex:a=(\\S+)", "a=1\na=1e999\n"));
    CHECK_FALSE(broken("json:/a", "nothing\n"));
    CHECK_FALSE(broken("json:/a", "{\"a\": [1, 2]}\n"));  // of two shapes
    CHECK_FALSE(broken("regex:a=(\\S+)", "a=nan\na=2\n"));
}

TEST_CASE("metric: why there is none") {
    CHECK(lack("json:/a", "nothing\n") == "the log contains no JSON object");
    CHECK(lack("json:/a/b", "{\"a\": 1}\n") == "the last JSON object of the log has no /a/b");
    CHECK(lack("json:/a", "{\"a\": \"1\"}\n") == "/a of the log's last JSON object is not a number");
    CHECK(lack("json:/a", "{\"a\": true}\n") == "/a of the log's last JSON object is not a number");
    CHECK(lack("regex:mfu=(\\S+)", "nothing\n") == "no line of the log matches");
    CHECK(lack("regex:mfu=(\\S+)", "mfu=nan\n") == "'nan' is not a number");
    for (const char* last : {"nan", "inf", "-Infinity", "1e999", "12abc"}) {
        CHECK(lack("regex:mfu=(\\S+)", "mfu=3\nmfu=" + std::string(last) + "\n") ==
              "'" + std::string(last) + "' is not a number");
    }
}

TEST_CASE("metric: a regex, the last match of the last line that matches counts") {
    CHECK(read("regex:mfu=([0-9.e+-]+)", "mfu=1 mfu=2\nmfu=3e1\nnothing\n") == 30);
    CHECK(read("regex:[0-9]+", "at 12 and 13\r\n") == 13);
    CHECK(read(R"(regex:throughput/mfu[^0-9eE+\-]*([0-9.eE+\-]+))", "throughput/mfu: 41.5\nlast throughput/mfu=42.5") ==
          42.5);
    CHECK(read("regex:v=(.*)", "v=1\nv=" + std::string(1'000'000, ' ') + "2\nv=3\n", 4096) == 3);
}

TEST_CASE("metric: a regex or a pointer that is none is a configuration error") {
    for (const char* from : {"regex:(", "json:/a~2"}) {
        const auto reader = MetricReader::create({"m", "", true, from});
        REQUIRE_FALSE(reader);
        CHECK(reader.error().kind == ErrorKind::config);
        CHECK(reader.error().message.find("metric 'm'") != std::string::npos);
    }
}

TEST_CASE("metric: one of the trace is not read from the log") {
    auto reader = MetricReader::create({"m", "ms", true, "trace:step"});
    REQUIRE(reader);
    reader->feed("{\"m\": 5}\ntrace:step 7\n");
    reader->finish();
    CHECK_FALSE(reader->value());
    CHECK(reader->lack() == "the trace was not read");
    reader->take(2.5, {});
    CHECK(reader->value() == 2.5);
    CHECK(reader->lack().empty());
    CHECK_FALSE(reader->broken());
}

}  // namespace gdnctl
