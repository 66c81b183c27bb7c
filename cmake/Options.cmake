# SPDX-License-Identifier: MIT
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(UIW_TESTS AUTO CACHE STRING "Build the tests: ON, OFF, or AUTO, which is ON where what they need is there")
set_property(CACHE UIW_TESTS PROPERTY STRINGS AUTO ON OFF)
option(UIW_MAN "Make and install the manual pages" ON)
option(UIW_WERROR "Treat warnings as errors" OFF)
option(UIW_FUZZERS "Build the libFuzzer targets (clang only)" OFF)
# From here on ON or OFF.
if(UIW_TESTS STREQUAL "AUTO")
  find_package(Catch2 QUIET)
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter)
  if(Catch2_FOUND AND Python3_Interpreter_FOUND)
    set(UIW_TESTS ON)
  else()
    set(UIW_TESTS OFF)
    message(STATUS "The tests are not built: they need Catch2 and Python 3.11 (-DUIW_TESTS=ON says what is missing)")
  endif()
endif()

set(UIW_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address' (with undefined), or 'thread'")
set_property(CACHE UIW_SANITIZE PROPERTY STRINGS "" address thread)

# Where stock libibverbs looks for provider plugins, and for the files that name them.
set(UIW_PROVIDER_DIR "${CMAKE_INSTALL_LIBDIR}/libibverbs" CACHE STRING "Directory of the libibverbs plugins")
set(UIW_DRIVER_CONF_DIR "" CACHE STRING "Directory of the libibverbs driver files; empty follows the prefix")

# Where zsh looks for completion functions. Debian's packages have share/zsh/vendor-completions.
set(UIW_ZSH_COMPLETION_DIR "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" CACHE STRING
    "Directory of the completion function of zsh")

# A debug-friendly optimised build: -O2 with symbols.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g -DNDEBUG")

# The library reaches its thread_local variables without a call into the loader, which also suits the handler of faults.
# They take 128 octets of the static TLS that libc reserves for libraries that a program opens later.
add_compile_options(-ftls-model=initial-exec)

# Optimised less, and with what a stack trace needs: that builds in half the time.
if(NOT UIW_SANITIZE STREQUAL "")
  add_compile_options(-O1 -g1)
endif()
if(UIW_SANITIZE STREQUAL "address")
  # Not vptr: it wants the type information of classes that stay hidden in their library.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(UIW_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT UIW_SANITIZE STREQUAL "")
  message(FATAL_ERROR "UIW_SANITIZE is '${UIW_SANITIZE}'; it may be empty, 'address' or 'thread'")
endif()

# The layers of the library are optimised as one: the data path goes through all of them for each message. The unit tests
# link the same objects, and not as one: so with g++ these have machine code too, and no source is compiled twice. The
# objects of other compilers have one or the other, so with tests they are not optimised as one.
if(UIW_SANITIZE STREQUAL "" AND NOT UIW_FUZZERS AND (NOT UIW_TESTS OR CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  include(CheckIPOSupported)
  check_ipo_supported(RESULT UIW_OPTIMISE_AS_ONE OUTPUT ignored LANGUAGES CXX)
endif()
if(UIW_OPTIMISE_AS_ONE AND UIW_TESTS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(UIW_FAT_OBJECTS ON)
endif()
function(uiw_optimise_as_one target)
  if(UIW_OPTIMISE_AS_ONE)
    set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
  endif()
  if(UIW_FAT_OBJECTS)
    target_compile_options(${target} PRIVATE -ffat-lto-objects)
  endif()
endfunction()

if(UIW_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "UIW_FUZZERS needs clang (-DCMAKE_CXX_COMPILER=clang++) with libclang-rt")
endif()
