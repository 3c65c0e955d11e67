// What is generated from the descriptions.
#include "cli/reference.h"

#include <doctest/doctest.h>

#include "cli/version.h"
#include "core/json.h"
#include "core/version.h"
#include "sample_command.h"
#include "support/fake_env.h"
#include "support/temp_dir.h"

namespace gdnctl::cli {

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Awkward {
    std::string value;
    bool flag = false;
};
void describe_awkward(Args& args, Awkward& o) {
    args.about(".starts with a dot and has a back\\slash, a 'quote' and a <tag> | bar");
    args.example("gdnctl awkward --value '[x]'", ".dot");
    args.option(o.value, {.names = "--value", .value = "A|B", .help = "it's [one] of: a | b \\ c <d>"});
}
Result<ExitCode> run_awkward(const Awkward&, Context&) { return ExitCode::ok; }
constexpr Command k_awkward_row = make<&describe_awkward, &run_awkward>("awkward", "Odd", "it's odd", Tier::none);
constexpr TableRow k_awkward[] = {k_awkward_row};

}  // namespace

TEST_CASE("the reference has every visible command, option, example and exit code") {
    const std::string page = markdown_reference(test::k_sample_table).text;
    CHECK(has(page, "\n## gdnctl sample run\n"));
    CHECK(has(page, "- [gdnctl log append](#gdnctl-log-append): append an entry\n"));
    CHECK(has(page, "- `--iterations N`: how often (default: 3)\n"));
    CHECK(has(page, "- `--wait, --no-wait`: wait for the end (default: --wait)\n"));
    CHECK(has(page, "\n  - `json`: for programs\n"));
    CHECK(has(page, "**Tolerances**"));
    CHECK(has(page, "# five times\ngdnctl sample run data.npz --iterations 5\n"));
    CHECK(has(page, "- `1`: the sample failed\n"));
    CHECK(has(page, "- `130, 143`: interrupted by SIGINT / SIGTERM, after cleaning up\n"));
    CHECK(has(page, "\n## gdnctl sample\n"));
    CHECK(page.find("\n## gdnctl log\n") < page.find("\n## gdnctl log append\n"));
    CHECK(has(page, "[gdnctl sample list](#gdnctl-sample-list), [docs/samples.md](../samples.md)"));
    CHECK(!has(page, "__hidden"));
    CHECK(!has(page, "\n\n\n"));
}

TEST_CASE("there is one manual page a command and one for all") {
    const auto pages = man_pages(test::k_sample_table);
    REQUIRE(pages.size() == 8);
    CHECK(pages[0].name == "gdnctl.1");
    CHECK(has(pages[0].text, ".B log append\nappend an entry\n"));
    CHECK(has(pages[0].text, ".SH \"EXIT STATUS\"\n"));
    CHECK(pages[1].name == "gdnctl-sample.1");
    CHECK(has(pages[1].text, ".B sample run\nrun the sample\n"));
    CHECK(has(pages[1].text, ".B 130, 143\n"));
    CHECK(pages[2].name == "gdnctl-log.1");
    CHECK(pages[3].name == "gdnctl-sample-run.1");
    CHECK(pages[3].text.starts_with(".TH \"gdnctl-sample-run\" 1 "));
    for (const char* heading : {".SH NAME", ".SH SYNOPSIS", ".SH ARGUMENTS", ".SH \"OPTIONS\"", ".SH \"TOLERANCES\"",
                                ".SH \"EXIT STATUS\"", ".SH EXAMPLES", ".SH \"SEE ALSO\""}) {
        CHECK_MESSAGE(has(pages[3].text, heading), heading);
    }
    CHECK(has(pages[3].text, ".B \\-\\-iterations N\n"));
}

TEST_CASE("text that means something to roff or Markdown is only text there") {
    const std::string man = man_pages(k_awkward)[1].text;
    CHECK(has(man, "\n\\&.starts with a dot and has a back\\eslash"));
    CHECK(has(man, "\n\\&.dot\n"));
    const std::string page = markdown_reference(k_awkward).text;
    CHECK(has(page, "- `--value A|B`: it's [one] of: a | b \\ c &lt;d>\n"));
}

TEST_CASE("completion: commands, groups, options and choices for the last word") {
    const auto words = [](const std::vector<std::string>& typed) {
        std::string all;
        for (const auto& [word, help] : complete(test::k_sample_table, typed).words) all += word + " ";
        return all;
    };
    CHECK(words({""}) == "help lint-log sample log ");
    CHECK(words({"help", ""}) == "help lint-log sample log ");
    CHECK(words({"--color", "always", "log", ""}) == "append init ");
    CHECK(words({"sample", "run", "--format", ""}) == words({"sample", "run", "-v", "--format", ""}));
    CHECK(words({"sample", "run", "--format", ""}).find("json ") != std::string::npos);
    CHECK(words({"sample", "run", "--format="}).find("--format=json ") != std::string::npos);
    CHECK(words({"sample", "run", "--"}).find("--wait --no-wait ") != std::string::npos);
    CHECK(words({"sample", "run", "--"}).find("--json ") != std::string::npos);
    CHECK(words({"log", "append", "--", ""}).empty());
    CHECK(words({"nonsense", ""}).empty());
    CHECK(words({}).empty());
    CHECK(complete(test::k_sample_table, {"--config", ""}).values == Complete::file);
    CHECK(complete(k_awkward, {"awkward", "--value", ""}).values == Complete::nothing);
}

TEST_CASE("a library is found in LD_LIBRARY_PATH, and what is nowhere is not found") {
    const test::TempDir folder;
    test::write_text(folder / "libnone.so.9", "");
    const test::FakeEnv with{{"LD_LIBRARY_PATH", ":/nowhere:" + folder.path().string()}};
    CHECK(find_library(with, "libnone.so.9") == folder / "libnone.so.9");
    CHECK(!find_library(test::FakeEnv{}, "libnone.so.9"));
}

TEST_CASE("the version is one JSON object with its schema first") {
    const std::string text = version_text(test::FakeEnv{}, true);
    CHECK(parse_json(text, "version"));
    CHECK(text.starts_with("{\"schema\":\"gdnctl.version/1\","));
    CHECK(version_text(test::FakeEnv{}, false).starts_with("gdnctl " + std::string(version()) + " (commit "));
}

}  // namespace gdnctl::cli
