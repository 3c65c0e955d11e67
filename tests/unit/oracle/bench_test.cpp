#include <cmath>

#include <doctest/doctest.h>

#include "gdnctl/oracle/gdn_bench.h"

using namespace gdnctl::oracle;

TEST_CASE("bench: the nominal work is that of the chunked form with C = 32, whatever runs") {
    CHECK(nominal_forward_flop({1, 4096, 4, 8, 128, 128}) == doctest::Approx(3.89e9).epsilon(0.002));
    CHECK(nominal_forward_flop({1, 4096, 4, 8, 64, 64}) == doctest::Approx(1.14e9).epsilon(0.005));
    CHECK(nominal_forward_flop({2, 1, 1, 1, 1, 1}) == 2 * (6 + 128 + 96));
    CHECK(nominal_backward_flop({1, 4096, 4, 8, 128, 128}) == doctest::Approx(9.93e9).epsilon(0.001));
    CHECK(nominal_decode_bytes({1, 1, 4, 8, 128, 128}) == 1 << 20);
}

TEST_CASE("bench: multiply-adds are counted per thread") {
    for (const Isa isa : available_isas()) {
        const double one = run_multiply_adds(1000, 1, isa);
        CHECK(one > 0);
        CHECK(run_multiply_adds(1000, 3, isa) == 3 * one);
    }
}

TEST_CASE("bench: poisoned outputs are wrong, computed ones are OK and change the checksum") {
    auto inputs = BenchInputs::make({2, 40, 1, 2, 8, 8}, 3);
    REQUIRE(inputs);
    const auto reference = inputs->reference(1);
    REQUIRE(reference);
    for (const std::string& name : timed_kernel_names()) {
        CAPTURE(name);
        const TimedKernel kernel = *find_timed_kernel(name);
        kernel.run(*inputs, 2, best_isa());
        inputs->poison_outputs();
        const auto before = inputs->outputs_checksum() ^ inputs->gradients_checksum();
        CHECK(judge(*reference, inputs->outputs(*reference), {})->verdict == Verdict::wrong);
        if (kernel.pass == Pass::backward) CHECK(!(*inputs->gradient_error(1) < 1e6));
        kernel.run(*inputs, 2, best_isa());
        CHECK((inputs->outputs_checksum() ^ inputs->gradients_checksum()) != before);
        if (kernel.pass == Pass::backward) {
            CHECK(*inputs->gradient_error(1) < 4);
        } else {
            CHECK(judge(*reference, inputs->outputs(*reference), {})->verdict == Verdict::ok);
        }
    }
    CHECK(!find_timed_kernel("builtin:recurrent64"));
}

TEST_CASE("bench: the floor of decoding flips the sign of every state once a token") {
    auto inputs = BenchInputs::make({2, 3, 1, 2, 8, 8}, 3);
    REQUIRE(inputs);
    for (const Isa isa : available_isas()) inputs->scale_states(2, isa);
}

TEST_CASE("bench: order statistics") {
    CHECK(spread_of({3}).median == 3);
    CHECK(spread_of({4, 1, 2, 9}).median == 3);
    CHECK(spread_of({5, 1, 9}).max == 9);
}
