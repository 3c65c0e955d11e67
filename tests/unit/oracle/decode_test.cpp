// Decoding token by token, or a few at a time, against the recurrence over the whole sequence.
#include <algorithm>

#include "oracle/gdn/kernels/decode32.h"
#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

enum class How { in_place, out_of_place };

struct Arrays {
    GdnReference reference;
    std::vector<float> q, k, v, g, beta, state, out, final_state;
    Forward32 f;

    explicit Arrays(const GdnCase& c) : reference(reference_for(make_inputs(c))) {
        const auto narrow = [](const std::vector<double>& from) {
            return std::vector<float>(from.begin(), from.end());
        };
        const GdnProblem& p = reference.problem;
        q = narrow(p.q);
        k = narrow(p.k);
        v = narrow(p.v);
        g = narrow(p.gate);
        beta = narrow(p.beta);
        state = narrow(p.initial_state);
        state.resize(p.sequences.size() * static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv));
        final_state.resize(state.size());
        out.resize(v.size());
        const GdnContract& contract = reference.contract.value;
        f.dims = p.dims;
        f.head_map = contract.head_map;
        f.q = q.data();
        f.k = k.data();
        f.v = v.data();
        f.g = g.data();
        f.beta = beta.data();
        f.out = out.data();
        f.scale = contract.scale ? static_cast<float>(*contract.scale) : 1 / std::sqrt(static_cast<float>(p.dims.dk));
        if (contract.l2norm != L2Norm::off) f.l2norm_eps = static_cast<float>(contract.eps);
    }

    // All tokens, lengths[i % size] of each sequence in step i.
    GdnOutputs decode(How how, const std::vector<std::int64_t>& lengths, int threads, Isa isa) {
        const std::vector<GdnSequence>& all = reference.problem.sequences;
        std::vector<GdnSequence> step(all.size());
        std::vector<std::int64_t> at(all.size());
        for (std::size_t n = 0; n < all.size(); ++n) at[n] = all[n].begin;
        final_state = state;
        std::vector<float> other = state;
        for (std::size_t i = 0;; ++i) {
            if (std::equal(all.begin(), all.end(), at.begin(),
                           [](const GdnSequence& s, std::int64_t token) { return s.end == token; })) {
                break;
            }
            for (std::size_t n = 0; n < all.size(); ++n) {
                const std::int64_t end = std::min(all[n].end, at[n] + lengths[i % lengths.size()]);
                step[n] = {at[n], end};
                at[n] = end;
            }
            f.sequences = step;
            f.initial_state = final_state.data();
            f.final_state = how == How::out_of_place ? other.data() : final_state.data();
            decode_step(f, threads, isa);
            if (how == How::out_of_place) std::swap(final_state, other);
        }
        return {{out.begin(), out.end()}, {final_state.begin(), final_state.end()}, 0};
    }
};

GdnCase plain(std::string_view name) {
    GdnCase c = *find_gdn_case(name);
    return c;
}

}  // namespace

TEST_CASE("decode: judged OK on the numerics and edges, one token a step and several, every instruction set") {
    std::vector<GdnCase> cases;
    for (const char* name : {"random_normed", "keys_cos91", "keys_identical", "gate_1e4", "gate_1e30", "gate_inf",
                             "gates_minus_30", "beta_corners", "odd_dims", "gva_4", "gva_tiled", "varlen",
                             "varlen_empty_passthrough", "tail_1_C16", "values_1e18", "gates_positive"}) {
        cases.push_back(plain(name));
    }
    cases.push_back(plain("gva_2"));
    cases.back().name = "gates of both signs";
    cases.back().gate = GateRecipe::both_signs;
    for (const GdnDims& dims : {GdnDims{2, 19, 2, 4, 24, 72}, {3, 11, 1, 3, 5, 33}, {1, 9, 1, 1, 130, 31}}) {
        GdnCase c = plain("gva_2");
        c.name = "uneven";
        c.dims = dims;
        cases.push_back(c);
    }
    for (const GdnCase& c : cases) {
        CAPTURE(c.name);
        Arrays a(c);
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            for (const std::vector<std::int64_t>& lengths :
                 {std::vector<std::int64_t>{1}, {2}, {8}, {3, 1, 1, 7, 4}, {0, 5}}) {
                CAPTURE(lengths.size());
                CAPTURE(lengths.front());
                const GdnReport report =
                    judged(a.reference, outputs_of(a.reference, a.decode(How::in_place, lengths, 2, isa)));
                CAPTURE(report.reason);
                CHECK(report.verdict == c.expected);
            }
        }
    }
}

