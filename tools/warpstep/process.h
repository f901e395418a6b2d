// What main() puts right of the process that it was started in.
#pragma once

namespace warpstep::tools {

// Opens standard input, output and error where they are closed: the next file opened would take
// their place, and messages would be written into it. Results written to such a stdout still fail,
// unless stderr was closed with it.
void open_standard_descriptors();

// Gives every thread a stack of the usual size where `ulimit -s` is smaller. Says so and returns
// false where the limit may not be raised as far as the program needs.
bool settle_stacks();

}  // namespace warpstep::tools
