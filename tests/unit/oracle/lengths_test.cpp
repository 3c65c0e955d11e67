// `lengths` and `offsets`: batch rows that end before T. The tokens after the end are no-ops and their outputs are 0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnCase padded_case() {
    GdnCase c;
    c.name = "padded";
    c.dims = {2, 50, 2, 4, 16, 8};
    c.seed = 21;
    c.state_scale = 0.2;
    c.contract = {"head_map=interleaved", "chunk=16"};
    return c;
}

TensorFile with_sequences(std::string name, const std::vector<std::int64_t>& values, Shape shape) {
    TensorFile inputs = make_inputs(padded_case());
    inputs.tensors.push_back({std::move(name), from_i64(values, std::move(shape))});
    return inputs;
}

std::string error_of(const TensorFile& inputs) {
    auto contract = resolve_contract("marin", inputs.metadata, {});
    REQUIRE(contract);
    const auto problem = read_problem(inputs, *contract);
    return problem ? std::string() : problem.error().message;
}

// Results and gradients of one head against those of the case with that length for all heads of the row.
void check_lane_alone(const GdnReference& r, const GdnCase& c, std::size_t lane, std::int64_t length) {
    const auto Hv = static_cast<std::size_t>(c.dims.Hv);
    const std::size_t n = lane / Hv;
    const std::size_t h = lane % Hv;
    TensorFile alone = make_inputs(c);
    std::vector<std::int64_t> rows = {30, 30};
    rows[n] = length;
    alone.tensors.push_back({"lengths", from_i64(rows, {2})});
    const GdnReference one = reference_for(alone);
    const GdnCotangents cotangents = random_cotangents(r.problem, 5);
    const GdnGradients got = run_adjoint64(r.problem, r.contract.value, cotangents, 1);
    const GdnGradients want = run_adjoint64(one.problem, one.contract.value, cotangents, 1);
    const auto same = [](const std::vector<double>& x, const std::vector<double>& y, std::size_t at, std::size_t size) {
        for (std::size_t i = at * size; i < (at + 1) * size; ++i) {
            REQUIRE(x[i] == doctest::Approx(y[i]).epsilon(1e-11));
        }
    };
    same(r.truth.final_state, one.truth.final_state, lane, 16UL * 8);
    for (std::size_t row = n * 30; row < n * 30 + 30; ++row) {
        const std::size_t key = row * 2 + h / (Hv / 2);
        same(r.truth.out, one.truth.out, row * Hv + h, 8);
        same(got.d_gate, want.d_gate, row * Hv + h, 1);
        same(got.dbeta, want.dbeta, row * Hv + h, 1);
        same(got.dq, want.dq, key, 16);
        same(got.dk, want.dk, key, 16);
        same(got.dv, want.dv, row * Hv + h, 8);
    }
}

}  // namespace

TEST_CASE("lengths: given by row, by head, flat, or as prefix sums, they are the same sequences") {
    const std::vector<TensorFile> all = {
        with_sequences("lengths", {50, 23}, {2}),
        with_sequences("lengths", {50, 50, 50, 50, 23, 23, 23, 23}, {2, 4}),
        with_sequences("lengths", {50, 50, 50, 50, 23, 23, 23, 23}, {8}),
        with_sequences("offsets", {50, 50, 50, 50, 23, 23, 23, 23}, {8}),
        with_sequences("offsets", {0, 50, 100, 150, 200, 223, 246, 269, 292}, {9}),
        with_sequences("offsets", {0, 50, 73}, {3}),
    };
    const GdnReference first = reference_for(all[0]);
    REQUIRE(first.problem.sequences.size() == 2);
    CHECK(first.problem.sequences[1].begin == 50);
    CHECK(first.problem.sequences[1].end == 73);
    for (const TensorFile& inputs : all) {
        const GdnReference r = reference_for(inputs);
        CHECK(r.truth.out == first.truth.out);
        CHECK(r.truth.final_state == first.truth.final_state);
    }
    for (std::size_t i = (50 + 23) * 4UL * 8; i < first.truth.out.size(); ++i) CHECK(first.truth.out[i] == 0);
}

TEST_CASE("lengths: the truth is that of zeroed tokens") {
    const GdnReference r = reference_for(with_sequences("lengths", {50, 23}, {2}));
    GdnProblem zeroed = r.problem;
    zeroed.sequences[1].end = 100;
    for (std::size_t row = 73; row < 100; ++row) {
        for (std::size_t h = 0; h < 4; ++h) zeroed.gate[row * 4 + h] = zeroed.beta[row * 4 + h] = 0;
    }
    const GdnOutputs x = run_recurrent64(zeroed, r.contract.value, 1);
    CHECK(x.final_state == r.truth.final_state);
}

