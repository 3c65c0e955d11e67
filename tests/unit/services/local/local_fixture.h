// A state folder of its own, the real supervisor program, and waiting in small steps.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <unistd.h>

#include "services/local/local_jobs.h"
#include "services/local/processes.h"
#include "services/local/store.h"

namespace gdnctl::local {

inline void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

inline std::string file_text(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

struct LocalFixture {
    LocalFixture() {
        const char* tmp = std::getenv("TMPDIR");
        std::string pattern = std::string(tmp != nullptr ? tmp : "/tmp") + "/gdnctl-jobs.XXXXXX";
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        folder = pattern;
        env = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", folder.string()}};
        for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"}) {
            if (const char* value = std::getenv(name)) env[name] = value;
        }
    }
    LocalFixture(const LocalFixture&) = delete;
    LocalFixture& operator=(const LocalFixture&) = delete;
    ~LocalFixture() {
        // Nothing of a failed test may stay behind.
        for (const std::string& id : store().ids()) {
            if (const auto record = supervisor_of(id)) {
                if (record->supervisor.id.pid != getpid() && is_same_process(record->supervisor)) {
                    send_signal(record->supervisor.id, SIGKILL);
                }
                for (const ProcessId& p : orphans_of(store().job(id), std::nullopt)) send_signal(p, SIGKILL);
            }
        }
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }

    std::unique_ptr<JobBackend> backend(Clock* clock = nullptr) {
        return make_local_jobs({folder / "state", env, clock, GDNCTL_TEST_BIN "/gdnctl"});
    }
    Store store() const { return {folder / "state" / "local", system_clock()}; }

    std::optional<SupervisorRecord> supervisor_of(const std::string& id) const {
        return store().read_supervisor(id).value_or(std::nullopt);
    }

    static JobRequest request(std::string id, std::string entrypoint) {
        JobRequest r;
        r.submission_id = std::move(id);
        r.entrypoint = std::move(entrypoint);
        return r;
    }
    JobDetails wait_until(const std::string& id, const std::function<bool(const JobDetails&)>& holds) {
        const auto jobs = backend();
        JobDetails last;
        for (int i = 0; i < 3000; ++i) {
            const auto now = jobs->details(id);
            REQUIRE_MESSAGE(now, now.error().text());
            last = *now;
            if (holds(last)) return last;
            nap();
        }
        FAIL("job ", id, " stays ", std::string(to_text(last.state)), ": ", last.message);
        return last;
    }
    JobDetails wait_end(const std::string& id) {
        return wait_until(id, [](const JobDetails& d) { return is_terminal(d.state); });
    }
    JobDetails wait_started(const std::string& id) {
        return wait_until(id, [](const JobDetails& d) { return d.state != JobState::pending; });
    }
    std::string log_of(const std::string& id) const { return file_text(store().file(id, "log")); }
    void wait_log(const std::string& id, const std::string& text) const {
        for (int i = 0; i < 3000; ++i) {
            if (log_of(id).find(text) != std::string::npos) return;
            nap();
        }
        FAIL("log of ", id, " never has: ", text);
    }
    // Living processes that carry the job's mark.
    std::size_t processes_of(const std::string& id) const {
        std::size_t n = 0;
        for (const ProcessId& p : orphans_of(store().job(id), std::nullopt)) n += is_running(p) ? 1 : 0;
        return n;
    }

    std::filesystem::path folder;
    std::map<std::string, std::string> env;
};

}  // namespace gdnctl::local
