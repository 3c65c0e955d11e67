#include "loop/engine/run_words.h"

#include <doctest/doctest.h>

#include "loop/engine/journal.h"
#include "support/temp_dir.h"

namespace gdnctl::loop {

TEST_CASE("run words: what the journal keeps comes back, without its secrets") {
    const test::TempDir folder;
    const auto file = folder.path() / "journal.jsonl";
    CHECK_FALSE(words_of_run(file).value());
    RunWords words;
    words.cwd = "sub";
    words.target = "t";
    words.given = {{"--model", {"m"}}, {"--post-check", {"a 'b'", "c hf_abcdefghijklmnopqrstuvwxyz012345"}}};
    words.configured = {{"--model", {"file"}}};
    {
        auto journal = LoopJournal::open(file);
        REQUIRE(journal);
        REQUIRE(journal->append({RecordType::run, 0, {{"run", "r"}, {"loop_id", "l"}}}, {}));
        CHECK_FALSE(words_of_run(file).value());  // of a gdnctl that kept none
        REQUIRE(journal->append({RecordType::resume, 0, {{"options", to_text(words)}}}, {}));
        REQUIRE(journal->append({RecordType::iteration, 1}, {}));
    }
    const auto kept = words_of_run(file).value();
    REQUIRE(kept);
    CHECK(kept->run == "r");
    CHECK(kept->cwd == "sub");
    CHECK(kept->target == "t");
    CHECK(kept->configured == words.configured);
    CHECK(kept->given.at("--model") == words.given.at("--model"));
    CHECK(kept->given.at("--post-check")[0] == "a 'b'");
    CHECK(kept->given.at("--post-check")[1].find("mnop") == std::string::npos);
    CHECK(kept->masked == std::set<std::string>{"--post-check"});
}

TEST_CASE("run words: options that cannot be read are a configuration error") {
    const test::TempDir folder;
    const auto file = folder.path() / "journal.jsonl";
    auto journal = LoopJournal::open(file);
    REQUIRE(journal->append({RecordType::run, 0, {{"run", "r"}, {"options", "[]"}}}, {}));
    const auto words = words_of_run(file);
    REQUIRE(!words);
    CHECK(words.error().kind == ErrorKind::config);
}

}  // namespace gdnctl::loop
