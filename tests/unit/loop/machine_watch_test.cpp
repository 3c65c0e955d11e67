// What else a machine does while something is measured on it.
#include "loop/measure/machine_watch.h"

#include <fstream>
#include <functional>

#include <doctest/doctest.h>

#include "support/temp_dir.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

namespace {

// A clock whose every sleep is seen: the machine's files change meanwhile.
class BusyClock final : public Clock {
public:
    std::function<void()> meanwhile;
    WallTime wall() const override { return {}; }
    Monotonic monotonic() const override { return {}; }
    bool sleep_for(std::chrono::milliseconds, std::stop_token) override {
        if (meanwhile) meanwhile();
        return true;
    }
};

struct Machine {
    test::TempDir folder;
    BusyClock clock;
    int busy = 1000, idle = 1000;
    int per_look_busy = 0, per_look_idle = 10;

    Machine() {
        write();
        clock.meanwhile = [this] {
            busy += per_look_busy;
            idle += per_look_idle;
            write();
        };
    }
    void put(const std::string& name, const std::string& text) const {
        fs::create_directories((folder.path() / name).parent_path());
        std::ofstream(folder.path() / name, std::ios::binary) << text;
    }
    void write() const {
        const std::string line = " " + std::to_string(busy) + " 0 0 " + std::to_string(idle) + " 0 0 0 0 0 0\n";
        put("proc/stat", "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0" + line + "cpu1" + line + "intr 1 2 3\n");
    }
    MachineWatch watch() { return MachineWatch(clock, folder.path()); }
};

}  // namespace

TEST_CASE("machine: ticks of the processors that are ours, waiting for disks is idle") {
    const std::string text =
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 100 100\ncpu1 10 0 0 10 0 0 0 0 0 0\nctxt 5\n";
    const auto all = parse_processor_ticks(text);
    REQUIRE(all);
    CHECK(all->processors == 2);
    CHECK(all->busy == 37);
    CHECK(all->total == 92);
    const auto one = parse_processor_ticks(text, {1});
    REQUIRE(one);
    CHECK((one->processors == 1 && one->busy == 10 && one->total == 20));
    CHECK_FALSE(parse_processor_ticks("", {}));
    CHECK_FALSE(parse_processor_ticks("cpu  1 2 3 4 5\nintr\n", {}));
    CHECK_FALSE(parse_processor_ticks(text, {7}));
}

TEST_CASE("machine: quiet is quiet, other programs are said with how much they use") {
    Machine machine;
    CHECK(machine.watch().busy().empty());
    machine.per_look_busy = 3;
    machine.per_look_idle = 7;
    CHECK(machine.watch().busy().empty());
    machine.per_look_busy = 19;
    machine.per_look_idle = 1;
    CHECK(machine.watch().busy() == "other programs use 1.9 of 2 CPUs");
    // The end of the last run is over at the second look.
    machine.clock.meanwhile = [&machine, looks = 0]() mutable {
        machine.busy += looks == 0 ? 10 : 0;
        machine.idle += looks++ == 0 ? 0 : 30;
        machine.write();
    };
    CHECK(machine.watch().busy().empty());
    fs::remove_all(machine.folder.path() / "proc");
    CHECK(machine.watch().busy().empty());  // nothing is claimed of a machine that says nothing
}

TEST_CASE("machine: processors that are held back, or have got too hot since the last look") {
    Machine machine;
    machine.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "2100000\n");
    machine.put("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3500000\n");
    machine.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3500000\n");
    machine.put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n");
    CHECK(machine.watch().busy() == "the CPUs are limited to 2.1 of 3.5 GHz");
    machine.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "3400000\n");
    machine.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "7\n");
    MachineWatch watch = machine.watch();
    CHECK(watch.busy().empty());  // whenever that was
    machine.put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "9\n");
    CHECK(watch.busy() == "the CPUs overheated and were throttled");
    CHECK(watch.busy().empty());
}

TEST_CASE("machine: another loop is said, what only talks of loops is not") {
    const auto words = [](std::vector<std::string> all) {
        std::string out;
        for (const auto& word : all) out += word + '\0';
        return out;
    };
    Machine machine;
    machine.put("proc/999999/cmdline", words({"/usr/bin/gdnctl", "codex-loop", "--iterations", "3"}));
    machine.put("proc/999998/cmdline", words({"bash", "-c", "gdnctl codex-loop --iterations 3"}));
    machine.put("proc/999997/cmdline", words({"gdnctl", "loop-status"}));
    machine.put("proc/999996/cmdline", words({"gdnctl", "codex-loop", "--help"}));
    machine.put("proc/999995/cmdline", words({"gdnctl", "codex-loop", "--iterations=3", "--dry-run"}));
    machine.put("proc/999994/cmdline", "");
    CHECK(machine.watch().busy() == "another codex-loop is running on this machine (process 999999)");
    machine.per_look_busy = 10;
    CHECK(machine.watch().busy() ==
          "other programs use 1 of 2 CPUs; another codex-loop is running on this machine (process 999999)");
}

}  // namespace gdnctl::loop
