// Dumps of other implementations: Pallas kernels of Marin and MaxText in interpret mode, and kernels on a GPU.
#include <cmath>

#include "oracle/gdn/compare/backward.h"
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

// Dumps of other people's kernels from a GPU (tests/fixtures/oracle/gpu): honest ones pass, a miscompiled one and
// planted faults do not.
using namespace gdnctl;

namespace {

std::filesystem::path recorded(const std::string& name) { return vectors() / "gpu" / (name + ".safetensors"); }

struct GpuDump {
    TensorFile outputs;
    GdnReference reference;
};

GpuDump gpu_dump(const std::string& name, const std::string& kernel, std::string_view contract) {
    const TensorFile inputs = load_safetensors(recorded(name + ".inputs"));
    // `.vk` says that states are stored V,K.
    GpuDump dump{load_safetensors(recorded(name.substr(0, name.find(".vk")) + "." + kernel + ".outputs")),
                 reference_for(inputs, contract)};
    REQUIRE(add_backward(dump.reference, inputs, dump.outputs, 2));
    return dump;
}

GdnReport judged_plainly(const GdnReference& reference, const TensorFile& outputs) {
    CompareOptions options;
    options.hints = false;
    return judged(reference, outputs, options);
}

Verdict verdict_of(const GdnReport& report, const std::string& canonical) {
    for (const TensorReport& t : report.tensors) {
        if (t.canonical == canonical) return t.verdict;
    }
    return Verdict::no_data;
}

// nullptr: the dump has no such tensor.
Tensor* stored(TensorFile& file, const std::string& canonical, const GdnContract& contract) {
    for (NamedTensor& t : file.tensors) {
        if (name_in_dump(file, t.name, contract).canonical == canonical) return &t.tensor;
    }
    return nullptr;
}

// `values` in the layout of the truth; only for tensors whose layout in files is the canonical one.
void store(Tensor& tensor, const std::vector<double>& values) {
    const Tensor changed = from_f64(values, tensor.shape, tensor.dtype);
    tensor = changed;
}

}  // namespace

TEST_CASE("gpu: honest kernels of other libraries are OK under the contract of their name") {
    struct Honest {
        const char *name, *kernel, *contract;
    };
    for (const Honest& h :
         {Honest{"T65", "fla_chunk", "fla"}, Honest{"strong", "fla_chunk", "fla"}, Honest{"raw", "fla_chunk", "fla"},
          Honest{"cos91", "fla_chunk", "fla"}, Honest{"cos91", "fla_rec", "fla-recurrent"},
          Honest{"fi_cos91.vk", "fi", "flashinfer"}, Honest{"decode_f32.vk", "sgl", "sglang"}}) {
        CAPTURE(h.name);
        const GpuDump dump = gpu_dump(h.name, h.kernel, h.contract);
        CHECK(judged_plainly(dump.reference, dump.outputs).verdict == Verdict::ok);
    }
}

TEST_CASE("gpu: the gradient of a miscompiled 16-bit kernel is WRONG and its forward pass right") {
    for (const char* name : {"M", "dk40_dv24"}) {
        CAPTURE(name);
        const GpuDump dump = gpu_dump(name, "fla_chunk", "fla");
        const GdnReport report = judged(dump.reference, dump.outputs);
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.backward_fault);
        CHECK(verdict_of(report, "dv") == Verdict::wrong);
        CHECK(verdict_of(report, "out") == Verdict::ok);
    }
}

TEST_CASE("gpu: a changed gradient of a 16-bit kernel is never OK where the change is well above its own error") {
    for (const std::string name : {"T65", "strong", "raw", "cos91"}) {
        const GpuDump dump = gpu_dump(name, "fla_chunk", "fla");
        for (const GradientTruth& t : dump.reference.backward->truths) {
            CAPTURE(name);
            CAPTURE(t.canonical);
            TensorFile outputs = dump.outputs;
            Tensor* tensor = stored(outputs, t.canonical, dump.reference.contract.value);
            if (tensor == nullptr) continue;
            const std::vector<double> honest = to_f64(*tensor);
            const double own = rms_difference(honest, t.want);
            for (const double factor : {0.0, -1.0, 0.5}) {
                CAPTURE(factor);
                std::vector<double> changed = honest;
                for (double& x : changed) x *= factor;
                const double times = rms_difference(changed, honest) / own;
                store(*tensor, changed);
                const Verdict verdict = verdict_of(judged_plainly(dump.reference, outputs), t.canonical);
                if (times >= 60) CHECK(verdict == Verdict::wrong);
                if (times >= 15) CHECK(verdict != Verdict::ok);
            }
        }
    }
}

TEST_CASE("gpu: ten per cent in 16 tokens of one head are not OK") {
    const GpuDump dump = gpu_dump("T65", "fla_chunk", "fla");
    for (const GradientTruth& t : dump.reference.backward->truths) {
        if (!has_tokens(t)) continue;
        CAPTURE(t.canonical);
        TensorFile outputs = dump.outputs;
        Tensor* tensor = stored(outputs, t.canonical, dump.reference.contract.value);
        REQUIRE(tensor != nullptr);
        const std::vector<double> honest = to_f64(*tensor);
        const std::size_t heads = t.groups.of_run.size() / 65;
        const std::size_t width = t.groups.width;
        const double size = rms_difference(std::vector<double>(honest.size(), 0), honest);
        std::size_t blocks = 0;
        for (std::size_t block = 0; block < 4 * heads; ++block) {
            std::vector<double> changed = honest;
            double squares = 0;
            for (std::size_t token = block / heads * 16; token < block / heads * 16 + 16; ++token) {
                const std::size_t at = (token * heads + block % heads) * width;
                for (std::size_t i = at; i < at + width; ++i) {
                    squares += honest[i] * honest[i];
                    changed[i] *= 1.1;
                }
            }
            if (std::sqrt(squares / static_cast<double>(16 * width)) < size / 2) continue;
            ++blocks;
            store(*tensor, changed);
            CHECK(verdict_of(judged_plainly(dump.reference, outputs), t.canonical) != Verdict::ok);
        }
        CHECK(blocks > 0);
    }
}
