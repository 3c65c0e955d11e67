#include "platform/env.h"

#include <cstdlib>

#include <doctest/doctest.h>

using namespace gdnctl;

TEST_CASE("variables that lead git to one repository are not there") {
    for (const char* name : {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG_PARAMETERS", "GIT_PREFIX"}) {
        setenv(name, "/elsewhere", 1);
        CHECK_FALSE(process_env().get(name));
        CHECK_FALSE(process_env().all().contains(name));
        unsetenv(name);
    }
}

TEST_CASE("git's other variables are there") {
    for (const char* name :
         {"GIT_AUTHOR_NAME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_SSH_COMMAND", "GIT_DIRX"}) {
        setenv(name, "0", 1);
        CHECK(process_env().get(name) == "0");
        CHECK(process_env().all().contains(name));
        unsetenv(name);
    }
}
