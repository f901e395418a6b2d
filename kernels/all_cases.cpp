// The cases of Warpstep's own ops. A project with its own ops defines its own all().
#include "kernels/cases.h"

#include <map>

namespace warpstep::cases {
namespace {

// By name: the order in which files register must not change the order of the cases.
std::multimap<std::string, void (*)(List)>& folders() {
  static std::multimap<std::string, void (*)(List)> registered;
  return registered;
}

}  // namespace

Folder::Folder(std::string_view name, void (*add)(List list)) {
  folders().emplace(name, add);
}

std::vector<Case> all() {
  std::vector<Case> cases;
  for (const auto& [name, add] : folders()) add(List(cases, name));
  return cases;
}

}  // namespace warpstep::cases
