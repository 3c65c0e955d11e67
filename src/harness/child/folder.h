// The folder in TMPDIR that a kernel under test is built and run in.
#pragma once

#include "core/result.h"
#include "platform/context.h"
#include "platform/temp_folder.h"

namespace gdnctl::harness {

using Folder = TempFolder;
Result<Folder> make_folder(const Context& context);  // error: local_io

}  // namespace gdnctl::harness
