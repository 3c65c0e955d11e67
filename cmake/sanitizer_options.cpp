// A finding of UBSan is a trap here (cmake/module.cmake): ASan shows the stack of it instead of dying by SIGILL.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "handle_sigill=1"; }
