// A model's reply as foreign bytes: its trace, and the edits that it asks for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "loop/evolve/edits.h"
#include "loop/evolve/trace.h"

using namespace gdnctl::loop::evolve;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

}  // namespace

// A file, a line of four dashes, the reply.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto cut = bytes.find("\n----\n");
    const std::string_view file = cut == std::string_view::npos ? std::string_view() : bytes.substr(0, cut + 1);
    const std::string_view reply = cut == std::string_view::npos ? bytes : bytes.substr(cut + 6);
    const TracedReply traced = split_trace(reply);
    require(traced.trace || traced.reply == reply);
    require(traced.reply.size() <= reply.size());
    const EditReply parsed = parse_edits(traced.reply);
    const AppliedEdits applied = apply_edits(parsed, {{"k.c", std::string(file)}});
    require(applied.results.size() == parsed.edits.size());
    require(applied.all || applied.files.empty());
    require(applied.all || !applied.near_misses.empty() || parsed.edits.empty());
    for (const auto& [name, text] : applied.files) require(name == "k.c");
    require(!applied.all || (!parsed.edits.empty() && parsed.edits.size() <= 2 && parsed.problems.empty()));
    abstains(reply);
    return 0;
}
