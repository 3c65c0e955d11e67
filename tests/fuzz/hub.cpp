// What a Hub, or who stands in its place, may send: listings, links, errors, names, globs, addresses, traces. The first
// byte says which.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/text.h"
#include "fuzz/fuzz.h"
#include "services/hub/hf/answers.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/names.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/retrying_client.h"
#include "services/hub/transfer/selection.h"
#include "services/hub/transfer/validate.h"
#include "services/hub/wandb/artifact.h"

namespace {

using namespace gdnctl;
using namespace gdnctl::hub;

void listing(std::string_view input) {
    if (const auto page = parse_tree_page(input)) {
        std::map<std::string, TreeFile> all;
        for (const TreeFile& file : *page) {
            require(file.size >= 0 && (file.etag().size() == 40 || file.etag().size() == 64));
            all.emplace(file.path, file);
        }
        if (const auto record = tree_file_text(all)) {
            const auto again = parse_tree_file(*record);
            require(again && again->size() == all.size());
        }
    }
    if (const auto revision = parse_revision(input)) require(revision->commit.size() == 40);
    (void)parse_tree_file(input);
}

void names(std::string_view input) {
    if (!why_unsafe(input)) {
        require(!input.empty() && input.front() != '/' && input.find('\0') == std::string_view::npos);
        // However it is cut into parts, none leads upwards; a name may begin with dots.
        for (const char* slash : {"/", "\\"}) {
            for (const std::string_view part : text::split(input, *slash)) require(part != "..");
        }
    }
    if (const auto target = parse_repo_target(input, "https://huggingface.co")) {
        require(check_repo_id(target->id).has_value());
        require(!target->revision || !target->revision->empty());
    }
    if (const auto decoded = text::percent_decode(input)) require(decoded->size() <= input.size());
    require(text::percent_decode(text::percent_encode("x" + std::string(input))) ||
            input.find('\0') != std::string_view::npos);
    (void)parse_metadata(input);
}

void globs(std::string_view input) {
    const std::size_t cut = input.find('\n');
    if (cut == std::string_view::npos) return;
    const std::string_view path = input.substr(cut + 1);
    (void)fnmatch(input.substr(0, cut), path);
    require(fnmatch("*", path));
    (void)latest_sessions({std::string(input.substr(0, cut)), std::string(path)});
}

// The note beside a partial file: whoever can write into the folder can write it.
void note(std::string_view input) {
    constexpr std::int64_t k_size = 100, k_there = 80;
    std::int64_t end = 0;
    const std::vector<Span> spans = parse_spans(input, k_size, k_there);
    for (const Span& span : spans) {
        require(span.begin == end && span.begin <= span.at && span.at <= span.end && span.at <= k_there);
        end = span.end;
    }
    require(spans.empty() || end == k_size);
}

void trace(std::string_view input) {
    TraceJsonCheck whole, pieces;
    const bool fed = whole.feed(input).has_value() && whole.finish().has_value();
    bool in_pieces = true;
    for (const char& c : input) in_pieces = in_pieces && pieces.feed({&c, 1}).has_value();
    require(fed == (in_pieces && pieces.finish().has_value()));
}

void wandb_answer(std::string_view input) {
    if (const auto page = wandb::parse_run_artifacts(input, {"e", "p", "r"}))
        (void)wandb::choose_artifact(page->items, std::nullopt);
    if (const auto manifest = wandb::parse_manifest(input)) {
        for (const wandb::ManifestEntry& entry : manifest->entries) {
            require(!entry.ref.empty() || (entry.md5.size() == 32 && entry.size >= 0));
            (void)wandb::file_address("https://h", {"e", "p", "r"}, {}, *manifest, entry);
        }
    }
    (void)wandb::parse_artifact(input, "a:v0");
    (void)wandb::parse_manifest_url(input);
    (void)wandb::parse_file_urls(input);
    (void)wandb::parse_profile_places(input);
    if (const auto path = wandb::parse_run_target(input, "e", "p")) require(!path->run.empty());
}

}  // namespace

FUZZ(hub) {
    if (size == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0]) {
        case 'l': listing(input); break;
        case 'n': names(input); break;
        case 'g': globs(input); break;
        case 't': trace(input); break;
        case 'p': note(input); break;
        case 'w': wandb_answer(input); break;
        default:
            (void)next_link(input);
            (void)explain_answer({RepoType::model, "o/r", "main", "https://h/api/x", "", "https://h"}, 401,
                                 {{"x-error-message", std::string(input)}}, input);
    }
    return 0;
}
