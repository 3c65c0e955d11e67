#include "gdnctl/platform/http.h"
namespace gdnctl {
namespace {
struct No : Http {
    Result<HttpResponse> send(const HttpRequest&) override { return fail(ErrorKind::internal, "HTTP is not built in"); }
};
}  // namespace
__attribute__((weak)) Http& system_http() {
    static No no;
    return no;
}
}  // namespace gdnctl
