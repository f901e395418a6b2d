// What main() repairs in the environment of its process.
#pragma once

namespace warpstep::tools {

// Opens standard input, output and error on /dev/null if they are closed: otherwise messages would
// be written into the next file opened. Results written to such a stdout still fail, unless stderr
// was closed too.
void open_standard_descriptors();

// Gives every thread a stack of the usual size if `ulimit -s` is smaller. Prints an error and
// returns false if the limit cannot be raised as far as the program needs.
bool settle_stacks();

}  // namespace warpstep::tools
