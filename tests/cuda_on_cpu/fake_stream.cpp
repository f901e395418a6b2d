// The emulated runtime: streams and events. Work is done when it is issued, so nothing ever waits;
// streams and events only order the work of captures.
#include <memory>

#include "tests/cuda_on_cpu/fake_state.h"

namespace warpstep::fake_cuda {
namespace {

bool known(const State& s, cudaStream_t stream) {
  return is_default(stream) || s.streams.contains(stream);
}

cudaError_t destroy(State& s, cudaStream_t stream) {
  if (!s.streams.contains(stream)) return cudaErrorInvalidResourceHandle;
  if (const auto capture = stream->capture) {
    capture->invalid = true;
    if (capture->origin == stream) s.leave(capture);  // nothing can end it any more
  }
  s.streams.erase(stream);  // its work continues
  delete stream;
  return cudaSuccess;
}

// Waiting for a capturing stream, or querying it, is an error: captured work has not run.
cudaError_t may_wait_for(State& s, cudaStream_t stream) {
  if (!known(s, stream)) return cudaErrorInvalidResourceHandle;
  if (is_default(stream)) return s.unsafe_in_capture();
  if (!stream->capture) return cudaSuccess;
  stream->capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t may_wait_for(State& s, cudaEvent_t event) {
  if (!s.events.contains(event)) return cudaErrorInvalidResourceHandle;
  const cudaError_t unsafe = s.unsafe_in_capture();
  if (unsafe != cudaSuccess) return unsafe;
  return event->capture ? cudaErrorCapturedEvent : cudaSuccess;
}

Point point_of(State& s, cudaStream_t stream) {
  return so_far(s, stream);
}
Point point_of(State&, cudaEvent_t event) {
  return event->point;
}

// Of a stream or an event.
template <class Of>
cudaError_t wait_for(State& s, Of of) {
  const cudaError_t status = may_wait_for(s, of);
  if (status == cudaSuccess) finish(s, point_of(s, of));
  return status;
}
template <class Of>
cudaError_t query(State& s, Of of) {
  const cudaError_t status = may_wait_for(s, of);
  if (status != cudaSuccess) return status;
  if (s.deferral != 0) run_some(s);
  return is_done(point_of(s, of)) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t record(State& s, cudaEvent_t event, cudaStream_t stream) {
  if (!s.events.contains(event) || !known(s, stream)) return cudaErrorInvalidResourceHandle;
  event->capture.reset();
  event->tips.clear();
  event->recorded = true;
  event->time = std::chrono::steady_clock::now();
  event->point = {};
  if (is_default(stream) || !stream->capture) {
    event->point = so_far(s, stream);
    return cudaSuccess;
  }
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  event->capture = stream->capture;
  event->tips = stream->tips;
  return cudaSuccess;
}

// A stream that waits for an event of a capture joins that capture.
cudaError_t make_wait(State& s, cudaStream_t stream, cudaEvent_t event) {
  if (!s.events.contains(event) || !known(s, stream)) return cudaErrorInvalidResourceHandle;
  if (!event->recorded) return cudaSuccess;
  const auto own = is_default(stream) ? nullptr : stream->capture;
  if (!event->capture) {
    if (!own) {
      if (s.deferral != 0) defer(s, stream, {{}, {}, {event->point}});
      return cudaSuccess;
    }
    own->invalid = true;  // work issued before a capture is no part of its graph
    return cudaErrorStreamCaptureIsolation;
  }
  if (event->capture->ended) return cudaErrorCapturedEvent;
  if (is_default(stream)) return cudaErrorStreamCaptureImplicit;
  if (event->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (own && own != event->capture) {
    own->invalid = event->capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!own) stream->tips.clear();  // of an earlier capture that it had joined
  stream->capture = event->capture;
  stream->tips.insert(event->tips.begin(), event->tips.end());
  return cudaSuccess;
}

cudaError_t elapsed(State& s, float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (!s.events.contains(start) || !s.events.contains(end)) return cudaErrorInvalidResourceHandle;
  for (const auto* event : {start, end}) {
    if (event->capture) return cudaErrorCapturedEvent;
    if (!event->timing || !event->recorded) return cudaErrorInvalidResourceHandle;
    if (!is_done(event->point)) return cudaErrorNotReady;
  }
  *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

}  // namespace
}  // namespace warpstep::fake_cuda

namespace fake = warpstep::fake_cuda;
using fake::call;
using fake::State;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [=](State& s) {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUstream_st>();
    made->blocking = flags != cudaStreamNonBlocking;
    *stream = made.release();
    s.streams.insert(*stream);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [=](State&) {
    *least = 0;
    *greatest = fake::greatest_priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t status = cudaStreamCreateWithFlags(stream, flags);
  if (status == cudaSuccess)  // the runtime clamps it, too
    (*stream)->priority = std::clamp(priority, fake::greatest_priority, 0);
  return status;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call("cudaStreamGetPriority", [=](State& s) {
    if (!fake::known(s, stream)) return cudaErrorInvalidValue;
    *priority = stream == nullptr ? 0 : stream->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [=](State& s) { return fake::destroy(s, stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [=](State& s) { return fake::wait_for(s, stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [=](State& s) { return fake::query(s, stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [=](State& s) { return fake::make_wait(s, stream, event); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [=](State& s) {
    if (function == nullptr || !fake::known(s, stream)) return cudaErrorInvalidValue;
    return fake::issue(s, stream, "host function", [=] { function(data); });
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [](State& s) {
    const cudaError_t status = s.unsafe_in_capture();
    if (status == cudaSuccess) fake::finish_all(s);
    return status;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [=](State& s) {
    if (event == nullptr) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUevent_st>();
    made->timing = (flags & cudaEventDisableTiming) == 0;
    *event = made.release();
    s.events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [=](State& s) {
    if (s.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [=](State& s) { return fake::record(s, event, stream); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [=](State& s) { return fake::wait_for(s, event); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [=](State& s) { return fake::query(s, event); });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [=](State& s) { return fake::elapsed(s, ms, start, end); });
}

}  // extern "C"
