// Stands in for libFuzzer's main: gives every file under the folders named on the command line to the fuzzer's entry
// point once, so that an ordinary test run replays the corpus. A folder without a file is an error.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
    std::size_t files = 0;
    for (int i = 1; i < argc; ++i) {
        for (const auto& item : std::filesystem::recursive_directory_iterator(argv[i])) {
            if (!item.is_regular_file()) continue;
            std::ifstream in(item.path(), std::ios::binary);
            const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
            std::printf("%s\n", item.path().c_str());
            std::fflush(stdout);  // the last name printed is the input that crashed
            LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
            ++files;
        }
    }
    LLVMFuzzerTestOneInput(nullptr, 0);
    return files > 0 ? 0 : 1;
}
