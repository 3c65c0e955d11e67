#include "unit/oracle/mutants/forward_mutants.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::testing {

namespace {

using Mutants = std::vector<Mutant>;
using Stages = std::vector<std::string>;

Mutant edit(std::string name, Stages stages, ChunkEdit chunk) {
    Mutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.fault.chunk = std::move(chunk);
    return m;
}

Mutant before(std::string name, Stages stages, std::function<void(PreparedHead&)> prepared) {
    Mutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.fault.prepared = std::move(prepared);
    m.whole_only = true;
    return m;
}

Mutant given(std::string name, Stages stages, std::function<bool(HeadInputs&, GdnContract&, const HeadSlice&)> change) {
    Mutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.fault.given = std::move(change);
    m.whole_only = true;
    return m;
}

Mutant after(std::string name, Stages stages, std::function<void(GdnOutputs&, const GdnReference&)> spoil) {
    Mutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.after = std::move(spoil);
    m.whole_only = true;
    return m;
}

void scale_all(std::vector<double>& x, double factor) {
    for (double& value : x) value *= factor;
}

void add_preparation(Mutants& all) {
    all.push_back(before("scale missing", {"scale"}, [](PreparedHead& l) { l.scale = 1; }));
    all.push_back(before("scale twice", {"scale"}, [](PreparedHead& l) { l.scale *= l.scale; }));
    all.push_back(before("scale 3 % too large", {"scale"}, [](PreparedHead& l) { l.scale *= 1.03; }));
    all.push_back(given("l2norm missing", {"l2norm"}, [](HeadInputs&, GdnContract& c, const HeadSlice&) {
        c.l2norm = L2Norm::off;
        return true;
    }));
    all.push_back(given("l2norm eps 1e-3", {"l2norm"}, [](HeadInputs&, GdnContract& c, const HeadSlice&) {
        c.eps = 1e-3;
        return true;
    }));
    all.push_back(before("q not normalised", {"l2norm", "scale"}, [](PreparedHead& l) { scale_all(l.q, 8.0); }));
    all.push_back(given("tiled heads", {"head_map"}, [](HeadInputs& in, GdnContract&, const HeadSlice& place) {
        const GdnDims& d = place.reference->problem.dims;
        const HeadInputs other = head_inputs(place, place.head % static_cast<std::size_t>(d.Hk), in.chunk, {});
        in.q = other.q;
        in.k = other.k;
        return true;
    }));
    all.push_back(before("q and k exchanged", {"layout", "head_map"}, [](PreparedHead& l) { std::swap(l.q, l.k); }));
    all.push_back(before("sigmoid twice", {"beta"}, [](PreparedHead& l) {
        for (double& b : l.beta) b = 1 / (1 + std::exp(-b));
    }));
    all.push_back(
        before("beta 1", {"beta", "wu"}, [](PreparedHead& l) { std::fill(l.beta.begin(), l.beta.end(), 1.0); }));
    all.push_back(before("beta of the token before", {"beta"}, [](PreparedHead& l) {
        std::rotate(l.beta.begin(), l.beta.end() - 1, l.beta.end());
        l.beta.front() = 0;
    }));
    all.push_back(before("gate sign", {"gate"}, [](PreparedHead& l) { scale_all(l.gate, -1); }));
    all.push_back(before("no gate", {"gate", "decay"}, [](PreparedHead& l) { scale_all(l.gate, 0); }));
    all.push_back(before("2^g", {"gate"}, [](PreparedHead& l) { scale_all(l.gate, std::log(2.0)); }));
    all.push_back(before("gate of the next token", {"gate"}, [](PreparedHead& l) {
        std::rotate(l.gate.begin(), l.gate.begin() + 1, l.gate.end());
        l.gate.back() = 0;
    }));
    all.push_back(before("gate in bf16", {"rounding", "gate"}, [](PreparedHead& l) {
        for (double& g : l.gate) g = rounded_to(g, DType::bf16);
    }));
    all.push_back(before("q and k in bf16", {"rounding"}, [](PreparedHead& l) {
        for (auto* x : {&l.q, &l.k}) {
            for (double& value : *x) value = rounded_to(value, DType::bf16);
        }
    }));
    all.push_back(edit("bf16 operands", {"rounding"}, [](ChunkParts& c) { c.bf16_operands = true; }));
    all.push_back(given("initial state ignored", {"carry"}, [](HeadInputs& in, GdnContract&, const HeadSlice&) {
        std::fill(in.state.begin(), in.state.end(), 0.0);
        return true;
    }));
}

template <class Factor>
ChunkEdit change_m(Factor factor) {
    return [factor](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < i; ++j) c.M[i * c.rows + j] *= factor(c, i, j);
        }
    };
}

