#include "oracle/linear_ce/blocks/block_sizes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::int64_t k_million = 1048576;

constexpr std::array<Bucket, 12> k_buckets = {{
    {"tiny", 1, 512, 1, 1024, 1, 8192},
    {"small-vocab", 512, 2048, 256, 1024, 4096, 16384},
    {"small-h-small-vocab", 2048, 8192, 1, 256, 4096, 16384},
    {"llama3-ish", 4096, 16384, 4096, 4096, 120000, 131072},
    {"gb10-large-vocab-mid-batch", 2048, 32768, 512, 1536, 65536, 262144, true},
    {"mid-h-large-vocab", 4096, 32768, 768, 1536, 120000, 131072},
    {"huge-batch-llama3-ish", 65536, k_million, 4096, 4096, 120000, 131072},
    {"huge-batch-small-h", 131073, k_million, 256, 1024, 120000, 131072},
    {"large-batch-small-h", 32768, 131072, 256, 1024, 120000, 131072},
    {"large-batch-medium-h", 32768, 131072, 1536, 3072, 120000, 131072},
    {"medium-batch-medium-h", 8192, 32767, 1536, 3072, 120000, 131072},
    {"gb10-fallback", 1, k_million, 1, k_million, 1, k_million, true},
}};

constexpr std::int64_t k_v4_low = 16385;
constexpr std::int64_t k_v4_high = 119999;
constexpr std::array<Bucket, 6> k_v4_buckets = {{
    {"small-vocab", 512, 2048, 256, 1024, k_v4_low, k_v4_high},
    {"llama3-ish", 4096, 16384, 4096, 4096, k_v4_low, k_v4_high},
    {"mid-h-large-vocab", 4096, 32768, 768, 1536, k_v4_low, k_v4_high},
    {"huge-batch-small-h", 131073, k_million, 256, 1024, k_v4_low, k_v4_high},
    {"large-batch-small-h", 32768, 131072, 256, 1024, k_v4_low, k_v4_high},
    {"medium-batch-medium-h", 8192, 32768, 1536, 3072, k_v4_low, k_v4_high},
}};

struct TunedRow {
    std::string_view key, bucket;
    BlockSizes sizes;
};

