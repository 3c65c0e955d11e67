#include "loop/evolve/code_key.h"

#include <doctest/doctest.h>

namespace gdnctl::loop::evolve {

TEST_CASE("evolve code key: comments and white space of C") {
    const std::string bare = without_comments("k.c", "int a = 1;\nint b = 2;\n");
    CHECK(bare == "int a = 1;\nint b = 2;\n");
    for (const char* same :
         {"int a = 1;  // one\n\nint b = 2;\n", "/* two\n lines */\nint a = 1;\n\tint b  =\t2; /* x */\r\n",
          "int a = 1;\nint b = 2;", "// \"\nint a = 1;\nint b = 2;\n/* open"}) {
        CHECK(without_comments("src/k.c", same) == bare);
        CHECK(without_comments("src/k.hpp", same) == bare);
    }
    CHECK(without_comments("k.c", "int a = 1; int b = 2;\n") != bare);
    CHECK(without_comments("k.c", "inta = 1;\nint b = 2;\n") != bare);
    // What is in a string is no comment.
    CHECK(without_comments("k.c", "f(\"a//b\", '\"', \"/*\"); // c\n") == "f(\"a//b\", '\"', \"/*\");\n");
    CHECK(without_comments("k.c", "f(\"\\\"//\");\n") == "f(\"\\\"//\");\n");
    CHECK(without_comments("k.c", "#define A 1\n") == "#define A 1\n");
}

TEST_CASE("evolve code key: Python keeps its indentation, a shell its first line, other files everything") {
    CHECK(without_comments("k.py", "if a:  # why\n    b = '#'\n\n# c\n") == "if a:\n    b = '#'\n");
    CHECK(without_comments("k.py", "if a:\nb\n") != without_comments("k.py", "if a:\n    b\n"));
    CHECK(without_comments("k.sh", "#!/bin/sh\necho $# # all\n  exit 1 \n") == "#!/bin/sh\necho $#\nexit 1\n");
    CHECK(without_comments("k.txt", "a  # b\n\n") == "a  # b\n\n");
    CHECK(without_comments("k.c", "").empty());
}

}  // namespace gdnctl::loop::evolve