template <class Factor>
ChunkEdit change_p(Factor factor) {
    return [factor](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j <= i; ++j) c.P[i * c.rows + j] *= factor(c, i, j);
        }
    };
}

template <class Factor>
ChunkEdit change_rows(std::vector<double> ChunkParts::* rows, Factor factor) {
    return [rows, factor](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) (c.*rows)[i] *= factor(c, i);
    };
}

using Parts = const ChunkParts&;
using Row = std::size_t;

void add_inside(Mutants& all) {
    all.push_back(edit("M left out", {"solve"}, change_m([](Parts, Row, Row) { return 0.0; })));
    all.push_back(edit("M with the wrong sign", {"solve"}, change_m([](Parts, Row, Row) { return -1.0; })));
    all.push_back(
        edit("M without beta", {"solve"}, change_m([](Parts c, Row i, Row) { return 1 / std::max(c.beta(i), 1e-6); })));
    all.push_back(edit("M with the column's beta", {"solve"},
                       change_m([](Parts c, Row i, Row j) { return c.beta(j) / std::max(c.beta(i), 1e-6); })));
    all.push_back(
        edit("M without Gamma", {"decay", "solve"}, change_m([](Parts c, Row i, Row j) { return 1 / c.decay(i, j); })));
    all.push_back(edit("blocks of 16 never merged", {"solve"},
                       change_m([](Parts, Row i, Row j) { return i / 16 == j / 16 ? 1.0 : 0.0; })));
    all.push_back(edit("blocks of 8 merged once", {"solve"},
                       change_m([](Parts, Row i, Row j) { return i / 16 == j / 16 ? 1.0 : 0.0; })));
    all.push_back(edit("M 5 % too small", {"solve"}, change_m([](Parts, Row, Row) { return 0.95; })));
    all.push_back(
        edit("M lacks rows from 24 on", {"solve"}, change_m([](Parts, Row i, Row) { return i >= 24 ? 0.0 : 1.0; })));
    all.push_back(edit("inverse to second order", {"solve"}, [](ChunkParts& c) { c.neumann = 2; }));
    all.push_back(edit("inverse to first order", {"solve"}, [](ChunkParts& c) { c.neumann = 1; }));
    all.push_back(
        edit("P without Gamma", {"decay", "intra"}, change_p([](Parts c, Row i, Row j) { return 1 / c.decay(i, j); })));
    all.push_back(edit("P without its diagonal", {"intra", "order"},
                       change_p([](Parts, Row i, Row j) { return i == j ? 0.0 : 1.0; })));
    all.push_back(edit("P left out", {"intra", "output"}, change_p([](Parts, Row, Row) { return 0.0; })));
    all.push_back(edit("P 10 % too large", {"intra", "output"}, change_p([](Parts, Row, Row) { return 1.1; })));
    all.push_back(edit("P without the scale", {"intra"}, change_p([](Parts c, Row, Row) { return 1 / c.scale(); })));
    all.push_back(
        edit("P in a band of 8 alone", {"intra"}, change_p([](Parts, Row i, Row j) { return i - j < 8 ? 1.0 : 0.0; })));
    all.push_back(edit("P without its mask", {"intra"}, [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = i + 1; j < c.rows; ++j) c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j];
        }
    }));
    all.push_back(edit("Gamma twice", {"decay"}, [](ChunkParts& c) {
        change_m([](Parts p, Row i, Row j) { return p.decay(i, j); })(c);
        change_p([](Parts p, Row i, Row j) { return p.decay(i, j); })(c);
    }));
    all.push_back(
        edit("v without beta", {"wu", "beta"}, [](ChunkParts& c) { std::fill(c.write.begin(), c.write.end(), 1.0); }));
    all.push_back(
        edit("v 5 % too large", {"wu", "intra"}, change_rows(&ChunkParts::write, [](Parts, Row) { return 1.05; })));
    all.push_back(edit("K S left out", {"wu"}, change_rows(&ChunkParts::forget, [](Parts, Row) { return 0.0; })));
    all.push_back(edit("K S added", {"wu"}, change_rows(&ChunkParts::forget, [](Parts, Row) { return -1.0; })));
    all.push_back(edit("K S 20 % too small", {"wu"}, change_rows(&ChunkParts::forget, [](Parts, Row) { return 0.8; })));
    all.push_back(edit("K S without decay", {"wu", "decay"},
                       change_rows(&ChunkParts::forget, [](Parts c, Row i) { return std::exp(-c.sum[i]); })));
    all.push_back(edit("K S without beta", {"wu", "beta"},
                       change_rows(&ChunkParts::forget, [](Parts c, Row i) { return 1 / std::max(c.beta(i), 1e-6); })));
    all.push_back(edit("Q S left out", {"output"}, change_rows(&ChunkParts::read, [](Parts, Row) { return 0.0; })));
    all.push_back(edit("Q S without decay", {"output", "decay"},
                       change_rows(&ChunkParts::read, [](Parts c, Row i) { return std::exp(-c.sum[i]); })));
    all.push_back(edit("Q S without the scale", {"output"},
                       change_rows(&ChunkParts::read, [](Parts c, Row) { return 1 / c.scale(); })));
    all.push_back(
        edit("Q S 10 % too small", {"output"}, change_rows(&ChunkParts::read, [](Parts, Row) { return 0.9; })));
    all.push_back(edit("Q S with the decay of the row before", {"output", "gate"},
                       change_rows(&ChunkParts::read, [](Parts c, Row i) { return std::exp(-c.gate(i)); })));
}

