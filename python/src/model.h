// A trained model for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace warpstep::python {

void declare_model(nanobind::module_& module);

}  // namespace warpstep::python
