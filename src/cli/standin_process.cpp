#include "gdnctl/platform/process.h"
namespace gdnctl {
namespace {
struct No : Process {
    Result<ProcessResult> run(const ProcessSpec&) override {
        return fail(ErrorKind::internal, "processes are not built in");
    }
};
}  // namespace
__attribute__((weak)) Process& system_process() {
    static No no;
    return no;
}
}  // namespace gdnctl
