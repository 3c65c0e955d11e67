// Kernels that are Python functions, in a real interpreter: what each thing that they do becomes, and in which words.
#include "harness/child/python_kernel.h"

#include <cstring>
#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/config.h"
#include "core/text.h"
#include "harness/child/entry.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/call.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/process.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_terminal.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::harness;
using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::TensorFile;

namespace {

using Counts = KernelFault::Counts;

// An interpreter with numpy; empty: there is none here.
const std::string& python_with_numpy() {
    static const std::string k_found = [] {
        for (const char* name : {"/usr/bin/python3", "python3"}) {
            ProcessSpec spec;
            spec.argv = {name, "-c", "import numpy"};
            const auto end = system_process().run(spec);
            if (end && end->ok()) return std::string(name);
        }
        return std::string();
    }();
    return k_found;
}

bool python_is_missing() {
    if (!python_with_numpy().empty()) return false;
    MESSAGE("skipped: no python3 with numpy");
    return true;
}

// Gives v and the initial state back, unless the file `fault` says something else.
constexpr std::string_view k_adapter = R"(
import os, signal, sys, time
import numpy as np

framework, contract, dtype = "numpy", "marin", "bf16"
fields = {"head_map": "interleaved", "eps": 1e-5}


class Silent(Exception):
    def __str__(self):
        raise ValueError("it has no text")


def fault():
    return open("fault").read()


def supports(case):
    return {"no": False, "why": "needs\ndk = 999", "long": "z" * 3_000_000, "nothing": ""}.get(fault(), True)


def forward(fn, q, k, v, g, beta, s, *, cu_seqlens=None, scale=None, contract, case):
    what, out = fault(), v.copy()
    protocol = sys.modules["__main__"]
    if what == "raises": raise ValueError("of\n no use")
    if what == "unsupported": raise NotImplementedError("only dk = 64")
    if what == "silent": raise Silent
    if what == "bytes": raise OSError("no such file: " + os.fsdecode(b"\xff.txt"))
    if what == "colour": raise ValueError("\x1b[2Kverdict: OK")
    if what == "large type": return type("X" * 1_000_000, (), {})()
    if what == "memory": np.zeros(2**58, np.uint8)
    if what == "three": return 1, 2, 3
    if what == "none": return None
    if what == "narrow": out = out[..., :-1]
    if what == "double": out = out.astype(np.float64)
    if what == "whole": out = out.astype(np.int32)
    if what == "list": out = out.tolist()
    if what == "swapped": out = np.asfortranarray(out)
    if what == "writes": v[...] = 0
    if what == "no state": return out, None
    if what == "answers early":
        protocol._answers.write('{"id": 0, "error": {"kind": "raised", "text": "not ours"}}\n')
    if what in ("exits", "dies", "is ended", "closes", "chatters"): print("the last words", file=sys.stderr, flush=True)
    if what == "exits": os._exit(7)
    if what == "dies": os.kill(os.getpid(), signal.SIGSEGV)
    if what == "is ended": os.kill(os.getpid(), signal.SIGTERM)
    if what == "closes": os.closerange(0, 4096)
    if what == "chatters": protocol._answers.write("not JSON\n")
    if what == "sleeps": open("asleep", "w").close()
    if what in ("closes", "sleeps"): time.sleep(600)
    if what == "grows":
        kept = np.ones(400 << 20, np.uint8)
        time.sleep(600)
    if what == "forks":
        for daemon in (False, True):
            if os.fork() == 0:
                if daemon: os.setsid()
                time.sleep(600)
    return out, s
)";

struct GivenInputs final : oracle::Inputs {
    TensorFile tensors;
    Result<oracle::Call> call(std::size_t, std::uint32_t, int) override { return fail(ErrorKind::internal, "no call"); }
    TensorFile file() const override { return tensors; }
};

constexpr std::size_t k_forward = 1;

// Does something once the kernel is inside a call that does not return.
struct CallClock final : Clock {
    std::filesystem::path asleep;
    std::function<std::chrono::seconds()> then;  // how much later it is

    WallTime wall() const override { return system_clock().wall(); }
    Monotonic monotonic() const override {
        const bool now = then && std::filesystem::exists(asleep);
        return system_clock().monotonic() + (now ? then() : std::chrono::seconds(0));
    }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        return system_clock().sleep_for(d, std::move(stop));
    }
};

