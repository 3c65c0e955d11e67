// Unexpected faults: no hypothesis of the search reproduces them, so its answer is a guess.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/selftest/mutants.h"

namespace gdnctl::oracle {

namespace {

using Row = std::size_t;
using Edit = std::function<void(ChunkParts&)>;

class Strangers {
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
    void before(std::string name, Stages stages, std::function<void(Lane&)> change) {
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
        before("the halves of q exchanged", {"layout", "head_map", "l2norm"}, [](Lane& l) {
            for (auto row = l.q.begin(); row != l.q.end(); row += static_cast<std::ptrdiff_t>(l.dk)) {
                std::rotate(row, row + static_cast<std::ptrdiff_t>(l.dk / 2), row + static_cast<std::ptrdiff_t>(l.dk));
            }
        });
        before("neighbouring dimensions of k exchanged", {"layout", "head_map", "l2norm"}, [](Lane& l) {
            for (Row i = 0; i + 1 < l.k.size(); i += 2) std::swap(l.k[i], l.k[i + 1]);
        });
        before("the last dimension of q and k left out", {"l2norm", "layout", "tile"}, [](Lane& l) {
            for (auto* x : {&l.q, &l.k}) {
                for (Row i = l.dk - 1; i < x->size(); i += l.dk) (*x)[i] = 0;
            }
        });
        before("g 0.02 too small", {"gate", "decay"}, [](Lane& l) {
            for (double& g : l.gate) g -= 0.02;
        });
        before("g averaged with the token before", {"gate", "decay"}, [](Lane& l) {
            for (Row t = l.gate.size(); t-- > 1;) l.gate[t] = (l.gate[t] + l.gate[t - 1]) / 2;
        });
        before("exp(g) by 1 + g", {"gate", "decay"}, [](Lane& l) {
            for (double& g : l.gate) g = std::log(std::max(1 + g, 1e-3));
        });
        before("beta squared at every 3rd token", {"beta", "wu"}, [](Lane& l) {
            for (Row t = 0; t < l.beta.size(); t += 3) l.beta[t] *= l.beta[t];
        });
        before("beta rounded to 1/16", {"beta", "rounding", "wu"}, [](Lane& l) {
            for (double& b : l.beta) b = std::round(b * 16) / 16;
        });
        before("v of every 7th token is 0", {"wu", "tile", "padding"}, [](Lane& l) {
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

std::vector<Mutant> unexpected_mutants() { return Strangers().all(); }

}  // namespace gdnctl::oracle