TEST_CASE("lengths: what cannot be meant is refused") {
    CHECK(error_of(with_sequences("lengths", {50, 51}, {2})) ==
          "tensor 'lengths': length 51 of batch row 1 is not within the 50 tokens");
    CHECK(error_of(with_sequences("lengths", {1, 2, 3}, {3})).find("expected [B,Hv], [B*Hv] or [B]") !=
          std::string::npos);
    constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
    for (const std::vector<std::int64_t>& offsets :
         {std::vector<std::int64_t>{0, 50, 23}, {-1, 50, 73}, {std::numeric_limits<std::int64_t>::min(), 0, k_most}}) {
        CHECK(error_of(with_sequences("offsets", offsets, {3})) ==
              "tensor 'offsets': prefix sums must rise, from 0 or more");
    }
    CHECK(error_of(with_sequences("offsets", {0, 50, k_most}, {3})).find("is not within the 50 tokens") !=
          std::string::npos);
    TensorFile both = with_sequences("lengths", {50, 23}, {2});
    both.tensors.push_back({"offsets", from_i64(std::vector<std::int64_t>{0, 50, 73}, {3})});
    CHECK(error_of(both) == "tensor 'offsets': the sequences are given twice");
}

TEST_CASE("lengths: of each head are zeros written out, in every form, for results and gradients") {
    for (const std::vector<std::string>& sets :
         {std::vector<std::string>{}, {"head_map=interleaved", "g_kind=raw", "beta_kind=logit"}, {"g_kind=alpha"}}) {
        CAPTURE(sets.size());
        GdnCase c = padded_case();
        c.dims = {2, 30, 2, sets.size() == 3 ? 4 : 2, 16, 8};
        c.contract = sets;
        if (sets.size() == 3) c.gate = GateRecipe::raw;
        c.contract.emplace_back("chunk=16");
        const bool grouped = c.dims.Hv == 4;
        const std::vector<std::int64_t> lengths =
            grouped ? std::vector<std::int64_t>{30, 30, 20, 20, 7, 7, 0, 0} : std::vector<std::int64_t>{30, 20, 7, 0};
        const auto count = static_cast<std::int64_t>(lengths.size());
        std::vector<std::int64_t> sums = {0};
        for (const std::int64_t x : lengths) sums.push_back(sums.back() + x);
        TensorFile inputs = make_inputs(c);
        inputs.tensors.push_back({"lengths", from_i64(lengths, {2, count / 2})});
        const GdnReference r = reference_for(inputs);
        REQUIRE(r.unstable_reason.empty());
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);

        for (std::size_t lane = 0; lane < lengths.size(); ++lane) check_lane_alone(r, c, lane, lengths[lane]);
        for (const auto& [name, values] : {std::pair{"lengths", &lengths}, {"offsets", &lengths}, {"offsets", &sums}}) {
            TensorFile same = make_inputs(c);
            same.tensors.push_back({name, from_i64(*values, {static_cast<std::int64_t>(values->size())})});
            const GdnReference other = reference_for(same);
            CHECK(other.truth.out == r.truth.out);
            CHECK(other.truth.final_state == r.truth.final_state);
        }
    }
}

TEST_CASE("lengths: value heads of one key head that end apart are judged as with keys of their own") {
    for (const char* map : {"head_map=interleaved", "head_map=tiled"}) {
        CAPTURE(map);
        GdnCase c = padded_case();
        c.contract = {map, "chunk=16"};
        const std::vector<std::int64_t> lengths = {50, 50, 50, 50, 23, 7, 0, 23};
        const TensorFile inputs = [&] {
            TensorFile file = make_inputs(c);
            file.tensors.push_back({"lengths", from_i64(lengths, {2, 4})});
            return file;
        }();
        const GdnReference r = reference_for(inputs);
        CHECK(r.problem.dims.Hk == 4);
        CHECK(r.problem.repeated_keys);
        // The same with q and k written out.
        TensorFile repeated = inputs;
        for (NamedTensor& entry : repeated.tensors) {
            if (entry.name != "q" && entry.name != "k") continue;
            const auto values = to_f64(entry.tensor);
            std::vector<double> all;
            for (std::size_t row = 0; row < 100; ++row) {
                for (std::size_t h = 0; h < 4; ++h) {
                    const std::size_t key = std::string(map) == "head_map=tiled" ? h % 2 : h / 2;
                    for (std::size_t i = 0; i < 16; ++i) all.push_back(values[(row * 2 + key) * 16 + i]);
                }
            }
            entry.tensor = from_f64(all, {2, 50, 4, 16}, entry.tensor.dtype);
        }
        const GdnReference written = reference_for(repeated);
        CHECK_FALSE(written.problem.repeated_keys);
        CHECK(r.truth.out == written.truth.out);
        CHECK(r.truth.final_state == written.truth.final_state);
        for (std::size_t i = (50 + 7) * 4UL * 8 + 8; i < r.truth.out.size(); i += 4UL * 8) CHECK(r.truth.out[i] == 0);
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
        // Nothing masked is wrong.
        GdnOutputs ignored = reference_for(make_inputs(c)).truth;
        CHECK(judged(r, outputs_of(r, ignored)).verdict == Verdict::wrong);
        // Gradients of a key head belong to several value heads.
        GdnReference with = r;
        TensorFile gradients = outputs_of(r, r.truth);
        gradients.tensors.push_back({"dq", from_f64(std::vector<double>(3200), {2, 50, 2, 16}, DType::f32)});
        const auto refused = add_backward(with, inputs, gradients, 1);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().message ==
              "value heads that share a key head have different lengths: results are judged, gradients are not");
        CHECK_FALSE(read_cotangents(inputs, r.problem, r.contract.value));
        CHECK(read_cotangents(repeated, written.problem, written.contract.value));
    }
}