void add_between(Mutants& all) {
    all.push_back(edit("state without decay", {"carry"}, [](ChunkParts& c) { c.keep = 1; }));
    all.push_back(edit("state with the decay twice", {"carry"}, [](ChunkParts& c) { c.keep *= c.keep; }));
    all.push_back(edit("writes without decay", {"carry"},
                       [](ChunkParts& c) { std::fill(c.insert.begin(), c.insert.end(), 1.0); }));
    all.push_back(edit("writes with the decay from the start", {"carry"}, [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] = std::exp(c.sum[i]);
    }));
    all.push_back(edit("last token not written", {"carry"}, [](ChunkParts& c) { c.insert[c.rows - 1] = 0; }));
    all.push_back(
        edit("writes 10 % too small", {"carry"}, change_rows(&ChunkParts::insert, [](Parts, Row) { return 0.9; })));
    all.push_back(edit("every 4th token not written", {"carry"},
                       change_rows(&ChunkParts::insert, [](Parts, Row i) { return i % 4 == 3 ? 0.0 : 1.0; })));
    all.push_back(edit("state not handed over", {"carry"}, [](ChunkParts& c) { c.handover = Handover::zeros; }));
    all.push_back(edit("state never updated", {"carry"}, [](ChunkParts& c) { c.handover = Handover::unchanged; }));
    all.push_back(
        edit("state is the chunk's writes alone", {"carry"}, [](ChunkParts& c) { c.handover = Handover::only_new; }));
    all.push_back(edit("state in bf16 between chunks", {"rounding", "carry"},
                       [](ChunkParts& c) { c.handover = Handover::bf16; }));
    all.push_back(edit("sums never restart", {"gate"}, [](ChunkParts& c) { c.before = std::exp(c.gates_before); }));
    all.push_back(edit("exclusive sums", {"gate"}, [](ChunkParts& c) {
        const auto gamma = [&](Row i, Row j) { return std::exp(c.sum_before[i] - c.sum_before[j]); };
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j <= i; ++j) {
                if (j < i) c.M[i * c.rows + j] = c.beta(i) * c.key_gram[i * c.rows + j] * gamma(i, j);
                c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * gamma(i, j);
            }
            c.forget[i] = c.beta(i) * std::exp(c.sum_before[i]);
            c.read[i] = c.scale() * std::exp(c.sum_before[i]);
            c.insert[i] = std::exp(c.sum_before[c.rows - 1] - c.sum_before[i]);
        }
        c.keep = std::exp(c.sum_before[c.rows - 1]);
    }));
}

