// SPDX-License-Identifier: MIT
// What a fork leaves in the child: our threads are not there, and start again when they are needed.
#pragma once

namespace uiw::provider {

class Engine;

void register_engine(Engine* engine);
void unregister_engine(Engine* engine);

}  // namespace uiw::provider
