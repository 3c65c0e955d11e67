#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"

namespace gdnctl::oracle {

namespace {

GdnCase step(std::string name, std::string about, GdnDims dims) {
    GdnCase c;
    c.name = std::move(name);
    c.set = "decode";
    c.about = std::move(about);
    c.dims = dims;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    return c;
}

std::vector<GdnCase> make_decode_cases() {
    std::vector<GdnCase> all;
    for (std::int64_t tokens = 1; tokens <= 8; ++tokens) {
        all.push_back(
            step(fmt::format("decode_t{}", tokens), fmt::format("{} tokens", tokens), {3, tokens, 2, 4, 16, 8}));
    }
    all.push_back(step("decode_d128", "one token, d = 128", {2, 1, 4, 8, 128, 128}));
    all.push_back(step("decode_odd", "dk = 3, dv = 7", {2, 2, 1, 3, 3, 7}));
    all.push_back(step("decode_tiled", "tiled heads", {2, 4, 2, 6, 16, 16}));
    all.back().contract = {"head_map=tiled"};
    all.push_back(step("decode_no_norm", "unit keys, no l2norm", {2, 5, 2, 4, 32, 16}));
    all.back().contract.emplace_back("l2norm=off");
    all.back().keys = KeyRecipe::unit;
    all.push_back(step("decode_bf16", "bf16 inputs", {2, 3, 2, 4, 32, 32}));
    all.back().dtype = DType::bf16;
    all.push_back(step("decode_forget", "gates of -200: nothing is left", {2, 3, 2, 4, 16, 16}));
    all.back().gate = GateRecipe::constant;
    all.back().gate_value = -200;
    all.push_back(step("decode_packed", "steps of 1, 0, 3 and 8 tokens in one array", {1, 12, 2, 4, 16, 8}));
    all.back().cu_seqlens = {0, 1, 1, 4, 12};
    return all;
}

}  // namespace

const std::vector<GdnCase>& decode_cases() {
    static const std::vector<GdnCase> k_cases = make_decode_cases();
    return k_cases;
}

}  // namespace gdnctl::oracle
