# SPDX-License-Identifier: MIT
add_compile_options(-Wall -Wextra -Wshadow -Wundef -Wno-missing-field-initializers
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(UIW_WERROR)
  add_compile_options(-Werror)
endif()
