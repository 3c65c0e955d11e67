#include "oracle/judge/verdict.h"

namespace gdnctl::oracle {

std::string_view name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::ok: return "OK";
        case Verdict::suspect: return "SUSPECT";
        case Verdict::wrong: return "WRONG";
        case Verdict::unstable_input: return "UNSTABLE_INPUT";
        case Verdict::no_data: return "NO_DATA";
    }
    return "";
}

}  // namespace gdnctl::oracle
