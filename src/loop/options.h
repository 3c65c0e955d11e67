#pragma once

#include "gdnctl/loop/options.h"  // IWYU pragma: export
