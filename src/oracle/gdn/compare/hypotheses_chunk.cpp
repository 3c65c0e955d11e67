// Mistakes inside a chunk, between chunks, and in the order of operations, as edits of a chunk's coefficients.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/compare/hypotheses.h"

namespace gdnctl::oracle {

namespace {

using Hypotheses = std::vector<Hypothesis>;

void add(Hypotheses& all, std::string_view stage, std::string text, ChunkEdit edit, bool rounding = false) {
    all.push_back({stage, std::move(text), {}, {}, std::move(edit), rounding});
}

// Recomputes M and P from the given Gamma(i, j) for j <= i.
template <class ForM, class ForP>
void set_decays(ChunkParts& c, const ForM& for_m, const ForP& for_p) {
    for (std::size_t i = 0; i < c.rows; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            if (j < i) c.M[i * c.rows + j] = c.beta(i) * c.key_gram[i * c.rows + j] * for_m(i, j);
            c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * for_p(i, j);
        }
    }
}

// Decay after row j up to and including row i, with either end moved by one: `late` counts row i, `own` row j.
double between(const ChunkParts& c, std::size_t i, std::size_t j, bool late, bool own) {
    const double to = late ? c.sum[i] : c.sum_before[i];
    const double from = own ? c.sum_before[j] : c.sum[j];
    const bool open = c.stretch[i] == c.stretch[j];
    return open ? std::exp(to - from) : 0;
}

void add_sums(Hypotheses& all) {
    const auto exclusive = [](ChunkParts& c) {
        set_decays(
            c, [&](auto i, auto j) { return between(c, i, j, false, true); },
            [&](auto i, auto j) { return between(c, i, j, false, true); });
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.forget[i] = c.beta(i) * std::exp(c.sum_before[i]);
            c.read[i] = c.scale() * std::exp(c.sum_before[i]);
        }
    };
    add(all, "gate", "the sum of gates is exclusive instead of inclusive", [exclusive](ChunkParts& c) {
        exclusive(c);
        const double last = c.sum_before[c.rows - 1];
        c.keep = std::exp(last);
        for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] = std::exp(last - c.sum_before[i]);
    });
    add(all, "gate", "the sum of gates is exclusive instead of inclusive (the chunk's whole decay is right)",
        [exclusive](ChunkParts& c) {
            exclusive(c);
            const double last = c.sum[c.rows - 1];
            for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] = std::exp(last - c.sum_before[i]);
        });
    add(all, "gate", "the sum of gates does not restart at each chunk",
        [](ChunkParts& c) { c.before = std::exp(c.gates_before); });
    add(all, "gate", "the gates of a chunk are summed from its end", [](ChunkParts& c) {
        const double whole = c.sum[c.rows - 1];
        const auto sum = [&](std::size_t i) { return whole - c.sum_before[i]; };
        const auto gamma = [&](std::size_t i, std::size_t j) { return std::exp(sum(i) - sum(j)); };
        set_decays(c, gamma, gamma);
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.forget[i] = c.beta(i) * std::exp(sum(i));
            c.read[i] = c.scale() * std::exp(sum(i));
        }
    });
    add(all, "gate", "gates are not summed: each row decays by its own alone", [](ChunkParts& c) {
        const auto gamma = [&](std::size_t i, std::size_t j) { return std::exp(c.gate(i) - c.gate(j)); };
        set_decays(c, gamma, gamma);
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.forget[i] = c.beta(i) * std::exp(c.gate(i));
            c.read[i] = c.scale() * std::exp(c.gate(i));
            c.insert[i] = std::exp(c.gate(c.rows - 1) - c.gate(i));
        }
        c.keep = std::exp(c.gate(c.rows - 1));
    });
}

