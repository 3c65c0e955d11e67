// Outputs of Marin's and MaxText's Pallas kernels, run in interpret mode: what is wrong with them, and what is not.
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Recorded {
    std::string name, producer, contract;
    std::vector<std::string> sets;
    Verdict verdict = Verdict::ok;
    std::string stage, hint;  // of a wrong one
};

GdnReport judged_dump(const Recorded& d) {
    const auto folder = vectors() / "pallas";
    const TensorFile inputs = load_safetensors(folder / (d.name + ".inputs.safetensors"));
    const TensorFile dump = load_safetensors(folder / (d.name + "." + d.producer + ".outputs.safetensors"));
    GdnReference r = reference_for(inputs, d.contract, d.sets);
    REQUIRE(add_backward(r, inputs, dump, 2));
    REQUIRE(r.backward != nullptr);
    return judged(r, dump);
}

void expect(const std::vector<Recorded>& dumps) {
    for (const Recorded& d : dumps) {
        CAPTURE(d.name);
        CAPTURE(d.producer);
        CAPTURE(d.contract);
        const GdnReport report = judged_dump(d);
        CAPTURE(report.reason);
        CHECK(report.verdict == d.verdict);
        CHECK(report.stage == d.stage);
        if (d.verdict == Verdict::ok) continue;
        REQUIRE_FALSE(report.hints.empty());
        CAPTURE(report.hints.front().text);
        CHECK(report.hints.front().text.find(d.hint) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("pallas: gates that are summed in bf16 are the gate's fault until that is declared") {
    const std::string sum = "the gates of a chunk are summed in the dtype of g";
    expect({
        {"gp_bf16_noS0", "pallas_654e", "marin", {}, Verdict::ok, "", ""},
        {"gp_bf16_noS0", "pallas_654e", "marin-654e", {}, Verdict::ok, "", ""},
        {"gp_bf16_noS0", "pallas_01d1_f32cumsum", "marin-01d1", {}, Verdict::ok, "", ""},
        {"gp_bf16_noS0", "pallas_01d1", "marin-01d1", {}, Verdict::wrong, "gate", sum},
        {"gp_bf16_noS0", "pallas_01d1", "marin", {}, Verdict::wrong, "gate", sum},
        {"gp_bf16_noS0", "pallas_01d1", "marin-01d1", {"gate_sum=g"}, Verdict::ok, "", ""},
        {"gp_bf16_noS0", "pallas_01d1_f32cumsum", "marin-01d1", {"gate_sum=g"}, Verdict::ok, "", ""},
    });
}

TEST_CASE("pallas: an inverse by doubling loses the solution where keys are alike") {
    const std::string doubling = "an inverse by doubling";
    for (const std::string name : {"gp_f32_keys65", "gp_f32_identical_beta1_g0"}) {
        for (const std::string producer : {"pallas_654e", "pallas_01d1"})
            expect({{name, producer, "marin", {}, Verdict::wrong, "solve", doubling}});
    }
}

TEST_CASE("pallas: MaxText's inverse had the wrong sign") {
    for (const std::string name : {"gp_f32_keys65", "gp_f32_identical_beta1_g0"}) {
        expect({
            {name, "maxtext_8124877", "marin", {}, Verdict::wrong, "solve", "the inverse is that of I - M"},
            {name, "maxtext_8124877", "maxtext", {}, Verdict::wrong, "solve", ""},
            {name, "maxtext_8124877_signfixed", "marin", {}, Verdict::ok, "", ""},
            {name, "maxtext_8124877_signfixed", "maxtext", {}, Verdict::ok, "", ""},
        });
    }
}

TEST_CASE("pallas: exponents are clipped after gates are summed") {
    for (const std::string contract : {"marin", "marin-654e", "marin-01d1"}) {
        expect({
            {"gp_f32_clip", "pallas_654e", contract, {}, Verdict::ok, "", ""},
            {"gp_f32_clip", "pallas_01d1", contract, {}, Verdict::ok, "", ""},
        });
    }
}