constexpr std::array k_latest = {
    TunedRow{"default", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v4", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v4", "llama3-ish", {8192, 512, 1024}},
    TunedRow{"TPU v4", "mid-h-large-vocab", {1024, 1024, 256}},
    TunedRow{"TPU v4", "huge-batch-small-h", {1024, 1024, 256}},
    TunedRow{"TPU v4", "large-batch-small-h", {1024, 512, 512}},
    TunedRow{"TPU v4", "medium-batch-medium-h", {1024, 512, 1024}},
    TunedRow{"TPU v5", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v5", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v5", "huge-batch-llama3-ish", {1024, 512, 256}},
    TunedRow{"TPU v5", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5", "large-batch-medium-h", {1024, 1024, 768}},
    TunedRow{"TPU v5", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"TPU v5e", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v5e", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v5e", "mid-h-large-vocab", {8192, 256, 1024}},
    TunedRow{"TPU v5e", "huge-batch-small-h", {8192, 256, 1024}},
    TunedRow{"TPU v5e", "large-batch-small-h", {4096, 512, 2048}},
    TunedRow{"TPU v5e", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"TPU v6", "small-vocab", {1024, 256, 2048}},
    TunedRow{"TPU v6", "llama3-ish", {1024, 512, 512}},
    TunedRow{"TPU v6", "mid-h-large-vocab", {8192, 1024, 1024}},
    TunedRow{"TPU v6", "huge-batch-small-h", {8192, 256, 1024}},
    TunedRow{"TPU v6", "large-batch-small-h", {4096, 512, 2048}},
    TunedRow{"TPU v6", "medium-batch-medium-h", {1024, 256, 512}},
    TunedRow{"NVIDIA", "tiny", {128, 64, 128}},
    TunedRow{"NVIDIA", "small-vocab", {128, 256, 1024}},
    TunedRow{"NVIDIA", "llama3-ish", {256, 256, 1024}},
    TunedRow{"NVIDIA", "large-batch-small-h", {256, 256, 2048}},
    TunedRow{"NVIDIA", "medium-batch-medium-h", {256, 256, 2048}},
    TunedRow{"NVIDIA GB10", "tiny", {128, 64, 128}},
    TunedRow{"NVIDIA GB10", "small-h-small-vocab", {128, 64, 128}},
    TunedRow{"NVIDIA GB10", "small-vocab", {128, 64, 256}},
    TunedRow{"NVIDIA GB10", "gb10-large-vocab-mid-batch", {1024, 32, 1024}},
    TunedRow{"NVIDIA GB10", "gb10-fallback", {128, 128, 64}},
};

constexpr std::array k_february = {
    TunedRow{"default", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5e", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v5e", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v5e", "large-batch-small-h", {1024, 512, 2048}},
    TunedRow{"TPU v5", "small-vocab", {1024, 256, 512}},
    TunedRow{"TPU v5", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v5", "large-batch-small-h", {1024, 512, 1024}},
    TunedRow{"TPU v5", "medium-batch-medium-h", {1024, 256, 2048}},
    TunedRow{"TPU v5", "huge-batch-llama3-ish", {1024, 512, 256}},
    TunedRow{"TPU v4", "small-vocab", {1024, 256, 1024}},
    TunedRow{"TPU v4", "llama3-ish", {1024, 512, 1024}},
    TunedRow{"TPU v4", "large-batch-small-h", {1024, 512, 1024}},
    TunedRow{"TPU v4", "medium-batch-medium-h", {1024, 512, 1024}},
};

// Devices whose rows are the same.
std::string_view row_key(std::string_view device_key) {
    if (device_key == "TPU v5p") return "TPU v5";
    if (device_key == "NVIDIA H100" || device_key == "NVIDIA A100") return "NVIDIA";
    return device_key;
}

}  // namespace

std::span<const Bucket> buckets() { return k_buckets; }
std::span<const Bucket> v4_buckets() { return k_v4_buckets; }

std::optional<BlockSizes> tuned_sizes(TableDate table, std::string_view device_key, std::string_view bucket) {
    const std::span<const TunedRow> rows =
        table == TableDate::latest ? std::span<const TunedRow>(k_latest) : k_february;
    for (const TunedRow& row : rows) {
        if (row.key == row_key(device_key) && row.bucket == bucket) return row.sizes;
    }
    return std::nullopt;
}

namespace {

constexpr std::int64_t k_lanes = 128;
constexpr std::int64_t k_large = 1024;  // from this many rows on, b is a multiple of it

struct DTypeName {
    std::string_view small, large;
    std::int64_t bytes;
};
constexpr std::array<DTypeName, 3> k_dtypes = {{{"f32", "float32", 4}, {"bf16", "bfloat16", 2}, {"f16", "float16", 2}}};

Result<DTypeName> dtype_of(const std::string& text) {
    for (const DTypeName& d : k_dtypes) {
        if (d.small == text || d.large == text) return d;
    }
    return fail(ErrorKind::usage, fmt::format("dtype '{}' is not known", text),
                "known: f32, bf16, f16 and their long names");
}

enum class Vendor { tpu, nvidia, other };

Vendor vendor_of(const std::optional<std::string>& key) {
    if (!key) return Vendor::other;
    return key->starts_with("TPU") ? Vendor::tpu : Vendor::nvidia;
}

// Why Pallas would refuse these sizes; empty: it takes them.
std::vector<std::string> objections(Vendor vendor, const InferRequest& r, const BlockSizes& s) {
    std::vector<std::string> why;
    if (vendor == Vendor::nvidia) {
        if (std::min({s.b, s.h, s.v}) < 16) why.emplace_back("a block size is below 16");
        if (s.b % 16 != 0) why.push_back(fmt::format("b = {} is not a multiple of 16", s.b));
        if (s.h % 16 != 0) why.push_back(fmt::format("h = {} is not a multiple of 16", s.h));
        return why;
    }
    if (vendor == Vendor::other) return why;
    const std::pair<char, std::int64_t> sizes[] = {{'b', s.b}, {'h', s.h}};
    for (const auto& [name, size] : sizes) {
        if (size % k_lanes != 0) why.push_back(fmt::format("{} = {} is not a multiple of 128", name, size));
    }
    if (r.batch % s.b != 0) why.push_back(fmt::format("{} % {} is not 0: b does not divide B", r.batch, s.b));
    if (r.hidden % s.h != 0) why.push_back(fmt::format("{} % {} is not 0: h does not divide H", r.hidden, s.h));
    if (r.batch >= k_large && s.b % k_large != 0) {
        why.push_back(fmt::format("b = {} is not a multiple of 1024, as B >= 1024 demands", s.b));
    }
    return why;
}

std::string joined(const std::vector<std::string>& words) { return text::join(words, "; "); }

// The largest divisor of `count` that is a multiple of `unit`, up to `preferred`; `preferred` if there is none.
std::int64_t divisor(std::int64_t count, std::int64_t unit, std::int64_t preferred) {
    for (std::int64_t size = preferred / unit * unit; size >= unit; size -= unit) {
        if (count % size == 0) return size;
    }
    return preferred;
}

class Inference {
public:
    Inference(const InferRequest& request, std::int64_t w_bytes, TunedSizes entries)
        : m_r(request), m_w_bytes(w_bytes), m_entries(entries) {}

    Inferred run(const DTypeName& row, std::int64_t x_bytes) {
        m_to.dtype = row.large;
        if (const auto key = device_key_of(m_r.device_kind)) m_to.device_key = *key;
        m_vendor = vendor_of(m_to.device_key);
        if (const auto bucket = bucket_of(m_to.device_key.value_or(""), m_r.batch, m_r.hidden, m_r.vocab)) {
            m_to.bucket = *bucket;
        }
        const bool rows = row.large != "float16";
        if (!(rows && tuned())) untuned();
        runnable();
        m_to.pad_columns = (m_r.vocab + m_to.sizes.v - 1) / m_to.sizes.v * m_to.sizes.v - m_r.vocab;
        count_cores();
        estimate(static_cast<double>(x_bytes));
        xla();
        return std::move(m_to);
    }

private:
    bool take(std::string_view key, std::string_view bucket, const BlockSizes& sizes) {
        const std::vector<std::string> why = objections(m_vendor, m_r, sizes);
        if (!why.empty()) {
            m_to.rejected.push_back({std::string(key), std::string(bucket), sizes, joined(why)});
            return false;
        }
        m_to.sizes = sizes;
        m_to.tuned = true;
        return true;
    }

    bool tuned() {
        for (const std::string& key : {m_to.device_key.value_or(""), std::string("default")}) {
            if (key.empty()) continue;
            if (m_to.bucket) {
                if (tuned_by(key, *m_to.bucket)) return true;
            } else if (key == "TPU v4" && borrowed()) {
                return true;
            }
        }
        return false;
    }

    bool tuned_by(const std::string& key, const std::string& bucket) {
        constexpr std::string_view k_huge = "huge-batch-llama3-ish";
        constexpr std::string_view k_instead = "llama3-ish";
        auto sizes = m_entries(m_r.table, key, bucket);
        if (!sizes) return false;
        if (bucket == k_huge) {
            if (m_r.scoped_vmem_kib) {
                if (const auto other = m_entries(m_r.table, key, k_instead)) sizes = other;
            } else {
                m_to.warnings.emplace_back(
                    "safer huge-batch sizes (v = 256): LIBTPU_INIT_ARGS does not set xla_tpu_scoped_vmem_limit_kib "
                    "(--scoped-vmem-kib)");
            }
        }
        return take(key, bucket, *sizes);
    }

    bool borrowed() {
        for (const Bucket& bucket : v4_buckets()) {
            if (!bucket.holds(m_r.batch, m_r.hidden, m_r.vocab)) continue;
            const auto sizes = m_entries(m_r.table, "TPU v4", bucket.name);
            if (!sizes || !take("TPU v4", bucket.name, *sizes)) continue;
            m_to.bucket = bucket.name;
            m_to.remapped = true;
            return true;
        }
        return false;
    }

    void untuned() {
        const BlockSizes preferred;
        m_to.sizes = preferred;
        const std::vector<std::string> why = objections(m_vendor, m_r, preferred);
        if (!why.empty()) m_to.rejected.push_back({"", "", preferred, joined(why)});
        if (m_vendor == Vendor::tpu && !why.empty()) {
            m_to.sizes.b = divisor(m_r.batch, m_r.batch >= k_large ? k_large : k_lanes, preferred.b);
            m_to.sizes.h = divisor(m_r.hidden, k_lanes, preferred.h);
        }
        if (m_vendor != Vendor::nvidia || m_r.table != TableDate::latest) return;
        constexpr std::int64_t k_shared_memory = 101376;
        const auto beyond = [&] { return m_to.sizes.h * m_to.sizes.v * m_w_bytes > k_shared_memory; };
        while (beyond() && m_to.sizes.v > 16) m_to.sizes.v /= 2;
        while (beyond() && m_to.sizes.h > 16) m_to.sizes.h /= 2;
    }

    void runnable() {
        const BlockSizes& s = m_to.sizes;
        m_to.not_runnable_because = objections(m_vendor, m_r, s);
        if (m_vendor == Vendor::other) {
            m_to.not_runnable_because.emplace_back("the Pallas kernels run only on TPU and NVIDIA devices");
        }
        if (m_vendor != Vendor::tpu) return;
        constexpr std::int64_t k_tile_bytes = std::int64_t{64} << 20U;
        if (s.v % k_lanes != 0)
            m_to.not_runnable_because.push_back(fmt::format("v = {} is not a multiple of 128", s.v));
        if (s.b * s.v * 4 > k_tile_bytes)
            m_to.not_runnable_because.emplace_back("a tile b x v in fp32 is larger than 64 MiB");
    }

    void count_cores() {
        const std::string kind = text::to_lower(m_r.device_kind);
        const auto has = [&](std::string_view word) { return kind.find(word) != std::string::npos; };
        const bool two = has("tpu v4") || (has("tpu v5") && !has("v5e"));  // a v5e calls itself "TPU v5 lite"
        m_to.cores = two && m_r.batch % 2 == 0 && m_r.batch / 2 % m_to.sizes.b == 0 ? 2 : 1;
    }

    void estimate(double x_bytes) {
        const auto b = static_cast<double>(m_to.sizes.b);
        const auto h = static_cast<double>(m_to.sizes.h);
        const auto v = static_cast<double>(m_to.sizes.v);
        const double buffers = 2 * (b * h * x_bytes + h * v * static_cast<double>(m_w_bytes));
        m_to.forward_vmem_bytes = 4 * b * v + 12 * 128 * b + buffers + 16 * 128 * b;
        m_to.backward_vmem_bytes = 4 * (b * v + b * h + h * v) + buffers;
    }

    void xla() {
        const std::int64_t target =
            std::min(m_r.vocab, m_to.device_key == "TPU v5p" ? std::int64_t{16384} : std::int64_t{8192});
        m_to.xla_v = target == m_r.vocab ? target : std::max(target / k_lanes * k_lanes, k_lanes);
        m_to.xla_reference_path = m_to.xla_v >= m_r.vocab;
        m_to.xla_b = xla_b_block(m_r.batch, m_to.xla_v);
    }

    const InferRequest& m_r;
    std::int64_t m_w_bytes;
    TunedSizes m_entries;
    Vendor m_vendor = Vendor::other;
    Inferred m_to;
};

}  // namespace

std::int64_t xla_b_block(std::int64_t batch, std::int64_t v_block) {
    constexpr std::int64_t k_words = 2147483647;
    const std::int64_t most = std::max(std::min(batch, k_words / v_block), std::int64_t{1});
    for (const std::int64_t unit : {k_lanes, std::int64_t{1}}) {
        for (std::int64_t size = most / unit * unit; size >= unit; size -= unit) {
            if (batch % size == 0) return size;
        }
    }
    return 1;
}

std::optional<std::string_view> device_key_of(std::string_view kind) {
    const std::string lower = text::to_lower(kind);
    const auto has = [&](std::string_view word) { return lower.find(word) != std::string::npos; };
    if (has("nvidia"))
        return has("gb10") ? "NVIDIA GB10" : has("h100") ? "NVIDIA H100" : has("a100") ? "NVIDIA A100" : "NVIDIA";
    if (has("v6")) return "TPU v6";
    if (has("v4")) return "TPU v4";
    if (has("v5p")) return "TPU v5p";
    if (has("v5e") || has("v5lite") || has("v5 lite")) return "TPU v5e";
    if (has("v5")) return "TPU v5";
    if (has("tpu")) return "TPU";
    return std::nullopt;
}

std::optional<std::string_view> bucket_of(std::string_view device_key, std::int64_t batch, std::int64_t hidden,
                                          std::int64_t vocab) {
    for (const Bucket& bucket : buckets()) {
        if (bucket.gb10_only && device_key != "NVIDIA GB10") continue;
        if (bucket.holds(batch, hidden, vocab)) return bucket.name;
    }
    return std::nullopt;
}

Result<Inferred> infer(const InferRequest& request) { return infer(request, tuned_sizes); }

Result<Inferred> infer(const InferRequest& request, TunedSizes entries) {
    const std::pair<const char*, std::int64_t> sizes[] = {
        {"--batch", request.batch}, {"--hidden", request.hidden}, {"--vocab", request.vocab}};
    for (const auto& [name, size] : sizes) {
        if (size < 1) return fail(ErrorKind::usage, fmt::format("{} {}: expected at least 1", name, size));
        constexpr std::int64_t k_most = std::int64_t{1} << 40U;
        if (size > k_most) return fail(ErrorKind::usage, fmt::format("{} {}: expected at most {}", name, size, k_most));
    }
    GDNCTL_TRY_ASSIGN(const DTypeName dtype, dtype_of(request.dtype));
    GDNCTL_TRY_ASSIGN(const DTypeName x, dtype_of(request.x_dtype.value_or(request.dtype)));
    GDNCTL_TRY_ASSIGN(const DTypeName w, dtype_of(request.w_dtype.value_or(request.dtype)));
    DTypeName widest = dtype;
    for (const DTypeName& d : {x, w}) {
        if (d.bytes > widest.bytes) widest = d;
    }
    return Inference(request, w.bytes, entries).run(widest, x.bytes);
}

}  // namespace gdnctl::oracle::linear_ce