void add_decays(Hypotheses& all) {
    const auto one = [](std::size_t, std::size_t) { return 1.0; };
    const auto honest = [](ChunkParts& c) { return [&c](std::size_t i, std::size_t j) { return c.decay(i, j); }; };
    add(all, "decay", "the decay between rows (Gamma) is missing in M",
        [=](ChunkParts& c) { set_decays(c, one, honest(c)); });
    add(all, "decay", "the decay between rows (Gamma) is missing in P",
        [=](ChunkParts& c) { set_decays(c, honest(c), one); });
    add(all, "decay", "the decay between rows (Gamma) is missing in M and P",
        [=](ChunkParts& c) { set_decays(c, one, one); });
    add(all, "decay", "Gamma is exp(c_i) instead of exp(c_i - c_j)", [](ChunkParts& c) {
        const auto gamma = [&](std::size_t i, std::size_t) { return std::exp(c.sum[i]); };
        set_decays(c, gamma, gamma);
    });
    add(all, "decay", "Gamma is exp(c_j - c_i), upside down", [](ChunkParts& c) {
        const auto gamma = [&](std::size_t i, std::size_t j) { return std::exp(c.sum[j] - c.sum[i]); };
        set_decays(c, gamma, gamma);
    });
    add(all, "decay", "Gamma is applied twice", [](ChunkParts& c) {
        const auto gamma = [&](std::size_t i, std::size_t j) { return c.decay(i, j) * c.decay(i, j); };
        set_decays(c, gamma, gamma);
    });
    for (const bool in_m : {true, false}) {
        add(all, "decay", in_m ? "Gamma reaches one row too far in M" : "Gamma reaches one row too far in P",
            [=](ChunkParts& c) {
                const auto far = [&](std::size_t i, std::size_t j) { return between(c, i, j, true, true); };
                if (in_m) set_decays(c, far, honest(c));
                if (!in_m) set_decays(c, honest(c), far);
            });
        add(all, "decay", in_m ? "Gamma ends one row too early in M" : "Gamma ends one row too early in P",
            [=](ChunkParts& c) {
                const auto near = [&](std::size_t i, std::size_t j) {
                    return i == j ? 1 : between(c, i, j, false, false);
                };
                if (in_m) set_decays(c, near, honest(c));
                if (!in_m) set_decays(c, honest(c), near);
            });
    }
}

void add_solves(Hypotheses& all) {
    const auto matrix = [&](std::string text,
                            const std::function<double(const ChunkParts&, std::size_t, std::size_t)>& entry) {
        add(all, "solve", std::move(text), [entry](ChunkParts& c) {
            const std::vector<double> M = c.M;
            for (std::size_t i = 0; i < c.rows; ++i) {
                for (std::size_t j = 0; j < i; ++j) c.M[i * c.rows + j] = M[i * c.rows + j] * entry(c, i, j);
            }
        });
    };
    matrix("M is left out: U = R", [](const ChunkParts&, std::size_t, std::size_t) { return 0.0; });
    matrix("the inverse is that of I - M", [](const ChunkParts&, std::size_t, std::size_t) { return -1.0; });
    matrix("M has no beta",
           [](const ChunkParts& c, std::size_t i, std::size_t) { return c.beta(i) == 0 ? 0 : 1 / c.beta(i); });
    matrix("M has beta of the column instead of the row", [](const ChunkParts& c, std::size_t i, std::size_t j) {
        return c.beta(i) == 0 ? 0 : c.beta(j) / c.beta(i);
    });
    matrix("M has beta twice", [](const ChunkParts& c, std::size_t i, std::size_t) { return c.beta(i); });
    matrix("M lacks its first column",
           [](const ChunkParts&, std::size_t, std::size_t j) { return j == 0 ? 0.0 : 1.0; });
    matrix("M lacks its last row",
           [](const ChunkParts& c, std::size_t i, std::size_t) { return i + 1 == c.rows ? 0.0 : 1.0; });
    matrix("M lacks its first subdiagonal",
           [](const ChunkParts&, std::size_t i, std::size_t j) { return i == j + 1 ? 0.0 : 1.0; });
    for (const std::size_t block : {2UL, 4UL, 8UL, 16UL, 32UL}) {
        matrix("blocks of " + std::to_string(block) + " rows are inverted but never merged",
               [block](const ChunkParts&, std::size_t i, std::size_t j) { return i / block == j / block ? 1.0 : 0.0; });
        matrix("the inverse merges only neighbouring blocks of " + std::to_string(block) + " rows",
               [block](const ChunkParts&, std::size_t i, std::size_t j) {
                   return i / (2 * block) == j / (2 * block) ? 1.0 : 0.0;
               });
    }
    for (const int terms : {1, 2, 3, 7, 15, 31}) {
        add(all, "solve", "the inverse's series stops at M^" + std::to_string(terms),
            [terms](ChunkParts& c) { c.neumann = terms; });
    }
    add(all, "solve", "M keeps its diagonal (the mask is not strict)", [](ChunkParts& c) {
        // (I + M) has 1 + beta k.k on its diagonal: every row is divided by it.
        for (std::size_t i = 0; i < c.rows; ++i) {
            const double divisor = 1 + c.beta(i) * c.key_gram[i * c.rows + i];
            for (std::size_t j = 0; j < i; ++j) c.M[i * c.rows + j] /= divisor;
            c.write[i] /= divisor;
            c.forget[i] /= divisor;
        }
    });
    add(all, "solve", "the solve uses M transposed", [](ChunkParts& c) {
        const std::vector<double> M = c.M;
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < c.rows; ++j) c.M[i * c.rows + j] = M[j * c.rows + i];
        }
        c.neumann = static_cast<int>(c.rows);
    });
}

