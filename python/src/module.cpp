// The Python module: Warpstep's libraries as Python sees them. The package warpstep wraps it.
#include <nanobind/nanobind.h>

#include <exception>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "python/src/loader.h"
#include "python/src/model.h"
#include "python/src/tensor.h"
#include "python/src/weights.h"

namespace warpstep::python {
namespace {

namespace nb = nanobind;

// Names of files in messages may be no UTF-8: Python's own functions keep such bytes as surrogates.
template <class T>
nb::object declare_error(nb::module_& module, const char* name, nb::handle base) {
  const nb::exception<T> type(module, name, base);
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* of) {
        try {
          std::rethrow_exception(thrown);
        } catch (const T& error) {
          const std::string_view text = error.what();
          const auto size = static_cast<Py_ssize_t>(text.size());
          const auto message =
              nb::steal(PyUnicode_DecodeUTF8(text.data(), size, "surrogateescape"));
          PyErr_SetObject(static_cast<PyObject*>(of), message.ptr());
        }
      },
      type.ptr());
  return type;
}

// The classes of engine/core/error.h with their messages; UsageError and ShapeError are ValueErrors
// as well, as callers of Python libraries expect.
void declare_errors(nb::module_& module) {
  const nb::object base = declare_error<Error>(module, "Error", PyExc_RuntimeError);
  const nb::object bad_value = nb::make_tuple(base, nb::handle(PyExc_ValueError));
  declare_error<UsageError>(module, "UsageError", bad_value);
  declare_error<ShapeError>(module, "ShapeError", bad_value);
  declare_error<DataError>(module, "DataError", base);
  declare_error<DeviceError>(module, "DeviceError", base);
  declare_error<NumericError>(module, "NumericError", base);
}

}  // namespace
}  // namespace warpstep::python

NB_MODULE(_warpstep, module) {
  using namespace warpstep::python;
  // A process that is forked while another thread iterates ends with that thread's objects alive.
  nanobind::set_leak_warnings(false);
  declare_errors(module);
  declare_tensor(module);
  declare_loader(module);
  declare_weights(module);
  declare_model(module);
  module.attr("version") = warpstep::version();
  module.attr("commit") = warpstep::commit();
}