struct PythonWorld {
    test::TempDir folder;
    CallClock clock;
    test::FakeEnv env{{"PATH", process_env().get("PATH").value_or("/usr/bin:/bin")},
                      {"TMPDIR", (folder / "tmp").string()},
                      {"HOME", folder.path().string()}};
    test::FakeTerminal terminal;
    test::FakeHttp http;
    Config config;
    std::stop_source stop;
    Context context{env,
                    clock,
                    terminal,
                    config,
                    system_process(),
                    http,
                    stop.get_token(),
                    folder / "work",
                    folder / "state",
                    GDNCTL_TEST_BIN "/gdnctl",
                    {}};
    Limits limits;
    GivenInputs inputs;
    TensorFile outputs;  // of the last call

    explicit PythonWorld(PythonOptions options = {}) {
        std::filesystem::create_directory(folder / "tmp");
        clock.asleep = context.cwd / "asleep";
        write("mine.py", k_adapter);
        write("fault", "");
        if (options.command.empty()) options.command = python_with_numpy();
        limits.python = std::make_shared<PythonHost>(std::move(options), context);
        inputs.tensors = make_inputs(*oracle::find_gdn_case("device_001"));
    }

    void write(const std::string& name, std::string_view text) const { test::write_text(context.cwd / name, text); }

    std::unique_ptr<oracle::Kernel> open(const std::string& spelling = "py:mine.py") {
        auto kernel = open_python(spelling, k_gdn_mode, limits, context);
        REQUIRE(kernel);
        return std::move(*kernel);
    }

    // One whole call, in which the kernel does that.
    std::optional<KernelFault> run(oracle::Kernel& kernel, std::string_view fault) {
        write("fault", fault);
        outputs = {};
        auto run = run_once(kernel, {inputs, k_forward, 1});
        REQUIRE_MESSAGE(run, (run ? std::string() : run.error().text()));
        outputs = std::move(run->outputs);
        return std::move(run->fault);
    }
};

template <class Number>
void put(oracle::Tensor& tensor, const std::vector<Number>& bits) {
    std::memcpy(tensor.bytes.data(), bits.data(), bits.size() * sizeof(Number));
}

std::vector<ProcessId> below_us() { return descendants_of(getpid(), all_processes()); }

}  // namespace

TEST_CASE("python: a kernel says what it has, what it computes and where it runs") {
    if (python_is_missing()) return;
    PythonWorld world;
    world.write("more.py", std::string(k_adapter) + "\ndef backward(*a, **k): pass\ndef decode(*a, **k): pass\n");
    const auto plain = world.open(), more = world.open("py:./more.py:math.sqrt");
    REQUIRE(plain->entries());
    CHECK(*plain->entries() == 1U << k_forward);
    CHECK(*more->entries() == (1U << 1U | 1U << 2U | 1U << 3U));
    const oracle::KernelFacts facts = plain->facts();
    CHECK(facts.takes_files);
    CHECK(facts.contract == "marin");
    CHECK(facts.sets == std::vector<std::string>{"head_map=interleaved", "eps=1e-05"});
    CHECK(facts.dtype == "bf16");
    const Json& on = facts.environment;
    CHECK(on["framework"] == "numpy");
    CHECK(on["platform"] == "cpu");
    CHECK(on["device_count"] == 1);
    CHECK(on["libraries"]["numpy"] == on["version"]);
    CHECK(on["network"] == "open");
    CHECK(world.limits.python->generation() == 1);
}

TEST_CASE("python: tensors go there and back bit for bit") {
    if (python_is_missing()) return;
    PythonWorld world;
    const auto kernel = world.open();
    const auto tensor = [&](const char* name) { return const_cast<oracle::Tensor*>(world.inputs.tensors.find(name)); };
    // -0, the smallest number, two NaNs, infinity.
    put<std::uint32_t>(*tensor("v"), {0x80000000, 1, 0x7fc12345, 0xffa54321, 0x7f800000});
    for (const char* how : {"", "swapped", "answers early"}) {
        CAPTURE(how);
        CHECK_FALSE(world.run(*kernel, how));
        CHECK(world.outputs.find("out")->dtype == oracle::DType::f32);
        CHECK(world.outputs.find("out")->shape == tensor("v")->shape);
        CHECK(world.outputs.find("out")->bytes == tensor("v")->bytes);
        CHECK(world.outputs.find("final_state")->bytes == tensor("initial_state")->bytes);
        CHECK(world.outputs.metadata.empty());
    }
    CHECK_FALSE(world.run(*kernel, "no state"));
    CHECK(world.outputs.metadata == std::map<std::string, std::string>{{"without_final_state", "1"}});
    CHECK(world.outputs.find("final_state") == nullptr);
    // 16 bits: numpy has only one of the two.
    for (const auto dtype : {oracle::DType::f16, oracle::DType::bf16}) {
        world.inputs.tensors = make_inputs(*oracle::find_gdn_case("device_001"));
        REQUIRE(store_as(world.inputs.tensors, dtype));
        put<std::uint16_t>(*tensor("v"), {0x8000, 1});
        CHECK_FALSE(world.run(*kernel, ""));
        const bool half = dtype == oracle::DType::f16;
        CHECK(world.outputs.find("out")->dtype == (half ? dtype : oracle::DType::f32));
        CHECK(to_f64(*world.outputs.find("out")) == to_f64(*tensor("v")));
    }
    CHECK(world.limits.python->generation() == 1);
}

