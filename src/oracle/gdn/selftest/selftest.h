// Tests whether the oracle tells right from wrong on this machine.
#pragma once

#include <functional>

#include "oracle/judge/selftest.h"

namespace gdnctl::oracle {

// `stop` is called between two judgements; true ends the test early.
SelftestReport run_selftest(int threads, const std::function<bool()>& stop);

}  // namespace gdnctl::oracle