TEST_CASE("decode: in place and out of place give the same bits, as does every number of threads") {
    std::vector<GdnCase> cases;
    for (const char* name : {"odd_dims", "gva_4", "varlen", "d128"}) {
        GdnCase c = plain(name);
        if (c.cu_seqlens.empty()) c.dims.T = std::min<std::int64_t>(c.dims.T, 21);
        cases.push_back(c);
    }
    // 0.8 MB: near enough to be swept in panels, and shared by three threads.
    cases.push_back(plain("gva_2"));
    cases.back().dims = {3, 11, 2, 4, 128, 128};
    for (const GdnCase& c : cases) {
        CAPTURE(c.dims.B);
        Arrays a(c);
        for (const Isa isa : available_isas()) {
            const GdnOutputs in_place = a.decode(How::in_place, {1, 4}, 1, isa);
            const GdnOutputs out_of_place = a.decode(How::out_of_place, {1, 4}, 3, isa);
            CHECK(in_place.out == out_of_place.out);
            CHECK(in_place.final_state == out_of_place.final_state);
            const GdnOutputs more = a.decode(How::in_place, {1, 4}, 16, isa);
            CHECK(in_place.out == more.out);
            CHECK(in_place.final_state == more.final_state);
        }
    }
}

TEST_CASE("decode: a sequence gives the same bits alone as among others, whose states lie beyond the nearest caches") {
    GdnCase c = plain("gva_2");
    c.dims = {12, 3, 2, 2, 65, 208};  // 1.3 MB; columns that fill panels of 128, 64 and 16
    Arrays many(c);
    const std::vector<GdnSequence> all = many.reference.problem.sequences;
    const std::size_t state = many.state.size() / all.size(), out = many.out.size() / all.size();
    for (const Isa isa : available_isas()) {
        CAPTURE(std::string(name_of(isa)));
        for (const How how : {How::in_place, How::out_of_place}) {
            CAPTURE(static_cast<int>(how));
            many.reference.problem.sequences = all;
            const GdnOutputs together = many.decode(how, {1}, 3, isa);
            CHECK(judged(many.reference, outputs_of(many.reference, together)).verdict == Verdict::ok);
            for (const int threads : {1, 4}) {
                std::fill(many.out.begin(), many.out.end(), -1.0F);
                const GdnOutputs others = many.decode(how, {1}, threads, isa);
                CHECK(others.out == together.out);
                CHECK(others.final_state == together.final_state);
            }
            many.reference.problem.sequences = {all[0]};
            std::fill(many.out.begin(), many.out.end(), -1.0F);
            const GdnOutputs alone = many.decode(how, {1}, 1, isa);
            CHECK(std::equal(alone.out.begin(), alone.out.begin() + static_cast<std::ptrdiff_t>(out),
                             together.out.begin()));
            CHECK(std::equal(alone.final_state.begin(), alone.final_state.begin() + static_cast<std::ptrdiff_t>(state),
                             together.final_state.begin()));
        }
    }
}

TEST_CASE("decode: the last panel of a group of heads is written with that group's keys") {
    // 20 heads a key head: a group each. Sequences that end early leave groups without tokens in between.
    GdnCase c = plain("varlen");
    c.dims = {1, 20, 2, 40, 19, 64};
    c.cu_seqlens = {0, 3, 12, 13, 20};
    c.contract = {"head_map=interleaved"};
    Arrays a(c);
    for (const Isa isa : available_isas()) {
        for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{1}, {1, 5}}) {
            for (const How how : {How::in_place, How::out_of_place}) {
                CAPTURE(static_cast<int>(how));
                const GdnOutputs got = a.decode(how, lengths, 1, isa);
                CHECK(judged(a.reference, outputs_of(a.reference, got)).verdict == Verdict::ok);
            }
        }
    }
}
