// Numbers of Perfetto's messages that a trace of ours has, as its published .proto files give them
// (protos/perfetto/trace; checked against version 58).
#pragma once

#include <cstdint>

namespace warpstep::profiler::perfetto {

using Field = std::uint32_t;

constexpr Field trace_packet = 1;

namespace packet {
constexpr Field clock_snapshot = 6, timestamp = 8, sequence_id = 10, track_event = 11,
                interned_data = 12, sequence_flags = 13, render_stage = 53, clock_id = 58,
                track_descriptor = 60, first_on_sequence = 87, gpu_info = 128;
constexpr std::uint64_t state_cleared = 1, needs_state = 2;  // of sequence_flags
}  // namespace packet

namespace clocks {
constexpr Field clock = 1, primary = 2, id = 1, timestamp = 2;
constexpr std::uint64_t realtime = 1, monotonic = 3;
}  // namespace clocks

namespace track {
constexpr Field uuid = 1, name = 2, process = 3, thread = 4, parent = 5, counter = 8,
                child_ordering = 11, rank = 12;
constexpr Field process_pid = 1, process_name = 6, thread_pid = 1, thread_tid = 2, thread_name = 5;
constexpr std::uint64_t explicit_order = 3;  // of child_ordering: by rank
constexpr Field counter_unit = 3, counter_unit_name = 6;
}  // namespace track

namespace event {
constexpr Field category_iid = 3, annotation = 4, type = 9, name_iid = 10, track_uuid = 11,
                name = 23, counter = 30, counter_double = 44, flow = 47, terminating_flow = 48,
                gpu_correlation = 3000;
constexpr std::uint64_t begin = 1, end = 2, instant = 3, counter_value = 4;  // of type
constexpr Field annotation_name_iid = 1, annotation_uint = 3, annotation_int = 4,
                annotation_double = 5, annotation_text = 6;
constexpr Field submitted_stage = 1;  // of gpu_correlation
}  // namespace event

namespace interned {
constexpr Field categories = 1, event_names = 2, annotation_names = 3, graphics_contexts = 23,
                gpu_specifications = 24, kernels = 1000, kernel_args = 1001;
constexpr Field iid = 1, name = 2;  // of each
constexpr Field context_pid = 2, context_api = 3, specification_category = 4;
constexpr Field kernel_demangled = 3, kernel_architecture = 4;
constexpr std::uint64_t cuda = 4, compute = 2;
}  // namespace interned

namespace stage {
constexpr Field event_id = 1, duration = 2, context = 5, extra_data = 6, gpu_id = 11,
                queue_iid = 13, stage_iid = 14, kernel_iid = 19, name_iid = 20, launch = 21;
constexpr Field launch_grid = 1, launch_block = 2, launch_arg = 3;
constexpr Field arg_name_iid = 1, arg_uint = 4, arg_double = 5;
constexpr Field extra_name = 1, extra_value = 2;
}  // namespace stage

namespace gpu {
constexpr Field gpu = 1, name = 1, vendor = 2, architecture = 4;
}

}  // namespace warpstep::profiler::perfetto
