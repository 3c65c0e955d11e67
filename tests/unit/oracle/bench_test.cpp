#include "oracle/gdn/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <doctest/doctest.h>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/decode32.h"
#include "oracle/gdn/kernels/kernels.h"

using namespace gdnctl::oracle;

TEST_CASE("bench: the nominal work is that of the chunked form with C = 32, whatever runs") {
    CHECK(nominal_forward_flop({1, 4096, 4, 8, 128, 128}) == doctest::Approx(3.89e9).epsilon(0.002));
    CHECK(nominal_forward_flop({1, 4096, 4, 8, 64, 64}) == doctest::Approx(1.14e9).epsilon(0.005));
    CHECK(nominal_forward_flop({2, 1, 1, 1, 1, 1}) == 2 * (6 + 128 + 96));
    CHECK(nominal_backward_flop({1, 4096, 4, 8, 128, 128}) == doctest::Approx(9.93e9).epsilon(0.001));
    CHECK(nominal_decode_bytes({1, 1, 4, 8, 128, 128}) == 1 << 20);
}

TEST_CASE("bench: the least work is below the nominal one, and counts the tokens that there are") {
    const GdnDims d{2, 512, 2, 4, 64, 32};
    CHECK(least_flop(d, 1, Pass::forward, true) == 6 * 4 * 64 * 32);
    CHECK(least_flop(d, 100, Pass::decode, true) == 100 * least_flop(d, 1, Pass::forward, true));
    CHECK(least_flop(d, 1, Pass::forward, false) == 2 * 4 * 64 * 32);
    CHECK(least_flop(d, 1, Pass::backward, true) == 12 * 4 * 64 * 32);
    CHECK(least_flop(d, 1024, Pass::forward, true) < nominal_forward_flop(d));
    CHECK(least_flop(d, 1024, Pass::backward, true) < nominal_backward_flop(d));
    CHECK(least_flop(d, 1024, Pass::decode, true) < nominal_decode_flop(d));
}

TEST_CASE("bench: multiply-adds are counted per thread") {
    for (const Isa isa : available_isas()) {
        const double one = run_multiply_adds(1000, 1, isa);
        CHECK(one > 0);
        CHECK(run_multiply_adds(1000, 3, isa) == 3 * one);
    }
}

TEST_CASE("bench: poisoned outputs are wrong, computed ones are OK and change the checksum, fp32 and bf16") {
    Storage storage = Storage::f32;
    SUBCASE("fp32") { storage = Storage::f32; }
    SUBCASE("bf16") { storage = Storage::bf16; }
    auto inputs = BenchInputs::make({2, 40, 1, 2, 8, 8}, 3, storage);
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

TEST_CASE("bench: a decode step is shared only where its states outlast that") {
    const GdnDims d{1, 1, 4, 8, 128, 128};                   // 512 KB of states a sequence
    CHECK(decode_threads({1, 1, 4, 8, 64, 64}, 1, 2) == 1);  // 128 KB
    CHECK(decode_threads({1, 1, 4, 8, 64, 64}, 2, 2) == 2);
    CHECK(decode_threads(d, 1, 2) == 2);
    CHECK(decode_threads(d, 1, 8) == 3);
    CHECK(decode_threads(d, 64, 1) == 1);
    CHECK(decode_threads(d, 64, 0) == 1);
    CHECK(decode_threads(d, 64, 8) == 8);
    CHECK(decode_threads({1, 1, 1, 64, 256, 256}, 1, 8) == 1);  // one key head cannot be split
    CHECK(decode_threads(d, 0, 8) == 1);
}

TEST_CASE("bench: order statistics") {
    CHECK(spread_of({3}).median == 3);
    CHECK(spread_of({4, 1, 2, 9}).median == 3);
    CHECK(spread_of({5, 1, 9}).max == 9);
}

TEST_CASE("bench: gradients of no tokens have no error") {
    auto inputs = BenchInputs::make({1, 0, 1, 1, 8, 8}, 3);
    REQUIRE(inputs);
    const auto kernel = find_timed_kernel("builtin:backward");
    REQUIRE(kernel);
    kernel->run(*inputs, 2, best_isa());
    CHECK(*inputs->gradient_error(1) < 4);
}

TEST_CASE("bench: fresh inputs are others each time, and our kernels' results are near those of the truth alone") {
    for (const Storage storage : {Storage::f32, Storage::bf16}) {
        auto inputs = BenchInputs::make({2, 33, 2, 4, 16, 8}, 1, storage);
        REQUIRE(inputs);
        for (const std::uint64_t seed : {7U, 8U}) {
            const TensorFile before = inputs->with_cotangents();
            REQUIRE(inputs->draw(seed));
            const TensorFile now = inputs->with_cotangents();
            REQUIRE(now.tensors.size() == 8);
            for (std::size_t i = 0; i < now.tensors.size(); ++i) {
                CAPTURE(now.tensors[i].name);
                CHECK(now.tensors[i].tensor.dtype == before.tensors[i].tensor.dtype);
                const auto a = to_f64(before.tensors[i].tensor);
                const auto b = to_f64(now.tensors[i].tensor);
                std::size_t same = 0;
                for (std::size_t j = 0; j < a.size(); ++j) same += std::fabs(a[j]) == std::fabs(b[j]) ? 1 : 0;
                CHECK(same * 4 < a.size());
            }
            const auto reference = inputs->reference(1);
            REQUIRE(reference);
            // The truth, stored as it is compared.
            const GdnContract& c = reference->contract.value;
            TensorFile exact = outputs_file(reference->problem, c, run_recurrent64(reference->problem, c, 1),
                                            storage == Storage::bf16 ? DType::bf16 : DType::f32, DType::f32);
            CHECK(inputs->distance(exact, Pass::forward, 1) <= 1);
            auto cotangents = read_cotangents(now, reference->problem, c);
            REQUIRE(cotangents);
            REQUIRE(*cotangents);
            TensorFile gradients = gradients_file(
                reference->problem, c, run_adjoint64(reference->problem, c, **cotangents, 1), DType::f32, DType::f32);
            CHECK(inputs->distance(gradients, Pass::backward, 1) <= 1);
            for (auto* file : {&exact, &gradients}) {
                for (NamedTensor& entry : file->tensors) {
                    const TensorFile right = *file;
                    auto values = to_f64(entry.tensor);
                    double sum = 0;
                    for (const double x : values) sum += x * x;
                    const double rms = std::sqrt(sum / static_cast<double>(values.size()));
                    // In fp32, what the judge no longer allows a single value.
                    double& changed = values[values.size() / 2];
                    changed += storage == Storage::bf16 ? 0.5 : 3e-5 * std::max(rms, std::fabs(changed));
                    entry.tensor = from_f64(values, entry.tensor.shape, entry.tensor.dtype);
                    CAPTURE(entry.name);
                    CHECK(inputs->distance(*file, file == &exact ? Pass::forward : Pass::backward, 1) > 1);
                    entry.tensor = *right.find(entry.name);
                }
            }
            exact.tensors.pop_back();
            CHECK_FALSE(inputs->distance(exact, Pass::decode, 1) <= 1);
        }
    }
}