void add_orders(Mutants& all) {
    all.push_back(edit("decay after the write", {"order"}, [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j <= i; ++j) {
                if (j < i) {
                    c.M[i * c.rows + j] =
                        c.beta(i) * c.key_gram[i * c.rows + j] * std::exp(c.sum_before[i] - c.sum_before[j]);
                }
                c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * std::exp(c.sum[i] - c.sum_before[j]);
            }
            c.forget[i] = c.beta(i) * std::exp(c.sum_before[i]);
            c.insert[i] = std::exp(c.sum[c.rows - 1] - c.sum_before[i]);
        }
    }));
    all.push_back(edit("r from the undecayed state", {"order"}, [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < i; ++j)
                c.M[i * c.rows + j] = c.beta(i) * c.key_gram[i * c.rows + j] * std::exp(c.sum_before[i] - c.sum[j]);
            c.forget[i] = c.beta(i) * std::exp(c.sum_before[i]);
        }
    }));
}

void add_tails(Mutants& all) {
    Mutant tail = edit("incomplete chunk left out", {"padding", "tile"}, [](ChunkParts& c) {
        if (!c.last_of_sequence || c.rows == c.head->chunk) return;
        c.handover = Handover::unchanged;
        std::fill(c.P.begin(), c.P.end(), 0.0);
        std::fill(c.read.begin(), c.read.end(), 0.0);
    });
    tail.whole_only = true;
    all.push_back(std::move(tail));
}

void add_places(Mutants& all) {
    const auto dv = [](const GdnReference& r) { return static_cast<std::size_t>(r.problem.dims.dv); };
    const auto heads = [](const GdnReference& r) { return static_cast<std::size_t>(r.problem.dims.Hv); };
    all.push_back(after("state transposed", {"layout"}, [](GdnOutputs& x, const GdnReference& r) {
        x.final_state = to_layout(x.final_state, r.problem.dims, StateLayout::value_key);
    }));
    all.push_back(after("heads of out rotated", {"head_map"}, [=](GdnOutputs& x, const GdnReference& r) {
        const std::size_t row = heads(r) * dv(r);
        for (std::size_t at = 0; at < x.out.size(); at += row) {
            const auto first = x.out.begin() + static_cast<std::ptrdiff_t>(at);
            std::rotate(first, first + static_cast<std::ptrdiff_t>(dv(r)), first + static_cast<std::ptrdiff_t>(row));
        }
    }));
    all.push_back(after("one element of out", {"tile"},
                        [](GdnOutputs& x, const GdnReference&) { x.out[x.out.size() / 3] += 0.05; }));
    all.push_back(after("NaN in one row of out", {"tile", "solve"}, [=](GdnOutputs& x, const GdnReference& r) {
        const std::size_t row = x.out.size() / dv(r) / 2;
        std::fill_n(x.out.begin() + static_cast<std::ptrdiff_t>(row * dv(r)), dv(r), std::nan(""));
    }));
    all.push_back(after("some columns stale", {"tile"}, [=](GdnOutputs& x, const GdnReference& r) {
        const std::size_t width = dv(r);
        for (std::size_t at = x.out.size() - width; at >= width * heads(r); at -= width) {
            for (std::size_t j = width / 2; j < width / 2 + std::max<std::size_t>(width / 8, 1); ++j)
                x.out[at + j] = x.out[at - width * heads(r) + j];
        }
    }));
    all.push_back(after("out in bf16", {"rounding"}, [](GdnOutputs& x, const GdnReference&) {
        for (double& o : x.out) o = rounded_to(o, DType::bf16);
    }));
    all.push_back(after("one head never written", {"tile"}, [=](GdnOutputs& x, const GdnReference& r) {
        const std::size_t width = dv(r);
        for (std::size_t i = 0; i < x.out.size(); ++i) {
            if (i / width % heads(r) == 1) x.out[i] = 0;
        }
    }));
    all.push_back(after("final state in bf16", {"rounding", "carry"}, [](GdnOutputs& x, const GdnReference&) {
        for (double& s : x.final_state) s = rounded_to(s, DType::bf16);
    }));
}

}  // namespace

std::vector<Mutant> all_mutants() {
    Mutants all;
    add_preparation(all);
    add_inside(all);
    add_between(all);
    add_orders(all);
    add_tails(all);
    add_places(all);
    return all;
}

