// SPDX-License-Identifier: MIT
#include "provider/plugin/abi/release.h"

#include <dlfcn.h>

#include <cstring>

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

// All releases before 57 have the private ABI 34. Those that differ in ibv_qp_ex have no function that others lack, so
// the library itself is asked where it looks for the mask.
unsigned late_send_ops() {
  constexpr unsigned kMost = 2;
  for (unsigned one = 0; UIW_PABI == 34 && one < kMost; ++one) {
    verbs_qp probe;
    std::memset(static_cast<void*>(&probe), 0, sizeof probe);
    probe.behind.words[one].comp_mask = VERBS_QP_EX;
    if (ibv_qp_to_qp_ex(&probe.qp) != nullptr) return one;
  }
  return kMost;
}

}  // namespace uiw::plugin