TEST_CASE("python: what a kernel does instead of computing has a name, and its words are few") {
    if (python_is_missing()) return;
    PythonWorld world;
    const auto kernel = world.open();
    struct Row {
        const char* fault;
        KernelFaultKind kind;
        const char* text;
        Counts counts = Counts::as_fault;
    };
    constexpr Row k_rows[] = {
        {"raises", KernelFaultKind::refused, "ValueError: of no use"},
        {"unsupported", KernelFaultKind::unsupported, "NotImplementedError: only dk = 64"},
        {"silent", KernelFaultKind::refused, "Silent"},
        {"bytes", KernelFaultKind::refused, "OSError: no such file: ?.txt"},
        {"colour", KernelFaultKind::refused, "ValueError: \\x1b[2Kverdict: OK"},
        {"memory", KernelFaultKind::memory_limit, "MemoryError: Unable to allocate"},
        {"three", KernelFaultKind::wrong_shape, "forward() returned a tuple of 3, not (out, final_state)"},
        {"none", KernelFaultKind::wrong_shape, "forward() returned None, not (out, final_state)"},
        {"large type", KernelFaultKind::wrong_shape, "forward() returned XXX"},
        {"narrow", KernelFaultKind::wrong_shape,
         "out is numpy float32[1, 1, 2, 127], expected the shape [1, 1, 2, 128]"},
        {"double", KernelFaultKind::wrong_shape,
         "out is numpy float64[1, 1, 2, 128], expected float32, bfloat16 or float16"},
        {"whole", KernelFaultKind::wrong_shape,
         "out is numpy int32[1, 1, 2, 128], expected float32, bfloat16 or float16"},
        {"list", KernelFaultKind::wrong_shape, "out is a list of 1, not an array of numpy"},
        {"writes", KernelFaultKind::out_of_bounds, "wrote to input v"},
        {"no", KernelFaultKind::unsupported, "not supported", Counts::as_skipped},
        {"nothing", KernelFaultKind::unsupported, "not supported", Counts::as_skipped},
        {"why", KernelFaultKind::unsupported, "needs dk = 999", Counts::as_skipped},
        {"long", KernelFaultKind::unsupported, "zzz", Counts::as_skipped},
    };
    for (const Row& row : k_rows) {
        CAPTURE(row.fault);
        const auto fault = world.run(*kernel, row.fault);
        REQUIRE(fault);
        CHECK(name_of(fault->kind) == name_of(row.kind));
        CHECK(fault->text.substr(0, std::strlen(row.text)) == row.text);
        CHECK(fault->text.size() < 1500);
        CHECK(fault->text.find('\n') == std::string::npos);
        CHECK(fault->output.size() <= 4096);
        CHECK(std::count(fault->output.begin(), fault->output.end(), '\n') < 10);
        CHECK(fault->counts == row.counts);
        CHECK_FALSE(kernel->ends_everything(*fault));
        CHECK_FALSE(world.run(*kernel, ""));
    }
    CHECK(world.limits.python->generation() == 1);
}