void add_right_hand_sides(Hypotheses& all) {
    const auto rows = [&](std::string text, const std::function<void(ChunkParts&, std::size_t)>& edit) {
        add(all, "wu", std::move(text), [edit](ChunkParts& c) {
            for (std::size_t i = 0; i < c.rows; ++i) edit(c, i);
        });
    };
    const auto unless_zero = [](double x, double beta) { return beta == 0 ? 0 : x / beta; };
    rows("v is not multiplied by beta", [](ChunkParts& c, std::size_t i) { c.write[i] = 1; });
    rows("K S is not subtracted from v", [](ChunkParts& c, std::size_t i) { c.forget[i] = 0; });
    rows("K S is added to v", [](ChunkParts& c, std::size_t i) { c.forget[i] = -c.forget[i]; });
    rows("K S is not multiplied by beta",
         [=](ChunkParts& c, std::size_t i) { c.forget[i] = unless_zero(c.forget[i], c.beta(i)); });
    rows("K S is multiplied by beta twice", [](ChunkParts& c, std::size_t i) { c.forget[i] *= c.beta(i); });
    rows("v is multiplied by beta twice", [](ChunkParts& c, std::size_t i) { c.write[i] *= c.beta(i); });
    rows("K S lacks the decay from the chunk's start", [](ChunkParts& c, std::size_t i) { c.forget[i] = c.beta(i); });
    rows("K S has that decay twice", [](ChunkParts& c, std::size_t i) { c.forget[i] *= std::exp(c.sum[i]); });
    rows("v has the decay from the chunk's start",
         [](ChunkParts& c, std::size_t i) { c.write[i] *= std::exp(c.sum[i]); });
    rows("neither v nor K S is multiplied by beta", [=](ChunkParts& c, std::size_t i) {
        c.write[i] = 1;
        c.forget[i] = unless_zero(c.forget[i], c.beta(i));
    });
}

void add_intras(Hypotheses& all) {
    const auto intra = [&](std::string text, std::function<void(ChunkParts&)> edit) {
        add(all, "intra", std::move(text), std::move(edit));
    };
    intra("P lacks its diagonal (the mask is strict): out does not see its own token's write", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.P[i * c.rows + i] = 0;
    });
    intra("P has the diagonal alone", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < i; ++j) c.P[i * c.rows + j] = 0;
        }
    });
    intra("P is not masked: tokens see later ones of their chunk", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = i + 1; j < c.rows; ++j) {
                c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * std::exp(c.sum[i] - c.sum[j]);
            }
        }
    });
    intra("P is not masked, and has no decay above the diagonal", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = i + 1; j < c.rows; ++j) c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j];
        }
    });
    intra("the mask of P is one row too wide", [](ChunkParts& c) {
        for (std::size_t i = 0; i + 1 < c.rows; ++i) {
            c.P[i * c.rows + i + 1] = c.scale() * c.query_gram[i * c.rows + i + 1] * std::exp(c.sum[i] - c.sum[i + 1]);
        }
    });
    intra("P lacks the scale", [](ChunkParts& c) {
        for (double& p : c.P) p = c.scale() == 0 ? 0 : p / c.scale();
    });
    intra("P has the scale twice", [](ChunkParts& c) {
        for (double& p : c.P) p *= c.scale();
    });
    intra("P is left out: out has the state's part alone",
          [](ChunkParts& c) { std::fill(c.P.begin(), c.P.end(), 0.0); });
    intra("P is built from K K^T", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j <= i; ++j)
                c.P[i * c.rows + j] = c.scale() * c.key_gram[i * c.rows + j] * c.decay(i, j);
        }
    });
    intra("P is transposed", [](ChunkParts& c) {
        const std::vector<double> P = c.P;
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < c.rows; ++j) c.P[i * c.rows + j] = P[j * c.rows + i];
        }
    });
    intra("P is multiplied by beta", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j <= i; ++j) c.P[i * c.rows + j] *= c.beta(j);
        }
    });
}

