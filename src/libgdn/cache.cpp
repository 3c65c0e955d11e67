// States that libgdn keeps between decode steps.
#include <tuple>

#include "libgdn/calls.h"
#include "oracle/gdn/kernels/decode32.h"

using namespace gdnctl::oracle;
using namespace gdnctl::libgdn;

struct gdn_cache {
    gdn_call sizes;  // its arrays are not used
    DecodeCache states;
};

namespace {

gdn_cache* new_cache(const gdn_call& c) {
    const GdnDims dims = {c.batch, c.tokens, c.key_heads, c.value_heads, c.key_dim, c.value_dim};
    return new gdn_cache{c, DecodeCache(dims, head_map_of(c), static_cast<std::size_t>(c.sequences), best_isa())};
}

// Then arrays may be missing as well.
bool nothing(const gdn_cache* cache) { return cache != nullptr && cache->sizes.sequences == 0; }

int cache_step(gdn_cache& cache, const gdn_call& call) {
    if (const int bad = check_sizes(call); bad != GDN_OK) return bad;  // a call of another version may be shorter
    gdn_call c = call;
    c.initial_state = c.final_state = {};
    if (const int bad = check_forward(c, Need::optional); bad != GDN_OK) return bad;
    const auto sizes = [](const gdn_call& x) {
        return std::tuple(x.key_heads, x.value_heads, x.key_dim, x.value_dim, x.sequences, x.head_map);
    };
    if (sizes(c) != sizes(cache.sizes)) return GDN_INVALID;
    const auto sequences = sequences_of(c);
    if (const int bad = check_decode(sequences); bad != GDN_OK) return bad;
    cache.states.step(forward_of(c, sequences), c.threads);
    return GDN_OK;
}

}  // namespace

extern "C" {

int gdn_cache_new(const gdn_call* call, gdn_cache** cache) {
    if (cache != nullptr) *cache = nullptr;
    return guarded(
        [](const gdn_call& c, gdn_cache*& to) {
            const int status = check_sizes(c);
            if (status == GDN_OK) to = new_cache(c);
            return status;
        },
        call, cache);
}

void gdn_cache_free(gdn_cache* cache) { delete cache; }

int gdn_cache_load(gdn_cache* cache, const float* states, int32_t threads) {
    if (nothing(cache)) return GDN_OK;
    return guarded(
        [threads](gdn_cache& c, const float& from) {
            c.states.load(&from, threads);
            return GDN_OK;
        },
        cache, states);
}

int gdn_cache_store(const gdn_cache* cache, float* states, int32_t threads) {
    if (nothing(cache)) return GDN_OK;
    return guarded(
        [threads](const gdn_cache& c, float& to) {
            c.states.store(&to, threads);
            return GDN_OK;
        },
        cache, states);
}

int gdn_cache_step(gdn_cache* cache, const gdn_call* call) { return guarded(cache_step, cache, call); }

}  // extern "C"