TEST_CASE("python: what backward() returns is judged like what forward() does") {
    if (python_is_missing()) return;
    PythonWorld world;
    world.write("more.py", std::string(k_adapter) + R"(
def backward(fn, q, k, v, g, beta, s, *, d_out, d_final_state, **more):
    return {"none": None, "names": {1: q}, "double": {"dq": q.astype(np.float64)}}.get(fault(), {"dq": d_out * 0 + 1})
)");
    const auto kernel = world.open("py:./more.py");
    world.inputs.tensors.tensors.push_back({"d_out", *world.inputs.tensors.find("v")});
    const auto run = [&](const char* fault) {
        world.write("fault", fault);
        auto run = run_once(*kernel, {world.inputs, 2, 1});
        REQUIRE(run);
        return std::move(*run);
    };
    const auto right = run("");
    REQUIRE(!right.fault);
    CHECK(oracle::to_f64(*right.outputs.find("dq")).front() == 1);
    for (const auto& [how, text] :
         {std::pair{"none", "backward() returned None, not a dict of gradients"},
          {"names", "backward() returned a dict with 1: "},
          {"double", "dq is numpy float64[1, 1, 2, 128], expected float32, bfloat16 or float16"}}) {
        const auto wrong = run(how);
        REQUIRE(wrong.fault);
        CHECK(name_of(wrong.fault->kind) == "WRONG_SHAPE");
        CHECK(wrong.fault->text.starts_with(text));
    }
}

TEST_CASE("python: how the process ended is said, and the next call has a new one") {
    if (python_is_missing()) return;
    PythonWorld world;
    const auto kernel = world.open();
    struct Row {
        const char *fault, *text;
    };
    int generation = 1;
    for (const Row& row : {Row{"exits", "the Python process exited with code 7"},
                           {"dies", "the Python process was killed by signal 11 (Segmentation fault)"},
                           {"is ended", "the Python process was killed by signal 15 (Terminated)"},
                           {"closes", "the Python process closed its pipes"},
                           {"chatters", "the Python process answered with something else than JSON"}}) {
        CAPTURE(row.fault);
        const auto fault = world.run(*kernel, row.fault);
        REQUIRE(fault);
        CHECK(name_of(fault->kind) == "CRASHED");
        CHECK(fault->text == row.text);
        CHECK(fault->output.starts_with("the last words"));
        CHECK_FALSE(kernel->ends_everything(*fault));
        CHECK_FALSE(world.run(*kernel, ""));
        CHECK(world.limits.python->generation() == ++generation);
    }
}

TEST_CASE("python: three deaths in a row are enough, a result between them begins anew") {
    if (python_is_missing()) return;
    PythonWorld world;
    const auto kernel = world.open();
    for (const bool result_between : {true, false}) {
        for (int death = 1; death <= 3; ++death) {
            CAPTURE(death);
            const auto fault = world.run(*kernel, "exits");
            REQUIRE(fault);
            CHECK(kernel->ends_everything(*fault) == (death == 3 && !result_between));
            if (result_between) CHECK_FALSE(world.run(*kernel, ""));
        }
    }
    CHECK(world.limits.python->has_given_up());
}

TEST_CASE("python: a call past its limits is ended, of time and of memory") {
    if (python_is_missing()) return;
    PythonOptions options;
    options.memory = std::size_t{200} << 20U;
    PythonWorld world(options);
    std::chrono::seconds later(0);
    world.clock.then = [&] { return later += std::chrono::seconds(301); };  // whenever it looks
    const auto kernel = world.open();
    for (const auto& [fault, verdict, text] : {std::tuple{"sleeps", "TIMED_OUT", "no result after 300 s"},
                                               {"grows", "MEMORY_LIMIT", "used more than 200 MiB of memory"}}) {
        CAPTURE(fault);
        const auto got = world.run(*kernel, fault);
        REQUIRE(got);
        CHECK(name_of(got->kind) == verdict);
        CHECK(got->text == text);
        std::filesystem::remove(world.clock.asleep);
        CHECK_FALSE(world.run(*kernel, ""));
    }
}

TEST_CASE("python: two kernels share a process, and both are opened again after one ended it") {
    if (python_is_missing()) return;
    PythonWorld world;
    world.write("other.py",
                std::string(k_adapter) + "\ndef forward(fn, q, k, v, g, beta, s, **more): return v + 1, s\n");
    const auto one = world.open(), other = world.open("py:other.py");
    const auto both_work = [&] {
        CHECK_FALSE(world.run(*one, ""));
        const double first = oracle::to_f64(*world.outputs.find("out")).front();
        CHECK_FALSE(world.run(*other, ""));
        CHECK(oracle::to_f64(*world.outputs.find("out")).front() == doctest::Approx(first + 1));
    };
    both_work();
    CHECK(world.limits.python->generation() == 1);
    CHECK(world.run(*one, "exits"));
    both_work();
    CHECK(world.limits.python->generation() == 2);
}

