#include "sweep/record.h"

#include <doctest/doctest.h>

namespace gdnctl::sweep {

TEST_CASE("sweep record: every known message has its class") {
    const auto kind = [](std::string_view text) { return classify_failure(text).kind; };
    CHECK(kind("RESOURCE_EXHAUSTED: ran out of VMEM") == FailureKind::vmem_oom);
    CHECK(kind("ran out of memory in memory space vmem") == FailureKind::vmem_oom);
    CHECK(kind("CompileTimeScopedVmemOom") == FailureKind::vmem_oom);
    CHECK(kind("RESOURCE_EXHAUSTED: Attempting to allocate 112.37G") == FailureKind::hbm_oom);
    CHECK(kind("RESOURCE_EXHAUSTED: memory space hbm. Used 112.37G of 95.74G hbm") == FailureKind::hbm_oom);
    CHECK(kind("'tpu.matmul' op Expected matmul acc to be 32-bit") == FailureKind::lowering);
    CHECK(kind("in _gather_lowering_rule: AssertionError") == FailureKind::lowering);
    CHECK(kind("PallasUnsupportedError: b % 128") == FailureKind::unsupported);
    CHECK(kind("XLA: int32 word-count limit") == FailureKind::unsupported);
    CHECK(kind("the kernel requires TPU backend") == FailureKind::unsupported);
    CHECK(kind("ModuleNotFoundError: No module named 'tokamax'") == FailureKind::environment);
    CHECK(kind("JOB_SUPERVISOR_ACTOR_START_TIMEOUT") == FailureKind::infra);
    CHECK(kind("JOB_SUPERVISOR_ACTOR_DIED") == FailureKind::infra);
    CHECK(kind("ray.exceptions.ActorDiedError") == FailureKind::infra);
    CHECK(kind("the node received SIGTERM") == FailureKind::infra);
    CHECK(kind("job is PENDING: no capacity") == FailureKind::infra);
    CHECK(kind("ConnectionError: ray client connection timeout") == FailureKind::infra);
    CHECK(!kind("ValueError: shapes do not match"));
    CHECK(!kind(""));
}

TEST_CASE(
    "sweep record: a device that others hold and a full disk are the machine's, memory of the device is the "
    "configuration's") {
    const auto kind = [](std::string_view text) { return classify_failure(text).kind; };
    for (const char* machine :
         {"RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid "
          "27.",
          "UNAVAILABLE: TPU initialization failed: open(/dev/accel0): Device or resource busy",
          "The TPU is already in use by another process probably owned by another user",
          "Internal error when accessing libtpu multi-process lockfile. Run \"sudo rm /tmp/libtpu_lockfile\".",
          "OSError: [Errno 28] No space left on device", "write failed: ENOSPC", "OSError: [Errno 16] EBUSY",
          "OSError: [Errno 122] Disk quota exceeded", "RESOURCE_EXHAUSTED: /tmp/dump.pb; No space left on device",
          "fork: Resource temporarily unavailable"}) {
        CAPTURE(machine);
        CHECK(kind(machine) == FailureKind::infra);
    }
    CHECK(kind("waiting: Device or resource busy\nRESOURCE_EXHAUSTED: Attempting to allocate 112.37G") ==
          FailureKind::hbm_oom);
    CHECK(kind("waiting: Device or resource busy\nRan out of memory in memory space vmem") == FailureKind::vmem_oom);
    CHECK(kind("INFO: Unable to initialize backend 'tpu': not found\nthe kernel requires TPU backend") ==
          FailureKind::unsupported);
}

TEST_CASE("sweep record: a message of the kernel compiler is no want of memory") {
    const auto f =
        classify_failure("MosaicError: cannot lower; OOM? Ran out of memory in memory space vmem, RESOURCE_EXHAUSTED");
    CHECK(f.kind == FailureKind::lowering);
    CHECK(!f.vmem_used_bytes);
}

TEST_CASE("sweep record: used and limit of VMEM are read, in bytes") {
    constexpr double k_mib = 1 << 20;
    auto f =
        classify_failure("Scoped allocation with size 19.85M and limit 16.00M exceeded scoped vmem limit by 3.85M");
    CHECK(f.kind == FailureKind::vmem_oom);
    CHECK(f.vmem_used_bytes == doctest::Approx(19.85 * k_mib));
    CHECK(f.vmem_limit_bytes == 16 * k_mib);
    f = classify_failure("Used 20.19M of 16.00M");
    CHECK(f.kind == FailureKind::vmem_oom);
    CHECK(f.vmem_used_bytes == doctest::Approx(20.19 * k_mib).epsilon(1e-6));
    f = classify_failure("Allocation 33,554,432 > 16,777,216 of vmem");
    CHECK(f.vmem_used_bytes == 33554432);
    CHECK(f.vmem_limit_bytes == 16777216);
    CHECK(!classify_failure("RESOURCE_EXHAUSTED: Used 112.37G of 95.74G hbm").vmem_used_bytes);
}

TEST_CASE("sweep record: classes that another run may not have") {
    CHECK_FALSE(is_own(FailureKind::infra));
    CHECK_FALSE(is_own(FailureKind::environment));
    CHECK(is_own(FailureKind::timed_out));
    for (int i = 0; i <= static_cast<int>(FailureKind::no_result); ++i) {
        const auto kind = static_cast<FailureKind>(i);
        CHECK(parse_failure_kind(to_text(kind)) == kind);
    }
}

}  // namespace gdnctl::sweep
