// A repository with a kernel, tests and a log, and iterations on it.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "loop/engine/transaction.h"
#include "support/git_repo.h"

namespace gdnctl::loop {

using test::list_names;
using test::ok;
using test::read_text;
using test::write_text;

struct LoopFixture : test::GitRepo {
    LoopFixture() {
        write("kernel.c", "int speed = 1;\n");
        write("tests/cases.txt", "cases\n");
        write("log.md", "# Log\n");
        write(".gitignore", "*.o\n");
        base = commit("base");
    }
    std::filesystem::path log_dir() const { return path() / "logs"; }
    TransactionSettings settings(Isolation isolation) const {
        TransactionSettings s;
        s.run = "r1";
        s.isolation = isolation;
        s.slot = outside("state") / "slot";
        s.protected_paths = {"tests/**"};
        s.log_paths = {"log.md", "**/*.records.jsonl"};
        return s;
    }
    Transactions transactions(Isolation isolation = Isolation::worktree, bool resumed = false) const {
        std::optional<std::set<std::string>> trusted;
        if (resumed) trusted.emplace();
        return ok(Transactions::open(path(), settings(isolation), ok(Artefacts::open(log_dir())), trusted,
                                     system_process(), clock));
    }
    std::string ref(const std::string& name) const {
        return sh("git rev-parse --verify -q refs/gdnctl/r1/" + name + " || true");
    }
    std::string base;
};

}  // namespace gdnctl::loop