void add_reads(Hypotheses& all) {
    const auto read = [&](std::string text, const std::function<void(ChunkParts&, std::size_t)>& edit) {
        add(all, "output", std::move(text), [edit](ChunkParts& c) {
            for (std::size_t i = 0; i < c.rows; ++i) edit(c, i);
        });
    };
    read("the state's part Q S is left out", [](ChunkParts& c, std::size_t i) { c.read[i] = 0; });
    read("Q S lacks the decay from the chunk's start", [](ChunkParts& c, std::size_t i) { c.read[i] = c.scale(); });
    read("Q S has that decay twice", [](ChunkParts& c, std::size_t i) { c.read[i] *= std::exp(c.sum[i]); });
    read("Q S lacks its own token's decay",
         [](ChunkParts& c, std::size_t i) { c.read[i] = c.scale() * std::exp(c.sum_before[i]); });
    read("Q S lacks the scale",
         [](ChunkParts& c, std::size_t i) { c.read[i] = c.scale() == 0 ? 0 : c.read[i] / c.scale(); });
    read("Q S has the scale twice", [](ChunkParts& c, std::size_t i) { c.read[i] *= c.scale(); });
    read("Q S is subtracted", [](ChunkParts& c, std::size_t i) { c.read[i] = -c.read[i]; });
    read("Q S has the whole chunk's decay", [](ChunkParts& c, std::size_t i) { c.read[i] = c.scale() * c.keep; });
}

void add_carries(Hypotheses& all) {
    const auto carry = [&](std::string text, ChunkEdit edit, bool rounding = false) {
        add(all, rounding ? "rounding" : "carry", std::move(text), std::move(edit), rounding);
    };
    carry("the state does not decay over a chunk", [](ChunkParts& c) { c.keep = 1; });
    carry("the state decays twice over a chunk", [](ChunkParts& c) { c.keep *= c.keep; });
    carry("the state decays over a chunk by its last gate alone",
          [](ChunkParts& c) { c.keep = std::exp(c.gate(c.rows - 1)); });
    carry("the state decays over a chunk without its last gate",
          [](ChunkParts& c) { c.keep = std::exp(c.sum_before[c.rows - 1]); });
    carry("what a chunk writes has no decay to the chunk's end",
          [](ChunkParts& c) { std::fill(c.insert.begin(), c.insert.end(), 1.0); });
    carry("what a chunk writes has the decay from its start instead of to its end", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] = std::exp(c.sum[i]);
    });
    carry("what a chunk writes has the whole chunk's decay",
          [](ChunkParts& c) { std::fill(c.insert.begin(), c.insert.end(), std::exp(c.sum[c.rows - 1])); });
    carry("what a chunk writes decays by its own token's gate too", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] = std::exp(c.sum[c.rows - 1] - c.sum_before[i]);
    });
    carry("what a chunk writes is subtracted from the state", [](ChunkParts& c) {
        for (double& x : c.insert) x = -x;
    });
    carry("what a chunk writes is multiplied by beta once more", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.insert[i] *= c.beta(i);
    });
    carry("the last token of a chunk is not written", [](ChunkParts& c) { c.insert[c.rows - 1] = 0; });
    carry("the first token of a chunk is not written", [](ChunkParts& c) { c.insert[0] = 0; });
    carry("the state is not carried from chunk to chunk (0 again)",
          [](ChunkParts& c) { c.handover = Handover::zeros; });
    carry("every chunk starts from the initial state", [](ChunkParts& c) { c.handover = Handover::initial; });
    carry("the state is never updated", [](ChunkParts& c) { c.handover = Handover::unchanged; });
    carry("the state after a chunk is what that chunk wrote alone",
          [](ChunkParts& c) { c.handover = Handover::only_new; });
    carry("the last chunk does not update the final state", [](ChunkParts& c) {
        if (c.last_of_sequence) c.handover = Handover::unchanged;
    });
    carry(
        "the state is rounded to bf16 after each chunk (declare it: --set state_dtype=bf16)",
        [](ChunkParts& c) { c.handover = Handover::bf16; }, true);
    add(all, "padding", "the padding of the last chunk decays the final state", [](ChunkParts& c) {
        if (!c.last_of_sequence || c.rows == c.head->chunk) return;
        // As if the last token's gate filled the padding.
        const double more = std::exp(c.gate(c.rows - 1) * static_cast<double>(c.head->chunk - c.rows));
        c.keep *= more;
        for (double& x : c.insert) x *= more;
    });
    add(all, "padding", "the tokens of an incomplete last chunk are left out", [](ChunkParts& c) {
        if (!c.last_of_sequence || c.rows == c.head->chunk) return;
        c.handover = Handover::unchanged;
        std::fill(c.P.begin(), c.P.end(), 0.0);
        std::fill(c.read.begin(), c.read.end(), 0.0);
    });
    add(all, "padding", "the last token is treated as padding", [](ChunkParts& c) {
        if (!c.last_of_sequence) return;
        const std::size_t i = c.rows - 1;
        c.insert[i] = 0;
        c.read[i] = 0;
        for (std::size_t j = 0; j <= i; ++j) c.P[i * c.rows + j] = 0;
    });
}

