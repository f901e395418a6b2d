// safetensors files for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace warpstep::python {

void declare_weights(nanobind::module_& module);

}  // namespace warpstep::python
