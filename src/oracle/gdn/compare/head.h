// One value head of one sequence in the chunked form, written so that faults can be injected: it exposes the
// coefficients of a chunk, lets a hypothesis edit them, and then uses them. Without edits it is the correct form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// A window of whole chunks of a head, with some columns of v: columns of the state are independent.
struct HeadInputs {
    std::size_t tokens = 0, dk = 0, columns = 0;
    std::size_t chunk = 64;
    std::vector<double> q, k;        // [tokens, dk], as given
    std::vector<double> v;           // [tokens, columns]
    std::vector<double> gate, beta;  // [tokens], as given
    double A_log = 0, dt_bias = 0;
    std::vector<double> state;    // [dk, columns], before the window
    std::vector<double> initial;  // [dk, columns], of the whole sequence
    std::size_t before = 0;       // tokens of the sequence before the window
    double gates_before = 0;      // sum of their log decays
    bool first = true;            // the window begins at the start of the sequence
    bool last = true;             // and ends at its end
    DType qk_dtype = DType::f32, gate_dtype = DType::f32;
};

// The same after preprocessing: q and k normalised, gates as log decay, beta as probability.
struct PreparedHead : HeadInputs {
    double scale = 1;
    std::optional<ExpClip> clip;  // of cumulative sums of gates
};
PreparedHead prepare_head(const HeadInputs& inputs, const GdnContract& contract);

enum class Handover { normal, zeros, initial, unchanged, bf16, only_new };

// A chunk's coefficients, with the state S before it and rows i, j:
//   R_i = write_i v_i - forget_i (K S)_i      (I + M) U = R
//   O_i = read_i (Q S)_i + sum_j P_ij U_j     S' = keep S + sum_i insert_i k_i U_i^T
struct ChunkParts {
    const PreparedHead* head = nullptr;
    std::size_t first = 0, rows = 0;  // in the window
    std::size_t index = 0;            // of the chunk in its sequence
    bool last_of_sequence = false;
    std::vector<double> key_gram, query_gram;  // K K^T, Q K^T
    std::vector<double> sum, sum_before;       // of the gates up to and including row i; and excluding it
    double gates_before = 0;                   // of all tokens before the chunk
    std::vector<double> M, P, write, forget, read, insert;
    double keep = 1;
    double before = 1;  // factor on S wherever the chunk reads it
    int neumann = 0;    // 0: substitution; n: U = R - M R + M^2 R ... up to M^n
    bool bf16_operands = false;
    Handover handover = Handover::normal;

    double gate(std::size_t i) const { return head->gate[first + i]; }
    double beta(std::size_t i) const { return head->beta[first + i]; }
    double scale() const { return head->scale; }
    // exp(c_i - c_j), or 0 across a gate that closes completely; exponents are clipped as the head does it.
    double decay(std::size_t i, std::size_t j) const;
    double decay_from_start(std::size_t i) const;
    std::vector<int> stretch;  // closed gates up to row i
};
using ChunkEdit = std::function<void(ChunkParts&)>;
// The correct coefficients of the chunk that begins at token `first` of the head.
ChunkParts chunk_parts(const PreparedHead& head, std::size_t first);

// K K^T and Q K^T of a head's chunks, shared by heads with the same keys (and queries).
struct HeadGrams {
    std::size_t chunk = 0;
    std::vector<double> q, k;                               // normalised
    std::vector<std::vector<double>> key_gram, query_gram;  // per chunk
};
HeadGrams grams_of(const PreparedHead& head);

struct HeadResult {
    std::vector<double> out;    // [tokens, columns]
    std::vector<double> state;  // [dk, columns], after the window
};

// Products and sums in Real (float or double). `known` saves time if it belongs to the head's own keys; nullptr: none.
template <class Real>
HeadResult run_head(const PreparedHead& head, const ChunkEdit& edit, const HeadGrams* known = nullptr);

// Token by token, with the gates as factors on the state. Takes no logarithm, so factors may have any sign.
HeadResult run_head_by_factors(const PreparedHead& head);
// Token by token, with the state rounded to bf16 after each token, before or after out is read from it.
HeadResult run_head_rounded(const PreparedHead& head);
HeadResult run_head_rounded_late(const PreparedHead& head);

extern template HeadResult run_head<float>(const PreparedHead&, const ChunkEdit&, const HeadGrams*);
extern template HeadResult run_head<double>(const PreparedHead&, const ChunkEdit&, const HeadGrams*);

// One chunk of a head with each of its products exposed, so that each can be wrong on its own.

using Reals = std::vector<double>;

// Keys and queries of a chunk at each place where they are used, [rows, dk] each.
struct KeyUses {
    Reals query_state, query_gram;                     // in Q S, in P
    Reals key_state, key_solve, key_intra, key_write;  // in K S, in M, in P, and in the update of the state
};
KeyUses key_uses(const PreparedHead& head, std::size_t first, std::size_t rows);

// R = write v - forget KS      (I + M) U = R      O = read QS + P U      S' = keep S + keys^T insert U
struct OpenChunk {
    std::size_t rows = 0, dk = 0, columns = 0;
    Reals M, P;                         // [rows, rows]
    Reals write, forget, read, insert;  // [rows]
    Reals v, KS, QS;                    // [rows, columns]
    Reals keys;                         // [rows, dk]
    Reals state;                        // [dk, columns], before the chunk
    double keep = 1;
};
OpenChunk open_chunk(const ChunkParts& parts, const KeyUses& uses, Reals state);

Reals right_hand_side(const OpenChunk& c);
Reals solved(const OpenChunk& c, Reals rhs);
Reals times_p(const OpenChunk& c, const Reals& U);
void add_read(const OpenChunk& c, Reals& out);  // out += read QS
Reals out_of(const OpenChunk& c, const Reals& U);
Reals state_after(const OpenChunk& c, const Reals& U);

// [rows, dk] times [dk, columns].
Reals product(const Reals& rows, const Reals& matrix, std::size_t inner, std::size_t columns);

}  // namespace gdnctl::oracle