TEST_CASE("hint: masked tokens that still decay the state, and lengths that are ignored") {
    const GdnReference r = reference_for(with_sequences("lengths", {50, 23}, {2}));
    GdnOutputs decayed = r.truth;
    for (std::size_t h = 0; h < 4; ++h) {
        double sum = 0;
        for (std::size_t row = 73; row < 100; ++row) sum += r.problem.gate[row * 4 + h];
        for (std::size_t i = (4 + h) * 128; i < (5 + h) * 128; ++i) decayed.final_state[i] *= std::exp(sum);
    }
    const GdnReport report = judged(r, outputs_of(r, decayed));
    CHECK(report.stage == "padding");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints[0].text == "matches if masked tokens still decay the state");
    GdnProblem all = r.problem;
    all.sequences[1].end = 100;
    GdnOutputs ignored = r.truth;
    ignored.final_state = run_recurrent64(all, r.contract.value, 1).final_state;
    const GdnReport other = judged(r, outputs_of(r, ignored));
    CHECK(other.stage == "padding");
    REQUIRE_FALSE(other.hints.empty());
    CHECK(other.hints[0].text == "matches if tokens beyond the given lengths are not masked at all");
}

TEST_CASE("lengths: sizes may have any integer dtype") {
    for (const DType dtype :
         {DType::i64, DType::i32, DType::i16, DType::i8, DType::u64, DType::u32, DType::u16, DType::u8}) {
        CAPTURE(name_of(dtype));
        TensorFile inputs = make_inputs(padded_case());
        inputs.tensors.push_back({"lengths", from_f64(std::vector<double>{30, 17}, {2}, dtype)});
        auto contract = resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const auto problem = read_problem(inputs, *contract);
        REQUIRE(problem);
        CHECK(problem->sequences[0].end == 30);
        CHECK(problem->sequences[1].end == 67);
    }
    for (const DType dtype : {DType::f32, DType::boolean}) {
        TensorFile inputs = make_inputs(padded_case());
        inputs.tensors.push_back({"lengths", from_f64(std::vector<double>{1, 1}, {2}, dtype)});
        CHECK(error_of(inputs).find("tensor 'lengths': expected [B,Hv], [B*Hv] or [B] of an integer dtype") == 0);
    }
}

TEST_CASE("lengths: a size beyond int64 is refused with its value") {
    TensorFile inputs = make_inputs(padded_case());
    Tensor lengths = from_f64(std::vector<double>{3, 0}, {2}, DType::u64);
    std::fill(lengths.bytes.begin() + 8, lengths.bytes.end(), std::uint8_t{0xFF});
    inputs.tensors.push_back({"lengths", lengths});
    CHECK(error_of(inputs) == "tensor 'lengths': element 1 is 18446744073709551615, beyond the range of int64");
}

TEST_CASE("lengths: a tensor of an unreadable dtype is refused only where it is asked for") {
    TensorFile inputs = make_inputs(padded_case());
    inputs.unread = {{"scales", "F8_E8M0"}, {"out", "F4"}, {"b", "<U5"}};
    CHECK(error_of(inputs).empty());
    inputs.unread = {{"lengths", "F8_E4M3"}};
    CHECK(error_of(inputs) == "tensor 'lengths': gdnctl cannot read dtype F8_E4M3");
}
