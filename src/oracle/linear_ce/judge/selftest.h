// Tests whether the judge of linear-ce tells right from wrong on this machine.
#pragma once

#include "oracle/judge/selftest.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

SelftestReport run_selftest(const Work& work);

}  // namespace gdnctl::oracle::linear_ce
