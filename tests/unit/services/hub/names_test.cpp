// Paths, URLs, repositories: what comes from a command line or a server.
#include "services/hub/transfer/names.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/text.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/selection.h"

namespace gdnctl::hub {

namespace {
constexpr std::string_view k_hub = "https://huggingface.co";
std::string described(const RepoTarget& target) {
    return std::string(name_of(target.type)) + " " + target.id + " @" + target.revision.value_or("-") + " " +
           target.path + (target.is_file ? " file" : "");
}
std::string parsed(std::string_view text, std::string_view endpoint = k_hub) {
    const auto target = parse_repo_target(text, endpoint);
    return target ? described(*target) : "usage";
}
}  // namespace

TEST_CASE("repo: hf:// URIs") {
    CHECK(parsed("hf://datasets/o/r@v1/train.csv") == "dataset o/r @v1 train.csv");
    CHECK(parsed("hf://datasets/o/r@refs/pr/10/f.csv") == "dataset o/r @refs/pr/10 f.csv");
    CHECK(parsed("hf://datasets/o/r@refs%2Fpr%2F10/f.csv") == "dataset o/r @refs/pr/10 f.csv");
    CHECK(parsed("hf://datasets/o/r@refs/convert/parquet-v2/d.parquet") ==
          "dataset o/r @refs/convert/parquet-v2 d.parquet");
    CHECK(parsed("hf://o/m@feature%2Ffoo/c.json") == "model o/m @feature/foo c.json");
    CHECK(parsed("hf://o/m/sub/d@v2.bin") == "model o/m @- sub/d@v2.bin");
    CHECK(parsed("hf://a/b/c@v1") == "model a/b @- c@v1");
    CHECK(parsed("hf://spaces/o/s/") == "space o/s @- ");
    CHECK(parsed("hf://o/m@refs/pr/x/f") == "model o/m @refs pr/x/f");
    for (const char* bad : {"hf://", "hf://datasets/", "hf://dataset/o/r", "hf://gpt2", "hf://o/m@", "hf://@v1/f",
                            "hf://o/m//s", "hf://datasets/o/.x", "hf://models/a--b/c", "hf://kernels/o/r",
                            "hf://buckets/o/r", "hf://o/m@%2", "hf://o/m@%00/x", "hf://o/m/a//b"}) {
        CAPTURE(bad);
        CHECK(parsed(bad) == "usage");
    }
}

TEST_CASE("repo: web addresses") {
    CHECK(parsed("https://huggingface.co/datasets/o/r") == "dataset o/r @- ");
    CHECK(parsed("https://hf.co/o/m/tree/main/sub/dir?x=1#y") == "model o/m @main sub/dir");
    CHECK(parsed("https://huggingface.co/datasets/o/r/resolve/refs%2Fpr%2F1/a%20b/c.json?download=true") ==
          "dataset o/r @refs/pr/1 a b/c.json file");
    CHECK(parsed("https://huggingface.co/gpt2/blob/main/config.json") == "model gpt2 @main config.json file");
    CHECK(parsed("http://mirror.example:8080/hub/spaces/o/s/raw/v1/x", "http://mirror.example:8080/hub") ==
          "space o/s @v1 x file");
    for (const char* bad : {"https://example.org/o/r", "https://huggingface.co/", "https://huggingface.co/docs/hub",
                            "https://huggingface.co/o/r/discussions/1", "https://huggingface.co/datasets/o/r/blob/main",
                            "https://u:p@huggingface.co/o/r", "ftp://huggingface.co/o/r"}) {
        CAPTURE(bad);
        CHECK(parsed(bad) == "usage");
    }
}

TEST_CASE("repo: plain ids") {
    CHECK(parsed("o/r") == "dataset o/r @- ");
    CHECK(parsed("gpt2") == "dataset gpt2 @- ");
    for (const char* bad : {"", "a/b/c", "a--b", "-a/b", "a/b.", "a..b", "a b", "a/b.git", "a/", "/a", "ä/b"}) {
        CAPTURE(bad);
        CHECK(parsed(bad) == "usage");
    }
    CHECK(parsed(std::string(96, 'a')) != "usage");
    CHECK(parsed(std::string(97, 'a')) == "usage");
    CHECK(check_repo_id("datasets/ns/name").error().hint == "use --repo-type dataset with ns/name");
}

TEST_CASE("safe_path: what a server may name a file") {
    for (const char* bad : {"../../../etc/passwd",
                            "folder/../../../etc/passwd",
                            "..\\..\\Windows\\evil",
                            "folder\\..\\..\\evil",
                            "/etc/passwd",
                            "C:\\Windows\\System32\\evil",
                            "C:/Windows/System32/evil",
                            "D:relative\\evil",
                            "\\\\attacker\\share\\evil",
                            "\\evil",
                            "folder/C:\\Windows\\evil",
                            "folder/\\\\attacker\\share\\evil",
                            "folder/\\evil",
                            "",
                            "a//b",
                            "a/",
                            "./a",
                            "a\nb",
                            ".cache/huggingface/x",
                            ".cache",
                            ".CACHE/HuggingFace/trees/x"}) {
        CAPTURE(bad);
        CHECK(why_unsafe(bad));
    }
    CHECK(why_unsafe(std::string("a\0b", 3)));
    CHECK(why_unsafe(std::string(256, 'a')));
    for (const char* good : {"file.txt", "path/in/repo.txt", "weird but valid/name.txt", ".hidden", "..hidden",
                             "a..b/c", "ü", ".cache/other"}) {
        CAPTURE(good);
        CHECK_FALSE(why_unsafe(good));
    }
    CHECK(find_clash(std::vector<std::string>{"a", "a/b"}) == "a");
    CHECK(find_clash(std::vector<std::string>{"x/a", "b", "x/a"}) == "x/a");
    CHECK_FALSE(find_clash(std::vector<std::string>{"a", "ab", "b/a"}));
    CHECK(find_case_clash(std::vector<std::string>{"a/B", "a/b"}));
}

TEST_CASE("layout: names and records as the official client has them") {
    CHECK(part_path("perfetto_trace.json.gz", "E", "") ==
          ".cache/huggingface/download/3ZN0lC8dya1k1rQrjFH0XfFLlnA=.E.gdnctl.part");
    CHECK(part_path("a/b/profile.json", "E", ".1") ==
          ".cache/huggingface/download/a/b/d3AEddYxCKLStU_XBd8tue8dHZ0=.E.1.gdnctl.part");
    CHECK(sidecar_path("x.gdnctl.part") == "x.gdnctl.json");
    CHECK(has_room_for_records("a/" + std::string(246, 'x')));
    CHECK_FALSE(has_room_for_records(std::string(247, 'x')));
    CHECK(python_time(1712656091.123) == "1712656091.123");
    CHECK(python_time(1.7e9) == "1700000000.0");
    CHECK(metadata_text({"c", "e", 1712656091.5}) == "c\ne\n1712656091.5\n");
    const auto read = parse_metadata("c\ne\n1712656091.5\n");
    REQUIRE(read);
    CHECK(read->etag == "e");
    for (const char* bad : {"", "c\ne\n", "c\ne\nnow\n", "\n\n1\n"}) CHECK_FALSE(parse_metadata(bad));
}

TEST_CASE("selection: newest sessions by time and by steps") {
    const std::vector<std::string> paths = {"a/plugins/profile/2026_03_09_08_00_00/h.trace.json.gz",
                                            "a/plugins/profile/2026_03_10_00_00_00/h.trace.json.gz",
                                            "b/plugins/profile/steps-2-to-9/h.pb",
                                            "b/plugins/profile/steps-10-to-20/h.pb", "other/x"};
    CHECK(latest_sessions(paths) == std::vector<std::string>{paths[1], paths[3]});
    SelectionOptions options;
    options.prefix = "/runs/a/";
    options.includes = {"*"};
    const auto selection = Selection::make(options);
    REQUIRE(selection);
    CHECK(selection->takes("runs/a/x"));
    CHECK_FALSE(selection->takes("runs/ab/x"));
    CHECK(selection->takes("runs/a"));
    SelectionOptions bad;
    bad.patterns = {"a(b"};
    const auto refused = Selection::make(bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::usage);
    CHECK(refused.error().message.find("at offset 0") != std::string::npos);
}

// As Python 3.11's fnmatch.fnmatchcase answers.
TEST_CASE("fnmatch: what matches") {
    const std::pair<const char*, const char*> pairs[] = {
        {"*.gz", "a/b.gz"}, {"a/*", "a/b/c"}, {"**/x", "a/x"},      {"[!a]b", "/b"},
        {"[^a]b", "^b"},    {"[^a]b", "ab"},  {"[]]x", "]x"},       {"[!]a]", "b"},
        {"[a-]", "-"},      {"?", "/"},       {"[a", "[a"},         {"a[", "a["},
        {"[]", "[]"},       {"[!]", "[!]"},   {"a\\*", "a\\b"},     {"path/to/", "path/to/f"},
        {"", ""},           {"*", ""},        {"a*b*c", "aXbYbZc"}, {"[a-c]x", "bx"},
        {"[a-ce-g]", "f"},  {"[--0]", "."},   {"[!c-a]", "x"},      {"?", "\xc3\xbc"},
        {".*", ".x"},       {"*", ".x"},      {"a\nb", "a\nb"},     {"[a-c-e]", "-"},
        {"[*]", "*"},       {"x[*?]", "x?"},
    };
    for (const auto& [pattern, path] : pairs) {
        CAPTURE(pattern);
        CAPTURE(path);
        CHECK(fnmatch(pattern, path));
    }
}

TEST_CASE("fnmatch: what does not") {
    const std::pair<const char*, const char*> pairs[] = {
        {"**/x", "x"},  {"[!a]b", "ab"},       {"[^a]b", "bb"},
        {"[c-a]", "b"}, {"*.MD", "README.md"}, {"path/to/", "nested/path/to/f"},
        {"", "x"},      {"a", "ab"},           {"[a-c-e]", "d"},
        {"?", ""},      {"??", "\xc3\xbc"},    {"path/to/", "path/to"},
    };
    for (const auto& [pattern, path] : pairs) {
        CAPTURE(pattern);
        CAPTURE(path);
        CHECK_FALSE(fnmatch(pattern, path));
    }
}

TEST_CASE("fnmatch: many stars end") { CHECK_FALSE(fnmatch("*a*a*a*a*a*a*a*a*a*a*b", std::string(3000, 'a'))); }

}  // namespace gdnctl::hub