GdnOutputs run_mutant(const GdnReference& r, const Mutant* mutant, const MutantScope& scope, int threads) {
    if (mutant != nullptr && mutant->kernel) return mutant->kernel(r, scope, threads);
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    GdnOutputs x{std::vector<double>(p.v.size(), 0), std::vector<double>(p.sequences.size() * heads * dk * dv, 0), 0};
    const auto in_scope = [&](std::size_t head) {
        return scope.heads.empty() ||
               std::find(scope.heads.begin(), scope.heads.end(), static_cast<std::int64_t>(head)) != scope.heads.end();
    };
    run_tasks(p.sequences.size() * heads, threads, [&] {
        return [&](std::size_t task) {
            const std::size_t n = task / heads;
            const std::size_t head = task % heads;
            const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
            HeadSlice place{
                &r, n, head, 0, static_cast<std::size_t>(p.sequences[n].end) - begin, std::vector<std::size_t>(dv)};
            std::iota(place.columns.begin(), place.columns.end(), 0);
            const auto key = key_head_of(static_cast<std::int64_t>(head), p.dims, r.contract.value.head_map);
            HeadInputs in = head_inputs(place, static_cast<std::size_t>(key),
                                        static_cast<std::size_t>(r.contract.value.chunk), state_before(place));
            GdnContract contract = r.contract.value;
            const bool faulty = mutant != nullptr && in_scope(head);
            if (faulty && mutant->fault.given) mutant->fault.given(in, contract, place);
            PreparedHead prepared = prepare_head(in, contract);
            if (faulty && mutant->fault.prepared) mutant->fault.prepared(prepared);
            const HeadResult result = run_head<float>(prepared, [&](ChunkParts& c) {
                if (!faulty || !mutant->fault.chunk) return;
                if (scope.chunk < 0 || c.index == static_cast<std::size_t>(scope.chunk)) mutant->fault.chunk(c);
            });
            for (std::size_t t = 0; t < place.tokens; ++t) {
                std::copy_n(result.out.begin() + static_cast<std::ptrdiff_t>(t * dv), dv,
                            x.out.begin() + static_cast<std::ptrdiff_t>(((begin + t) * heads + head) * dv));
            }
            std::copy(result.state.begin(), result.state.end(),
                      x.final_state.begin() + static_cast<std::ptrdiff_t>(task * dk * dv));
        };
    });
    apply_empty_policy(p, r.contract.value.empty, x.final_state);
    if (mutant != nullptr && mutant->after) mutant->after(x, r);
    return x;
}

// Unexpected faults: no hypothesis of the search reproduces them, so its answer is a guess.

namespace {

using Row = std::size_t;
using Edit = std::function<void(ChunkParts&)>;

class UnexpectedMutants {
public:
    std::vector<Mutant> all() {
        inputs();
        inside();
        between();
        finished();
        return std::move(m_all);
    }

private:
    using Stages = std::vector<std::string>;

    Mutant& add(std::string name, Stages stages) {
        Mutant& m = m_all.emplace_back();
        m.name = std::move(name);
        m.stages = std::move(stages);
        return m;
    }
    void edit(std::string name, Stages stages, Edit chunk) {
        add(std::move(name), std::move(stages)).fault.chunk = std::move(chunk);
    }
    void before(std::string name, Stages stages, std::function<void(PreparedHead&)> change) {
        Mutant& m = add(std::move(name), std::move(stages));
        m.fault.prepared = std::move(change);
        m.whole_only = true;
    }
    void after(std::string name, Stages stages, std::function<void(GdnOutputs&, const GdnReference&)> spoil) {
        Mutant& m = add(std::move(name), std::move(stages));
        m.after = std::move(spoil);
        m.whole_only = true;
    }

