// Words in the form that exec() takes.
#pragma once

#include <string>
#include <vector>

namespace gdnctl {

// A pointer to each word, then a null pointer. They point into `words`, which must outlive them unchanged.
inline std::vector<char*> exec_words(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

}  // namespace gdnctl
