// SPDX-License-Identifier: MIT
// The open devices of this process: what fork has to care for, and news that concern all of them.
#pragma once

#include <functional>

namespace uiw::provider {

class Context;

// In the child of a fork a context is usable for new objects only: its connections belong to the parent.
void register_context(Context* context);
void unregister_context(Context* context);

// Under a lock: the function opens and closes none.
void for_each_context(const std::function<void(Context&)>& function);

}  // namespace uiw::provider