    void inputs() {
        before("the halves of q exchanged", {"layout", "head_map", "l2norm"}, [](PreparedHead& l) {
            for (auto row = l.q.begin(); row != l.q.end(); row += static_cast<std::ptrdiff_t>(l.dk)) {
                std::rotate(row, row + static_cast<std::ptrdiff_t>(l.dk / 2), row + static_cast<std::ptrdiff_t>(l.dk));
            }
        });
        before("neighbouring dimensions of k exchanged", {"layout", "head_map", "l2norm"}, [](PreparedHead& l) {
            for (Row i = 0; i + 1 < l.k.size(); i += 2) std::swap(l.k[i], l.k[i + 1]);
        });
        before("the last dimension of q and k left out", {"l2norm", "layout", "tile"}, [](PreparedHead& l) {
            for (auto* x : {&l.q, &l.k}) {
                for (Row i = l.dk - 1; i < x->size(); i += l.dk) (*x)[i] = 0;
            }
        });
        before("g 0.02 too small", {"gate", "decay"}, [](PreparedHead& l) {
            for (double& g : l.gate) g -= 0.02;
        });
        before("g averaged with the token before", {"gate", "decay"}, [](PreparedHead& l) {
            for (Row t = l.gate.size(); t-- > 1;) l.gate[t] = (l.gate[t] + l.gate[t - 1]) / 2;
        });
        before("exp(g) by 1 + g", {"gate", "decay"}, [](PreparedHead& l) {
            for (double& g : l.gate) g = std::log(std::max(1 + g, 1e-3));
        });
        before("beta squared at every 3rd token", {"beta", "wu"}, [](PreparedHead& l) {
            for (Row t = 0; t < l.beta.size(); t += 3) l.beta[t] *= l.beta[t];
        });
        before("beta rounded to 1/16", {"beta", "rounding", "wu"}, [](PreparedHead& l) {
            for (double& b : l.beta) b = std::round(b * 16) / 16;
        });
        before("v of every 7th token is 0", {"wu", "tile", "padding"}, [](PreparedHead& l) {
            for (Row t = 0; t < l.tokens; t += 7)
                std::fill_n(l.v.begin() + static_cast<std::ptrdiff_t>(t * l.columns), l.columns, 0.0);
        });
    }

