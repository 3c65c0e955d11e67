// One chunk of a lane with each of its products exposed, so that each can be wrong on its own.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/compare/lane.h"

namespace gdnctl::oracle {

using Reals = std::vector<double>;

// Keys and queries of a chunk at each place where they are used, [rows, dk] each.
struct KeyUses {
    Reals query_state, query_gram;                     // in Q S, in P
    Reals key_state, key_solve, key_intra, key_write;  // in K S, in M, in P, and in the update of the state
};
KeyUses key_uses(const Lane& lane, std::size_t first, std::size_t rows);

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
