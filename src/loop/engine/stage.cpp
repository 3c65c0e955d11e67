#include "loop/engine/stage.h"

namespace gdnctl::loop {

std::string_view to_text(StageVerdict verdict) {
    switch (verdict) {
        case StageVerdict::pass: return "pass";
        case StageVerdict::fail: return "fail";
        case StageVerdict::skip: break;
    }
    return "skip";
}

}  // namespace gdnctl::loop
