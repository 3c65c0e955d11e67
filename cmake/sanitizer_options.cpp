// UBSan traps here (cmake/module.cmake). With this, ASan shows the stack instead of the process dying by SIGILL, with
// line numbers if llvm-symbolizer or addr2line (binutils) is installed.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "handle_sigill=1:allow_addr2line=1"; }
