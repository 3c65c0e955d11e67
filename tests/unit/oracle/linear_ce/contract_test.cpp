// What the tensors of a linear cross-entropy mean: --set, options, and metadata in other libraries' words.
#include "oracle/linear_ce/judge/contract.h"

#include <doctest/doctest.h>

namespace gdnctl::oracle::linear_ce {

namespace {

using Entries = std::map<std::string, std::string>;

ResolvedContract resolved(const Entries& metadata, const Overrides& overrides = {}) {
    const auto result = resolve(metadata, overrides);
    REQUIRE_MESSAGE(result, (result ? "" : result.error().message));
    return *result;
}

std::string refused(Entries metadata) {
    metadata["layout"] = "hv";
    const auto result = resolve(metadata, {});
    REQUIRE(!result);
    CHECK(result.error().kind == ErrorKind::bad_input);
    return result.error().message;
}

}  // namespace

TEST_CASE("linear-ce contract: --set changes a field, and wins over options and metadata") {
    Overrides given;
    given.reduction = "mean";
    for (const char* set :
         {"layout=vh", "soft_cap=2.5", "logsumexp_weight=1e-4", "reduction=sum", "matmul=tf32", "logits=bf16"}) {
        REQUIRE(set_field(set, given));
    }
    const ResolvedContract contract = resolved({{"layout", "hv"}, {"soft_cap", "30"}}, given);
    CHECK(contract.value.layout == Layout::vh);
    CHECK(contract.value.soft_cap == 2.5);
    CHECK(contract.value.logsumexp_weight == 1e-4);
    CHECK(contract.value.reduction == Reduction::sum);
    CHECK(contract.value.matmul == Matmul::tf32);
    CHECK(contract.value.logits == Logits::bf16);
    CHECK(contract.fields.front().origin == "--set");
    REQUIRE(set_field("soft_cap=none", given));
    CHECK(resolved({{"layout", "hv"}, {"soft_cap", "30"}}, given).value.soft_cap == 0);
}

TEST_CASE("linear-ce contract: an unknown field or value of --set is a usage error") {
    Overrides to;
    for (const char* set : {"cap=1", "layout=xy", "soft_cap=wide", "soft_cap=nan", "logits=f16", "matmul=f32", "layout",
                            "=hv", "reduction="}) {
        const auto status = set_field(set, to);
        REQUIRE_MESSAGE(!status, set);
        CHECK(status.error().kind == ErrorKind::usage);
    }
    CHECK(to.sets.empty());
    CHECK(set_field("cap=1", to).error().hint ==
          "fields: layout, soft_cap, logsumexp_weight, reduction, matmul, logits");
}

TEST_CASE("linear-ce contract: metadata of another loss is refused, unless it is off") {
    CHECK(refused({{"label_smoothing", "0.1"}}).find("label_smoothing = 0.1") != std::string::npos);
    CHECK(refused({{"Label-Smoothing", "0.1"}}).find("Label-Smoothing") != std::string::npos);
    CHECK(refused({{"ce_weight", "yes"}}).find("ce_weight") != std::string::npos);
    CHECK(refused({{"use_token_scaling", "True"}}).find("use_token_scaling") != std::string::npos);
    CHECK(refused({{"temperature", "0.7"}}).find("temperature") != std::string::npos);
    for (const auto& [key, off] : Entries{{"label_smoothing", "0.0"},
                                          {"ce_weight", "None"},
                                          {"use_token_scaling", "False"},
                                          {"temperature", "1.0"},
                                          {"shift", "0"},
                                          {"softcap", "None"},
                                          {"z_loss", "0"},
                                          {"case", "label_smoothing"}}) {
        const ResolvedContract contract = resolved({{"layout", "hv"}, {"logsumexp_weight", "0.0"}, {key, off}});
        CHECK(contract.value.soft_cap == 0);
        CHECK(contract.value.logsumexp_weight == 0);
    }
}

TEST_CASE("linear-ce contract: other libraries' names of a field are read, and must not contradict it") {
    for (const char* key : {"softcap", "logit_softcap", "logit_soft_cap", "final_logit_softcapping"}) {
        const ResolvedContract contract = resolved({{"layout", "hv"}, {key, "30"}});
        CHECK(contract.value.soft_cap == 30);
        CHECK(contract.fields[1].origin == std::string("inputs metadata, ") + key);
    }
    for (const char* key : {"z_loss", "lse_square_scale", "z_loss_weight"}) {
        CHECK(resolved({{"layout", "hv"}, {key, "1e-4"}}).value.logsumexp_weight == 1e-4);
    }
    CHECK(resolved({{"layout", "hv"}, {"soft_cap", "30"}, {"softcap", "30.0"}}).value.soft_cap == 30);
    CHECK(refused({{"soft_cap", "30"}, {"softcap", "20"}}).find("contradicts") != std::string::npos);
    CHECK(refused({{"logsumexp_weight", "0"}, {"z_loss", "1e-4"}}).find("contradicts") != std::string::npos);
}

}  // namespace gdnctl::oracle::linear_ce
