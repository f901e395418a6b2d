// The Python module: Warpstep's libraries as Python sees them. The package warpstep wraps it.
#include <nanobind/nanobind.h>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "python/src/loader.h"
#include "python/src/model.h"
#include "python/src/tensor.h"
#include "python/src/weights.h"

namespace warpstep::python {
namespace {

namespace nb = nanobind;

// The classes of engine/core/error.h with their messages; UsageError and ShapeError are ValueErrors
// as well, as callers of Python libraries expect.
void declare_errors(nb::module_& module) {
  const nb::exception<Error> base(module, "Error", PyExc_RuntimeError);
  const nb::object bad_value = nb::make_tuple(base, nb::handle(PyExc_ValueError));
  nb::exception<UsageError>(module, "UsageError", bad_value);
  nb::exception<ShapeError>(module, "ShapeError", bad_value);
  nb::exception<DataError>(module, "DataError", base);
  nb::exception<DeviceError>(module, "DeviceError", base);
  nb::exception<NumericError>(module, "NumericError", base);
}

}  // namespace
}  // namespace warpstep::python

NB_MODULE(_warpstep, module) {
  using namespace warpstep::python;
  declare_errors(module);
  declare_tensor(module);
  declare_loader(module);
  declare_weights(module);
  declare_model(module);
  module.attr("version") = warpstep::version();
  module.attr("commit") = warpstep::commit();
}
