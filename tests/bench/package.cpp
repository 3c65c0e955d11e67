// Packing a working tree, as every submission does: 90 MiB of source files, deflated on one core.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "services/job/job.h"

namespace {

namespace fs = std::filesystem;
using namespace gdnctl;

constexpr std::uint64_t k_tree_bytes = std::uint64_t{90} << 20;

// Copies of this repository's own files (run from its root): text as people write it, in files as long as theirs.
class Tree {
public:
    Tree() {
        std::string name = (fs::temp_directory_path() / "gdnctl-bench-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) std::abort();
        m_folder = name;
        m_tree.root = m_folder / "tree";
        std::vector<fs::path> sources;
        for (const char* top : {"src", "include", "tests", "docs"}) {
            for (const auto& entry : fs::recursive_directory_iterator(top)) {
                const std::string suffix = entry.path().extension().string();
                const bool text = suffix == ".cpp" || suffix == ".h" || suffix == ".py" || suffix == ".md";
                if (text && entry.is_regular_file()) sources.push_back(entry.path());
            }
        }
        for (int copy = 0; !sources.empty() && m_bytes < k_tree_bytes; ++copy) {
            for (const fs::path& source : sources) {
                const fs::path relative = fs::path("copy" + std::to_string(copy)) / source;
                fs::create_directories((m_tree.root / relative).parent_path());
                fs::copy_file(source, m_tree.root / relative);
                m_bytes += fs::file_size(source);
                m_tree.files.push_back(relative.string());
            }
        }
    }
    ~Tree() { fs::remove_all(m_folder); }
    Tree(const Tree&) = delete;
    Tree& operator=(const Tree&) = delete;

    const WorkingTree& tree() const { return m_tree; }
    std::uint64_t bytes() const { return m_bytes; }
    fs::path package() const { return m_folder / "package.zip"; }

private:
    fs::path m_folder;
    WorkingTree m_tree;
    std::uint64_t m_bytes = 0;
};

void pack(benchmark::State& state) {
    const Tree source;
    std::uint64_t size = 0;
    for (auto _ : state) {
        const auto packed = pack_tree(source.tree(), source.package(), {});
        if (!packed) {
            state.SkipWithError(packed.error().text().c_str());
            return;
        }
        size = *packed;
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(source.bytes()));
    state.counters["files"] = static_cast<double>(source.tree().files.size());
    state.counters["shrinks to"] = static_cast<double>(size) / static_cast<double>(source.bytes());
}
BENCHMARK(pack)->Unit(benchmark::kMillisecond);

void hash_package(benchmark::State& state) {
    const Tree source;
    const auto packed = pack_tree(source.tree(), source.package(), {});
    for (auto _ : state) benchmark::DoNotOptimize(hash_file_hex(HashKind::sha1, source.package()));
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(packed.value_or(0)));
}
BENCHMARK(hash_package)->Unit(benchmark::kMillisecond);

}  // namespace