void add_orders(Hypotheses& all) {
    const auto exp_before = [](const ChunkParts& c, std::size_t i) { return std::exp(c.sum_before[i]); };
    add(all, "order", "the decay is applied after the write", [=](ChunkParts& c) {
        set_decays(
            c, [&](auto i, auto j) { return between(c, i, j, false, true); },
            [&](auto i, auto j) { return between(c, i, j, true, true); });
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.forget[i] = c.beta(i) * exp_before(c, i);
            c.insert[i] = std::exp(c.sum[c.rows - 1] - c.sum_before[i]);
        }
    });
    add(all, "order", "the decay is applied after the write and after out is read", [=](ChunkParts& c) {
        const auto gamma = [&](std::size_t i, std::size_t j) { return between(c, i, j, false, true); };
        set_decays(c, gamma, gamma);
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.forget[i] = c.beta(i) * exp_before(c, i);
            c.read[i] = c.scale() * exp_before(c, i);
            c.insert[i] = std::exp(c.sum[c.rows - 1] - c.sum_before[i]);
        }
    });
    add(all, "order", "out is read from the old state, before decay and write", [=](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) {
            c.read[i] = c.scale() * exp_before(c, i);
            for (std::size_t j = 0; j < i; ++j) {
                c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * between(c, i, j, false, false);
            }
            c.P[i * c.rows + i] = 0;
        }
    });
    add(all, "order", "out is read from the decayed old state, before the write", [](ChunkParts& c) {
        for (std::size_t i = 0; i < c.rows; ++i) c.P[i * c.rows + i] = 0;
    });
    add(all, "order", "r is computed from the undecayed state", [=](ChunkParts& c) {
        set_decays(
            c, [&](auto i, auto j) { return between(c, i, j, false, false); },
            [&](auto i, auto j) { return c.decay(i, j); });
        for (std::size_t i = 0; i < c.rows; ++i) c.forget[i] = c.beta(i) * exp_before(c, i);
    });
    add(all, "order", "the write is not a delta: v itself is written (no K S, no M)", [](ChunkParts& c) {
        std::fill(c.M.begin(), c.M.end(), 0.0);
        std::fill(c.forget.begin(), c.forget.end(), 0.0);
    });
}

}  // namespace

std::vector<Hypothesis> chunk_hypotheses() {
    Hypotheses all;
    add_sums(all);
    add_orders(all);
    add_decays(all);
    add_solves(all);
    add_right_hand_sides(all);
    add_intras(all);
    add_reads(all);
    add_carries(all);
    return all;
}

}  // namespace gdnctl::oracle