    // Entries (i, j) of M or P times a factor.
    template <class Factor>
    static Edit entries(std::vector<double> ChunkParts::* matrix, Factor factor) {
        return [matrix, factor](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) {
                for (Row j = 0; j <= i; ++j) (c.*matrix)[i * c.rows + j] *= factor(c, i, j);
            }
        };
    }
    template <class Factor>
    static Edit rows(std::vector<double> ChunkParts::* vector, Factor factor) {
        return [vector, factor](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) (c.*vector)[i] *= factor(i);
        };
    }

    void inside() {
        const auto wobble = [](const ChunkParts&, Row i, Row j) {
            return 1 + 0.1 * std::sin(3.0 * static_cast<double>(i) + 5.0 * static_cast<double>(j));
        };
        edit("M off by up to 10 %, here and there", {"solve", "decay"}, entries(&ChunkParts::M, wobble));
        edit("P off by up to 10 %, here and there", {"intra", "decay"}, entries(&ChunkParts::P, wobble));
        edit("M's lower block subtracted", {"solve"}, entries(&ChunkParts::M, [](const ChunkParts& c, Row i, Row j) {
                 return i >= c.rows / 2 && j < c.rows / 2 ? -1.0 : 1.0;
             }));
        edit("M's first column left out", {"solve"},
             entries(&ChunkParts::M, [](const ChunkParts&, Row, Row j) { return j == 0 ? 0.0 : 1.0; }));
        edit("P's lower block left out", {"intra"}, entries(&ChunkParts::P, [](const ChunkParts& c, Row i, Row j) {
                 return i >= c.rows / 2 && j < c.rows / 2 ? 0.0 : 1.0;
             }));
        edit("P's diagonal doubled", {"intra", "output"},
             entries(&ChunkParts::P, [](const ChunkParts&, Row i, Row j) { return i == j ? 2.0 : 1.0; }));
        edit("Gamma by a polynomial of second order", {"decay", "gate"}, [](ChunkParts& c) {
            const auto poor = [&](Row i, Row j) {
                const double x = c.sum[i] - c.sum[j];
                return (1 + x + x * x / 2) / std::exp(x);
            };
            for (Row i = 0; i < c.rows; ++i) {
                for (Row j = 0; j <= i; ++j) {
                    c.M[i * c.rows + j] *= poor(i, j);
                    c.P[i * c.rows + j] *= poor(i, j);
                }
            }
        });
        edit("U of rows 8 to 15 left out", {"wu", "solve", "tile"}, [](ChunkParts& c) {
            for (Row i = 8; i < std::min<Row>(c.rows, 16); ++i) c.write[i] = c.forget[i] = 0;
        });
        edit("V of odd rows 5 % too large", {"wu"},
             rows(&ChunkParts::write, [](Row i) { return i % 2 == 1 ? 1.05 : 1.0; }));
        edit("K S fades along the chunk", {"wu"},
             rows(&ChunkParts::forget, [](Row i) { return 1 - 0.01 * static_cast<double>(i); }));
        edit("Q S of odd rows left out", {"output"},
             rows(&ChunkParts::read, [](Row i) { return i % 2 == 1 ? 0.0 : 1.0; }));
        edit("Q S fades along the chunk", {"output"},
             rows(&ChunkParts::read, [](Row i) { return 1 - 0.01 * static_cast<double>(i); }));
    }

    void between() {
        edit("the state shrinks by 1 % at each chunk", {"carry"}, [](ChunkParts& c) { c.keep *= 0.99; });
        edit("writes keep the mean decay of their chunk", {"carry", "decay"}, [](ChunkParts& c) {
            std::fill(c.insert.begin(), c.insert.end(), std::exp((c.sum[c.rows - 1] - c.sum[0]) / 2));
        });
        edit("the last 3 rows are not written", {"carry"}, [](ChunkParts& c) {
            for (Row i = c.rows - std::min<Row>(c.rows, 3); i < c.rows; ++i) c.insert[i] = 0;
        });
        edit("the first half of the writes comes twice", {"carry"}, [](ChunkParts& c) {
            for (Row i = 0; i < c.rows / 2; ++i) c.insert[i] *= 2;
        });
        edit("the state is read 2 % too small everywhere", {"carry", "wu", "output"},
             [](ChunkParts& c) { c.before *= 0.98; });
    }

    void finished() {
        const auto dv = [](const GdnReference& r) { return static_cast<Row>(r.problem.dims.dv); };
        const auto row_of = [dv](const GdnReference& r) { return static_cast<Row>(r.problem.dims.Hv) * dv(r); };
        after("neighbouring columns of out exchanged", {"layout", "tile", "head_map"},
              [](GdnOutputs& x, const GdnReference&) {
                  for (Row i = 0; i + 1 < x.out.size(); i += 2) std::swap(x.out[i], x.out[i + 1]);
              });
        after("out one token late", {"order", "tile", "layout", "output"}, [=](GdnOutputs& x, const GdnReference& r) {
            std::copy_backward(x.out.begin(), x.out.end() - static_cast<std::ptrdiff_t>(row_of(r)), x.out.end());
        });
        after("tokens of a pair exchanged", {"order", "tile", "layout", "output"},
              [=](GdnOutputs& x, const GdnReference& r) {
                  const Row row = row_of(r);
                  for (Row at = 0; at + 2 * row <= x.out.size(); at += 2 * row) {
                      std::swap_ranges(x.out.begin() + static_cast<std::ptrdiff_t>(at),
                                       x.out.begin() + static_cast<std::ptrdiff_t>(at + row),
                                       x.out.begin() + static_cast<std::ptrdiff_t>(at + row));
                  }
              });
        after("large values of out clipped", {"output", "rounding", "tile"}, [](GdnOutputs& x, const GdnReference&) {
            double largest = 0;
            for (const double o : x.out) largest = std::max(largest, std::fabs(o));
            for (double& o : x.out) o = std::clamp(o, -largest / 4, largest / 4);
        });
        after("small values of out flushed to 0", {"output", "rounding", "tile"},
              [](GdnOutputs& x, const GdnReference&) {
                  double largest = 0;
                  for (const double o : x.out) largest = std::max(largest, std::fabs(o));
                  for (double& o : x.out) o = std::fabs(o) < largest / 100 ? 0 : o;
              });
        after("the last row of the final state is 0", {"carry", "tile", "layout"},
              [=](GdnOutputs& x, const GdnReference& r) {
                  const Row size = static_cast<Row>(r.problem.dims.dk) * dv(r);
                  for (Row end = size; end <= x.final_state.size(); end += size) {
                      std::fill_n(x.final_state.begin() + static_cast<std::ptrdiff_t>(end - dv(r)), dv(r), 0.0);
                  }
              });
    }

    std::vector<Mutant> m_all;
};

}  // namespace

std::vector<Mutant> unexpected_mutants() { return UnexpectedMutants().all(); }

}  // namespace gdnctl::oracle::testing
