#include "cli/command.h"
#include "commands/table.h"

int main(int argc, char** argv) { return gdnctl::cli::run(gdnctl::commands::table(), argc, argv); }
