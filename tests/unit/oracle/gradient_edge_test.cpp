// Gradients where the truth is not finite, where most of it cancels, and mistakes at the l2norm and outside sequences.
#include <cmath>
#include <functional>
#include <limits>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

// Inputs with cotangents, and a dump of a forward pass and of gradients.
struct EdgeDump {
    TensorFile inputs, dump;

    GdnReport judged() const {
        GdnReference r = reference_for(inputs);
        const auto added = add_backward(r, inputs, dump, 2);
        REQUIRE_MESSAGE(added, (added ? std::string() : added.error().message));
        return gdnctl::oracle::testing::judged(r, dump);
    }
    void change(std::string_view name, const std::function<void(std::vector<double>&)>& how) {
        for (TensorFile* file : {&inputs, &dump}) {
            for (NamedTensor& t : file->tensors) {
                if (t.name != name) continue;
                std::vector<double> values = to_f64(t.tensor);
                how(values);
                t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
            }
        }
    }
    std::vector<double> values(std::string_view name) const {
        const Tensor* tensor = inputs.find(name);
        REQUIRE(tensor != nullptr);
        return to_f64(*tensor);
    }
};

EdgeDump edge_dump(TensorFile inputs, bool exact) {
    EdgeDump d{std::move(inputs), {}};
    const GdnReference r = reference_for(d.inputs);
    const GdnContract& c = r.contract.value;
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    for (NamedTensor& t : cotangents_file(r.problem, c, cotangents).tensors) d.inputs.tensors.push_back(t);
    d.dump = outputs_of(r, exact ? r.truth : run_chunk32(r.problem, c, {}, 2));
    const auto g = exact ? run_adjoint64(r.problem, c, cotangents, 2) : run_backward32(r.problem, c, cotangents, 2);
    for (NamedTensor& t : gradients_file(r.problem, c, g, DType::f32, DType::f32).tensors) d.dump.tensors.push_back(t);
    return d;
}

EdgeDump edge_dump(const GdnDims& dims, std::vector<std::int64_t> cu_seqlens = {}) {
    GdnCase c;
    c.dims = dims;
    c.cu_seqlens = std::move(cu_seqlens);
    c.contract = {"head_map=interleaved"};
    return edge_dump(make_inputs(c), true);
}

constexpr double k_not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("gradient edge: where the exact gradients are not finite no gradient is OK") {
    for (const double bad : {k_not_a_number, static_cast<double>(INFINITY)}) {
        EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
        d.change("d_out", [&](std::vector<double>& x) { x[100] = bad; });
        for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "d_initial_state"}) {
            d.change(name, [](std::vector<double>& x) { std::fill(x.begin(), x.end(), 12345); });
        }
        const GdnReport report = d.judged();
        CHECK(report.verdict == Verdict::unstable_input);
        CHECK(report.reason.find("are not finite") != std::string::npos);
    }
}

TEST_CASE("gradient edge: NaN is where it is, and no sum with weights of NaN") {
    EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
    d.change("dq", [](std::vector<double>& x) { x[(10 * 2 + 1) * 16 + 3] = k_not_a_number; });
    const GdnReport report = d.judged();
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "dq");
    REQUIRE(report.place);
    CHECK(report.place->first_token == 10);
    for (const char* name : {"dk", "dv", "dg", "dbeta"}) {
        d.change(name, [](std::vector<double>& x) { std::fill(x.begin(), x.end(), k_not_a_number); });
    }
    const GdnReport all = d.judged();
    CHECK(all.stage == "bwd_shared");
    REQUIRE(all.hints.size() == 1);
    CHECK(all.hints.front().text.find("no known mistake") != std::string::npos);
}

TEST_CASE("gradient edge: honest fp32 gradients where the l2norm takes nearly all away are OK") {
    for (const std::int64_t dk : {1, 16}) {
        GdnCase c;
        c.dims = {1, 10, 1, 1, dk, 4};
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            c.seed = seed;
            TensorFile inputs = make_inputs(c);
            for (NamedTensor& t : inputs.tensors) {
                if (dk == 1 || (t.name != "q" && t.name != "k")) continue;
                std::vector<double> axis(t.tensor.count(), 0);
                for (std::size_t i = 0; i < axis.size(); i += static_cast<std::size_t>(dk)) axis[i] = 1;
                t.tensor = from_f64(axis, t.tensor.shape, t.tensor.dtype);
            }
            const EdgeDump d = edge_dump(std::move(inputs), false);
            INFO("dk " << dk << " seed " << seed);
            CHECK(d.judged().verdict == Verdict::ok);
        }
    }
}

TEST_CASE("gradient edge: the l2norm's factor missing, or too often, is the l2norm's gradient") {
    const std::pair<double, const char*> mistakes[] = {
        {-1, "lacks the l2norm's factor"}, {1, "twice"}, {2, "three times"}};
    for (const auto& [power, words] : mistakes) {
        for (const char* name : {"dq", "dk"}) {
            EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
            const std::vector<double> x = d.values(name + 1);
            d.change(name, [&, p = power](std::vector<double>& gradient) {
                for (std::size_t at = 0; at < x.size(); at += 16) {
                    double squares = 1e-6;
                    for (std::size_t i = at; i < at + 16; ++i) squares += x[i] * x[i];
                    for (std::size_t i = at; i < at + 16; ++i) gradient[i] *= std::pow(squares, -p / 2);
                }
            });
            const GdnReport report = d.judged();
            INFO(name << ' ' << words);
            CHECK(report.stage == "l2norm_grad");
            REQUIRE_FALSE(report.hints.empty());
            CHECK(report.hints.front().text.find(words) != std::string::npos);
        }
    }
}

TEST_CASE("gradient edge: rows outside every sequence, and gradients without a place, have a stage") {
    EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8}, {0, 9, 15});
    CHECK(d.judged().verdict == Verdict::ok);
    d.change("dv", [](std::vector<double>& x) { x[17 * 4 * 8] = 7; });
    const GdnReport outside = d.judged();
    CHECK(outside.verdict == Verdict::wrong);
    CHECK(outside.stage == "padding");
    CHECK(outside.hints.front().text == "rows outside every sequence are written in dv");

    EdgeDump gates = edge_dump(make_inputs(*find_gdn_case("raw_gates")), true);
    gates.change("d_A_log", [](std::vector<double>& x) { x[0] = -2 * x[0] - 1; });
    const GdnReport report = gates.judged();
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "dg");
}
