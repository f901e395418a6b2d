// The threads that OpenMP, and oneDNN through it, share a call's work among.
#pragma once

namespace warpstep::cpu {

// Makes the team of the calling thread, or takes the one that it has. From now on its other threads
// handle no asynchronous signal (engine/core/signals.h) and flush denormals: to change that for
// each step would wake them, 20 us where they sleep. Throws DeviceError when the system does not
// give the threads: libgomp itself would end the program.
void settle_team();

// For the calling thread, around a step. A denormal costs some 100 cycles in
// every instruction that meets it: moments that have decayed so far make an update 2 to 9 times as
// slow.
void flush_denormals();
void restore_denormals();

}  // namespace warpstep::cpu
