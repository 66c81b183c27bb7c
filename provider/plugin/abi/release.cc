// SPDX-License-Identifier: MIT
#include "provider/plugin/abi/release.h"

#include <dlfcn.h>

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

namespace {

// A release that changed the layouts or the table of operations and kept the private ABI, and a public function that is
// new in this release: a libibverbs that has the function is of this release or a later one.
struct Within {
  int abi;
  int release;
  const char* function;
};
constexpr Within kWithin[] = {
#define UIW_RELEASE_WITHIN_ABI(abi, release, function) {abi, release, #function},
#include "provider/plugin/abi/releases.def"
#undef UIW_RELEASE_WITHIN_ABI
};

bool has_function(const char* name) {
  void* libibverbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (libibverbs == nullptr) return false;
  const bool has = dlsym(libibverbs, name) != nullptr;
  dlclose(libibverbs);
  return has;
}

}  // namespace

int release() {
  int now = first_release(UIW_PABI);
  for (const Within& within : kWithin) {
    if (within.abi == UIW_PABI && within.release > now && has_function(within.function)) now = within.release;
  }
  return now;
}

}  // namespace uiw::plugin
