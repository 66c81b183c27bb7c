// SPDX-License-Identifier: MIT
// operator new in all its forms, which fails where a test says so. For test programs that have refusing_new.cc.
#pragma once

namespace uiw::test {

// Is there no memory for what the calling thread asks for now? The test defines it. It allocates nothing.
bool refuses_allocation();

}  // namespace uiw::test
