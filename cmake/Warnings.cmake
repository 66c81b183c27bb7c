# SPDX-License-Identifier: MIT
add_compile_options(-Wall -Wextra -Wshadow -Wundef -Wno-missing-field-initializers
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# Whether the locks are held that base/lock_annotations.h names.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)
endif()
if(UIW_WERROR)
  add_compile_options(-Werror)
endif()
