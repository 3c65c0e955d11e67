#include "runlog/records/record.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json.h"
#include "runlog/history/append.h"
#include "runlog/records/store.h"
#include "runlog/render/render.h"
#include "unit/runlog/entry_fixture.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

namespace {

Json bare_record(std::int64_t number = 82) {
    return empty_record(make_record_id(k_time, {number, ""}), {number, ""}, k_time);
}

// A folder with a fresh log.
class Folder {
public:
    Folder() {
        std::string pattern = (fs::temp_directory_path() / "gdnctl-records.XXXXXX").string();
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        m_path = pattern;
        write(log(), log_head(Template::hillclimb));
    }
    ~Folder() {
        std::error_code ec;
        fs::remove_all(m_path, ec);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    fs::path log() const { return m_path / "log.md"; }
    static void write(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
    static std::string read(const fs::path& path) {
        std::ostringstream text;
        text << std::ifstream(path, std::ios::binary).rdbuf();
        return text.str();
    }

private:
    fs::path m_path;
};

Status append(const fs::path& log, const std::string& title, std::vector<std::string>* repaired = nullptr,
              const std::function<void(LogWriter::Step)>& on_step = {}) {
    auto writer = LogWriter::open(log, {.limit = std::chrono::seconds(20)});
    if (!writer) return tl::unexpected(writer.error());
    Json record = bare_record();
    record["title"] = title;
    auto appended = append_entry(*writer, record, {.now = k_time, .on_step = on_step});
    if (!appended) return tl::unexpected(appended.error());
    if (repaired != nullptr) *repaired = appended->repaired;
    return {};
}

}  // namespace

TEST_CASE("record: iteration numbers sort by number, then length of the suffix, then letters without case") {
    const auto n = [](std::string_view text) { return *parse_iteration_number(text); };
    CHECK(n("12").before(n("12a")));
    CHECK(n("12z").before(n("12aa")));
    CHECK(n("12a").before(n("12B")));
    CHECK(n("12b").before(n("13")));
    CHECK(!n("12").before(n("12")));
    CHECK(n("007").text() == "7");
    CHECK(!parse_iteration_number(""));
    CHECK(!parse_iteration_number("a"));
    CHECK(!parse_iteration_number("12-a"));
    CHECK(!parse_iteration_number("99999999999999999999"));
}

TEST_CASE("record: an empty one has the whole schema, in order, and passes its own check") {
    const Json record = bare_record();
    CHECK(id_of(record) == "20260310T165307Z-82");
    CHECK(check_record(record, "r"));
    CHECK(to_text(record).starts_with(
        R"({"schema":"gdnctl.iteration/1","id":"20260310T165307Z-82","iteration":82,"suffix":"","title":null,"loop":)"));
    CHECK(json::text(record, "started_at") == "2026-03-10T16:53:07Z");
    CHECK(json::find(record, "outcome") == nullptr);
}

TEST_CASE("record: doubles round-trip, absent stays null, unknown fields stay") {
    const std::string line =
        R"({"schema":"gdnctl.iteration/1","id":"x","iteration":1,"metrics":{"while_ms":{"before":null,"after":0.1,)"
        R"("mine":[1,2.5e-300]}},"unknown":{"deep":[null,true,"ü"]}})";
    const auto lines = parse_records(line + "\n", "r");
    REQUIRE(lines);
    CHECK(to_text(lines->records[0]) == line);
    CHECK(json::number_at(lines->records[0], "/metrics/while_ms/after") == 0.1);
    CHECK(!json::number_at(lines->records[0], "/metrics/while_ms/before"));
    Json pi = bare_record();
    pi["cost"]["wall_s"] = 3.1415926535897931;
    CHECK(json::number_at(*parse_json(to_text(pi), "pi"), "/cost/wall_s") == 3.1415926535897931);
}

TEST_CASE("record: wrong shapes are refused with the field's name") {
    const auto refused = [](const char* text) {
        const auto status = check_record(Json::parse(text), "r");
        return status ? std::string("accepted") : status.error().message;
    };
    CHECK(refused("[]") == "r: not a JSON object");
    CHECK(refused(R"({"schema":"other/1"})").find("`schema`") != std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a b","iteration":1})").find("`id`") != std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a-->","iteration":1})").find("`id`") != std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a","iteration":-1})").find("`iteration`") !=
          std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a","iteration":1,"suffix":"1"})").find("`suffix`") !=
          std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a","iteration":1,"changes":"x"})").find("`changes`") !=
          std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a","iteration":1,"metrics":{"m":{"after":"1"}}})")
              .find("metrics.m.after") != std::string::npos);
    CHECK(refused(R"({"schema":"gdnctl.iteration/1","id":"a","iteration":1,"kind":null})") == "accepted");
}

