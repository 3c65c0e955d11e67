// Gives every file under a folder, and no bytes at all, to the fuzzer that has the folder's name, so that an ordinary
// test run replays the corpus. A folder without a file is an error.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/fuzz.h"

int main(int argc, char** argv) {
    const std::filesystem::path folder = argc == 2 ? argv[1] : "";
    const Fuzzer* fuzzer = find_fuzzer(folder.filename().string());
    if (fuzzer == nullptr) {
        std::fprintf(stderr, "usage: replay CORPUS/NAME, where tests/fuzz/NAME.cpp is a fuzzer\n");
        return 2;
    }
    std::size_t files = 0;
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
        if (!item.is_regular_file()) continue;
        std::ifstream in(item.path(), std::ios::binary);
        const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        std::printf("%s\n", item.path().c_str());
        std::fflush(stdout);  // the last name printed is the input that crashed
        fuzzer->run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        ++files;
    }
    fuzzer->run(nullptr, 0);
    return files > 0 ? 0 : 1;
}