TEST_CASE("python: nothing is started before it is asked, and nothing is left afterwards") {
    if (python_is_missing()) return;
    const auto before = below_us();
    PythonWorld world;
    auto kernel = world.open();
    CHECK(below_us() == before);
    CHECK(test::list_names(world.folder / "tmp").empty());
    CHECK_FALSE(world.run(*kernel, "forks"));
    CHECK(below_us().size() >= before.size() + 4);  // the keeper, Python and its children
    const auto tensors = world.limits.python->tensor_file("x")->parent_path();
    CHECK(std::filesystem::exists(tensors));
    kernel.reset();
    world.limits.python.reset();
    CHECK(below_us() == before);
    CHECK(test::list_names(world.folder / "tmp").empty());
    CHECK(!std::filesystem::exists(tensors));
}

TEST_CASE("python: a stop ends a call that does not return, as an interruption and not as a fault") {
    if (python_is_missing()) return;
    const auto before = below_us();
    PythonWorld world;
    const auto kernel = world.open();
    REQUIRE(kernel->entries());
    world.write("fault", "sleeps");
    world.clock.then = [&] {
        world.stop.request_stop();
        return std::chrono::seconds(0);
    };
    const auto run = run_once(*kernel, {world.inputs, k_forward, 1});
    REQUIRE(!run);
    CHECK(run.error().kind == ErrorKind::interrupted);
    CHECK(below_us() == before);
}

TEST_CASE("python: which interpreter runs, in which order they are looked for") {
    PythonWorld world({.command = "none of these;"});
    const auto tried = [&](std::string command) {
        PythonHost host({.command = std::move(command)}, world.context);
        const Status started = host.start();
        REQUIRE(!started);
        CHECK(started.error().kind == ErrorKind::usage);
        const std::string message = started.error().message;
        return message.substr(0, message.rfind(": "));
    };
    const auto fake = [&](const std::filesystem::path& path) {
        test::write_text(path, "#!/bin/sh\nexit 3\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        return path.string();
    };
    const std::string said = "cannot run Python kernels with ";
    const std::string tree = fake(world.folder / ".venv/bin/python");
    CHECK(tried("") == said + "'" + tree + "'");
    world.env.values["VIRTUAL_ENV"] = (world.folder / "not there").string();
    CHECK(tried("") == said + "'" + tree + "'");
    const std::string active = fake(world.folder / "an environment/bin/python");
    world.env.values["VIRTUAL_ENV"] = (world.folder / "an environment").string();
    CHECK(tried("") == said + "'" + text::shell_quote(active) + "'");
    CHECK(tried("sh -c 'exit 4'") == said + "'sh -c 'exit 4''");
}

TEST_CASE("python: variables that change results are on record, those of the command before the caller's") {
    PythonWorld world;
    world.env.values = {{"JAX_PLATFORMS", "tpu"},     {"XLA_FLAGS", "--a"},  {"PATH", "/bin"},
                        {"JAX_API_KEY", "s3cret"},    {"LANG", "C"},         {"TPU_CHIPS", "1"},
                        {"CUDA_VISIBLE_DEVICES", ""}, {"HF_TOKEN", "s3cret"}};
    const PythonHost host({.env = {{"JAX_PLATFORMS", "cpu"}, {"MY_TOKEN", "s3cret"}, {"A", "b=c"}}}, world.context);
    const std::vector<std::pair<std::string, std::string>> expected = {
        {"CUDA_VISIBLE_DEVICES", ""}, {"TPU_CHIPS", "1"},  {"XLA_FLAGS", "--a"},
        {"JAX_PLATFORMS", "cpu"},     {"MY_TOKEN", "***"}, {"A", "b=c"}};
    CHECK(host.variables() == expected);
    CHECK(PythonHost({.no_network = true}, world.context).network() == "blocked");
}

TEST_CASE("python: spellings that name no adapter") {
    PythonWorld world;
    for (const char* spelling : {"py:", "py::f", "py:mine.py:", "py:nothing", "py:no/such.py", "py:.", "py:./"}) {
        CAPTURE(spelling);
        const auto kernel = open_python(spelling, k_gdn_mode, world.limits, world.context);
        REQUIRE(!kernel);
        CHECK(kernel.error().kind == ErrorKind::usage);
        CHECK(!kernel.error().hint.empty());
    }
}