TEST_CASE("record: a correction replaces the record it names, and says when and why") {
    const Json first = bare_record(1), other = bare_record(2);
    const Json second = superseding(first, k_time, "outlier step");
    const Json third = superseding(second, k_time, "again");
    CHECK(id_of(second) == id_of(first) + ".2");
    CHECK(id_of(third) == id_of(first) + ".3");
    CHECK(replaced_id(third) == id_of(second));
    CHECK(json::text_at(third, "/notes/1/text") == "again");
    const auto current = current_records({first, other, second, third, other});
    REQUIRE(current.size() == 2);
    CHECK(current[0] == third);
    CHECK(current[1] == other);
}

TEST_CASE("record: secrets and home directories do not get into it") {
    Json record = bare_record();
    const std::string token = "hf_" + std::string(34, 'a');
    record["changes"] =
        Json::array({"see " + token, "in /home/me/x/y.py and /Users/you/z, not /home/ nor http://a/home/b/c",
                     "file:///home/me/.local/state/jobs/x, /home/me"});
    make_public(record);
    CHECK(to_text(record).find(token) == std::string::npos);
    CHECK(json::text_at(record, "/changes/2") == "~/.local/state/jobs/x, ~");
    CHECK(json::text_at(record, "/changes/1") == "in ~/x/y.py and ~/z, not /home/ nor http://a/home/b/c");
}

TEST_CASE(
    "record: characters that a terminal obeys or does not show are escaped in it, in names too, and in an entry") {
    Json record = bare_record();
    record["title"] = "Faster\u202E \x1B]0;title\x07";
    record["idea"]["expected"]["\u200Bms"] = "\u009B2J";
    const std::string entry = render_entry(record);  // of a record that an earlier version wrote
    CHECK(entry.find(" - Faster\\u202e \\x1b]0;title\\x07\n") != std::string::npos);
    CHECK(entry.find("Expected effect on `\\u200bms`: \\x9b2J\n") != std::string::npos);
    make_public(record);
    CHECK(json::text(record, "title") == "Faster\\u202e \\x1b]0;title\\x07");
    CHECK(json::text_at(record, "/idea/expected/\\u200bms") == "\\x9b2J");
    CHECK(render_entry(record) == entry);
}

TEST_CASE("records: a torn last line is dropped with a warning, damage elsewhere is an error with its place") {
    const std::string line = to_text(bare_record()) + "\n";
    auto torn = parse_records(line + line.substr(0, 40), "f");
    REQUIRE(torn);
    CHECK(torn->records.size() == 1);
    CHECK(torn->torn);
    REQUIRE(torn->warnings.size() == 1);
    CHECK(torn->warnings[0].find("torn") != std::string::npos);
    CHECK(parse_records(line.substr(0, line.size() - 1), "f")->records.size() == 1);  // only its newline is missing
    CHECK(parse_records(line + line, "f")->records.size() == 1);                      // a union merge
    const auto damaged = parse_records(line + "x\n" + line, "f");
    REQUIRE(!damaged);
    CHECK(damaged.error().kind == ErrorKind::bad_input);
    CHECK(damaged.error().message.find("f: record 2") != std::string::npos);
    CHECK(parse_records("", "f")->records.empty());
}

