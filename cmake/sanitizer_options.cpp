// A finding of UBSan is a trap here (cmake/module.cmake): ASan shows the stack of it instead of dying by SIGILL, with
// lines where there is an llvm-symbolizer or, from binutils, addr2line.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "handle_sigill=1:allow_addr2line=1"; }
