// SPDX-License-Identifier: MIT
// What libuiw.so.1 exports to its own plugin, interposer and tool. Everything else is hidden.
#pragma once

#define UIW_API __attribute__((visibility("default")))