TEST_CASE("records: a process killed after any step leaves what the next writer completes") {
    for (const auto step : {LogWriter::Step::locked, LogWriter::Step::record_written, LogWriter::Step::log_written}) {
        CAPTURE(static_cast<int>(step));
        Folder folder;
        REQUIRE(append(folder.log(), "first"));
        const pid_t child = fork();
        if (child == 0) {
            [[maybe_unused]] const auto done = append(folder.log(), "killed", nullptr, [step](LogWriter::Step reached) {
                if (reached == step) kill(getpid(), SIGKILL);
            });
            _exit(1);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        std::vector<std::string> repaired;
        REQUIRE(append(folder.log(), "after", &repaired));
        const bool recorded = step != LogWriter::Step::locked;
        CHECK(repaired.size() == (step == LogWriter::Step::record_written ? 1U : 0U));
        const std::string text = Folder::read(folder.log());
        CHECK((text.find("### Iteration 1 - killed") != std::string::npos) == recorded);
        CHECK(text.find(recorded ? "### Iteration 2 - after" : "### Iteration 1 - after") != std::string::npos);
        const auto files = read_log_files(folder.log());
        REQUIRE(files);
        const auto current = current_records(files->records.records);
        CHECK(place_records(*files->text, current, files->records.records)->differences.empty());
    }
}

TEST_CASE("records: killed inside the write of a record, the torn line is cut off") {
    Folder folder;
    REQUIRE(append(folder.log(), "first"));
    const auto whole = Folder::read(records_path(folder.log()));
    for (const std::size_t keep : {std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
        CAPTURE(keep);
        Folder other;
        REQUIRE(append(other.log(), "first"));
        const auto before = Folder::read(records_path(other.log()));
        Folder::write(records_path(other.log()), before + whole.substr(0, keep));
        REQUIRE(append(other.log(), "second"));
        const auto lines = parse_records(Folder::read(records_path(other.log())), "r");
        REQUIRE(lines);
        CHECK(lines->warnings.empty());
        CHECK(!lines->torn);
        // What lacks only its newline was whole and stays, here as a copy of the first record.
        CHECK(lines->records.size() >= 2U);
        CHECK(lines->records.front()["title"] == "first");
        CHECK(lines->records.back()["title"] == "second");
    }
}

TEST_CASE("records: when the log cannot be written the record is taken back") {
    if (geteuid() == 0) {
        // Root writes read-only files; a log that became a folder cannot be replaced by anyone.
        Folder folder;
        auto writer = LogWriter::open(folder.log(), {});
        REQUIRE(writer);
        fs::remove(folder.log());
        fs::create_directory(folder.log());
        const Json record = bare_record();
        const auto status = writer->commit({&record, 1}, "new text");
        REQUIRE(!status);
        CHECK(status.error().kind == ErrorKind::local_io);
        CHECK(!fs::exists(records_path(folder.log())));
    } else {
        Folder folder;
        fs::permissions(folder.log(), fs::perms::owner_read);
        CHECK(!append(folder.log(), "x"));
        CHECK(!fs::exists(records_path(folder.log())));
    }
}

TEST_CASE(
    "records: a clock behind the last record changes neither numbers nor order, and nothing ends before it began") {
    Folder folder;
    const auto add = [&](Json record, WallTime now, bool keep_number) {
        auto writer = LogWriter::open(folder.log(), {});
        REQUIRE(writer);
        REQUIRE(append_entry(*writer, record, {.now = now, .keep_number = keep_number, .on_step = {}}));
        return record;
    };
    const auto yesterday = k_time - std::chrono::days(1);
    const Json first = add(bare_record(), k_time, false);
    const Json second = add(bare_record(), yesterday, false);
    const Json third = add(bare_record(), yesterday, false);
    CHECK(iteration_of(first).number == 0);
    CHECK(iteration_of(second).number == 1);
    CHECK(iteration_of(third).number == 2);
    CHECK(id_of(second) == "20260309T165307Z-1");
    CHECK(id_of(third) == "20260309T165307Z-2");
    CHECK(json::text(second, "finished_at") == "2026-03-09T16:53:07Z");
    // A draft, started before the clock was set back.
    const Json draft = add(bare_record(7), yesterday, true);
    CHECK(json::text(draft, "started_at") == "2026-03-10T16:53:07Z");
    CHECK(json::text(draft, "finished_at") == "2026-03-10T16:53:07Z");
    const std::string text = Folder::read(folder.log());
    CHECK(text.find("### Iteration 0") < text.find("### Iteration 1"));
    CHECK(text.find("### Iteration 1") < text.find("### Iteration 2"));
    CHECK(text.find("### Iteration 2") < text.find("### Iteration 7"));
}

TEST_CASE("record: a job whose clock was set back took no known time, not a negative one") {
    const auto seconds = [](std::int64_t start, std::int64_t end) {
        Json job = {{"schema", "gdnctl.ray-test/1"}, {"submission_id", "a"}, {"status", "SUCCEEDED"},
                    {"failure_class", "none"},       {"start_time", start},  {"end_time", end}};
        Json record = bare_record();
        const auto added = add_job(record, job);
        REQUIRE_MESSAGE(added, added.error().text());
        return json::number_at(record, "/checks/0/seconds");
    };
    CHECK(seconds(1'000, 3'500) == 2.5);
    CHECK_FALSE(seconds(3'500, 1'000));
}

TEST_CASE("records: a log that is missing, or a folder, is named with what to do") {
    const auto missing = LogWriter::open("/nonexistent/log.md", {});
    REQUIRE(!missing);
    CHECK(missing.error().kind == ErrorKind::usage);
    CHECK(missing.error().message == "log file not found: /nonexistent/log.md");
    CHECK(missing.error().hint == "`gdnctl log init --log-file /nonexistent/log.md` creates one");
    CHECK(read_log_files("/tmp").error().kind == ErrorKind::usage);
    CHECK(records_path("a/log.md") == "a/log.records.jsonl");
    CHECK(records_path("a/log") == "a/log.records.jsonl");
    CHECK(draft_path("a/log.md", 7) == "a/iteration-007-record.json");
}

namespace gdnctl::runlog {

// One word for each fact, in all views for people.

TEST_CASE("words: an outcome has one result and a cause, a decision its words") {
    CHECK(outcome_phrase("accepted") == "accepted");
    CHECK(outcome_phrase("rejected") == "rejected");
    CHECK(outcome_phrase("test-fail") == "rejected (tests failed)");
    CHECK(outcome_phrase("infra") == "parked (infrastructure)");
    CHECK(outcome_phrase("agent-error") == "failed (agent error)");
    CHECK(outcome_phrase("of another version") == "of another version");
    CHECK(decision_words("within_threshold") == "no clear gain");
    CHECK(decision_words("regression") == "regression");
    CHECK(decision_words("low-impact") == "low-impact");
}

TEST_CASE("words: a reason begins with the words for its decision, and does not repeat the result") {
    CHECK(reason_words("within_threshold: 1.012x faster (0.986-1.039x, 3 pairs)") ==
          "no clear gain: 1.012x faster (0.986-1.039x, 3 pairs)");
    CHECK(reason_words("promoted: 1.25x faster (1.247-1.253x, 3 pairs); the machine was busy") ==
          "1.25x faster (1.247-1.253x, 3 pairs); the machine was busy");
    CHECK(reason_words("promoted").empty());
    CHECK(reason_words("case t_long: WRONG") == "case t_long: WRONG");
    CHECK(reason_words("").empty());
}

}  // namespace gdnctl::runlog
