// Honest results must be judged OK: recorded vectors of the real implementations, and our own kernels on every case.
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("honest: every recorded output of levanter and transformers is OK") {
    std::size_t files = 0;
    for (const std::string& name : recorded_names()) {
        const GdnReference r = reference_for(load_safetensors(vectors() / (name + ".inputs.safetensors")));
        for (const auto& path : recorded_outputs(name)) {
            CAPTURE(path.filename().string());
            const GdnReport report = judged(r, load_safetensors(path));
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
            REQUIRE(report.tensors.size() == 2);
            CHECK(report.unknown.empty());
            ++files;
        }
    }
    CHECK(files == 74);
}

TEST_CASE("honest: our kernels are judged as expected on every generated case") {
    for (const GdnCase& c : gdn_cases()) {
        CAPTURE(c.name);
        const GdnReference r = reference_for(make_inputs(c));
        CAPTURE(r.unstable_reason);
        for (const std::string& kernel : builtin_kernel_names()) {
            CAPTURE(kernel);
            const auto under_test = find_builtin_kernel("builtin:" + kernel);
            REQUIRE(under_test);
            const auto run = run_pass(**under_test, KernelPass::forward, make_inputs(c), r.contract, 2);
            REQUIRE(run);
            const GdnReport report = judged(r, run->outputs);
            CAPTURE(report.reason);
            CHECK(report.verdict == c.expected);
        }
    }
}
