// Decoding token by token, or a few at a time, against the recurrence over the whole sequence.
#include <algorithm>

#include "oracle/gdn/kernels/decode32.h"
#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

enum class How { deferred, in_place, out_of_place };

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
        DecodeCache cache(f.dims, f.head_map, all.size(), isa);
        cache.load(state.data(), threads);
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
            if (how == How::deferred) {
                cache.step(f, threads);
            } else {
                decode_step(f, threads, isa);
                if (how == How::out_of_place) std::swap(final_state, other);
            }
        }
        if (how == How::deferred) cache.store(final_state.data(), threads);
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
                for (const How how : {How::deferred, How::in_place}) {
                    const GdnReport report =
                        judged(a.reference, outputs_of(a.reference, a.decode(how, lengths, 2, isa)));
                    CAPTURE(report.reason);
                    CHECK(report.verdict == c.expected);
                }
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
            const GdnOutputs one = a.decode(How::deferred, {1, 4}, 1, isa);
            const GdnOutputs more = a.decode(How::deferred, {1, 4}, 16, isa);
            CHECK(one.out == more.out);
            CHECK(one.final_state == more.final_state);
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
        for (const How how : {How::deferred, How::in_place, How::out_of_place}) {
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

TEST_CASE("decode: storing a cache changes nothing of it, and is what the steps so far give") {
    GdnCase c = plain("gva_4");
    c.dims = {2, 21, 2, 8, 40, 24};
    Arrays a(c);
    const std::vector<GdnSequence>& all = a.reference.problem.sequences;
    for (const Isa isa : available_isas()) {
        DecodeCache cache(a.f.dims, a.f.head_map, all.size(), isa);
        cache.load(a.state.data(), 1);
        const auto step = [&](std::int64_t begin, std::int64_t end) {
            std::vector<GdnSequence> tokens;
            for (const GdnSequence& s : all) tokens.push_back({s.begin + begin, s.begin + end});
            a.f.sequences = tokens;
            cache.step(a.f, 1);
        };
        std::vector<float> stored = a.final_state;
        // With none, some and all of the room for writes taken.
        for (std::int64_t t = 0; t < c.dims.T; ++t) {
            cache.store(stored.data(), 2);
            step(t, t + 1);
        }
        cache.store(stored.data(), 1);
        CHECK(std::vector<double>(stored.begin(), stored.end()) == a.decode(How::deferred, {1}, 1, isa).final_state);
    }
}

TEST_CASE("decode: a loaded cache knows nothing of before, and a cache may have other threads in every step") {
    // 4 MB of states: a share for each of four threads.
    GdnCase c = plain("gva_2");
    c.dims = {8, 23, 4, 8, 128, 128};
    Arrays a(c);
    const std::vector<GdnSequence>& all = a.reference.problem.sequences;
    for (const Isa isa : available_isas()) {
        CAPTURE(std::string(name_of(isa)));
        DecodeCache cache(a.f.dims, a.f.head_map, all.size(), isa);
        std::vector<float> first_out, first_state;
        for (const int threads : {1, 4, 3, 0}) {
            cache.load(a.state.data(), 2);
            std::fill(a.out.begin(), a.out.end(), -1.0F);
            // Folds of a whole set of writes, of some, and of several tokens' at once.
            for (std::int64_t t = 0, step = 0; t < c.dims.T; ++step) {
                const std::int64_t tokens = std::min<std::int64_t>(step < 11 ? 1 : step % 5 + 1, c.dims.T - t);
                std::vector<GdnSequence> now;
                for (const GdnSequence& s : all) now.push_back({s.begin + t, s.begin + t + tokens});
                a.f.sequences = now;
                cache.step(a.f, threads > 0 ? threads : static_cast<int>(step % 4) + 1);
                t += tokens;
            }
            std::vector<float> state(a.state.size());
            cache.store(state.data(), threads);
            if (threads == 1) {
                first_out = a.out;
                first_state = state;
                const GdnOutputs got{{a.out.begin(), a.out.end()}, {state.begin(), state.end()}, 0};
                CHECK(judged(a.reference, outputs_of(a.reference, got)).verdict == Verdict::ok);
            } else {
                CAPTURE(threads);
                CHECK(a.out == first_out);
                CHECK(state == first_state);
            }
        }
    }
}

TEST_CASE("decode: decays far above 1 err no more than they do in place") {
    GdnCase c = plain("gva_2");
    c.dims = {1, 28, 2, 4, 32, 32};
    const auto times = [](std::size_t count, float gate) { return std::vector<float>(count, gate); };
    std::vector<float> in_turns, late = times(27, 0.5F);
    for (int t = 0; t < 12; ++t) in_turns.push_back(t % 2 == 0 ? -20.0F : 20.0F);
    late.push_back(80);
    // As many tokens as give no state too large for fp32; in the last two cases nothing is ever written.
    for (const auto& [gates, beta] : {std::pair{times(12, 2), 1.0F},
                                      {times(4, 25), 1.0F},
                                      {times(2, 50), 1.0F},
                                      {in_turns, 1.0F},
                                      {late, 0.0F},
                                      {{-60, 60, 30, 30}, 0.0F}}) {
        CAPTURE(gates.back());
        Arrays a(c);
        GdnProblem& p = a.reference.problem;
        p.sequences[0].end = static_cast<std::int64_t>(gates.size());
        const auto heads = static_cast<std::size_t>(c.dims.Hv);
        for (std::size_t i = 0; i < gates.size() * heads; ++i) {
            p.gate[i] = a.g[i] = gates[i / heads];
            p.beta[i] = a.beta[i] = beta * a.beta[i];
        }
        std::fill(p.initial_state.begin(), p.initial_state.end(), 0.0);
        std::fill(a.state.begin(), a.state.end(), 0.0F);
        a.reference = make_reference(p, a.reference.contract, 1);
        const std::size_t row = static_cast<std::size_t>(c.dims.Hv * c.dims.dv);
        const std::vector<double>& truth = a.reference.truth.out;
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            const GdnOutputs in_place = a.decode(How::in_place, {1}, 1, isa);
            const GdnOutputs deferred = a.decode(How::deferred, {1}, 1, isa);
            for (std::int64_t t = 0; t < p.sequences[0].end; ++t) {
                CAPTURE(t);
                double largest = 0, of_in_place = 0, of_deferred = 0;
                for (std::size_t i = static_cast<std::size_t>(t) * row; i < static_cast<std::size_t>(t + 1) * row;
                     ++i) {
                    REQUIRE(std::isfinite(deferred.out[i]));
                    largest = std::max(largest, std::abs(truth[i]));
                    of_in_place = std::max(of_in_place, std::abs(in_place.out[i] - truth[i]));
                    of_deferred = std::max(of_deferred, std::abs(deferred.out[i] - truth[i]));
                }
                CHECK(of_deferred <= 3 * of_in_place + 1e-6 * largest);
            }
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
            for (const How how : {How::deferred, How::in_place, How::out_of_place}) {
                CAPTURE(static_cast<int>(how));
                const GdnOutputs got = a.decode(how, lengths, 1, isa);
                CHECK(judged(a.reference, outputs_of(a.reference, got)).verdict == Verdict::ok);
            }
        }
    }
}
