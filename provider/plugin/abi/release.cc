// SPDX-License-Identifier: MIT
#include "provider/plugin/abi/release.h"

#include <dlfcn.h>

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

int release() {
  if (UIW_PABI != 59) return UIW_PABI == 34 ? 39 : UIW_PABI;
  // The additions to PABI 59 in release 62 came together with a new public function.
  void* libibverbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (libibverbs == nullptr) return 59;
  const bool longer = dlsym(libibverbs, "ibv_query_port_speed") != nullptr;
  dlclose(libibverbs);
  return longer ? 62 : 59;
}

}  // namespace uiw::plugin
