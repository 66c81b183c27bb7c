# SPDX-License-Identifier: MIT
# Which systems uiw is built for. Refused here, before anything else is looked for, with what to do.
if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "uiw is for 64-bit systems only, and this compiler builds for another: choose a 64-bit target.")
endif()

# The preload library stands in front of functions as glibc has them. musl defines no macro of its own.
include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ features.h UIW_HAS_GLIBC)
if(NOT UIW_HAS_GLIBC)
  message(FATAL_ERROR "uiw needs glibc, and this compiler builds for another C library, such as musl: choose a target with glibc.")
endif()
