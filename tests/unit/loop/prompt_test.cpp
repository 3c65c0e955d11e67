// Prompts and directives by name, and what the shipped ones say.
#include "loop/engine/prompt.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/text.h"
#include "support/temp_dir.h"

namespace gdnctl::loop {

namespace {

using test::TempDir;
using test::write_text;

bool has(std::string_view text, std::string_view what) { return text.find(what) != text.npos; }

std::vector<std::string> names_of(DocumentKind kind, const std::filesystem::path& root) {
    std::vector<std::string> names;
    for (const auto& document : documents(root)) {
        if (document.kind == kind) names.push_back(document.name);
    }
    return names;
}

Document shipped(DocumentKind kind, std::string_view name) {
    auto document = find_document(kind, name, {});
    REQUIRE(document);
    return *document;
}

}  // namespace

TEST_CASE("prompt presets: this binary carries every technique card, with slot, applicability and all five sections") {
    const std::vector<std::string> cards = {
        "associative-summaries", "ejkernel-recompute-backward", "emit-pipeline-fullseq",
        "expdiff-outer-product", "fla-style-decomposition",     "matmul-batching",
        "tpu-layout-and-dtypes", "triangular-inversion",        "xla-first-train-path"};
    CHECK(names_of(DocumentKind::directive, {}) == cards);
    for (const auto& name : cards) {
        CAPTURE(name);
        const Document card = shipped(DocumentKind::directive, name);
        CHECK(card.file.empty());
        CHECK(!card.slot.empty());
        CHECK(!card.applies.empty());
        CHECK(std::all_of(card.applies.begin(), card.applies.end(),
                          [](const std::string& device) { return device == "tpu" || device == "cpu"; }));
        CHECK(card.text.starts_with("# " + card.title + "\n"));  // the front matter is not in it
        CHECK(text::trim(card.text) == card.text);
        for (const char* section : {"\n## Idea\n", "\n## Why it may win\n", "\n## Numerics\n", "\n## How to measure\n",
                                    "\n## Guard-rails\n", "\nGoal: "}) {
            CHECK_MESSAGE(has(card.text, section), section);
        }
        CHECK(card.text.size() < 6000);  // several fit into one prompt
    }
}

TEST_CASE("prompt presets: the shipped prompts say what every prompt must tell") {
    CHECK(names_of(DocumentKind::prompt, {}) == std::vector<std::string>{"cpu-ce", "cpu-gdn", "marin"});
    for (const char* name : {"marin", "cpu-gdn", "cpu-ce"}) {
        CAPTURE(name);
        const std::string text = shipped(DocumentKind::prompt, name).text;
        for (const char* must :
             {"- Iteration: {{ITERATION}} / {{TOTAL_ITERATIONS}}\n", "- Starting commit: {{HEAD_SHA}}\n",
              "exactly one commit", "`Commit: none (failed attempt)`", "`Commit: (pending)`", "exact command",
              "Session directives for this codex-loop run", "next bold hypothesis", "tolerance"}) {
            CHECK_MESSAGE(has(text, must), must);
        }
        CHECK(unknown_placeholders(text).empty());
        CHECK(!has(text, "/home/"));
        CHECK(!has(text, "~/"));
    }
}

TEST_CASE("prompt presets: the marin prompt keeps the recipe's paths, commands and rules") {
    const std::string text = shipped(DocumentKind::prompt, "marin").text;
    for (const char* must :
         {"lib/levanter/src/levanter/layers/gated_deltanet.py",
          "lib/levanter/tests/test_gdn_kernels.py",
          "lib/levanter/tests/test_gdn_layer.py",
          "docs/recipes/optimize_gdn_pallas_tpu.md",
          "lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md",
          "fla/ops/gated_delta_rule/",
          "https://docs.jax.dev/en/latest/pallas/tpu/index.html",
          "gdnctl.py ray-test --cluster us-central1 --tpu auto --tests both\n",
          "gdnctl.py ray-profile --cluster us-central1 --tpu v5p-8 --size 130m --num-steps 20 --profile-start-step 2 "
          "--profile-num-steps 6 --batch-size 8 --no-wait\n",
          "gdnctl.py ray-wait --cluster us-central1 <job_id> --show-logs --tail 400\n",
          "gdnctl.py lint-log\n",
          "https://ui.perfetto.dev",
          "xprof --logdir",
          "about 50 % MFU",
          "three candidates",
          "at least 10 % more MFU",
          "Less than 3 % more MFU",
          "low-impact",
          "Do not discard the gain",
          "out of memory",
          "no shims",
          "Optimise for TPU only",
          "`perfetto_trace.json.gz` or `trace.json.gz`",
          "`.xplane.pb`",
          "(unroll, chunk, segment, batch)",
          "triangular"}) {
        CHECK_MESSAGE(has(text, must), must);
    }
}

TEST_CASE("prompt presets: the repository's own come first, the recipe's folder before the other") {
    const TempDir root;
    write_text(root / "session_directives/triangular-inversion.md", "second\n");
    write_text(root / "session_directives/mine.md", "---\ntitle: My idea\nslot: Z\napplies: cpu\n---\n\nDo it.\n\n");
    CHECK(preset_text("triangular-inversion", root.path()) == "second");
    write_text(root / "scripts/gdn/session_directives/triangular-inversion.md", "\n first \n");
    CHECK(preset_text("triangular-inversion", root.path()) == "first");
    const auto mine = find_document(DocumentKind::directive, "mine", root.path());
    REQUIRE(mine);
    CHECK(mine->text == "Do it.");
    CHECK(mine->title == "My idea");
    CHECK(mine->slot == "Z");
    CHECK(mine->applies == std::vector<std::string>{"cpu"});
    CHECK(mine->file == root / "session_directives/mine.md");
    CHECK(names_of(DocumentKind::directive, root.path()).size() == 10);
}

TEST_CASE("prompt presets: an unknown name is a usage error with the list, and no path leads out of the folders") {
    const TempDir root;
    write_text(root / "secret.md", "secret");
    write_text(root / "session_directives/.hidden.md", "hidden");
    write_text(root / "session_directives/note.txt", "no directive");
    for (const char* name : {"triangular-inverson", "../secret", "secret", ".hidden", "note", "", "marin"}) {
        CAPTURE(name);
        const auto text = preset_text(name, root.path());
        REQUIRE(!text);
        CHECK(text.error().kind == ErrorKind::usage);
        CHECK(has(text.error().message, "unknown directive preset"));
        CHECK(has(text.error().hint, "associative-summaries, ejkernel-recompute-backward"));
        CHECK(!has(text.error().hint, "hidden"));
    }
    CHECK(has(preset_text("triangular-inverson", root.path()).error().hint, "did you mean `triangular-inversion`?"));
}

TEST_CASE("prompt presets: front matter that does not end, or stands elsewhere, is text") {
    const TempDir root;
    write_text(root / "session_directives/open.md", "---\nslot: A\nno end");
    write_text(root / "session_directives/later.md", "text\n---\nslot: A\n---\n");
    write_text(root / "session_directives/crlf.md", "---\r\nslot: A\r\n---\r\nbody\r\n");
    CHECK(preset_text("open", root.path()) == "---\nslot: A\nno end");
    CHECK(preset_text("later", root.path()) == "text\n---\nslot: A\n---");
    CHECK(preset_text("crlf", root.path()) == "body");
    CHECK(find_document(DocumentKind::directive, "crlf", root.path())->slot == "A");
}

TEST_CASE("prompt presets: presets, files, inline texts, in this order, wrong ones in the recipe's words") {
    const TempDir root;
    write_text(root / "scripts/gdn/session_directives/a.md", "A\n");
    write_text(root / "notes/b.md", "\nB\n\n");
    write_text(root / "empty.md", " \n");
    write_text(root / "scripts/gdn/session_directives/hollow.md", "---\nslot: A\n---\n\n");
    const std::vector<std::string> presets = {"a"}, files = {"notes/b.md"}, inlines = {" ", " C ", "D\nE"}, none;
    const auto texts = session_directives({presets, files, inlines}, root.path());
    REQUIRE(texts);
    CHECK(*texts == std::vector<std::string>{"A", "B", "C", "D\nE"});

    const auto message = [&](const std::vector<std::string>& names, const std::vector<std::string>& paths) {
        const auto result = session_directives({names, paths, none}, root.path());
        REQUIRE(!result);
        CHECK(result.error().kind == ErrorKind::usage);
        return result.error().message;
    };
    CHECK(message({}, {"gone.md"}) == "directive file not found for gone.md: " + (root / "gone.md").string());
    CHECK(message({}, {"empty.md"}) == "directive file is empty for empty.md: " + (root / "empty.md").string());
    CHECK(message({"hollow"}, {}) ==
          "directive file is empty for preset hollow: " + (root / "scripts/gdn/session_directives/hollow.md").string());
}

TEST_CASE("prompt presets: the prompt that a session takes when none is named") {
    const TempDir root;
    Target target;
    target.name = "cpu-gdn";
    CHECK(default_prompt(target, root.path())->file.empty());
    write_text(root / "prompts/cpu-gdn.md", "own\n");
    CHECK(default_prompt(target, root.path())->text == "own\n");
    write_text(root / "scripts/gdn/codex_iteration_prompt.md", "---\nrecipe\n\n\n");
    CHECK(default_prompt(target, root.path())->text == "---\nrecipe\n\n\n");  // a template is bytes
    target.prompt = "docs/prompt.md";
    const auto missing = default_prompt(target, root.path());
    REQUIRE(!missing);
    CHECK(missing.error().kind == ErrorKind::usage);
    CHECK(missing.error().message == "prompt file not found: " + (root / "docs/prompt.md").string());
    write_text(root / "docs/prompt.md", "configured");
    CHECK(default_prompt(target, root.path())->text == "configured");

    const TempDir bare;
    target.name = "marin";
    target.prompt = "scripts/gdn/codex_iteration_prompt.md";
    CHECK(default_prompt(target, bare.path())->text == shipped(DocumentKind::prompt, "marin").text);
    target.name = "other";
    target.prompt.clear();
    const auto nothing = default_prompt(target, bare.path());
    REQUIRE(!nothing);
    CHECK(nothing.error().kind == ErrorKind::usage);
    CHECK(has(nothing.error().hint, "prompts/other.md"));
}

TEST_CASE("prompt presets: what is embedded is what the folders hold") {
    for (const auto& one : embedded_documents()) {
        CAPTURE(one.name);
        const std::filesystem::path repository = std::filesystem::path(GDNCTL_FIXTURES) / "../..";
        CHECK(test::read_text(repository / (one.prompt ? "prompts" : "session_directives") /
                              (std::string(one.name) + ".md")) == one.text);
    }
}

}  // namespace gdnctl::loop
