#include "gdnctl/cli/command.h"
#include "gdnctl/commands/table.h"

int main(int argc, char** argv) { return gdnctl::cli::run(gdnctl::commands::table(), argc, argv); }
